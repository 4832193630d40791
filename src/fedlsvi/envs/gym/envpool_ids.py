"""EnvPool ids, "envpool:CartPole-v1": many episodes stepped by one call.

EnvPool seeds an environment when it is made and never again, and goes on by itself after an end.
Here every episode has an environment of its own, made with the seed that `reset` would get, so that
an episode depends on (seed, agent, episode) alone and is the same however many are stepped at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from fedlsvi.envs.gym.episodes import Copies
from fedlsvi.envs.gym.world import GymWorld, Where
from fedlsvi.errors import UnknownName

PREFIX = "envpool:"
NO_LIMIT = 10**9
"""Steps after which EnvPool ends an episode by itself: the horizon is ours."""


def spec_of(id: str) -> EnvSpec:
    """A spec that makes single environments of EnvPool's."""
    import envpool

    name = id.removeprefix(PREFIX)
    if name not in envpool.list_all_envs():
        raise UnknownName("environment of EnvPool", name, sorted(envpool.list_all_envs()))
    limit = envpool.make_spec(name).config.max_episode_steps
    entry = f"{__name__}:{Pooled.__name__}"
    return EnvSpec(f"envpool/{name}", entry, kwargs={"name": name}, max_episode_steps=limit)


def pool_of(name: str, seeds: Sequence[int], options: dict[str, Any]) -> Any:
    """A pool with an environment for each of these seeds."""
    import envpool

    given = {"num_threads": 1, "max_episode_steps": NO_LIMIT} | options
    return envpool.make(name, env_type="gymnasium", num_envs=len(seeds), seed=list(seeds), **given)


class Pooled(gymnasium.Env[Any, Any]):  # type: ignore[misc]
    """A pool of one, which is made again at each reset.

    Args:
        name: EnvPool's id.
        **options: For `envpool.make`.
    """

    def __init__(self, name: str, **options: Any) -> None:
        import envpool

        self.name, self.options = name, options
        known = envpool.make_spec(name, **options)
        self.observation_space, self.action_space = known.observation_space, known.action_space
        self._pool: Any = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """A new episode, from this seed."""
        super().reset(seed=seed)
        own = int(self.np_random.integers(2**31)) if seed is None else seed
        self.close()
        self._pool = pool_of(self.name, [own], self.options)
        return self._pool.reset()[0][0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step of the only one."""
        seen, reward, terminated, truncated, _ = self._pool.step(np.array([action]))
        return seen[0], float(reward[0]), bool(terminated[0]), bool(truncated[0]), {}

    def close(self) -> None:
        """Close the pool."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None


class PooledCopies(Copies):
    """Copies that one pool steps together; the environments that they are of make none."""

    def __init__(self, world: GymWorld, n: int, hint: str = "") -> None:
        super().__init__(world, n, hint)
        self._pool: Any = None

    def begin(self, seeds: np.ndarray, where: Where) -> np.ndarray:
        one = self.envs[0].unwrapped
        self._end()
        try:
            self._pool = pool_of(one.name, seeds.tolist(), one.options)
            found, info = self._pool.reset()
        except Exception as error:
            raise self._raised(error, where(0, 0)) from error
        self.infos = [{}] * len(seeds)
        found = found[np.argsort(info["env_id"])]
        return self._states(list(found), self.infos, 1, where)

    def advance(
        self, rows: np.ndarray, actions: np.ndarray, h: int, where: Where
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        self.world.stepped += len(rows)
        chosen, began = (actions + self.world.first_action).astype(np.int32), perf_counter()
        try:
            *found, info = self._pool.step(chosen, rows.astype(np.int32))
        except Exception as error:
            raise self._raised(error, where(0, h)) from error
        order = np.argsort(info["env_id"])  # rows are in order
        seen, rewards, terminated, truncated = (part[order] for part in found)
        each = (perf_counter() - began) / max(1, len(rows))
        self.world.step_seconds = min(self.world.step_seconds, each)
        on = np.flatnonzero(~terminated)
        states = self._states(
            list(seen[on]), [{}] * len(on), h + 1, lambda k, h: where(int(on[k]), h)
        )
        return states, rewards.astype(np.float64), terminated, truncated

    def _end(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def close(self) -> None:
        self._end()
        super().close()
