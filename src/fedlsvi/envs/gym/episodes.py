"""Whole episodes in copies of a Gymnasium environment, played in lockstep."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.envs.gym.action_masks import take_masks
from fedlsvi.envs.gym.contract import check_answer, time_limit
from fedlsvi.envs.gym.world import GymWorld, Where, naming, reset_seeds
from fedlsvi.envs.spaces import numbers
from fedlsvi.errors import FedLSVIError, InvalidEnvironment

Act = Callable[[int, np.ndarray, np.ndarray], np.ndarray]
"""act(h, states, rows) → actions: what the episodes `rows`, now in `states`, do at step h."""

REAL = {bool, int, float, np.float64, np.float32, np.int64}
"""Types of rewards that need no second look."""


def hashed(user: Any) -> int:
    """A number for whoever an environment names, never 0."""
    return int.from_bytes(sha256(str(user).encode()).digest()[:8], "little") | 1


class Copies:
    """Copies of a world's environment, each of which plays one episode and then rests.

    Gymnasium's `SyncVectorEnv` steps every copy until the last one has ended, or resets a copy by
    itself and without a seed. Here `begin` resets the first copies with given seeds, and `advance`
    steps only those that still play.

    Args:
        world: The world to copy.
        n: Number of copies.
        hint: What to do when the environment raises, for the error message.
    """

    def __init__(self, world: GymWorld, n: int, hint: str = "") -> None:
        self.world, self.hint = world, hint
        self.envs = [world.make() for _ in range(n)]
        low, high = world.reward_range
        self._low, self._span = low, high - low
        self._shape = () if world.finite else (world.state_dim,)
        self.infos: list[Any] = []  # infos of the last resets

    def close(self) -> None:
        """Close every copy."""
        for env in self.envs:
            env.close()

    def begin(self, seeds: np.ndarray, where: Where) -> np.ndarray:
        """Start an episode in each of the first len(seeds) copies; returns their first states."""
        found: list[Any] = []
        infos: list[Any] = []
        try:
            for env, seed in zip(self.envs, seeds.tolist(), strict=False):
                seen, info = env.reset(seed=seed)
                found.append(seen)
                infos.append(info)
        except FedLSVIError:
            raise
        except Exception as error:
            raise self._raised(error, where(len(found), 0)) from error
        self.infos = infos
        return self._states(found, infos, 1, where)

    def advance(
        self, rows: np.ndarray, actions: np.ndarray, h: int, where: Where
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Take step h in the copies `rows`.

        Returns:
            The states of those that did not terminate; and for all of them the rewards in the
            environment's own units, who terminated and who was truncated.
        """
        n = len(rows)
        self.world.stepped += n
        found: list[Any] = [None] * n
        infos: list[Any] = [None] * n
        rewards = np.empty(n)
        terminated, truncated = np.empty(n, bool), np.empty(n, bool)
        envs = self.envs
        chosen = (actions + self.world.first_action).astype(np.int64)
        k, began = 0, perf_counter()
        try:
            for k, row in enumerate(rows.tolist()):
                answer = envs[row].step(chosen[k])
                if type(answer) is not tuple or len(answer) != 5 or type(answer[1]) not in REAL:
                    check_answer(self.world.name, answer, where(k, h))
                found[k], rewards[k], terminated[k], truncated[k], infos[k] = answer
        except FedLSVIError:
            raise
        except Exception as error:
            raise self._raised(error, where(k, h)) from error
        each = (perf_counter() - began) / max(1, n)
        self.world.step_seconds = min(self.world.step_seconds, each)
        if not np.isfinite(rewards).all():
            k = int(np.flatnonzero(~np.isfinite(rewards))[0])
            raise InvalidEnvironment(
                f"{self.world.name} returned the reward {rewards[k]:g} in {where(k, h)}: a reward "
                "must be a finite number",
                code="bad-reward",
            )
        if not terminated.any():
            return self._states(found, infos, h + 1, where), rewards, terminated, truncated
        on = np.flatnonzero(~terminated).tolist()  # nobody looks at what lies behind an end
        found, infos = [found[k] for k in on], [infos[k] for k in on]
        states = self._states(found, infos, h + 1, lambda k, h: where(on[k], h))
        return states, rewards, terminated, truncated

    def map_rewards(self, raw: np.ndarray, h: int, where: Where) -> np.ndarray:
        """Rewards of step h, mapped into [0, 1]."""
        mapped = (raw - self._low) / self._span
        bad = ~((mapped >= -1e-9) & (mapped <= 1.0 + 1e-9))
        if bad.any() and self.world.clip:
            self.world.clipped += int(np.count_nonzero(bad))
        elif bad.any():
            k = int(np.flatnonzero(bad)[0])
            low, high = self.world.reward_range
            raise InvalidEnvironment(
                f"{self.world.name} returned the reward {raw[k]:g} in {where(k, h)}, outside "
                f"reward_range = ({low:g}, {high:g})",
                code="reward-out-of-range",
                hint="give reward_range=(low, high) that contains every reward, or "
                "clip_rewards=True",
            )
        np.clip(mapped, 0.0, 1.0, out=mapped)
        return mapped

    def _raised(self, error: Exception, where: str) -> InvalidEnvironment:
        said = f"{type(error).__name__}: {error}"
        return InvalidEnvironment(
            f"{self.world.name} raised {said} in {where}{self.hint}", code="environment-raised"
        )

    def _states(self, found: list[Any], infos: list[Any], h: int, where: Where) -> np.ndarray:
        """Observations at step h as states, with what their infos say of allowed actions; one
        outside its space is refused."""
        if not found:
            return np.empty((0, *(() if self.world.finite else (self.world.width,))))
        states = self._read(found)
        if states is None:
            k = next((k for k, one in enumerate(found) if self._read([one]) is None), 0)
            raise InvalidEnvironment(
                f"{self.world.name} returned the observation {found[k]!r} in {where(k, h)}, but "
                f"its observation_space is {self.world.space}: return finite observations from "
                "that space",
                code="bad-observation",
            )
        if not self.world.masked:
            return states
        return take_masks(self.world, states, infos, h, where)

    def _read(self, found: list[Any]) -> np.ndarray | None:
        """States (n,) from 0, or (n, s); None where one is not finite or not of the space.

        Vectors may lie outside their box: feature maps on a box count that as its border.
        """
        world = self.world
        try:
            if world.finite:
                states = numbers(world.observations, found)
                sound = True
            else:
                states = np.array(found if world.plain else world.flatten(found), np.float64)
                sound = bool(np.isfinite(states).all())
        except (AttributeError, LookupError, OverflowError, TypeError, ValueError):
            return None
        return states if states.shape == (len(found), *self._shape) and sound else None


