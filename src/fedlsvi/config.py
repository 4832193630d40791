"""The numbers of a run: what the user may set, how it is checked, what it becomes.

`Settings` holds what was asked for (`gamma="auto"`, a preset); `Parameters` holds the numbers in
force once the problem is known. There are two presets. `paper` uses the theorems' λ = 1, β and clip
[0, H], lower where a `value_range` is given. `practical` learns faster (docs/defaults.md has the
study behind it).
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fedlsvi.checks import choice, finite, integer, number, plain
from fedlsvi.core import theory
from fedlsvi.core.statistics import PACKINGS, Packing
from fedlsvi.core.value import ceilings
from fedlsvi.errors import InvalidSetting

Preset = Literal["practical", "paper"]
Overshoot = Literal["cut", "keep"]

SYMBOLS = {"gamma": "γ", "beta": "β", "lam": "λ", "xi": "ξ", "n_agents": "M", "episodes": "T",
           "horizon": "H", "dim": "d"}  # fmt: skip

PRACTICAL_LAM = 0.001
"""λ of the practical preset: an unvisited direction is worth β/√λ ≈ 32β, three value ranges."""

PRACTICAL_BETA = 0.1
"""β of the practical preset, in units of the value range."""


@dataclass(frozen=True)
class Settings:
    """What a user asks of Fed-LSVI; `fedlsvi.FedLSVI` explains each. None means the preset's."""

    n_agents: int
    gamma: float | Literal["auto"] = "auto"
    beta: float | Literal["theory"] | None = None
    lam: float | None = None
    xi: float = 0.0
    value_range: float | None = None
    preset: Preset = "practical"
    overshoot: Overshoot = "cut"
    packing: Packing | Literal["auto"] = "auto"
    confidence: float = 0.05
    c_beta: float = 1.0

    def __post_init__(self) -> None:
        for key, value in list(vars(self).items()):
            object.__setattr__(self, key, plain(value))
        integer("n_agents", self.n_agents, 1, "the number of agents")
        if self.gamma != "auto":
            number("gamma", self.gamma, 1.0, 'gamma="auto" is max(T/(Md), 1)')
        if self.beta is not None and self.beta != "theory":
            number("beta", self.beta, 0.0, 'leave it out for the preset\'s, or give "theory"')
        if self.lam is not None:
            number("lam", self.lam, 0.0, "lam=1 is the paper's", strict=True)
            if not finite(1.0 / self.lam):
                raise InvalidSetting(
                    f"lam is {self.lam!r}, so that 1/lam is infinite: enlarge it", code="bad-lam"
                )
        number("xi", self.xi, 0.0, "xi=0 if all agents share one linear MDP", most=1.0)
        if self.value_range is not None:
            hint = "give the largest return of an episode, in rewards mapped to [0, 1]"
            number("value_range", self.value_range, 0.0, hint, strict=True)
        choice("preset", self.preset, ("practical", "paper"))
        choice("overshoot", self.overshoot, ("cut", "keep"))
        choice("packing", self.packing, ("auto", *PACKINGS))
        number("c_beta", self.c_beta, 0.0, "the constant of the theorems' beta", strict=True)
        hint = "the theorems hold with probability 1 − 2·confidence"
        number("confidence", self.confidence, 0.0, hint, most=1.0, strict=True)

    def resolve(
        self, episodes: int, horizon: int, dim: int, one_hot: bool, pooled: int | None = None
    ) -> Parameters:
        """The numbers in force on a problem of this size.

        Args:
            episodes: T, per agent.
            horizon: H.
            dim: d, the dimension of the features.
            one_hot: Whether every φ(x,a) is a unit vector.
            pooled: How many agents' episodes one model is learned from; None is all of them. Only
                these can differ from one another, so only they widen β where ξ > 0.
        """
        integer("episodes", episodes, 1, "the number of episodes per agent")
        M, T, H, d = self.n_agents, int(episodes), horizon, dim
        packing = self.packing
        if packing == "auto":
            packing = "diagonal" if one_hot else "packed"
        elif packing == "diagonal" and not one_hot:
            raise InvalidSetting(
                'packing="diagonal" needs one-hot features, and these are not: use packing="auto"',
                code="bad-packing",
            )
        gamma = theory.gamma_auto(M, d, T) if self.gamma == "auto" else float(self.gamma)
        paper = self.preset == "paper"
        lam = self.lam if self.lam is not None else (1.0 if paper else PRACTICAL_LAM)
        beta = self.beta if self.beta is not None else ("theory" if paper else None)
        pooled = M if pooled is None else pooled
        if beta == "theory":
            beta = theory.beta_theory(d, H, M, T, self.xi, self.confidence, self.c_beta, pooled)
        elif beta is None:
            top = float(H) if self.value_range is None else min(float(H), self.value_range)
            beta = PRACTICAL_BETA * top + theory.misspecification_width(d, H, pooled, T, self.xi)
        if not finite(beta):
            raise InvalidSetting(
                f"beta would be {beta} at confidence={self.confidence!r} and "
                f"c_beta={self.c_beta!r}: give a larger confidence or a smaller c_beta",
                code="bad-beta",
            )
        return Parameters(
            n_agents=M,
            episodes=T,
            horizon=H,
            dim=d,
            gamma=gamma,
            beta=float(beta),
            lam=float(lam),
            xi=self.xi,
            value_range=self.value_range,
            preset=self.preset,
            overshoot=self.overshoot,
            packing=packing,
            confidence=self.confidence,
        )


@dataclass(frozen=True)
class Parameters:
    """The numbers in force: M, T, H, d, γ, β, λ, ξ and how values are clipped and sent."""

    n_agents: int
    episodes: int
    horizon: int
    dim: int
    gamma: float
    beta: float
    lam: float
    xi: float
    value_range: float | None
    preset: Preset
    overshoot: Overshoot
    packing: Packing
    confidence: float

    @property
    def ceilings(self) -> np.ndarray:
        """The upper clip of each step, (H,)."""
        return ceilings(self.horizon, self.value_range, self.preset)


def cohort_count(cohorts: Any, n_agents: int) -> int:
    """A number of cohorts from 1 to M; None is one."""
    if cohorts is None:
        return 1
    return integer("cohorts", cohorts, 1, "at most one per agent", most=n_agents)


def shown_parameters(settings: Container[str], parameters: Mapping[str, Any]) -> list[str]:
    """γ, β and λ as text, as far as an algorithm with these settings uses them."""
    return [
        f"{SYMBOLS[key]} = {parameters[key]:.4g}"
        for key in ("gamma", "beta", "lam")
        if key in settings or (key == "beta" and parameters[key] > 0.0)
    ]
