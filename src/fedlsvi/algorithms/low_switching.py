"""Low-switching LSVI-UCB: a new policy only when some determinant has doubled.

Gao, Xie, Du, Yang (2021), "A provably efficient algorithm for linear Markov decision process with
low switching cost", arXiv 2101.00494. LSVI-UCB whose policy is recomputed, from all data and for
all steps, only if det Λ_h > η·det Λ_h(last switch) for some h. One agent, no communication; M
agents are M copies. A record ends where some agent switches; `run.counts` has the switches of all
agents and the most that one of them made.

Checked: regret Õ(√(d³H⁴K)) and O(dH log K) switches are in the abstract. From memory: η = 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedlsvi.algorithms.shared.comparator import Comparator
from fedlsvi.algorithms.shared.settings import SingleAgentSettings
from fedlsvi.algorithms.shared.single_agent import SingleAgentPlay, strictly_above
from fedlsvi.checks import number
from fedlsvi.envs.continuous import ContinuousMDP
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.gym.world import GymWorld
from fedlsvi.run import Run


@dataclass(frozen=True)
class LowSwitchingSettings(SingleAgentSettings):
    """Settings of low-switching LSVI-UCB, in addition to `SingleAgentSettings`.

    Attributes:
        eta: η, the growth of a determinant after which the policy is renewed.
    """

    eta: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        number("eta", self.eta, 1.0, "eta=2 replans when a determinant has doubled")


class LowSwitchingPlay(SingleAgentPlay):
    """The trigger is det Λ_h > η·det Λ_h(last)."""

    algorithm = "low-switching"

    def log_threshold(self) -> float:
        return strictly_above(math.log(self.settings.eta))


class LowSwitching(Comparator):
    """LSVI-UCB with determinant doubling; each agent alone. Other settings: as `FedLSVI`."""

    name = "low-switching"
    settings_type = LowSwitchingSettings
    play_type = LowSwitchingPlay
    worlds = (FiniteMDP, ContinuousMDP, GymWorld)
    masks = "reported"
    published = True


def scalars(run: Run) -> dict[str, int]:
    """Nothing is sent."""
    return {}
