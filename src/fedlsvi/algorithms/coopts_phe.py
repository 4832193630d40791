"""CoopTS-PHE: Coop-LSVI's exchange of data, exploration by perturbed histories.

Hsu, Wang, Pajic, Xu (2024), "Randomized exploration in cooperative multi-agent reinforcement
learning", NeurIPS 2024, arXiv 2404.10728. Every episode each agent regresses on targets with
Gaussian noise, N times, and acts greedily on the largest of the N values. Data is shared as in
Coop-LSVI: all raw transitions, when log det(Λser + Λloc)/det(Λser) ≥ γ/(t − t_sync) for some h.

Checked: regret Õ(d^{3/2}H²√(MK)) and communication Õ(dHM²) (abstract); γ = K·log(MK)/(dM) and
N = 10 (public code, which is neural; nothing of it is used here, and its agents share one replay
buffer after the first synchronisation without paying for it). Derived: with λ = 1 the perturbed
regression is exactly w ~ N(ŵ, σ²Λ⁻¹); for other λ that needs prior noise of variance σ²/λ, which we
take. From memory: the clip at H − h + 1 (that of the practical preset) and σ = Õ(H√d).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedlsvi.algorithms.coop_lsvi import CoopAgent, CoopPlay, scalars
from fedlsvi.algorithms.shared import thompson_kernels
from fedlsvi.algorithms.shared.comparator import Comparator
from fedlsvi.algorithms.shared.lsvi_sums import rebuild
from fedlsvi.algorithms.shared.regret_meter import GroupMeter
from fedlsvi.algorithms.shared.settings import PRACTICAL, RandomisedSettings
from fedlsvi.checks import number
from fedlsvi.config import Parameters
from fedlsvi.experience.kinds import empty_values
from fedlsvi.experience.values import TabularValues
from fedlsvi.protocol.plan import Plan

__all__ = ["CoopTSPHE", "scalars"]

STREAM = 1
"""Stream of the keyed generator; the environments draw from stream 0."""


@dataclass(frozen=True)
class PHESettings(RandomisedSettings):
    """Settings of CoopTS-PHE, in addition to `RandomisedSettings`.

    Attributes:
        sigma: Scale of the noise; None takes the preset's.
    """

    algorithm: ClassVar[str] = "coopts-phe"

    sigma: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sigma is not None:
            number("sigma", self.sigma, 0.0, "sigma=0 does not explore at all")

    def scale(self, p: Parameters) -> float:
        """σ: as given, H√d in the paper's preset, or a fraction of the value range."""
        if self.sigma is not None:
            return float(self.sigma)
        if p.preset == "paper":
            return float(p.horizon * np.sqrt(p.dim))
        top = p.horizon if p.value_range is None else min(float(p.horizon), p.value_range)
        return PRACTICAL[self.algorithm] * top


class PHEAgent(CoopAgent):
    """An agent that perturbs its value functions again before every episode."""

    strict = False
    stream = STREAM

    def __init__(self, plan: Plan, m: int, meter: GroupMeter, settings: PHESettings) -> None:
        p = plan.parameters
        self.sigma, self.seed = settings.scale(p), plan.seed
        self.noise = np.empty((p.horizon, settings.samples, p.dim))
        super().__init__(plan, m, meter, settings)

    def renew(self) -> None:
        """Draw the noise of the next episode, and plan with it."""
        thompson_kernels.normals(self.seed, self.stream, self.m, self.t + 1, self.noise.ravel())
        s, v, diagonal = self.sums, self.sums.values, self.sums.gram.ndim == 2
        kernel = thompson_kernels.phe_diagonal if diagonal else thompson_kernels.phe_dense
        data = (v.index if diagonal else v.phi, s.u, s.response, s.gram)
        kernel(*data, self.sigma, self.noise, v.ceilings, s.w, v.values, v.policy)


class RandomisedPlay(CoopPlay):
    """Coop-LSVI's protocol. The run reports the mean model and its greedy policy."""

    def __init__(self, plan: Plan, settings: Any, keep_models: bool) -> None:
        super().__init__(plan, settings, keep_models)
        self.values = empty_values(plan)

    def followed(self) -> np.ndarray:
        return self.agents[0].policy

    def report(self) -> tuple[np.ndarray, np.ndarray]:
        sums = self.agents[0].sums
        assert isinstance(self.values, TabularValues)
        w, gram = sums.model()
        rebuild(self.values, w, gram, sums.packing)
        return sums.w, sums.grams


class PHEPlay(RandomisedPlay):
    """With agents that perturb."""

    algorithm = "coopts-phe"
    agent_type = PHEAgent


class CoopTSPHE(Comparator):
    """Thompson sampling by perturbed histories, raw data shared as in Coop-LSVI."""

    name = "coopts-phe"
    settings_type = PHESettings
    play_type = PHEPlay
    sums_of = "agents"
    published = True
