"""The settings of the comparators, checked as `fedlsvi.config` checks those of Fed-LSVI.

Two families. Linear ones share β, λ, the clip and the packing with Fed-LSVI, so that a comparison
compares algorithms and not presets. Tabular ones have one scale c for their bonus.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from fedlsvi.checks import integer, number
from fedlsvi.config import Parameters, Preset, Settings
from fedlsvi.core.statistics import Packing

PRACTICAL = {
    "fed-ucbvi": 2.0**-4,
    "fedq-hoeffding": 2.0**-13,
    "fedq-bernstein": 2.0**-11,
    "fedq-advantage": 0.5,
    "lsvi-ucb-pp": 0.05,
    "coopts-phe": 0.0125,
    "coopts-lmc": 0.025,
}
"""The scale of exploration in the practical preset, from a study (docs/comparing.md): c of the
tabular algorithms and of LSVI-UCB++; σ of CoopTS, in units of the value range."""


class SharedSettings:
    """Checks and resolves settings as Fed-LSVI's.

    Attributes:
        shared: The settings that have the same name and meaning in `Settings`.
        fixed: Those that the algorithm fixes.
        pooled: How many agents' episodes one model is learned from; None is all of them.
    """

    shared: ClassVar[tuple[str, ...]]
    fixed: ClassVar[dict[str, Any]]
    pooled: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        self.common()

    def common(self, **own: Any) -> Settings:
        """Fed-LSVI's settings with the same numbers; making them checks them."""
        given = {name: getattr(self, name) for name in self.shared}
        less: dict[str, Any] = {"stationary": False, "policy": "explore"}
        return Settings(**less | given | self.fixed | own)

    def resolve(self, episodes: int, horizon: int, dim: int, one_hot: bool) -> Parameters:
        """The numbers in force on a problem of this size."""
        return self.common().resolve(episodes, horizon, dim, one_hot, self.pooled)


@dataclass(frozen=True)
class LinearSettings(SharedSettings):
    """The settings that every linear algorithm shares with Fed-LSVI; see `fedlsvi.FedLSVI`."""

    shared: ClassVar[tuple[str, ...]] = (
        *("n_agents", "beta", "taper", "lam", "xi", "value_range", "preset"),
        *("packing", "confidence", "c_beta"),
    )
    fixed: ClassVar = {"gamma": 1.0}

    n_agents: int = 1
    beta: float | Literal["theory"] | None = None
    taper: bool | Literal["auto"] = "auto"
    lam: float | None = None
    xi: float = 0.0
    value_range: float | None = None
    preset: Preset = "practical"
    packing: Packing | Literal["auto"] = "auto"
    confidence: float = 0.05
    c_beta: float = 1.0


@dataclass(frozen=True)
class ServedSettings(LinearSettings):
    """The settings of algorithms that Fed-LSVI's own server and agents play."""

    shared = (*LinearSettings.shared, "stationary")

    stationary: bool | Literal["auto"] = "auto"

    def resolve(
        self, episodes: int, horizon: int, dim: int, one_hot: bool, *, steady: bool = False
    ) -> Parameters:
        """The numbers in force on a problem of this size; see `config.Settings.resolve`."""
        return self.common().resolve(episodes, horizon, dim, one_hot, self.pooled, steady)


@dataclass(frozen=True)
class SingleAgentSettings(ServedSettings):
    """The settings of agents that learn alone: where ξ > 0, β is that of one agent.

    `stationary="auto"` is Fed-LSVI's in a black box, where together and alone are to be compared;
    where the table is known it is LSVI-UCB as published, with a model for every step.
    """

    pooled = 1


@dataclass(frozen=True)
class RandomisedSettings(SharedSettings):
    """Linear algorithms that explore by noise, whose scale takes the place of β.

    Attributes:
        samples: N, the number of perturbed models that the maximum is taken over.
        threshold: γ of the trigger; "auto" is T·log(MT)/(dM).
    """

    shared = ("n_agents", "lam", "value_range", "preset")
    fixed: ClassVar = {"gamma": 1.0, "beta": 0.0}  # the run reports the mean of the noisy models

    n_agents: int = 1
    lam: float | None = None
    value_range: float | None = None
    preset: Preset = "practical"
    samples: int = 10
    threshold: float | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("samples", self.samples, 1, "the number of perturbed models in the maximum")
        if self.threshold != "auto":
            number("threshold", self.threshold, -math.inf, '"auto" is T·log(MT)/(dM)')


@dataclass(frozen=True)
class TabularSettings(SharedSettings):
    """Algorithms that count, with one-hot features whatever the environment's own are.

    Attributes:
        c: Scale of the bonus; 1 is the paper's, and None takes the preset's.
    """

    algorithm: ClassVar[str]

    shared = ("n_agents", "value_range", "preset", "confidence")
    # Λ = I + N and β = 0: `w` then is Q itself, and its greedy policy is the algorithm's
    fixed: ClassVar = {"gamma": 1.0, "beta": 0.0, "lam": 1.0, "packing": "diagonal"}

    n_agents: int = 1
    c: float | None = None
    value_range: float | None = None
    preset: Preset = "practical"
    confidence: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.c is not None:
            number("c", self.c, 0.0, "the scale of the bonus; 1 is the paper's")

    @property
    def scale(self) -> float:
        """c in force."""
        if self.c is not None:
            return float(self.c)
        return 1.0 if self.preset == "paper" else PRACTICAL[self.algorithm]


def threshold_of(setting: float | str, p: Parameters) -> float:
    """The threshold of Coop-LSVI and CoopTS; "auto" is T·log(MT)/(dM)."""
    if setting != "auto":
        return float(setting)
    return p.episodes * math.log(p.n_agents * p.episodes) / (p.dim * p.n_agents)
