"""The settings of the comparators, checked as `fedlsvi.config` checks those of Fed-LSVI.

Two families. Linear ones share β, λ, the clip and the packing with Fed-LSVI, so that a comparison
compares algorithms and not presets. Tabular ones have one scale c for their bonus.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal

from fedlsvi.checks import integer, number
from fedlsvi.config import Parameters, Settings
from fedlsvi.groups import (
    CommonSettings,
    NoiseSettings,
    PackingSettings,
    ProblemSize,
    SettingGroup,
    StationarySettings,
    WidthSettings,
)

PRACTICAL = {
    "fed-ucbvi": 2.0**-4,
    "ucbvi": 2.0**-5,
    "q-ucb2": 2.0**-14,
    "ucrl-vtr": 0.0125,
    "fed-ucrl-vtr": 0.0125,
    "fedq-hoeffding": 2.0**-13,
    "fedq-bernstein": 2.0**-11,
    "fedq-advantage": 0.5,
    "lsvi-ucb-pp": 0.05,
    "coopts-phe": 0.0125,
    "coopts-lmc": 0.025,
}
"""The scale of exploration in the practical preset: c of the tabular algorithms and of LSVI-UCB++;
σ of CoopTS, in units of the value range. From a study (studies/comparators.md)."""


class SharedSettings(SettingGroup):
    """Checks and resolves settings as Fed-LSVI's, where they have the same names.

    Attributes:
        fixed: Those of Fed-LSVI's that the algorithm fixes.
        pooled: How many agents' episodes one model is learned from; None is all of them.
    """

    fixed: ClassVar[dict[str, Any]]
    pooled: ClassVar[int | None] = None

    def check(self) -> None:
        """What Fed-LSVI would refuse, too."""
        super().check()
        self.common()

    def common(self, **own: Any) -> Settings:
        """Fed-LSVI's settings with the same numbers; making them checks them."""
        names = {field.name for field in fields(Settings)}
        given = {name: value for name, value in vars(self).items() if name in names}
        usual: dict[str, Any] = {
            "stationary": False, "policy": "explore", "diversity": 0.0, "bonus": "constant",
        }  # fmt: skip
        return Settings(**usual | self.fixed | given | own)

    def resolve(self, problem: ProblemSize) -> Parameters:
        """The numbers in force on this problem."""
        return self.common().resolve(replace(problem, pooled=self.pooled))


@dataclass(frozen=True)
class LinearSettings(SharedSettings, PackingSettings, WidthSettings, CommonSettings):
    """The settings that every linear algorithm shares with Fed-LSVI."""

    fixed: ClassVar = {"gamma": 1.0}


@dataclass(frozen=True)
class ServedSettings(StationarySettings, NoiseSettings, LinearSettings):
    """The settings of algorithms that Fed-LSVI's own server and agents play."""


@dataclass(frozen=True)
class SingleAgentSettings(ServedSettings):
    """The settings of agents that learn alone: where ξ > 0, β is that of one agent.

    `stationary="auto"` is Fed-LSVI's in a black box, where together and alone are to be compared;
    where the table is known it is LSVI-UCB as published, with a model for every step.
    """

    pooled = 1


@dataclass(frozen=True)
class RandomisedSettings(SharedSettings, StationarySettings, CommonSettings):
    """Linear algorithms that explore by noise, whose scale takes the place of β.

    Attributes:
        lam: Ridge λ > 0; None takes the preset's.
        samples: N, the number of perturbed models that the maximum is taken over.
        threshold: γ of the trigger; "auto" is T·log(MT)/(dM).
    """

    fixed: ClassVar = {"gamma": 1.0, "beta": 0.0}  # the run reports the mean of the noisy models

    lam: float | None = None
    samples: int = 10
    threshold: float | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("samples", self.samples, 1, "the number of perturbed models in the maximum")
        if self.threshold != "auto":
            number("threshold", self.threshold, -math.inf, '"auto" is T·log(MT)/(dM)')


@dataclass(frozen=True)
class TabularSettings(SharedSettings, CommonSettings):
    """Algorithms that count, with one-hot features whatever the environment's own are.

    Attributes:
        c: Scale of the bonus; 1 is the paper's, and None takes the preset's.
        confidence: p of the theorems.
    """

    algorithm: ClassVar[str]

    # Λ = I + N and β = 0: `w` then is Q itself, and its greedy policy is the algorithm's
    fixed: ClassVar = {"gamma": 1.0, "beta": 0.0, "lam": 1.0, "packing": "diagonal"}

    c: float | None = None
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
