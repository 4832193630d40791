"""UCRL-VTR: value-targeted regression on what all agents saw, pooled after every episode.

Ayoub, Jia, Szepesvári, Wang, Yang (2020), "Model-based reinforcement learning with value-targeted
regression", ICML 2020. It is `fed_ucrl_vtr`, which has the equations, synchronised after every
episode; for one agent, the algorithm of the paper.

Checked: value targets, the confidence set by regression on them, and regret Õ(d√(H³·steps)) for
linear mixtures (abstract). From memory: the radius, and that V is renewed after every episode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedlsvi.algorithms.fed_ucrl_vtr import FedUCRLVTR, VTRPlay, VTRSettings, scalars

__all__ = ["UCRLVTR", "scalars"]


@dataclass(frozen=True)
class PooledVTRSettings(VTRSettings):
    """Settings of UCRL-VTR: `VTRSettings`, whose `growth` is not used."""

    algorithm: ClassVar[str] = "ucrl-vtr"


class PooledVTRPlay(VTRPlay):
    """Rounds of one episode."""

    algorithm = "ucrl-vtr"

    def log_growth(self) -> float:
        return 0.0


class UCRLVTR(FedUCRLVTR):
    """Value-targeted regression, pooled after every episode. Settings: `PooledVTRSettings`."""

    name = "ucrl-vtr"
    settings_type = PooledVTRSettings
    play_type = PooledVTRPlay
