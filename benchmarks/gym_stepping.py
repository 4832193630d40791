"""Stepping Gymnasium environments: our episodes and gymnasium.vector, for the same steps."""

from __future__ import annotations

from time import process_time

import gymnasium
import numpy as np

from fedlsvi.envs import GymWorld, as_environment
from fedlsvi.envs.gym.episodes import Players
from fedlsvi.experiments.measure import Row, seconds

IDS = {"CartPole-v1": 200, "MountainCar-v0": 200, "Acrobot-v1": 200, "Taxi-v4": 20}
COPIES = 64


def main(steps: int = 40_000) -> list[Row]:
    """Random actions in 64 copies. Ours resets every episode with a seed of its own, maps rewards,
    checks their range and keeps everything; `SyncVectorEnv` only steps, and resets by itself. Both
    run in one thread and are timed by the processor's clock."""
    rows = []
    for id, horizon in IDS.items():
        world = as_environment(id, horizon=horizon, reward_range=(-200.0, 200.0), tables=False)
        ours, played = _ours(world, steps)
        theirs = _theirs(id, horizon, played)
        ratio = ours / theirs
        rows.append(
            Row(f"{id}: time of ours / of gymnasium.vector", ratio, "", "< 1.3", ratio < 1.3)
        )
    return rows


def _ours(world: GymWorld, steps: int) -> tuple[float, int]:
    """Seconds, and the number of steps that were played."""
    rng = np.random.default_rng(0)
    players = Players(world, np.arange(1), 0)
    players.play(1, COPIES, lambda h, x, rows: np.zeros(len(rows), np.int64))  # make the copies
    total, first = 0, COPIES + 1

    def job() -> None:
        nonlocal total, first
        total = 0
        while total < steps:
            played = players.play(
                first, COPIES, lambda h, x, rows: rng.integers(world.n_actions, size=len(rows))
            )
            total += int(played.lengths.sum())
            first += COPIES

    return seconds(job, 3, process_time)[0], total


def _theirs(id: str, horizon: int, steps: int) -> float:
    """Seconds of `SyncVectorEnv` for that many steps, its own resets not counted as steps."""
    env = gymnasium.make_vec(
        id, COPIES, vectorization_mode="sync", max_episode_steps=horizon,
        vector_kwargs={"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP},
    )  # fmt: skip
    rng = np.random.default_rng(0)
    n_actions = int(env.single_action_space.n)
    env.reset(seed=0)

    def job() -> None:
        for _ in range(steps // COPIES):
            env.step(rng.integers(n_actions, size=COPIES))

    return seconds(job, 3, process_time)[0]
