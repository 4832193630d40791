"""A Minari data set of FrozenLake: record it, learn from it, then explore from there.

`python -m examples.minari_lake`: the behaviour is half random; nothing is downloaded. Needs
`pip install ".[examples,minari]"`.
"""

from __future__ import annotations

import os
import warnings
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium
import numpy as np
from examples.play import value

import fedlsvi
from fedlsvi import FedLSVI
from fedlsvi.envs import FiniteMDP, as_environment

ID, DATA = "FrozenLake-v1", "frozen-lake/half-random-v0"
HORIZON, LOGGED, PLAYED = 50, 500, 200


def record(env: FiniteMDP, episodes: int = LOGGED, seed: int = 0) -> Any:
    """Write a data set to Minari's own folder; on average every second action is optimal."""
    import minari
    from minari.data_collector import EpisodeBuffer

    inner = gymnasium.make(ID, max_episode_steps=HORIZON)
    best, rng, buffers = env.greedy_policy(), np.random.default_rng(seed), []
    for episode in range(episodes):
        x, _ = inner.reset(seed=1_000 * seed + episode)
        seen, rows = [x], list[tuple[int, float, bool, bool]]()
        while not rows or not (rows[-1][2] or rows[-1][3]):
            good = rng.random() < 0.5
            a = int(best[len(rows), x]) if good else int(rng.integers(env.n_actions))
            x, pay, over, cut, _ = inner.step(a)
            seen.append(x)
            rows.append((a, float(pay), over, cut))
        actions, rewards, terminations, truncations = (
            list(part) for part in zip(*rows, strict=True)
        )
        buffers.append(EpisodeBuffer(
            id=episode, observations=seen, actions=actions, rewards=rewards,
            terminations=terminations, truncations=truncations,
        ))  # fmt: skip
    return minari.create_dataset_from_buffers(DATA, buffers, env=inner)


def main(episodes: int = LOGGED, played: int = PLAYED) -> dict[str, float]:
    """Values of the behaviour and the learned policy, and regret of a cold and a warm start."""
    env: Any = as_environment(ID, horizon=HORIZON)
    with TemporaryDirectory() as folder:
        os.environ["MINARI_DATASETS_PATH"] = folder
        record(env, episodes)
        source = f"minari:{DATA}"
        offline = fedlsvi.offline(source, env=env, stationary=True, value_range=1.0, progress=False)
        learner = FedLSVI(1, value_range=1.0)
        cold = learner.learn(env, played, progress=False)
        warm = learner.learn(env, played, data=source, progress=False)
        behaviour = offline.references()["behaviour"]
    assert cold.regret is not None
    assert warm.regret is not None
    return {
        "behaviour, as recorded": behaviour,
        "learned from the data set": value(env, offline.policy.table),
        "optimum": float(env.initial_law(0) @ env.optimal_values()[0]),
        f"regret of {played} episodes, cold": float(cold.regret[-1]),
        f"regret of {played} episodes, warm": float(warm.regret[-1]),
        "learned by playing on from it": value(env, warm.policy.table),
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # Minari asks for an author; a short run warns about traffic
    for what, number in main().items():
        print(f"{what:<36}{number:8.3f}")
