"""Finite experience in which every agent and episode has a policy of its own (`diversity=`).

Actions are logged beside states, because no table of the round gives them back. What is kept of a
round is the counts of (x, a, x') of `stepped_finite.GymFiniteExperience`, whether the world is
stepped or its table is known; the trigger looks at pairs in the place of states.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit

from fedlsvi.core.perturbation import DIVERSITY, perturbed_action
from fedlsvi.core.random import fill_uniforms
from fedlsvi.core.trigger import Rule
from fedlsvi.envs.gym.world import GymWorld
from fedlsvi.experience.diverse_values import DiverseValues
from fedlsvi.experience.finite_kernels import packed, pick_state
from fedlsvi.experience.stationary_finite import StationaryGymFiniteExperience
from fedlsvi.experience.stepped_finite import GymFiniteExperience, close_off
from fedlsvi.experience.trigger_search import Firing
from fedlsvi.experience.workers import grown

LOOKAHEAD = 256
"""Episodes of a table that are played at a time."""


class PairLog(GymFiniteExperience):
    """Stepped worlds: logs x·A + a of every step, (m, H, episodes), beside the states."""

    values: DiverseValues

    def __init__(self, *about: Any) -> None:
        super().__init__(*about)
        m, rows, size = self._log.shape
        self._pairs = np.zeros((m, rows - 1, size), np.uint32)

    def explore(self, n: int) -> None:
        """Every agent plays its next n episodes."""
        self._make_room(n)
        new, first = slice(self._logged, self._logged + n), self.t + self.length + 1
        for (lo, hi, env), players in zip(self._runs, self._players, strict=True):
            who = self._who(lo, hi, first, n)

            def act(h: int, x: np.ndarray, live: np.ndarray, who: Any = who) -> np.ndarray:
                return self.values.act_in(h, x, self.seed, tuple(part[live] for part in who))

            played = players.play(first, n, act)
            close_off(played, env)
            self._act_after(played.lengths.ravel(), played.actions, env, who)
            states = played.states.transpose(0, 2, 1)
            self._log[lo:hi, :-1, new] = states
            self._log[lo:hi, -1, new] = played.last
            self._paid[lo:hi, :, new] = played.rewards.transpose(0, 2, 1)
            pairs = states * self.values.n_actions + played.actions.transpose(0, 2, 1)
            self._pairs[lo:hi, :, new] = pairs
        self._took(n)
        self.block = self._runs[0][2].lookahead(self.block)

    def _who(self, lo: int, hi: int, first: int, n: int) -> tuple[np.ndarray, ...]:
        """Agent, episode and ζ of rows agent · episode."""
        agents = self.agents[lo:hi]
        episodes = np.tile(np.arange(first, first + n), len(agents))
        zeta = self.values.directions(self.seed, agents, first, n)
        return np.repeat(agents, n), episodes, zeta

    def _act_after(
        self, lengths: np.ndarray, actions: np.ndarray, env: GymWorld, who: tuple[np.ndarray, ...]
    ) -> None:
        """Actions in the state after the end, which is a state like the others."""
        flat = actions.reshape(len(lengths), -1)
        for h in range(int(lengths.min()) + 1, env.horizon + 1):
            over = np.flatnonzero(lengths < h)
            end = np.full(len(over), env.n_states - 1)
            flat[over, h - 1] = self.values.act_in(
                h, end, self.seed, tuple(part[over] for part in who)
            )

    def _took(self, n: int) -> None:
        self._logged += n
        self.length += n
        self._last = n

    def first_firing(self, rule: Rule, n: int) -> Firing:
        """Search the first n of the episodes explored last."""
        before = self.length - self._last
        where = (self._pairs, self._spilled, self._marks, before, before, n)
        return self._trigger.search(*where, rule)

    def begin(self, t: int) -> None:
        """Start a round after episode t, with the model that `values` holds now."""
        super().begin(t)
        self._marks = self.values.marks

    def _pairs_of(self, i: int, steps: np.ndarray, length: int) -> np.ndarray:
        return self._pairs[i, steps, :length].astype(np.int64)

    def _make_room(self, n: int) -> None:
        super()._make_room(n)
        size = self._log.shape[2]
        if size > self._pairs.shape[2]:
            self._pairs = grown(self._pairs, size, self._logged, axis=2)


class KnownTables(PairLog):
    """Worlds whose tables are known: the same counts, played by a compiled loop."""

    _runs: list[tuple[int, int, Any]]  # of `FiniteMDP`, where others step a `GymWorld`

    def __init__(self, *about: Any) -> None:
        super().__init__(*about)
        self.block = LOOKAHEAD
        self._samplers = {
            id(env): (packed(env.initial_tables), packed(env.tables)) for _, _, env in self._runs
        }

    def _make_players(self, envs: Sequence[Any]) -> None:
        """Nothing is stepped here."""

    def explore(self, n: int) -> None:
        """Every agent plays its next n episodes."""
        self._make_room(n)
        first = self.t + self.length + 1
        work = self._log.shape[0] * self._log.shape[1] * n
        for lo, hi, env in self._runs:
            law, tables = self._samplers[id(env)]
            moving = env.reward_on_transition
            pay = env.r[..., None] if moving is None else moving
            world = (law, tables, len(env.P) == 1, pay, moving is not None)
            model = (self.values.tables, self.values.index, self.values.bonus_sizes)
            logs = (self._log, self._pairs, self._paid)
            episodes = (self.seed, self.agents, first, n, self._logged)
            self.workers.map(play_tables, lo, hi, *episodes, world, model, logs, work=work)
        self._took(n)


@njit(cache=True, nogil=True)
def play_tables(lo, hi, seed, agents, episode, n, offset, world, model, logs):  # type: ignore[no-untyped-def]
    """Play n episodes of agents lo … hi−1 from `episode` on and append them to the logs.

    world: alias tables of the first state and of P, whether P is the same at all steps, rewards
    (Hr, S, A, 1) or (Hr, S, A, S), and which of the two. model: tables, index and (β_h, σβ_h) of
    `DiverseValues`. logs: states (m, H+1, ·), pairs (m, H, ·), rewards (m, H, ·).
    """
    law, cells, stationary, pay, moving = world
    tables, index, betas = model
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
                a = perturbed_action(x, (means[h], norms[h], rows[h]), index, betas[h], zeta, key)
                row = ((0 if stationary else h * n_states) + x) * n_actions + a
                width = np.float64(start[row + 1] - start[row])
                y = np.int64(pick_state(u[h + 1, 0], start[row], width, prob, pair))
                log[i, h, at] = x
                pairs[i, h, at] = x * n_actions + a
                paid[i, h, at] = pay[h if pay.shape[0] > 1 else 0, x, a, y if moving else 0]
                x = y
            log[i, horizon, at] = x


class StationaryPairLog(PairLog, StationaryGymFiniteExperience):
    """`PairLog` that counts the transitions of all steps together."""


class StationaryKnownTables(KnownTables, StationaryGymFiniteExperience):
    """`KnownTables` that counts the transitions of all steps together."""
