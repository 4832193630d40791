"""FedQ-Advantage: federated Q-learning with a reference function, in stages.

Zheng, Zhang, Xue (2025), "Federated Q-learning with reference-advantage decomposition: almost
optimal regret and logarithmic communication cost", ICLR 2025, arXiv 2405.18795. Tabular. Visits of
a cell are cut into stages that grow by 1 + 1/H; at the end of a stage, with n visits in it, N in
all and A = V − V_ref,

    Q ← min{r + ΣV/n + b₁, r + ΣV_ref/N + ΣA/n + b₂, Q}.

V_ref is the first, optimistic V; it is set to V(x) once x has N₀ visits in finished stages, and
stays. Rounds end by thresholds that depend on how far the stage has come.

Checked: regret Õ(√(H²SAMT)) in steps and rounds O(MH²SA·log H·log T) (reviews, abstract); stages,
thresholds, V_ref and which visits count for it, and the bonuses b₁ = √(2(H − h)²/n),
b₂ = 2√(σ²_ref/N) + 2√(σ²_A/n) (the code that Fed-UCBVI's authors publish of it; c scales both).
Ours: thresholds are at least 1 (the code's floor can be 0); r is the mean of what was paid (there
the first reward seen, which assumes that rewards are not random); V_ref of step 1, which nothing
needs, is set like the others; the encoding of the messages. From memory, and left out: the theory's
ι factors and lower-order terms; N₀ = 200 where the theory has 5184·SAH⁵ι/β² + 16MSAH³/β.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from fedlsvi.algorithms.shared import fedq
from fedlsvi.algorithms.shared.channel import Message
from fedlsvi.algorithms.shared.comparator import Comparator
from fedlsvi.algorithms.shared.fedq import FedQPlay, TabularAgents, TabularServer
from fedlsvi.algorithms.shared.settings import TabularSettings
from fedlsvi.checks import integer
from fedlsvi.protocol.plan import Plan
from fedlsvi.run import Run


@dataclass(frozen=True)
class AdvantageSettings(TabularSettings):
    """Settings of FedQ-Advantage, in addition to `TabularSettings`.

    Attributes:
        reference: N₀, visits of a state, in finished stages, after which its reference value is
            set.
    """

    algorithm = "fedq-advantage"

    reference: int = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("reference", self.reference, 1, "visits to a state before V_ref is set")


@njit(cache=True, nogil=True)
def visit_sums(log, n, rewards, values, reference, out):  # type: ignore[no-untyped-def]
    """out (6, m, H, S): n, mean r, and the sums of V, V_ref, V_ref² and (V − V_ref)² at x'."""
    horizon = rewards.shape[1]
    out[:] = 0.0
    for i in range(log.shape[0]):
        for h in range(horizon):
            for e in range(n):
                x, y = log[i, h, e], log[i, h + 1, e]
                v, ref = values[h + 1, y], reference[h + 1, y]
                out[0, i, h, x] += 1.0
                out[1, i, h, x] += rewards[i, h, e]
                out[2, i, h, x] += v
                out[3, i, h, x] += ref
                out[4, i, h, x] += ref * ref
                out[5, i, h, x] += (v - ref) * (v - ref)
            for x in range(out.shape[3]):
                if out[0, i, h, x] > 0.0:
                    out[1, i, h, x] /= out[0, i, h, x]


@njit(cache=True, nogil=True)
def learn(Q, N, policy, previous, current, sums, visits, rewards, new, c, over):  # type: ignore[no-untyped-def]
    """Add a round; where a stage is over, renew Q and begin the next.

    sums (6, H, S, A): rewards, V_ref and V_ref² of all visits; V, A and A² of the stage.
    new (4, M, H, S): the agents' ΣV, ΣV_ref, ΣV_ref², ΣA². over[h]: range of the next value.
    """
    n_agents, horizon, n_states = visits.shape
    for h in range(horizon):
        for x in range(n_states):
            a, n = policy[h, x], visits[:, h, x].sum()
            if n == 0:
                continue
            cell = sums[:, h, x, a]
            for m in range(n_agents):
                cell[0] += visits[m, h, x] * rewards[m, h, x]
            v, ref, ref2, adv2 = new[:, :, h, x].sum(axis=1)
            cell[1] += ref
            cell[2] += ref2
            cell[3] += v
            cell[4] += v - ref
            cell[5] += adv2
            N[h, x, a] += n
            current[h, x, a] += n
            before, stage, total = previous[h, x, a], current[h, x, a], N[h, x, a]
            enough = n_agents * horizon if before == 0 else (1.0 + 1.0 / horizon) * before
            if stage < enough:
                continue
            reward = cell[0] / total
            plain = cell[3] / stage + c * over[h] * np.sqrt(2.0 / stage)
            spread_ref = max(cell[2] / total - (cell[1] / total) ** 2, 0.0)
            spread_adv = max(cell[5] / stage - (cell[4] / stage) ** 2, 0.0)
            bonus = 2.0 * c * (np.sqrt(spread_ref / total) + np.sqrt(spread_adv / stage))
            split = cell[1] / total + cell[4] / stage + bonus
            Q[h, x, a] = min(Q[h, x, a], reward + min(plain, split))
            previous[h, x, a], current[h, x, a] = stage, 0
            cell[3:] = 0.0


