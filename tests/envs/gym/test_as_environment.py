"""What may stand in place of `env`, and what is refused with a sentence."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from worlds import Blind, Coin, Corridor, number_features, walk_features

from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.envs import (
    GymMDP,
    GymWorld,
    RiverSwim,
    as_environment,
    check_env,
    from_spec,
    make,
)
from fedlsvi.errors import InvalidEnvironment, InvalidFeatures, UnknownName
from fedlsvi.features import AggregateFeatures, DescribedFeatures, FourierFeatures, OneHot


def test_the_readme_line() -> None:
    run = FedLSVI(n_agents=2).learn(
        "FrozenLake-v1", features=OneHot(), horizon=100, episodes=50, progress=False
    )
    assert run.regret is not None
    assert run.w.shape == (100, 64)
    assert run.policy.action(0, 1) in range(4)


def test_id_spec_instance_and_factory_are_the_same_problem() -> None:
    spec = gymnasium.spec("FrozenLake-v1")
    by_id = as_environment("FrozenLake-v1")
    others = [spec, gymnasium.make("FrozenLake-v1"), lambda: gymnasium.make("FrozenLake-v1")]
    assert by_id.horizon == 100  # the spec's
    for other in others:
        env = as_environment(other)
        assert isinstance(env, GymMDP)
        assert env.fingerprint == by_id.fingerprint
        travelled = pickle.loads(pickle.dumps(env))  # also where its maker cannot
        assert travelled.fingerprint == by_id.fingerprint


def test_names_of_this_package_work_too() -> None:
    for name in ("river-swim", "fedlsvi/RiverSwim-v0"):
        env = as_environment(name, horizon=7)
        assert isinstance(env, RiverSwim)
        assert env.horizon == 7
        with refused(InvalidEnvironment, "not-gymnasium", "reward_range"):
            as_environment(name, reward_range=(0, 5))
    assert as_environment("gymnasium", reward_range=(-1, 1)).reward_range == (-1.0, 1.0)
    assert as_environment("deep-sea", horizon=10).horizon == 10  # its own
    with refused(InvalidEnvironment, "not-gymnasium", "10"):
        as_environment("deep-sea", horizon=9)


def test_a_list_has_one_for_each_agent_and_equal_names_share() -> None:
    envs = as_environment(["FrozenLake-v1", "FrozenLake-v1", RiverSwim()])
    assert envs[0] is envs[1]
    assert isinstance(envs[2], RiverSwim)
    easy = copy.deepcopy(gymnasium.spec("FrozenLake-v1"))
    easy.kwargs["is_slippery"] = False
    run = FedLSVI(2, value_range=1).learn(["FrozenLake-v1", easy], 20, horizon=10, progress=False)
    assert len(run.environment) == 2
    assert run.environment[1]["params"]["kwargs"]["is_slippery"] is False
    with refused(InvalidEnvironment, "wrong-number-of-environments", "2", "3"):
        FedLSVI(3).learn(["FrozenLake-v1", "FrozenLake-v1"], 5, progress=False)


def test_the_record_rebuilds_it() -> None:
    env = make("gymnasium", id="FrozenLake-v1", horizon=9, kwargs={"is_slippery": False})
    again = from_spec(env.spec())
    assert again.spec() == env.spec()
    assert again.fingerprint == env.fingerprint  # type: ignore[attr-defined]
    short = make("Taxi-v4", horizon=3)  # an id is a name
    assert short.spec()["params"]["id"] == "Taxi-v4"
    assert short.reward_range == (-10.0, 20.0)
    world = make("CartPole-v1", horizon=5)
    check_env(world)
    check_env(make("gymnasium", tables=False))
    assert from_spec(world.spec()).spec() == world.spec()
    odd = as_environment(lambda: Corridor(), horizon=5)
    assert odd.spec()["name"] is None


NUMBERS = spaces.Discrete(2)


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        ("Pendulum-v1", ("bad-action-space",)),
        (lambda: Blind(NUMBERS, spaces.MultiBinary(2)), ("bad-action-space",)),
        (lambda: Blind(NUMBERS, spaces.Dict(a=NUMBERS)), ("bad-action-space",)),
        (lambda: Corridor(), ("missing-horizon",)),
        (lambda: 3, ("bad-env",)),
        (3, ("bad-env",)),
        (Corridor(), ("single-environment",)),
        (lambda: Blind(spaces.Graph(NUMBERS, None), NUMBERS), ("missing-horizon",)),
    ],
)
def test_refusals(env: Any, sentence: tuple[str, ...]) -> None:
    with refused(InvalidEnvironment, *sentence):
        as_environment(env)


@pytest.mark.parametrize("env", ["CartPole-v1", gymnasium.spec("CartPole-v1"), Corridor])
def test_a_horizon_of_nothing_is_refused(env: Any) -> None:
    with refused(InvalidEnvironment, "bad-horizon"):
        as_environment(env, horizon=0)


@pytest.mark.parametrize(
    "error",
    [gymnasium.error.DependencyNotInstalled("run pip install swig"), ImportError("no swig")],
    ids=["told", "plain"],
)
def test_a_package_that_an_environment_lacks_is_named(error: Exception) -> None:
    def lander() -> Any:
        raise error

    with refused(InvalidEnvironment, "missing-package", "'Lander-v0'"):
        as_environment(EnvSpec("Lander-v0", lander, max_episode_steps=5))


def test_arguments_that_make_nothing_are_named() -> None:
    with refused(InvalidEnvironment, "factory-raised", "'map_name'", "'5x5'"):
        as_environment("FrozenLake-v1", kwargs={"map_name": "5x5"})


def test_unknown_names_come_with_the_nearest() -> None:
    with refused(UnknownName, "unknown-environment", "'FrozenLake-v1'"):
        as_environment("FrozenLake-v0")
    with refused(UnknownName, "unknown-environment", "'Taxi-v4'"):
        as_environment("Taxi-v3")
    with refused(UnknownName, "unknown-environment", "'river-swim'"):
        as_environment("river-swimm")
    with refused(
        InvalidEnvironment, "unknown-environment", "'Nowhere'", "'package:Nowhere/Far-v0'"
    ):
        as_environment("Nowhere/Far-v0")
    with refused(InvalidEnvironment, "unknown-environment", "'package:intersection-v0'"):
        as_environment("intersection-v0")
    with refused(UnknownName, "unknown-environment") as caught:
        as_environment("xyz")
    assert "CartPole" not in str(caught.value)
    with refused(InvalidEnvironment, "import-failed"):
        as_environment("no_such_package:Far-v0")


def test_observations_that_cannot_be_flattened_are_refused() -> None:
    graph = spaces.Graph(node_space=spaces.Box(0, 1, (2,)), edge_space=None)
    with refused(InvalidEnvironment, "bad-observation-space"):
        as_environment(lambda: Blind(graph, NUMBERS), horizon=3)


def test_dictionaries_need_features_and_then_work() -> None:
    seen = spaces.Dict(place=spaces.Discrete(3), speed=spaces.Box(-1.0, 1.0, (2,)))
    env = as_environment(lambda: Blind(seen, NUMBERS), horizon=3)
    assert isinstance(env, GymWorld)
    assert env.state_dim == 5
    with refused(InvalidFeatures, "missing-features"):
        FedLSVI(2).learn(env, 5, progress=False)

    def phi(states: np.ndarray) -> np.ndarray:
        return np.repeat(states[:, None, :], 2, axis=1) / 3.0

    run = FedLSVI(2).learn(env, 5, features=phi, progress=False)
    assert run.regret is None
    assert run.mean_returns is not None
    assert np.allclose(run.mean_returns, 1.5)


def test_options_are_for_gymnasium_environments() -> None:
    with refused(InvalidEnvironment, "not-gymnasium"):
        FedLSVI(2).learn(RiverSwim(), 5, horizon=7, progress=False)
    assert as_environment(RiverSwim(horizon=7), horizon=7).horizon == 7


def test_numbered_spaces_may_begin_anywhere() -> None:
    runs = [
        FedLSVI(2).learn(lambda s=s: Coin(start=s), 20, horizon=4, progress=False) for s in (0, 5)
    ]
    assert np.array_equal(runs[0].w, runs[1].w)


def test_both_kinds_of_black_box_learn() -> None:
    numbered = FedLSVI(2).learn(lambda: Coin(), 30, horizon=4, progress=False)
    assert numbered.policy.table.shape == (4, 4)
    walked = FedLSVI(2).learn(
        lambda: Corridor(), 20, horizon=6, features=walk_features, progress=False
    )
    assert walked.policy.action([0.0, 0.0], 1) in (0, 1)
    assert walked.mean_returns is not None
    assert len(walked.mean_returns) == walked.rounds
    assert number_features(np.zeros((2, 1))).shape == (2, 2, 8)


def test_the_state_after_the_end_is_named_where_states_are_counted() -> None:
    table = np.eye(6).reshape(3, 2, 6)
    for code, features in (
        ("bad-shape", table),
        ("too-few-states", lambda states: table[states]),
        ("bad-groups", AggregateFeatures([0, 0, 1])),
        ("bad-descriptions", DescribedFeatures(FourierFeatures(2), np.zeros((3, 1)))),
    ):
        with refused(InvalidFeatures, code, "4 states (3 and"):
            FedLSVI(1).learn(Coin, 3, horizon=4, features=features, progress=False)
    one = as_environment("FrozenLake-v1")
    stepped = as_environment("FrozenLake-v1", tables=False)
    with refused(InvalidEnvironment, "agents-disagree", "17", "16", "tables=False"):
        FedLSVI(2).learn([one, stepped], 3, progress=False)
    with refused(InvalidEnvironment, "agents-disagree", "48", "env[0].n_states is 16"):
        FedLSVI(2).learn([one, as_environment("CliffWalking-v1", horizon=100)], 3, progress=False)


def test_references_stand_beside_what_was_learned() -> None:
    known = FedLSVI(2, value_range=1).learn("FrozenLake-v1", 100, horizon=30, progress=False)
    found = known.references()
    assert found["uniform"] < found["optimal"]
    assert found["learned"] <= found["optimal"] + 1e-12
    boxed = FedLSVI(2).learn(
        lambda: Corridor(), 10, horizon=6, features=walk_features, progress=False
    )
    assert set(boxed.references(5)) == {"learned", "exploring", "random"}
    simulated = FedLSVI(1).learn("continuous-linear", 3, progress=False).references(5)
    assert set(simulated) == {"learned", "exploring", "random", "optimal"}
