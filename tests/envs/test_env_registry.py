"""Environments by name, and what it costs to import them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from expecting import refused
from fedlsvi import envs
from fedlsvi.envs import Environment, FiniteMDP, RandomLinearMDP, from_spec, make, names, register
from fedlsvi.envs.registry import REGISTRY
from fedlsvi.errors import InvalidEnvironment, UnknownName


def test_the_names_are_those_that_are_promised() -> None:
    promised = {
        "random-linear",
        "hard-chain",
        "combination-lock",
        "river-swim",
        "n-chain",
        "deep-sea",
        "garnet",
        "random-mdp",
        "continuous-linear",
    }
    assert promised <= set(names())


def test_parameters_reach_the_constructor() -> None:
    env = make("random-linear", n_states=7, seed=5)
    assert isinstance(env, RandomLinearMDP)
    assert env.fingerprint == RandomLinearMDP(n_states=7, seed=5).fingerprint


def test_unknown_names_are_answered_with_the_nearest() -> None:
    with refused(UnknownName, "unknown-environment", "'riverswim'", "'river-swim'"):
        make("riverswim")
    with refused(UnknownName, "unknown-parameter", "'garnet'", "'n_state'", "'n_states'"):
        make("garnet", n_state=3)


def tiny(level: float = 0.5, **options: Any) -> Environment:
    return FiniteMDP(np.ones((1, 1, 1)), [[level]], horizon=2, **options)


def needy(level: float) -> Environment:
    return tiny(level)


def test_a_third_party_environment_is_made_recorded_and_rebuilt_by_its_name() -> None:
    register("tiny", tiny, "one state, one action", {"level": 0.25})
    register("needy", needy, "needs its level")
    try:
        env = make("tiny")
        assert env.spec() == {"name": "tiny", "params": {"level": 0.25}}
        again = from_spec(make("tiny", level=0.75, name="Tiny").spec())
        assert isinstance(again, FiniteMDP)
        assert (again.name, again.optimal_values()[0, 0]) == ("Tiny", 1.5)
        with refused(InvalidEnvironment, "name-taken", "tiny"):
            register("tiny", tiny, "again")
        with refused(InvalidEnvironment, "constructor-failed", "'needy'", "level"):
            make("needy")
    finally:
        del REGISTRY.rows["tiny"], REGISTRY.rows["needy"]


@pytest.mark.parametrize("spec", [{"name": "garnet"}, "garnet", {"name": 1, "params": {}, "x": 2}])
def test_a_spec_that_is_none_is_refused(spec: Any) -> None:
    with refused(InvalidEnvironment, "bad-spec"):
        from_spec(spec)


def test_records_of_arrays_survive_as_lists() -> None:
    env = RandomLinearMDP(3, 2, 2, 2, initial=np.array([0.5, 0.25, 0.25]))
    assert env.describe()["initial"] == [0.5, 0.25, 0.25]
    assert from_spec(env.spec()).fingerprint == env.fingerprint  # type: ignore[attr-defined]


def test_every_public_name_exists() -> None:
    assert sorted(envs.__all__) == envs.__all__
    assert all(hasattr(envs, name) for name in envs.__all__)


def test_importing_environments_and_features_compiles_nothing() -> None:
    code = (
        "import sys, fedlsvi.envs.registry, fedlsvi.features.registry;"
        "print([m for m in ('numba', 'scipy', 'matplotlib', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
