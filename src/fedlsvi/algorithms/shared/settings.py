"""What a user may ask of the comparators, checked in the words of `fedlsvi.config`.

Two families. Linear ones share β, λ, the clip and the packing with Fed-LSVI, so that a comparison
compares algorithms and not presets. Tabular ones have one scale c for their bonus.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal

from fedlsvi.checks import integer, number
from fedlsvi.config import Parameters, Preset, Settings
from fedlsvi.core.statistics import Packing


@dataclass(frozen=True)
class LinearSettings:
    """The settings that every linear algorithm shares with Fed-LSVI; see `fedlsvi.FedLSVI`."""

    n_agents: int = 1
    beta: float | Literal["theory"] | None = None
    lam: float | None = None
    xi: float = 0.0
    value_range: float | None = None
    preset: Preset = "practical"
    packing: Packing | Literal["auto"] = "auto"
    confidence: float = 0.05
    c_beta: float = 1.0

    def __post_init__(self) -> None:
        self._common()

    def _common(self, **own: Any) -> Settings:
        """Fed-LSVI's settings with the same numbers: its checks are everybody's."""
        names = [f.name for f in dataclasses.fields(LinearSettings)]
        return Settings(**{name: getattr(self, name) for name in names}, **{"gamma": 1.0, **own})

    def resolve(self, episodes: int, horizon: int, dim: int, one_hot: bool) -> Parameters:
        """The numbers in force on a problem of this size."""
        return self._common().resolve(episodes, horizon, dim, one_hot)


@dataclass(frozen=True)
class RandomisedSettings:
    """Linear algorithms that explore by noise: the scale of the noise takes the place of β."""

    n_agents: int = 1
    lam: float | None = None
    value_range: float | None = None
    preset: Preset = "practical"
    samples: int = 10
    threshold: float | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        self._common()
        integer("samples", self.samples, 1, "how many perturbed models the maximum is taken over")
        if self.threshold != "auto":
            number("threshold", self.threshold, -math.inf, '"auto" is T·log(MT)/(dM)')

    def _common(self) -> Settings:
        names = ("n_agents", "lam", "value_range", "preset")
        return Settings(**{name: getattr(self, name) for name in names}, gamma=1.0, beta=0.0)

    def resolve(self, episodes: int, horizon: int, dim: int, one_hot: bool) -> Parameters:
        """The numbers in force; β = 0, because what is reported is the mean of the noise."""
        return self._common().resolve(episodes, horizon, dim, one_hot)


@dataclass(frozen=True)
class TabularSettings:
    """Algorithms that count: one-hot features whatever the environment's own are."""

    n_agents: int = 1
    c: float = 1.0
    value_range: float | None = None
    preset: Preset = "practical"
    confidence: float = 0.05

    def __post_init__(self) -> None:
        self._common()
        number("c", self.c, 0.0, "the scale of the bonus; 1 is the paper's form")

    def _common(self) -> Settings:
        names = ("n_agents", "value_range", "preset", "confidence")
        # Λ = I + N and β = 0: `w` then is Q itself, and its greedy policy is the algorithm's
        return Settings(
            **{name: getattr(self, name) for name in names},
            gamma=1.0, beta=0.0, lam=1.0, packing="diagonal",
        )  # fmt: skip

    def resolve(self, episodes: int, horizon: int, dim: int, one_hot: bool) -> Parameters:
        """The numbers in force."""
        return self._common().resolve(episodes, horizon, dim, one_hot)


def threshold_of(setting: float | str, p: Parameters) -> float:
    """Coop-LSVI's and CoopTS's threshold; "auto" is T·log(MT)/(dM)."""
    if setting != "auto":
        return float(setting)
    return p.episodes * math.log(p.n_agents * p.episodes) / (p.dim * p.n_agents)
