"""FedQ-Bernstein: FedQ-Hoeffding with a bonus that uses the variance of the next value.

Zheng, Gao, Xue, Yang (2024), arXiv 2312.15023, as FedQ-Hoeffding. Agents also send μ, the mean of
V²_{h+1}. With W = W₁/N − (W₂/N)², W₁ = Σnμ, W₂ = Σnv, the bonus of a round that takes a cell from
t₀ to t₁ visits is B = ½(β_{t₁} − Π(1 − α)·β_{t₀}) with

    β_t = c·min{√((Hι/t)(W + H)) + ι(√(H⁷SA) + √(MSAH⁶))/t, √(H³ι/t)}.

Checked: the algorithm and its regret Õ(√(H³SAMT)) in steps (paper). The paper prints (W + H)
outside the root; the first branch could then never be the smaller one, so it stands inside here.
From memory: ι = log(2SAHMT/p), and that β_{t₀} is the one computed at the cell's last update.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from fedlsvi.algorithms.fedq_hoeffding import HoeffdingPlay, HoeffdingServer, learn
from fedlsvi.algorithms.shared import fedq
from fedlsvi.algorithms.shared.channel import Message
from fedlsvi.algorithms.shared.comparator import Comparator
from fedlsvi.algorithms.shared.fedq import TabularServer
from fedlsvi.algorithms.shared.settings import TabularSettings
from fedlsvi.core.statistics import read_only
from fedlsvi.protocol.plan import Plan
from fedlsvi.run import Run


@dataclass(frozen=True)
class BernsteinSettings(TabularSettings):
    """Settings of FedQ-Bernstein: `TabularSettings`."""

    algorithm = "fedq-bernstein"


@njit(cache=True, nogil=True)
def bernstein(Q, N, policy, visits, value, square, sums, squares, widths, c, iota):  # type: ignore[no-untyped-def]
    """Add B to the cells of the round, which `learn` has moved to N visits without a bonus."""
    n_agents, horizon, n_states = visits.shape
    n_actions, H = Q.shape[2], float(horizon)
    extra = np.sqrt(H**7 * n_states * n_actions) + np.sqrt(n_agents * n_states * n_actions * H**6)
    for h in range(horizon):
        for x in range(n_states):
            a, n = policy[h, x], visits[:, h, x].sum()
            if n == 0:
                continue
            for m in range(n_agents):
                sums[h, x, a] += visits[m, h, x] * value[m, h, x]
                squares[h, x, a] += visits[m, h, x] * square[m, h, x]
            t = N[h, x, a]
            kept = 1.0
            for s in range(t - n + 1, t + 1):
                kept *= (s - 1.0) / (H + s)  # 1 − α_s
            variance = max(squares[h, x, a] / t - (sums[h, x, a] / t) ** 2, 0.0)
            sharp = np.sqrt(H * iota / t * (variance + H)) + iota * extra / t
            width = c * min(sharp, np.sqrt(H**3 * iota / t))
            Q[h, x, a] += 0.5 * (width - kept * widths[h, x, a])
            widths[h, x, a] = width


class BernsteinServer(HoeffdingServer):
    """Keeps W₁, W₂ and the last β of every cell."""

    KEPT = (*HoeffdingServer.KEPT, "sums", "squares", "widths")

    def __init__(self, plan: Plan, c: float) -> None:
        super().__init__(plan, c)
        self.sums, self.squares = np.zeros(self.Q.shape), np.zeros(self.Q.shape)
        self.widths = np.zeros(self.Q.shape)

    def update(  # type: ignore[override]
        self, visits: np.ndarray, reward: np.ndarray, value: np.ndarray, square: np.ndarray
    ) -> None:
        """The end of a round; `square` are the means μ^m of V²."""
        learn(self.Q, self.N, self.policy, visits, reward, value, 0.0)
        kept = (self.sums, self.squares, self.widths)
        means = map(read_only, (visits, value, square))
        bernstein(self.Q, self.N, self.policy, *means, *kept, self.c, self.iota)
        self.greedy()


class BernsteinPlay(HoeffdingPlay):
    """Up: also the mean of V²."""

    algorithm = "fedq-bernstein"

    def make_tables(self) -> TabularServer:
        return BernsteinServer(self.plan, self.settings.scale)

    def answers(self) -> Message:
        n, r, v, square = self.agents.means()
        return n.astype(np.int64), r, v, square


class FedQBernstein(Comparator):
    """Federated Q-learning with a Bernstein bonus. Settings: `TabularSettings`."""

    name = "fedq-bernstein"
    settings_type = BernsteinSettings
    play_type = BernsteinPlay
    tabular = True


def scalars(run: Run) -> dict[str, int]:
    """7MHS per round, and signals."""
    return fedq.scalars(run, up=4, down=3)
