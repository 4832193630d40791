"""stationary=True in black boxes: the regression on all that was played, whatever the step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds import Corridor, Tiny, walk_features

import fedlsvi
from agreement import assert_close
from fedlsvi import FedLSVI
from fedlsvi.envs import as_environment
from fedlsvi.envs.gym.world import reset_seeds
from fedlsvi.features import FourierFeatures
from literal import feature_lookup, value
from literal_lsvi import ridge_by_least_squares
from transports_over_frames import assert_same, over_frames

M, T, SEED, LAM, BETA, H = 2, 60, 7, 0.5, 1.0, 5
RANGE = (-1.0, 3.0)
AFTER = 0.25  # the image of 0

Step = tuple[Any, int, float, Any, bool]
"""State, action, reward in [0, 1], next state, whether the episode ended there."""


class Slow(Corridor):
    """A corridor in which some episodes end and some do not, whatever one does."""

    def step(self, action: Any) -> Any:
        self.x[0] -= 0.2
        return super().step(action)


def recording(kind: type, seen: dict[int, list[Step]]) -> type:
    """The world, which writes down the last episode that began with each seed."""

    class Recorded(kind):  # type: ignore[misc, valid-type]
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.path = seen[-1 if seed is None else seed] = []
            self.at, info = super().reset(seed=seed, options=options)
            return self.at, info

        def step(self, action: Any) -> Any:
            found = super().step(action)
            pay = (found[1] - RANGE[0]) / (RANGE[1] - RANGE[0])
            self.path.append((self.at, int(action), pay, found[0], found[2]))
            self.at = found[0]
            return found

    return Recorded


def pooled(
    steps: list[Step], phi: Any, d: int, after: float, beta: float = BETA
) -> tuple[np.ndarray, np.ndarray]:
    """Every step's data for every step; the value after an end is (H − h)·r₀ if `after` says so."""
    rows = np.array([phi(x)[a] for x, a, *_ in steps])
    gram, w = LAM * np.eye(d) + rows.T @ rows, np.zeros((H, d))
    for i in reversed(range(H)):
        targets = []
        for _, _, r, y, over in steps:
            if i == H - 1:
                targets.append(r)
            elif over:
                targets.append(r + (H - 1 - i) * after)
            else:
                targets.append(r + value(phi(y), w[i + 1], gram, beta, float(H)))
        w[i] = ridge_by_least_squares(rows, np.array(targets), LAM)
    return w, np.stack([gram] * H)


def learn(world: Any, **options: Any) -> Any:
    learner = FedLSVI(M, gamma=20.0, beta=BETA, lam=LAM, preset="paper", stationary=True)
    return learner.learn(world, T, SEED, progress=False, keep_models=True, **options)


@pytest.mark.parametrize("shared", [False, True])
def test_vectors_are_the_regression_on_all_that_was_played(shared: bool) -> None:
    """Ends are ends at every step, and the state after step H is the next of another step's; also
    where ψ of a state is kept once for the transition before it and the one after."""
    seen: dict[int, list[Step]] = {}
    world = as_environment(recording(Slow, seen), horizon=H, reward_range=RANGE)
    features: Any = FourierFeatures(3).bind(world) if shared else walk_features
    run = learn(world, features=features)
    seeds = reset_seeds(SEED, range(M), 1, T)
    phi, dim = feature_lookup(features), 12 if shared else 6
    for record, (w, gram) in zip(run.records, run.models, strict=True):
        steps = [s for m in range(M) for t in range(record.last) for s in seen[int(seeds[m, t])]]
        expected = pooled(steps, phi, dim, AFTER)
        assert_close(gram, expected[1], f"Λ after round {record.k}")
        assert_close(w, expected[0], f"w after round {record.k}", 1e-7)
    ends = [path[-1][4] for path in seen.values() if path]
    assert 0.2 < np.mean(ends) < 0.98, "some episodes end, some do not"


def test_numbers_are_the_regression_on_all_that_was_played() -> None:
    """The state after the end is one of them: absorbing, and it pays r₀."""
    seen: dict[int, list[Step]] = {}
    maker = recording(Tiny, seen)
    world = as_environment(maker, horizon=H, reward_range=RANGE, tables=False)
    run = learn(world)
    seeds = reset_seeds(SEED, range(M), 1, T)
    table, steps, ended = np.eye(6).reshape(3, 2, 6), [], 0
    phi = feature_lookup(table)
    for record, policy, (w, gram) in zip(run.records, run.policies, run.models, strict=True):
        for m in range(M):
            for t in range(record.first - 1, record.last):
                path = [(x, a, r, 2 if over else y, False) for x, a, r, y, over in
                        seen[int(seeds[m, t])]]  # fmt: skip
                ended += len(path) < H
                for h in range(len(path), H):
                    path.append((2, int(policy[h, 2]), AFTER, 2, False))
                steps += path
        expected = pooled(steps, phi, 6, AFTER)
        assert_close(gram, expected[1], f"Λ after round {record.k}")
        assert_close(w, expected[0], f"w after round {record.k}", 1e-7)
    assert ended > 0


@pytest.mark.parametrize(
    ("kind", "features"), [(Slow, walk_features), (Slow, FourierFeatures(3)), (Tiny, None)]
)
def test_the_same_bits_over_frames_and_after_a_restart(
    kind: Any, features: Any, tmp_path: Path
) -> None:
    options: dict[str, Any] = {} if features is None else {"features": features}

    def world() -> Any:
        return as_environment(lambda: kind(), horizon=H, reward_range=RANGE, tables=False)

    here = learn(world(), **options)
    assert_same(here, learn(world(), transport=over_frames(2), **options))

    class Killed(Exception):
        pass

    def kill(record: Any) -> None:
        if record.k == 4:
            raise Killed

    folder = tmp_path / "run"
    with pytest.raises(Killed):
        learn(world(), folder=folder, checkpoint_seconds=0.0, observers=[kill], **options)
    assert_same(here, fedlsvi.resume(folder, env=world(), progress=False, **options))


def test_a_black_box_is_taken_for_stationary_unless_told() -> None:
    world = as_environment(lambda: Tiny(), horizon=H, reward_range=RANGE, tables=False)
    for own, expected in ({}, True), ({"stationary": False}, False), ({"preset": "paper"}, False):
        run = FedLSVI(2, **own).learn(world, 10, progress=False)  # type: ignore[arg-type]
        assert run.parameters.stationary is expected
        assert run.summary()["parameters"]["stationary"] is expected