class AdvantageServer(TabularServer):
    """Stages, sums and the reference function."""

    KEPT = (*TabularServer.KEPT, "previous", "current", "sums", "reference", "settled")

    def __init__(self, plan: Plan, c: float, wanted: int) -> None:
        super().__init__(plan)
        self.c, self.wanted, self.M = c, wanted, plan.parameters.n_agents
        self.previous, self.current = np.zeros_like(self.N), np.zeros_like(self.N)
        self.sums = np.zeros((6, *self.Q.shape))
        self.reference = self.values.copy()
        self.settled = np.zeros(self.policy.shape, np.bool_)
        H = len(self.Q)
        self.over = np.minimum(np.arange(H - 1, -1, -1), np.append(self.top[1:], 0.0))

    def limits(self) -> np.ndarray:
        """Visits after which an agent asks for the end of a round, (H, S)."""
        H = len(self.Q)
        before, now = self.at_policy(self.previous), self.at_policy(self.current)
        late = now > (1.0 - 1.0 / H) * before
        limit = np.where(late, before // (self.M * H), -(-(before - now) // self.M))
        return np.where(before == 0, 1, np.maximum(limit, 1))

    def update(self, visits: np.ndarray, rewards: np.ndarray, *new: np.ndarray) -> None:
        """The end of a round."""
        tables = (self.Q, self.N, self.policy, self.previous, self.current, self.sums)
        learn(*tables, visits, rewards, np.stack(new), self.c, self.over)
        self.greedy()
        finished = (self.N - self.current).sum(axis=2)
        ripe = (finished >= self.wanted) & ~self.settled
        self.reference[:-1][ripe] = self.values[:-1][ripe]
        self.settled |= ripe


class AdvantageAgents(TabularAgents):
    """Agents that also know V_ref."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.reference = np.zeros_like(self.values)

    def sums(self) -> np.ndarray:
        """The statistics of a round, (6, M, H, S)."""
        out = np.empty((6, *self.statistics.shape[1:]))
        log, _, rewards = self.explorer.buffers
        visit_sums(log, self.length, rewards, self.values, self.reference, out)
        return out


class AdvantagePlay(FedQPlay):
    """Down: π, the threshold, V and V_ref.  Up: n, r, ΣV, ΣV_ref, ΣV_ref² and ΣA²."""

    algorithm = "fedq-advantage"

    def __init__(self, plan: Plan, settings: AdvantageSettings, keep_models: bool) -> None:
        super().__init__(plan, settings, keep_models)
        self.agents: AdvantageAgents = AdvantageAgents(plan)

    def make_tables(self) -> TabularServer:
        return AdvantageServer(self.plan, self.settings.scale, self.settings.reference)

    def begin_round(self) -> None:
        server = self.tables
        policy, limits, V, reference = self.channel.broadcast(
            "down_model", server.policy, server.limits(), server.values[:-1], server.reference[:-1]
        )
        self.agents.receive(policy, limits, V)
        self.agents.reference[:-1] = reference

    def answers(self) -> Message:
        n, *rest = self.agents.sums()
        return n.astype(np.int64), *rest


class FedQAdvantage(Comparator):
    """Federated Q-learning with a reference function. Settings: `AdvantageSettings`."""

    name = "fedq-advantage"
    settings_type = AdvantageSettings
    play_type = AdvantagePlay
    tabular = True


def scalars(run: Run) -> dict[str, int]:
    """10MHS per round, and signals."""
    return fedq.scalars(run, up=6, down=4)
