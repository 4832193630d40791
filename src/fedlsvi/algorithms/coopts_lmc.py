"""CoopTS-LMC: Coop-LSVI's exchange of data, exploration by Langevin Monte Carlo.

Hsu, Wang, Pajic, Xu (2024), "Randomized exploration in cooperative multi-agent reinforcement
learning", NeurIPS 2024, arXiv 2404.10728. Each agent keeps N models and, every episode, moves each
of them J noisy gradient steps w ← w − 2η(Λw − b) + √(2η/β_K)·N(0, I) from where it stood, then acts
greedily on the largest of the N values. Data is shared as in CoopTS-PHE.

Checked: regret and communication as CoopTS-PHE (abstract); J = 4 (public code, which is neural and
not used here). Derived: the law of J steps is an exact Gaussian, drawn at once (`langevin`).
From memory: η = 1/(4·λ_max(Λ)), models that start at 0, 1/√β_K = Õ(H√d). We write 1/β_K = 2σ², so
that the law after many steps is nearly N(ŵ, σ²Λ⁻¹), PHE's with the same σ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedlsvi.algorithms.coop_lsvi import scalars
from fedlsvi.algorithms.coopts_phe import PHEAgent, PHESettings, RandomisedPlay
from fedlsvi.algorithms.shared import thompson_kernels
from fedlsvi.algorithms.shared.comparator import Comparator
from fedlsvi.algorithms.shared.regret_meter import GroupMeter
from fedlsvi.checks import integer
from fedlsvi.protocol.plan import Plan

__all__ = ["CoopTSLMC", "scalars"]


@dataclass(frozen=True)
class LMCSettings(PHESettings):
    """Settings of CoopTS-LMC, in addition to `PHESettings`; 1/β_K = 2σ².

    Attributes:
        steps: J, Langevin steps per episode.
    """

    algorithm = "coopts-lmc"

    steps: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("steps", self.steps, 1, "the number of Langevin steps per episode")


class LMCAgent(PHEAgent):
    """An agent whose models move on by Langevin steps before every episode."""

    stream = 2

    def __init__(self, plan: Plan, m: int, meter: GroupMeter, settings: LMCSettings) -> None:
        p = plan.parameters
        self.steps, self.chain = settings.steps, np.zeros((p.horizon, settings.samples, p.dim))
        super().__init__(plan, m, meter, settings)

    def renew(self) -> None:
        """J steps of every model with the noise of the next episode."""
        thompson_kernels.normals(self.seed, self.stream, self.m, self.t + 1, self.noise.ravel())
        s, v, diagonal = self.sums, self.sums.values, self.sums.gram.ndim == 2
        kernel = thompson_kernels.lmc_diagonal if diagonal else thompson_kernels.lmc_dense
        data = (v.index if diagonal else v.phi, s.u, s.response, s.gram)
        result = (s.w, self.chain, v.values, v.policy)
        kernel(*data, self.sigma, self.steps, self.noise, v.ceilings, *result)

    def state(self) -> dict[str, np.ndarray]:
        policy, values = self.policy, self.sums.values.values
        moved = {"chain": self.chain, "policy": policy, "values": values, "mean": self.sums.w}
        return super().state() | moved

    def restore(self, state: dict[str, np.ndarray]) -> None:
        super().restore(state)  # plans once more, but the models have moved already
        self.chain[:], self.policy[:] = state["chain"], state["policy"]
        self.sums.values.values[:], self.sums.w[:] = state["values"], state["mean"]


class LMCPlay(RandomisedPlay):
    """With agents whose models move."""

    algorithm = "coopts-lmc"
    agent_type = LMCAgent


class CoopTSLMC(Comparator):
    """Thompson sampling by Langevin Monte Carlo, raw data shared as in Coop-LSVI."""

    name = "coopts-lmc"
    settings_type = LMCSettings
    play_type = LMCPlay
    sums_of = "agents"
    published = True
