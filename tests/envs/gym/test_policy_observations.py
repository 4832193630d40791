"""A policy leaves: saved, loaded, played and recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from worlds import Blind, Coin, Corridor, walk_features

import fedlsvi
from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.envs import RiverSwim
from fedlsvi.envs.gym.convert import as_environment
from fedlsvi.envs.gym.play import Evaluation, evaluate_policy, record
from fedlsvi.envs.spaces import Spaces, numbered, vectors
from fedlsvi.errors import DamagedFile, InvalidFeatures, InvalidInput, StoreError, WrongVersion
from fedlsvi.features import EmbeddingFeatures, FourierBasis, FourierFeatures, RBFFeatures
from fedlsvi.policy import Policy
from fedlsvi.run import Run
from fedlsvi.storage import files


@pytest.fixture(scope="module")
def lake() -> Run:
    return FedLSVI(4, value_range=1).learn("FrozenLake-v1", 800, horizon=20, progress=False)


def test_a_table_comes_back(lake: Run, tmp_path: Path) -> None:
    lake.policy.save(tmp_path / "lake")
    assert sorted(p.name for p in (tmp_path / "lake").iterdir()) == [
        "policy.json", "policy.safetensors",
    ]  # fmt: skip
    policy = Policy.load(tmp_path / "lake")
    assert np.array_equal(policy.table, lake.policy.table)
    assert policy.horizon == 20
    assert policy.environment == lake.environment[0]
    assert policy.action(3, 2) == lake.policy.action(3, 2)
    with refused(InvalidInput, "bad-state", "15"):
        policy.action(16, 1)
    with refused(InvalidInput, "bad-step", "20"):
        policy.action(0, 21)


SEEN = {
    "tuple": spaces.Tuple((spaces.Discrete(600), spaces.Discrete(200, start=2))),
    "dict": spaces.Dict(b=spaces.Box(0.0, 1.0, (1,)), a=spaces.Discrete(3)),
    "many": spaces.MultiDiscrete([300, 400], start=[1, 0]),
    "bits": spaces.MultiBinary(3),
    "image": spaces.Box(0, 255, (2, 3), np.uint8),
}


@pytest.mark.parametrize("name", SEEN)
def test_a_policy_takes_what_the_environment_shows(name: str, tmp_path: Path) -> None:
    """As `gymnasium.spaces.flatten` lays it out for the learner, also from a file."""
    space = SEEN[name]
    run = FedLSVI(1).learn(
        lambda: Blind(space, spaces.Discrete(3, start=1)), 20, horizon=3,
        features=FourierFeatures(4, seed=1), progress=False,
    )  # fmt: skip
    run.policy.save(tmp_path)
    space.seed(0)
    shown = [space.sample() for _ in range(8)]
    flat = np.stack([spaces.flatten(space, one) for one in shown]).astype(np.float64)
    for policy in (run.policy, Policy.load(tmp_path)):
        chosen = [policy.action(one, 2) for one in shown]
        assert chosen == (policy.actions(2, flat) + 1).tolist()
        with refused(InvalidInput, "bad-state"):
            policy.action({"a": 1}, 2)
        with refused(InvalidInput, "bad-state"):
            policy.action(np.full(7, 9), 2)


def test_states_and_actions_are_numbered_as_the_environment_does(tmp_path: Path) -> None:
    env = as_environment(lambda: Coin(start=1), horizon=5)
    run = FedLSVI(2).learn(env, 60, progress=False)
    run.policy.save(tmp_path / "policy")
    run.save(str(tmp_path / "run"))
    loaded = fedlsvi.load(tmp_path / "run", env=env)
    for policy in (run.policy, Policy.load(tmp_path / "policy"), loaded.policy):
        for h in range(1, 6):
            table = policy.table[h - 1, :3] + 1
            assert [policy.action(x, h) for x in (1, 2, 3)] == table.tolist()
        for beyond in (0, 4):
            with refused(InvalidInput, "bad-state", f"{beyond}"):
                policy.action(beyond, 1)


@pytest.mark.parametrize(
    ("state", "step", "sentence"),
    [
        ("a", 1, ("bad-state", "'a'")),
        (1.7, 1, ("bad-state", "1.7")),
        ([0, 1], 1, ("bad-state",)),
        (float("nan"), 1, ("bad-state",)),
        (0, 1.5, ("bad-step", "20", "1.5")),
        (0, True, ("bad-step", "True")),
    ],
)
def test_what_is_no_state_or_step_is_refused(
    lake: Run, state: Any, step: Any, sentence: tuple[str, ...]
) -> None:
    with refused(InvalidInput, *sentence):
        lake.policy.action(state, step)


def test_vectors_and_batches_are_checked(lake: Run) -> None:
    walk = FedLSVI(1).learn(lambda: Corridor(), 5, horizon=4, features=walk_features,
                            progress=False).policy  # fmt: skip
    for state in ([0.1], [0.1, 0.2, 0.3], [np.nan, 0.2], [np.inf, 0.2], [[0.1], [0.2]], ["a", "b"]):
        with refused(InvalidInput, "bad-state"):
            walk.action(state, 1)
    with refused(InvalidInput, "bad-state", "(2,)", "(n, 2)"):
        walk.actions(1, np.zeros(2))
    assert lake.policy.actions(1, [0, 1]).tolist() == lake.policy.table[0, :2].tolist()  # type: ignore[arg-type]
    with refused(InvalidInput, "bad-state", "15", "16"):
        lake.policy.actions(1, np.array([0, 16]))


@pytest.mark.parametrize(
    "features",
    [
        FourierFeatures(4, [0.5, 1.0], seed=3),
        FourierBasis(2),
        RBFFeatures(3, low=-1.0, high=1.0),
    ],
    ids=lambda f: type(f).__name__,
)
def test_a_linear_policy_acts_on_the_very_numbers(features: object, tmp_path: Path) -> None:
    run = FedLSVI(2).learn(lambda: Corridor(), 15, horizon=4, features=features, progress=False)
    run.policy.save(tmp_path)
    policy = Policy.load(tmp_path)
    states = np.random.default_rng(0).uniform(-1.0, 1.0, (200, 2))
    for h in range(1, 5):
        assert np.array_equal(policy.actions(h, states), run.policy.actions(h, states))


def test_features_that_no_file_holds_are_asked_for(tmp_path: Path) -> None:
    def embed(states: np.ndarray) -> np.ndarray:
        return np.concatenate((np.ones((len(states), 1)), states), axis=1)

    def direction(states: np.ndarray) -> np.ndarray:
        unit = states / np.linalg.norm(states, axis=1, keepdims=True)
        return np.stack((unit, -unit), axis=1)

    features = EmbeddingFeatures(embed)
    for phi in (features, direction, walk_features):
        run = FedLSVI(2).learn(lambda: Corridor(), 10, horizon=4, features=phi, progress=False)
        run.policy.save(tmp_path)
        with refused(InvalidFeatures, "features-not-saved", "features="):
            Policy.load(tmp_path)
        again = Policy.load(tmp_path, features=phi)
        assert again.action([0.1, 0.2], 2) == run.policy.action([0.1, 0.2], 2)
    with refused(InvalidFeatures, "other-features", "36", "6"):
        Policy.load(tmp_path, features=FourierFeatures(9))


def test_damage_is_noticed(lake: Run, tmp_path: Path) -> None:
    with refused(StoreError, "no-policy", "nowhere"):
        Policy.load(tmp_path / "nowhere")
    lake.policy.save(tmp_path)
    arrays = tmp_path / "policy.safetensors"
    arrays.write_bytes(arrays.read_bytes()[:-1] + b"\x07")
    with refused(DamagedFile, "altered", str(arrays)):
        Policy.load(tmp_path)
    head = files.read_json(tmp_path / "policy.json", {str: object})
    files.write_json(tmp_path / "policy.json", {**head, "format": 99})
    with refused(WrongVersion, "wrong-format", "99"):
        Policy.load(tmp_path)
    (tmp_path / "policy.json").write_text("{")
    with refused(DamagedFile, "damaged", str(tmp_path)):
        Policy.load(tmp_path)


def test_evaluation_agrees_with_the_exact_value(lake: Run) -> None:
    assert lake.plan is not None
    env = lake.plan.envs[0]
    exact = env.policy_values(lake.policy.table)[0, 0]  # type: ignore[attr-defined]
    found = evaluate_policy(lake.policy, "FrozenLake-v1", episodes=400, seed=1)
    low, high = found.interval
    assert low - 0.03 <= exact <= high + 0.03
    assert 1 <= found.lengths.min() <= found.lengths.max() <= 20
    again = evaluate_policy(lake.policy, env, episodes=400, seed=1)
    assert np.array_equal(again.returns, found.returns)
    assert "95 %, 400 episodes" in str(found)
    random = evaluate_policy("random", "FrozenLake-v1", episodes=60, horizon=20)
    assert random.mean < 0.2


def test_our_own_environments_can_be_played_too() -> None:
    env = RiverSwim(4, 8)
    run = FedLSVI(2).learn(env, 200, progress=False)
    found = evaluate_policy(run.policy, env, episodes=200)
    exact = env.policy_values(run.policy.table)[0, 0]
    low, high = found.interval
    assert low - 0.3 <= exact <= high + 0.3


def test_what_cannot_be_played_is_refused(lake: Run) -> None:
    with refused(InvalidInput, "bad-horizon", "20"):
        evaluate_policy(lake.policy, "FrozenLake-v1", horizon=30)
    with refused(InvalidInput, "bad-policy", "'random'"):
        evaluate_policy("best", "FrozenLake-v1")
    with refused(InvalidInput, "bad-env"):
        evaluate_policy(lake.policy, ["FrozenLake-v1"] * 2)
    with refused(InvalidInput, "not-gymnasium"):
        evaluate_policy("random", RiverSwim(), kwargs={"n_states": 3})
    with refused(InvalidInput, "bad-seed"):
        evaluate_policy("random", "FrozenLake-v1", seed=-1, horizon=5)


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        ("Taxi-v4", ("wrong-environment", "500", "16")),
        ("CartPole-v1", ("wrong-environment",)),
    ],
)
def test_another_environment_is_refused(
    lake: Run, tmp_path: Path, env: str, sentence: tuple[str, ...]
) -> None:
    with refused(InvalidInput, *sentence):
        evaluate_policy(lake.policy, env, 3)
    with refused(InvalidInput, *sentence):
        record(lake.policy, env, tmp_path / "episode.gif")


def test_one_of_a_kind_is_counted_as_one() -> None:
    words = Spaces(numbered(1), 1, n_states=1).words(), Spaces(vectors(1), 2, state_dim=1).words()
    assert words == ("1 state and 1 action", "observations of 1 number and 2 actions")


def test_one_episode_has_no_interval() -> None:
    one = Evaluation(np.array([2.0]), np.array([3]))
    assert one.interval is None
    assert str(one) == "2 (1 episode: too few for an interval)"


def test_recordings(lake: Run, tmp_path: Path) -> None:
    total = record(lake.policy, "FrozenLake-v1", tmp_path / "lake.txt", seed=2)
    text = (tmp_path / "lake.txt").read_text()
    assert text.startswith("step 0\n")
    assert text.endswith(f"return {total:g}\n")
    assert record(lake.policy, "FrozenLake-v1", tmp_path / "lake.gif", seed=2) == total
    assert (tmp_path / "lake.gif").read_bytes()[:3] == b"GIF"
    with refused(InvalidInput, "bad-path"):
        record(lake.policy, "FrozenLake-v1", tmp_path / "lake.avi")
    run = FedLSVI(1).learn(lambda: Corridor(), 5, horizon=4, features=walk_features, progress=False)
    walk = tmp_path / "walk.txt"
    earned = record(run.policy, Corridor, walk)
    assert "x = " in walk.read_text()
    assert record(run.policy, as_environment(Corridor, horizon=6), walk) == earned
    assert record(lake.policy, as_environment("FrozenLake-v1"), tmp_path / "l.txt", seed=2) == total
    with refused(InvalidInput, "cannot-render", "'rgb_array'"):
        record(run.policy, Corridor, tmp_path / "walk.gif")
