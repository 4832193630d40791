"""One phone in a cell of mobile-env, as a Gymnasium environment with four actions."""

from __future__ import annotations

from typing import Any

import gymnasium
import mobile_env  # noqa: F401 (registers its environments)
import numpy as np
from gymnasium import spaces

ID = "mobile-small-ma-v0"
PARTS = ("arrival", "channel", "scheduler", "movement", "utility")


class OnePhone(gymnasium.Env[Any, Any]):
    """Phone 0 among five: do nothing, or switch the connection to station 1, 2 or 3 on or off.

    The other phones connect to the strongest station in reach and keep it. The observation is
    phone 0's: its connections, the stations' signals, its utility, what the stations broadcast and
    how full they are (13 numbers). The reward is its own utility, in [−1, 1].
    """

    def __init__(self) -> None:
        self._inner = gymnasium.make(ID, disable_env_checker=True).unwrapped
        self.action_space = spaces.Discrete(4)
        self.observation_space = spaces.Box(-1.0, 1.0, (13,), np.float64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            # mobile-env 2.1 takes the seed but keeps its old generators, so reset them
            self._inner.seed, self._inner.rng = seed, None
            for k, part in enumerate(PARTS):
                moving = getattr(self._inner, part)
                moving.seed, moving.rng = seed + k + 1, None
        self._seen, _ = self._inner.reset(seed=seed)
        return self._observe(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        orders = {ue: _strongest(seen) for ue, seen in self._seen.items() if ue != 0}
        seen, _, _, truncated, _ = self._inner.step({0: int(action), **orders})
        self._seen = seen or self._seen  # nothing is observed once time is up
        mine = next((u for ue, u in self._inner.utilities.items() if ue.ue_id == 0), -1.0)
        return self._observe(), float(mine), False, truncated, {}

    def _observe(self) -> np.ndarray:
        return np.asarray(self._seen[0], np.float64).clip(-1.0, 1.0)


def _strongest(seen: np.ndarray) -> int:
    """Connect to the station with the strongest signal, unless already connected."""
    return 0 if seen[:3].any() else 1 + int(np.argmax(seen[3:6]))


class Rule:
    """The same rule as a policy, to compare with."""

    def __init__(self, horizon: int) -> None:
        self.horizon = horizon

    def actions(self, step: int, states: np.ndarray) -> np.ndarray:
        """Actions (n,) in states (n, 13)."""
        return np.array([_strongest(seen) for seen in states])


def phone_features(states: np.ndarray) -> np.ndarray:
    """φ(x,a), d = 12: what matters about doing nothing, and about one station, whichever it is.

    Stations differ only in what the phone sees of them, so the three switches share their
    coordinates: connection, signal, load, and their products with each other.
    """
    n = len(states)
    on, signal, utility = states[:, :3], states[:, 3:6], states[:, 6]
    said, load = states[:, 7:10], states[:, 10:13]
    several, one = on.sum(axis=1) > 1.0, on.sum(axis=1) > 0.0
    phi = np.zeros((n, 4, 12))
    best = np.where(on > 0.0, signal, 0.0).max(axis=1)
    phi[:, 0, :4] = np.column_stack((np.ones(n), utility, one, best)) / 2.0
    off = 1.0 - on
    gain = signal - best[:, None]
    parts = (off, on, off * signal, off * gain, off * one[:, None], on * several[:, None],
             off * load, off * said)  # fmt: skip
    phi[:, 1:, 4:] = np.stack(parts, axis=2) / np.sqrt(len(parts))
    return phi