class Played(NamedTuple):
    """Episodes as agent · episode · step; nothing after `lengths` steps counts."""

    states: np.ndarray  # (m, n, H, …)
    actions: np.ndarray  # (m, n, H)
    rewards: np.ndarray  # (m, n, H), in [0, 1] unless raw ones were asked for
    lengths: np.ndarray  # (m, n) steps until the end
    ended: np.ndarray  # (m, n) whether it terminated, at step H or before
    last: np.ndarray  # (m, n, …) the state after step H, of episodes that lasted so long


class Players:
    """Plays episodes for agents that share one world.

    Args:
        world: Where to play.
        agents: Numbers of the agents, (m,).
        seed: Seed of the run; episode t of agent m begins with reset(seed=f(seed, m, t)).
        raw: Leave rewards in the environment's own units.
    """

    def __init__(self, world: GymWorld, agents: np.ndarray, seed: int, raw: bool = False) -> None:
        self.world, self.agents, self.seed, self.raw = world, agents, seed, raw
        self._copies: Copies | None = None

    def play(self, first: int, n: int, act: Act) -> Played:
        """Play episodes first … first+n−1 of every agent."""
        world, m = self.world, len(self.agents)
        H, total = world.horizon, m * n
        copies, live = self._room(total), np.arange(total)
        where = naming(self.agents, first, n, live)
        x = copies.begin(reset_seeds(self.seed, self.agents, first, n).ravel(), where)
        if world.users is not None:
            places = [(int(agent), first + j) for agent in self.agents for j in range(n)]
            world.users |= {
                place: hashed(info["user"])
                for place, info in zip(places, copies.infos, strict=True)
                if info.get("user") is not None
            }
        states = np.zeros((total, H, *x.shape[1:]), x.dtype)
        last = np.zeros((total, *x.shape[1:]), x.dtype)
        actions, rewards = np.zeros((total, H), np.int32), np.zeros((total, H))
        lengths, ended = np.full(total, H), np.zeros(total, bool)
        for h in range(1, H + 1):
            a = act(h, x, live)
            states[live, h - 1], actions[live, h - 1] = x, a
            where = naming(self.agents, first, n, live)
            x, raw, terminated, truncated = copies.advance(live, a, h, where)
            rewards[live, h - 1] = raw if self.raw else copies.map_rewards(raw, h, where)
            cut = truncated & ~terminated
            if h < H and cut.any():
                k = int(np.flatnonzero(cut)[0])
                raise self._cut(where(k, h), h, time_limit(copies.envs[live[k]]))
            lengths[live[terminated]], ended[live[terminated]] = h, True
            live = live[~terminated]
            if not len(live):
                break
        else:
            last[live] = x
        parts = (states, actions, rewards, lengths, ended, last)
        return Played(*(part.reshape(m, n, *part.shape[1:]) for part in parts))

    def _cut(self, where: str, h: int, limit: int | None) -> InvalidEnvironment:
        """The error for an episode that was truncated before the horizon."""
        fewer = f"play {plural(h, 'step')}" if self.raw else f"give horizon={h}"
        fix = f"{fewer} if it always stops there, or report the end as terminated with a wrapper"
        if limit == h:
            fix = f"that is its time limit, so make it without the limit, or {fewer}"
        return InvalidEnvironment(
            f"{self.world.name} truncated {where}, but the horizon is {self.world.horizon}: {fix}",
            code="time-limit" if limit == h else "truncated",
        )

    def _room(self, total: int) -> Copies:
        """At least `total` copies; a longer look ahead needs more."""
        if self._copies is None or len(self._copies.envs) < total:
            self.close()
            resume = "" if self.raw else ". Continue a run with a folder with: fedlsvi resume"
            self._copies = (self.world.copies or Copies)(self.world, total, resume)
        return self._copies

    def close(self) -> None:
        """Close the copies."""
        if self._copies is not None:
            self._copies.close()
            self._copies = None
