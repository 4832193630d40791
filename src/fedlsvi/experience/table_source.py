"""Tables that are known, played by compiled loops with keyed draws."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from fedlsvi.core.perturbation import DIVERSITY, perturbed_action
from fedlsvi.core.random import fill_uniforms
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.experience.finite_kernels import packed, pick_state, policy_rows, simulate
from fedlsvi.experience.state_round import Pay, StateRound
from fedlsvi.experience.values import DiverseValues, TabularValues
from fedlsvi.experience.workers import Workers, contiguous_runs

LOG_BYTES = 64 * 2**20
"""Memory for the states of the episodes that are played at once. A round may keep more: it spills
into counts where its log is larger than this and than the counts."""

FEWEST_AT_ONCE = 8
"""Episodes that are played at once, however many agents there are: a few cost hardly more than one.
The log begins with as many, or with one where even these are large."""

LOOKAHEAD = 256
"""Episodes that are played at a time where every one has a policy of its own."""


class TableSource:
    """Agents in finite MDPs that follow one table, or one policy for each agent and episode.

    Args:
        envs: The world of each agent.
        agents: (m,) their numbers.
        values: Whose policy is followed.
        seed: Of the run.
        groups: Groups of steps with one determinant each.
        workers: Threads.
        spilled_bytes: What one agent's counts take, into which a long round spills.

    Attributes:
        missed: (m,) episodes of the federation that each agent was not in, under one table: it
            goes on with the next of its own.
    """

    recorded = False

    def __init__(
        self,
        envs: Sequence[FiniteMDP],
        agents: np.ndarray,
        values: TabularValues,
        seed: int,
        groups: int,
        workers: Workers,
        spilled_bytes: int = 0,
    ) -> None:
        self.agents, self.values, self.seed, self.workers = agents, values, seed, workers
        m, horizon, n_states = len(agents), envs[0].horizon, envs[0].n_states
        self.missed = np.zeros(m, np.int64)
        self._runs = contiguous_runs(envs)
        self._samplers = {
            id(env): (packed(env.initial_tables), packed(env.tables)) for _, _, env in self._runs
        }
        about = (m, horizon, groups, values, workers)
        if isinstance(values, DiverseValues):
            self.round, self.block = StateRound(*about), LOOKAHEAD
        else:
            episode = 4 * (horizon + 1)  # bytes, of one agent
            self.block = max(FEWEST_AT_ONCE, LOG_BYTES // (m * episode))
            capacity = max(self.block, spilled_bytes // episode)
            size = FEWEST_AT_ONCE if m * episode * FEWEST_AT_ONCE <= LOG_BYTES else 1
            self.round = StateRound(*about, size, capacity, False, spilled_bytes)
        self.round.pay = payments(envs)
        self._first = np.empty((horizon, n_states), np.int64)
        self._width = np.empty((horizon, n_states))

    def begin(self, t: int) -> None:
        """A new round, with the policy that `values` holds now."""
        self.round.begin()

    def play(self, first: int, n: int) -> None:
        """Append episodes to the round."""
        log, who = self.round, (self.seed, self.agents)
        firsts = first - self.missed
        work = log.states.shape[0] * log.states.shape[1] * n
        for lo, hi, env in self._runs:
            law, (start, prob, pair) = self._samplers[id(env)]
            if isinstance(self.values, DiverseValues):
                v = self.values
                world = (law, (start, prob, pair), len(env.P) == 1, *_rewards(env))
                model = (v.tables, v.index, v.bonus_sizes)
                logs = (log.states, log.pairs, log.rewards)
                made = (*who, first, n, log.logged)
                self.workers.map(play_tables, lo, hi, *made, world, model, logs, work=work)
                continue
            rows = (self._first, self._width)
            policy_rows(start, len(env.P) == 1, env.n_actions, log.policy, *rows)
            tables = (law, (prob, pair), *rows, log.states)
            self.workers.map(simulate, lo, hi, *who, firsts, n, log.logged, *tables, work=work)
        log.took(n)

    def close(self, first: int, length: int) -> None:
        """The round has ended."""

    def returns(self, first: int, last: int) -> None:
        """Nothing: the values of a table are known."""

    def fewest(self, first: int, last: int) -> None:
        """Nothing: every episode reaches every step."""

    def state(self) -> dict[str, np.ndarray]:
        """Nothing."""
        return {}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Nothing."""


def payments(envs: Sequence[FiniteMDP]) -> list[Pay]:
    """The rewards of the worlds of all agents, in their order."""
    return [Pay(lo, hi, *_rewards(env)) for lo, hi, env in contiguous_runs(envs)]


def _rewards(env: FiniteMDP) -> tuple[np.ndarray, bool]:
    """Rewards (1 or H, S, A, 1) or (…, S), and whether they depend on the next state."""
    moving = env.reward_on_transition
    return (env.r[..., None] if moving is None else moving), moving is not None


@njit(cache=True, nogil=True)
def play_tables(lo, hi, seed, agents, episode, n, offset, world, model, logs):  # type: ignore[no-untyped-def]
    """Play n episodes of agents lo … hi−1 from `episode` on and append them to the logs.

    world: alias tables of the first state and of P, whether P is the same at all steps, rewards
    (Hr, S, A, 1) or (Hr, S, A, S), and which of the two. model: tables, index and bonuses of
    `DiverseValues`. logs: states (m, H+1, ·), pairs (m, H, ·), rewards (m, H, ·).
    """
    law, cells, stationary, pay, moving = world
    tables, index, bonuses = model
    means, norms, rows = tables
    log, pairs, paid = logs
    start0, prob0, pair0 = law
    start, prob, pair = cells
    horizon, n_states, n_actions = means.shape
    laws = start0.size - 1
    u, draws, one = np.empty((horizon + 1, 1)), np.empty((rows.shape[2], 1)), np.int64(1)
    for i in range(lo, hi):
        agent = agents[i]
        first0 = start0[agent % laws]
        width0 = np.float64(start0[agent % laws + 1] - first0)
        for e in range(n):
            at, key = offset + e, (seed, agent, episode + e)
            fill_uniforms(seed, np.int64(0), agent, episode + e, one, u)
            fill_uniforms(seed, np.int64(DIVERSITY), agent, episode + e, one, draws)
            zeta = 2.0 * draws[:, 0] - 1.0
            x = np.int64(pick_state(u[0, 0], first0, width0, prob0, pair0))
            for h in range(horizon):
                a = perturbed_action(x, (means[h], norms[h], rows[h]), index, bonuses[h], zeta, key)
                row = ((0 if stationary else h * n_states) + x) * n_actions + a
                width = np.float64(start[row + 1] - start[row])
                y = np.int64(pick_state(u[h + 1, 0], start[row], width, prob, pair))
                log[i, h, at] = x
                pairs[i, h, at] = x * n_actions + a
                paid[i, h, at] = pay[h if pay.shape[0] > 1 else 0, x, a, y if moving else 0]
                x = y
            log[i, horizon, at] = x
