"""Two Ray actors against one process with one thread, where a step or a round is worth spreading.

Gymnasium environments whose step takes .2 ms and 2 ms of a processor, and continuous states with
relabelling at d = 128 and 256. Both ways have the same bits. Turns begin after the first rounds, so
that what processes load is not counted.

On a machine that has other work the clock says little. So there is a second ratio, of processor
time: that of the one process over that of the driver and its busiest actor, which is what two free
cores would allow at least, since driver and actors overlap.

    python -m benchmarks ray_gym
    python -m benchmarks.ray_gym [NAME …]      # some of them
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from time import perf_counter, thread_time
from typing import Any, NamedTuple

import gymnasium
from gymnasium import spaces

from benchmarks.ray_overhead import processor
from fedlsvi import FedLSVI, Run
from fedlsvi.envs import ContinuousLinearMDP
from fedlsvi.experiments.measure import Row, table
from fedlsvi.learner import drive
from fedlsvi.remote.ray.cluster import connect
from fedlsvi.remote.ray.transport import on_ray

STATES, HORIZON, LOADING, WANTED = 12, 20, 5, 1.7


class Busy(gymnasium.Env[int, int]):
    """A corridor with a slippery floor, whose step does nothing for so long. What happens does not
    depend on the clock.

    Args:
        cost: Seconds of this thread's processor time.
    """

    def __init__(self, cost: float) -> None:
        self.cost = cost
        self.observation_space, self.action_space = spaces.Discrete(STATES), spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        """At the left end."""
        super().reset(seed=seed)
        self.x = 0
        return self.x, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """To the left, or to the right with probability .8."""
        until = thread_time() + self.cost
        while thread_time() < until:
            pass
        right = action == 1 and self.np_random.random() < 0.8
        self.x = min(self.x + 1, STATES - 1) if right else max(self.x - 1, 0)
        return self.x, float(self.x == STATES - 1), False, False, {}


def _busy(cost: float, episodes: int, **settings: Any) -> Callable[[], tuple[FedLSVI, Any, int]]:
    def made() -> tuple[FedLSVI, Any, int]:
        from fedlsvi.envs import as_environment

        env = as_environment(partial(Busy, cost), horizon=HORIZON, reward_range=(0.0, 1.0))
        return FedLSVI(8, **settings), env, episodes

    return made


class Unmeasured(ContinuousLinearMDP):
    """Without its regret, an integral that the driver takes and that has no part in learning."""

    knows_values = False


def _relabelled(dim: int, episodes: int) -> Callable[[], tuple[FedLSVI, Any, int]]:
    return lambda: (FedLSVI(4), Unmeasured(dim, 4, 5, seed=0), episodes)


PROBLEMS: dict[str, Callable[[], tuple[FedLSVI, Any, int]]] = {
    "a step of .2 ms": _busy(2e-4, 400, exchange="one-trip"),
    "a step of .2 ms, step by step": _busy(2e-4, 400),
    "a step of 2 ms": _busy(2e-3, 60),
    "relabelling, d = 128": _relabelled(128, 30_000),
    "relabelling, d = 256": _relabelled(256, 15_000),
}


class Spent(NamedTuple):
    """Seconds since the first rounds: by the clock, and of the driver's and each actor's
    processor."""

    clock: float
    driver: float
    actors: list[float]


def timed(session: Any) -> Spent:
    """Drive a session to its end."""
    transport = session.player.transport
    pids = transport.processes() if hasattr(transport, "processes") else []
    read: Callable[[], list[float]] = lambda: [  # noqa: E731
        perf_counter(), *(processor([pid]) for pid in (os.getpid(), *pids))
    ]  # fmt: skip
    began: list[float] = []

    def watch(record: Any) -> None:
        if record.k == LOADING:
            began.extend(read())

    drive(session, [watch])
    clock, driver, *actors = (b - a for a, b in zip(began, read(), strict=True))
    return Spent(clock, driver, actors)


def rows(name: str) -> list[Row]:
    """One after the other: the clock's ratio, the processors' and whether the bits are the same."""
    learner, env, episodes = PROBLEMS[name]()
    session = learner.prepare(env, episodes, 0, threads=1)
    alone, here = timed(session), Run.of(session, learner.settings)
    session.close()
    session = learner.prepare(env, episodes, 0, threads=1, transport=partial(on_ray, cohorts=2))
    spread, there = timed(session), Run.of(session, learner.settings)
    session.close()
    same = here.w.tobytes() == there.w.tobytes() and here.taus == there.taus
    clock = alone.clock / spread.clock
    possible = alone.driver / (spread.driver + max(spread.actors))
    seconds = ", ".join(f"{s:.1f}" for s in (alone.driver, spread.driver, *spread.actors))
    return [
        Row(f"{name}: times faster by the clock", clock, "", f">= {WANTED}", clock >= WANTED),
        Row(f"  by processor time ({seconds} s: alone, driver, actors)", possible, "",
            f">= {WANTED}", possible >= WANTED),
        Row("  the same w and τ's to the last bit", float(same), "", "1", same),
        Row("  seconds of one process", alone.clock, "s"),
        Row("  rounds", here.rounds, ""),
        Row("  processes that could run, a minute's average", os.getloadavg()[0], ""),
    ]  # fmt: skip


def main(names: list[str] | None = None) -> list[Row]:
    """All of them."""
    # actors import this file
    os.environ["PYTHONPATH"] = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])
    connect()
    return [row for name in names or list(PROBLEMS) for row in rows(name)]


if __name__ == "__main__":
    from benchmarks import ray_gym  # actors know its class by this name

    print(table(ray_gym.main(sys.argv[1:])))
