"""A Gymnasium environment as a black box: nothing is known of it but what its episodes show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedlsvi.envs.allowed import take_allowed
from fedlsvi.envs.base import Environment, no_features
from fedlsvi.envs.gym.contract import is_kind, repeats
from fedlsvi.envs.spaces import Description, count_observations, describe
from fedlsvi.errors import InvalidEnvironment, warn
from fedlsvi.features.base import FeatureMap
from fedlsvi.features.tabular import OneHot

COPIES = 32
"""Copies per agent: so many of its episodes are played in lockstep."""

SLOW = 1e-3
"""Seconds: where every step takes longer, episodes played ahead and dropped cost more than playing
several at once saves."""

RESETS = 16
"""Stream of the seeds that `reset` is called with."""

FINITE = 100_000
"""A product of discrete spaces of at most this size counts as numbered states."""

Where = Callable[[int, int], str]
"""where(k, h): the episode and agent of row k of a batch, at step h; h = 0 is its reset."""

Maker = Callable[..., Any]
"""make(H, **options): a copy whose time limit, where it is ours to set, is H."""


class GymWorld(Environment):
    """Episodes of at most H steps, played in copies that `maker` makes.

    Discrete observations, and MultiDiscrete ones, tuples and dictionaries of discrete ones with at
    most 100,000 combinations, are states 0 … n_states−2 in C order; n_states−1 is the state after
    the end. Any other observation is flattened into `state_dim` numbers. Rewards are mapped from
    `reward_range` into [0, 1]. Episode t of agent m begins with reset(seed=f(seed, m, t)).

    Args:
        maker: Makes a copy of the environment.
        probe: One copy, to look at.
        name: What to call it in messages.
        horizon: H.
        reward_range: The rewards that 0 and 1 stand for.
        clip: Clip a reward outside that range instead of refusing it.
        masked: Whether `info["action_mask"]` says which actions are allowed.

    Attributes:
        width: Numbers of a state that is a vector: s, and behind them its mask, A, if there is one.
        allowed: Where states are numbers and there are masks, (1, S, A): those seen so far here;
            True elsewhere. Where they are vectors, the function that reads masks off states.
        known: (S,) where masks were seen.
        stepped: Steps taken so far in copies in this process, whatever became of the episodes.
        clipped: Rewards among them that were clipped.
        users: (agent, episode) → a hash of `info["user"]` of its reset, until it is taken from
            here; None where nobody asks.
        step_seconds: The least time that a step has taken so far.
        step_range: The range of rewards of one step of the simulator, where an action is held for
            several of them.
    """

    stationary = True
    repeats = True
    """Taken for granted: Gymnasium's `step` is not told the step."""
    knows_values = False
    after_end = True
    """As in `FiniteMDP`: the last state, where states are numbers, is never observed."""
    copies: Callable[[GymWorld, int, str], Any] | None = None
    """Makes copies that are stepped together; None steps them one after the other."""
    table_masks: np.ndarray | None = None
    """(1 or H, S, A): the masks of a table that is played through Gymnasium."""

    def __init__(
        self,
        maker: Maker,
        probe: Any,
        name: str,
        horizon: int,
        reward_range: tuple[float, float],
        clip: bool = False,
        masked: bool = False,
    ) -> None:
        self.masked = masked
        self.maker, self.name, self.horizon, self.clip = maker, name, horizon, clip
        self.stepped = self.clipped = 0
        self.step_seconds = np.inf
        self.step_range = reward_range
        self.reward_range = reward_range
        self.n_actions = int(probe.action_space.n)
        self.first_action = int(probe.action_space.start)
        self.space = space = probe.observation_space
        self.plain = is_kind(space, "Box") and len(space.shape) == 1
        self.render_modes: list[str] = list(probe.metadata.get("render_modes") or [])
        self.low: np.ndarray | None = None
        self.high: np.ndarray | None = None
        self.observations: Description = describe(space) or {}
        n = count_observations(self.observations)
        self.finite = n is not None and (n <= FINITE or is_kind(space, "Discrete"))
        if n is not None and self.finite:
            self.n_states = n + 1
        else:
            flat = space if self.plain else _flat(name, space)
            self.state_dim = int(flat.shape[0])
            self.low, self.high = (np.asarray(b, np.float64) for b in (flat.low, flat.high))
        if masked and self.finite:
            self.allowed = np.ones((1, self.n_states, self.n_actions), bool)
            self.known = np.zeros(self.n_states, bool)
        elif masked:
            self.allowed = self._carried
        if not repeats(probe):
            warn(
                f"{name}: reset(seed=...) does not reproduce an episode, so a run cannot be "
                "reproduced either: use self.np_random in the environment, or seed it in a wrapper"
            )

    def __setstate__(self, state: dict[str, Any]) -> None:
        # an actor of Ray gets arrays that nobody may write; masks that are seen there are written
        vars(self).update(state)
        if self.masked and self.finite and not self.known.flags.writeable:
            self.allowed, self.known = self.allowed.copy(), self.known.copy()

    @property
    def width(self) -> int:
        """What is kept of a state carries its mask."""
        return self.state_dim + self.masked * self.n_actions

    def _carried(self, h: int, states: np.ndarray) -> np.ndarray:
        """The masks (n, A) that states (n, width) carry."""
        mask: np.ndarray = states[:, self.state_dim :] > 0.5
        return mask

    def masks_at(self, states: np.ndarray) -> np.ndarray | None:
        """Which actions are allowed in states that were just observed, (n, A); None is all."""
        if not self.masked:
            return None
        if not self.finite:
            return self._carried(1, states)
        table: np.ndarray = self.allowed[0, states]
        return table

    def observed(self, states: np.ndarray) -> np.ndarray:
        """States without the masks that they carry."""
        return states if self.finite or not self.masked else states[:, : self.state_dim]

    def lookahead(self, block: int) -> int:
        """How many episodes of an agent to play at once, at most `block`. It changes the time and
        never the result."""
        return 1 if SLOW < self.step_seconds < np.inf else block

    def default_features(self) -> FeatureMap:
        if self.finite:
            return OneHot().bind(self)
        kind = type(self.space).__name__
        raise no_features(f"{self.name} observes states of dimension {self.state_dim} ({kind})")

    def make(self) -> Any:
        """One copy."""
        return self.maker(self.horizon)

    def flatten(self, found: list[Any]) -> list[np.ndarray]:
        """Observations as vectors, by `gymnasium.spaces.flatten`."""
        from gymnasium.spaces import flatten

        return [flatten(self.space, one) for one in found]

    def probe(self, n: int) -> np.ndarray:
        """A few first observations, the same every time."""
        from fedlsvi.envs.gym.episodes import Copies

        batch = Copies(self, 1)
        try:
            first = [
                batch.begin(reset_seeds(0, [0], k, 1)[0], naming([0], k, 1, [0]))[0]
                for k in range(1, n + 1)
            ]
        finally:
            batch.close()
        return self.observed(np.stack(first))

    def visited(self, episodes: int) -> np.ndarray:
        """States of a few episodes in which actions take turns, the same every time."""
        from fedlsvi.envs.gym.episodes import Players

        players = Players(self, np.zeros(1, np.int64), 0, raw=True)
        try:
            played = players.play(1, episodes, self._in_turn)
        finally:
            players.close()
        seen: np.ndarray = played.states[np.arange(self.horizon) < played.lengths[:, :, None]]
        return self.observed(seen)

    def _in_turn(self, h: int, states: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Actions that take turns, among those that are allowed."""
        mask, k = self.masks_at(states), rows + h
        return k % self.n_actions if mask is None else take_allowed(mask, k)


def reset_seeds(seed: int, agents: Any, first: int, n: int) -> np.ndarray:
    """Seeds (m, n) below 2³¹ for episodes first …: functions of (seed, agent, episode)."""
    from fedlsvi.core.random import uniforms

    u = uniforms(seed, agents, first, n, 1, RESETS)[:, :, 0]
    seeds: np.ndarray = (u * 2.0**31).astype(np.int64)
    return seeds


def naming(agents: Any, first: int, n: int, live: Any) -> Where:
    """Names rows of a batch, where row k is row live[k] of (agents, episodes first …)."""

    def where(k: int, h: int) -> str:
        i, e = divmod(int(live[k]), n)
        episode = f"episode {first + e} of agent {agents[i]}"
        return f"{episode} at step {h}" if h else f"the reset of {episode}"

    return where


def _flat(name: str, space: Any) -> Any:
    """The Box that flattening the observations leads to."""
    from gymnasium.spaces import flatten_space

    try:
        flat = flatten_space(space)
    except NotImplementedError:
        flat = None
    if flat is None or not is_kind(flat, "Box"):
        raise InvalidEnvironment(
            f"{name} has observations of type {type(space).__name__}, which cannot be flattened "
            "into numbers: turn them into a Box with a wrapper (gymnasium.ObservationWrapper)",
            code="bad-observation-space",
        )
    return flat
