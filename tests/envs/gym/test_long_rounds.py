"""Black boxes in rounds of more than 64 episodes that end early, where 0 maps to something else.

Every episode is played again, one step at a time, with the policy of its round; steps behind the
end pay r₀ = 0.25, the image of 0 under the reward range (−1, 3).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from worlds import Corridor, Tiny, walk_features

from agreement import assert_close
from fedlsvi import FedLSVI
from fedlsvi.envs import as_environment
from fedlsvi.envs.gym.world import GymWorld, reset_seeds
from literal_lsvi import Sample, pooled_backup

M, T, SEED, LAM, BETA = 2, 200, 7, 0.5, 1.0
AFTER = 0.25
H = 4
Episode = list[tuple[int, int, float, int]]


class Short(Tiny):
    """Every action may lead from state 1 to the end, and the rewards are 0, 1 and 3."""

    def __init__(self) -> None:
        super().__init__()
        self.P = {
            0: {0: [(0.5, 0, 0.0, False), (0.5, 1, 1.0, False)], 1: [(1.0, 1, 1.0, False)]},
            1: {
                0: [(0.5, 0, 0.0, False), (0.5, 1, 3.0, True)],
                1: [(0.8, 0, 0.0, False), (0.2, 1, 3.0, True)],
            },
        }


def features(kind: str) -> np.ndarray:
    """(3, 2, d) over the two states and the one after the end."""
    if kind == "one-hot":
        return np.eye(6).reshape(3, 2, 6)
    raw = np.random.default_rng(1).normal(size=(3, 2, 4))
    return raw / np.linalg.norm(raw, axis=2, keepdims=True)


def episode(agent: int, t: int, policy: np.ndarray) -> tuple[Episode, float]:
    """The H steps, the end included, and the sum of the rewards that the world itself paid."""
    env = Short()
    x, _ = env.reset(seed=int(reset_seeds(SEED, [agent], t, 1)[0, 0]))
    path, earned, over = [], 0.0, False
    for h in range(H):
        a = int(policy[h, x])
        if over:
            path.append((x, a, AFTER, x))
            continue
        y, pay, over, _, _ = env.step(a)
        y = 2 if over else y
        path.append((x, a, (pay + 1.0) / 4.0, y))
        earned, x = earned + pay, y
    return path, earned


@pytest.mark.parametrize("kind", ["one-hot", "dense"])
def test_a_long_round_is_the_regression_on_its_episodes(kind: str) -> None:
    """Λ, w and mean returns from the list of what happened; transitions come again and again."""
    world = as_environment(Short, horizon=H, reward_range=(-1.0, 3.0), tables=False)
    assert isinstance(world, GymWorld)
    assert world.absorbing_reward == AFTER
    phi = features(kind)
    learner = FedLSVI(M, gamma=1e3, beta=BETA, lam=LAM, preset="paper")
    run = learner.learn(
        world, T, SEED, progress=False, keep_models=True,
        features=None if kind == "one-hot" else phi,
    )  # fmt: skip
    assert max(record.length for record in run.records) > 64
    samples: list[list[Sample]] = [[] for _ in range(H)]
    ended = False
    for record, policy, model in zip(run.records, run.policies, run.models, strict=True):
        played = [
            episode(m, t, policy) for t in range(record.first, record.last + 1) for m in range(M)
        ]
        for path, _ in played:
            for h, (x, a, r, y) in enumerate(path):
                samples[h].append((phi[x, a], r, y))
            ended |= path[-1][0] == 2
        w, gram = pooled_backup(samples, phi, phi.shape[2], LAM, BETA, [float(H)] * H)
        assert_close(model[1], gram, f"Λ after round {record.k}")
        assert_close(model[0], w, f"w after round {record.k}")
        assert record.mean_return == pytest.approx(np.mean([earned for _, earned in played]))
    assert ended


def test_returns_of_vectors_count_what_was_paid() -> None:
    """Episodes of different lengths: the steps behind the end earn nothing."""
    pays: dict[int, list[float]] = {}

    class Counted(Corridor):
        """Notes what each of its episodes paid, by the seed of its reset."""

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.paid = pays[-1 if seed is None else seed] = []
            return super().reset(seed=seed, options=options)

        def step(self, action: Any) -> Any:
            found = super().step(action)
            self.paid.append(found[1])
            return found

    world = as_environment(Counted, horizon=6, reward_range=(-1.0, 3.0))
    run = FedLSVI(M, gamma=6.0, beta=BETA, lam=LAM).learn(
        world, 40, SEED, features=walk_features, progress=False
    )
    seeds = reset_seeds(SEED, range(M), 1, 40)
    assert len({len(pays[s]) for s in seeds.ravel().tolist()}) > 1
    for record in run.records:
        own = seeds[:, record.first - 1 : record.last].ravel().tolist()
        assert record.mean_return == pytest.approx(np.mean([sum(pays[s]) for s in own]))
