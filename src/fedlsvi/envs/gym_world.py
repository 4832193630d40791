"""A Gymnasium environment as a black box: nothing is known of it but what its episodes show."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from fedlsvi.envs.base import Environment
from fedlsvi.errors import InvalidEnvironment, InvalidFeatures
from fedlsvi.features.base import FeatureMap
from fedlsvi.features.tabular import OneHot

COPIES = 32
"""Copies per agent, so that this many of its episodes are played side by side."""

RESETS = 16
"""Stream of the seeds that `reset` is called with."""

Where = Callable[[int], str]
"""where(k): which episode and step row k of a batch belongs to."""

Maker = Callable[..., Any]
"""make(H, **options): a copy whose time limit, where it is ours to set, is H."""


class GymWorld(Environment):
    """Episodes of at most H steps, played in copies that `maker` makes.

    A discrete observation is a state 0 … n_states−2, and n_states−1 is the state after the end; any
    other observation is flattened into `state_dim` numbers. Rewards are mapped from `reward_range`
    into [0, 1]. Episode t of agent m begins with reset(seed=f(seed, m, t)).
    """

    def __init__(
        self,
        maker: Maker,
        probe: Any,
        name: str,
        horizon: int,
        reward_range: tuple[float, float],
    ) -> None:
        self.maker, self.name, self.horizon = maker, name, horizon
        self.reward_range = reward_range
        self.n_actions = int(probe.action_space.n)
        self.first_action = int(probe.action_space.start)
        space = probe.observation_space
        self.space = space
        self.low: np.ndarray | None = None
        self.high: np.ndarray | None = None
        if _is(space, "Discrete"):
            self.n_states = int(space.n) + 1
            self.first_observation = int(space.start)
        else:
            flat = space if _is(space, "Box") and len(space.shape) == 1 else _flat(name, space)
            self.state_dim = int(flat.shape[0])
            self.low, self.high = (np.asarray(b, np.float64) for b in (flat.low, flat.high))
        if not _repeats(probe):
            warnings.warn(
                f"{name}: reset(seed=...) does not repeat an episode, so neither can a run: let "
                "the environment draw from self.np_random, or seed it in a wrapper",
                stacklevel=2,
            )

    @property
    def finite(self) -> bool:
        """Whether observations are numbers of states."""
        return hasattr(self, "n_states")

    @property
    def absorbing_reward(self) -> float:
        """The image of 0 in [0, 1]: what every step after the end pays."""
        low, high = self.reward_range
        return (0.0 - low) / (high - low)

    def default_features(self) -> FeatureMap:
        if self.finite:
            return OneHot().bind(self)
        kind = type(self.space).__name__
        raise InvalidFeatures(
            f"{self.name} observes {self.state_dim} numbers ({kind}) and has no features of its "
            "own: give features=, e.g. FourierFeatures(), RBFFeatures(), TileFeatures() or a "
            "function from observations (n, s) to (n, A, d)"
        )

    def make(self) -> Any:
        """One copy."""
        return self.maker(self.horizon)

    def episodes(self, copies: int) -> Any:
        """That many copies, ready to be reset (`gym_vector.Episodes`)."""
        from fedlsvi.envs.gym_vector import Episodes

        return Episodes(self, copies)

    def probe(self, n: int) -> np.ndarray:
        """A few first observations, the same every time."""
        batch = self.episodes(1)
        try:
            first = [
                batch.begin(reset_seeds(0, [0], k, 1)[0], naming([0], k, 1, [0], 1))[0]
                for k in range(1, n + 1)
            ]
        finally:
            batch.close()
        return np.stack(first)


def reset_seeds(seed: int, agents: Any, first: int, n: int) -> np.ndarray:
    """Seeds (m, n) below 2³¹ for episodes first …: functions of (seed, agent, episode)."""
    from fedlsvi.core.random import uniforms

    u = uniforms(seed, agents, first, n, 1, RESETS)[:, :, 0]
    seeds: np.ndarray = (u * 2.0**31).astype(np.int64)
    return seeds


def naming(agents: Any, first: int, n: int, live: Any, h: int) -> Where:
    """Row k of a batch in words, where row live[k] of (agents, episodes first …) is at step h."""

    def where(k: int) -> str:
        i, e = divmod(int(live[k]), n)
        return f"episode {first + e} of agent {agents[i]} at step {h}"

    return where


def _repeats(env: Any, steps: int = 3) -> bool:
    """Whether two episodes with one seed and the same actions begin alike."""
    seen = []
    for _ in range(2):
        state, _ = env.reset(seed=1)
        trace = [state]
        for _ in range(steps):
            state, reward, terminated, truncated, _ = env.step(env.action_space.start)
            trace += [state, reward]
            if terminated or truncated:
                break
        seen.append(trace)
    return len(seen[0]) == len(seen[1]) and all(
        _alike(a, b) for a, b in zip(seen[0], seen[1], strict=True)
    )


def _alike(a: Any, b: Any) -> bool:
    """Whether two observations are equal, whatever they are made of."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_alike(a[key], b[key]) for key in a)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(_alike(x, y) for x, y in zip(a, b, strict=True))
    return bool(np.array_equal(a, b))


def check_spaces(name: str, env: Any) -> None:
    """Refuse actions that are not one choice out of finitely many."""
    space = env.action_space
    if _is(space, "Discrete"):
        return
    kind = type(space).__name__
    why = {
        "Box": "continuous actions; discretise them with a wrapper (gymnasium.ActionWrapper)",
        "Dict": "several actors; control one of them with a wrapper, one environment per agent",
    }.get(kind, "several choices at once; number their combinations with a wrapper")
    raise InvalidEnvironment(
        f"{name} has a {kind} action space and Fed-LSVI chooses one of finitely many actions: "
        f"these are {why} and give a function that makes the wrapped environment"
    )


def check_range(reward_range: Any) -> tuple[float, float]:
    """(low, high) with low ≤ 0 ≤ high: 0 is what is paid after the end of an episode."""
    try:
        low, high = (float(value) for value in reward_range)
    except (TypeError, ValueError):
        raise InvalidEnvironment(
            f"reward_range is {reward_range!r}: give two numbers, (low, high)"
        ) from None
    if not (np.isfinite([low, high]).all() and low < high and low <= 0.0 <= high):
        raise InvalidEnvironment(
            f"reward_range is ({low:g}, {high:g}): give finite (low, high) with low < high and 0 "
            "between them, because 0 is paid after the end of an episode"
        )
    return low, high


def _flat(name: str, space: Any) -> Any:
    """The Box that flattening the observations leads to."""
    from gymnasium.spaces import flatten_space

    try:
        flat = flatten_space(space)
    except NotImplementedError:
        flat = None
    if flat is None or not _is(flat, "Box"):
        raise InvalidEnvironment(
            f"{name} has observations of type {type(space).__name__}, which cannot be flattened "
            "into numbers: turn them into a Box with a wrapper (gymnasium.ObservationWrapper)"
        )
    return flat


def _is(space: Any, kind: str) -> bool:
    """Whether a space is of a class of this name, without importing Gymnasium."""
    return any(cls.__name__ == kind for cls in type(space).__mro__)
