"""Playing whole episodes in copies of a Gymnasium environment, side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.envs.gym.checks import time_limit
from fedlsvi.envs.gym.world import GymWorld, naming, reset_seeds
from fedlsvi.errors import InvalidEnvironment

Act = Callable[[int, np.ndarray, np.ndarray], np.ndarray]
"""act(h, states, rows) → actions: what the episodes `rows`, now in `states`, do at step h."""


class Played(NamedTuple):
    """Episodes side by side: agent · episode · step; nothing after `lengths` steps counts."""

    states: np.ndarray  # (m, n, H, …)
    actions: np.ndarray  # (m, n, H)
    rewards: np.ndarray  # (m, n, H), in [0, 1] unless raw ones were asked for
    lengths: np.ndarray  # (m, n) steps until the end
    ended: np.ndarray  # (m, n) whether it ended, at the last step or before it
    last: np.ndarray  # (m, n, …) the state after step H, of episodes that lasted so long


class Players:
    """Plays episodes for agents that share one world; `raw` leaves rewards as they are."""

    def __init__(self, world: GymWorld, agents: np.ndarray, seed: int, raw: bool = False) -> None:
        self.world, self.agents, self.seed, self.raw = world, agents, seed, raw
        self._copies: Any = None

    def play(self, first: int, n: int, act: Act) -> Played:
        """Episodes first … first+n−1 of every agent."""
        world, m = self.world, len(self.agents)
        H, total = world.horizon, m * n
        copies, live = self._room(total), np.arange(total)
        where = naming(self.agents, first, n, live, 1)
        x = copies.begin(reset_seeds(self.seed, self.agents, first, n).ravel(), where)
        states = np.zeros((total, H, *x.shape[1:]), x.dtype)
        last = np.zeros((total, *x.shape[1:]), x.dtype)
        actions, rewards = np.zeros((total, H), np.int32), np.zeros((total, H))
        lengths, ended = np.full(total, H), np.zeros(total, bool)
        for h in range(1, H + 1):
            a = act(h, x, live)
            states[live, h - 1], actions[live, h - 1] = x, a
            after = naming(self.agents, first, n, live, h + 1)
            x, raw, terminated, truncated = copies.advance(live, a, after)
            where = naming(self.agents, first, n, live, h)
            rewards[live, h - 1] = raw if self.raw else copies.map_rewards(raw, where)
            cut = truncated & ~terminated
            if h < H and cut.any():
                k = int(np.flatnonzero(cut)[0])
                raise self._cut(where(k), h, time_limit(copies.envs[live[k]]))
            lengths[live[terminated]], ended[live[terminated]] = h, True
            live = live[~terminated]
            if not len(live):
                break
        else:
            last[live] = x
        parts = (states, actions, rewards, lengths, ended, last)
        return Played(*(part.reshape(m, n, *part.shape[1:]) for part in parts))

    def _cut(self, where: str, h: int, limit: int | None) -> InvalidEnvironment:
        """What to say of an episode that was truncated before the horizon."""
        fewer = f"play {plural(h, 'step')}" if self.raw else f"give horizon={h}"
        fix = f"{fewer} if it always stops there, else say with a wrapper that this terminates it"
        if limit == h:
            fix = f"that is its time limit, so make it without the limit, or {fewer}"
        return InvalidEnvironment(
            f"{self.world.name} truncated {where}, and the horizon is {self.world.horizon}: {fix}"
        )

    def _room(self, total: int) -> Any:
        """At least `total` copies; more are made when a longer look ahead asks for them."""
        if self._copies is None or self._copies.num_envs < total:
            self.close()
            self._copies = self.world.episodes(total)
        return self._copies

    def close(self) -> None:
        """Close the copies."""
        if self._copies is not None:
            self._copies.close()
            self._copies = None
