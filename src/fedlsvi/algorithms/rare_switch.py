"""LSVI-UCB-RareSwitch: as few policies as the budget allows.

Wang, Zhou, Gu (2021), "Provably efficient reinforcement learning with linear function approximation
under adaptivity constraints", NeurIPS 2021. Low-switching LSVI-UCB whose threshold follows from a
budget of B policies: η = (1 + K/d)^{dH/B}, so that the determinants cannot call for more than B.
K is the number of episodes of an agent. B = dH·log(HK) keeps the regret of LSVI-UCB. Records and
counts are low-switching's.

Checked: the abstract has regret Õ(√(d³H³T[1 + T/(dH)]^{dH/B})) for T = HK interactions; the factor
in brackets is our η, since T/(dH) = K/d. From memory: the algorithm itself, and the strict
inequality. With λ ≠ 1 we use (1 + K/(λd))^{dH/B}, the growth that λ allows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from fedlsvi.algorithms.low_switching import scalars
from fedlsvi.algorithms.shared.comparator import Comparator
from fedlsvi.algorithms.shared.settings import SingleAgentSettings
from fedlsvi.algorithms.shared.single_agent import SingleAgentPlay, strictly_above
from fedlsvi.checks import integer
from fedlsvi.config import Parameters
from fedlsvi.envs.continuous import ContinuousMDP
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.gym.world import GymWorld

__all__ = ["RareSwitch", "log_growth", "scalars"]


@dataclass(frozen=True)
class RareSwitchSettings(SingleAgentSettings):
    """Settings of RareSwitch, in addition to `SingleAgentSettings`.

    Attributes:
        budget: B, the most policies an agent may use; "auto" is ⌈dH·log(HK)⌉.
    """

    budget: int | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.budget != "auto":
            integer("budget", self.budget, 1, '"auto" is dH·log(H·episodes)')


def log_growth(p: Parameters, budget: int | str) -> float:
    """log η, η = (1 + K/(λd))^{dH/B}."""
    if isinstance(budget, str):
        budget = max(1, math.ceil(p.dim * p.horizon * math.log(p.horizon * p.episodes)))
    return p.dim * p.horizon / budget * math.log1p(p.episodes / (p.lam * p.dim))


class RareSwitchPlay(SingleAgentPlay):
    """The trigger is det Λ_h > η·det Λ_h(last), with η from the budget."""

    algorithm = "rare-switch"

    def log_threshold(self) -> float:
        return strictly_above(log_growth(self.plan.parameters, self.settings.budget))


class RareSwitch(Comparator):
    """LSVI-UCB with at most `budget` policies; each agent alone. Other settings: as `FedLSVI`."""

    name = "rare-switch"
    settings_type = RareSwitchSettings
    play_type = RareSwitchPlay
    worlds = (FiniteMDP, ContinuousMDP, GymWorld)
    masks = "reported"
    published = True
