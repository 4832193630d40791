"""A feature map written as a class: what `bind` must return, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlsvi
from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.envs import ContinuousLinearMDP, FiniteMDP, RiverSwim
from fedlsvi.envs.base import Environment
from fedlsvi.errors import InvalidFeatures
from fedlsvi.features import (
    DescribedFeatures,
    FeatureMap,
    OneHot,
    TableFeatures,
    check_features,
    resolve,
)
from registering import named_features

ENV = ContinuousLinearMDP(dim=5, n_actions=3, horizon=4, cells=64)
RIVER = RiverSwim()


class Powers(FeatureMap):
    """φ(x,a) = e_a ⊗ (1, x, …, x^degree) / `by`, for one number x in [0, 1] or a state / S."""

    def __init__(self, degree: int = 2, by: float = 2.0) -> None:
        self.degree, self.by, self.largest = degree, by, 1.0

    def bind(self, env: Any) -> FeatureMap:
        bound = type(self)(self.degree, self.by)
        bound.n_actions = env.n_actions
        bound.dim = env.n_actions * (self.degree + 1)
        bound.largest = getattr(env, "n_states", 1)
        return bound

    def __call__(self, states: np.ndarray) -> np.ndarray:
        x = np.asarray(states, np.float64).reshape(len(states)) / self.largest
        psi = x[:, None] ** np.arange(self.degree + 1) / self.by
        return np.einsum("ab,ni->nabi", np.eye(self.n_actions), psi).reshape(
            len(x), self.n_actions, -1
        )


def test_on_finite_states_a_class_becomes_a_table_that_keeps_its_name(tmp_path: Path) -> None:
    with named_features("powers", Powers):
        bound = resolve("powers", RIVER)
        run = FedLSVI(2).learn(RIVER, 40, features="powers", folder=tmp_path / "x", progress=False)
    assert isinstance(bound, TableFeatures)
    assert bound.spec() == {"name": "powers", "params": {}}
    assert np.array_equal(bound.table, Powers().bind(RIVER)(np.arange(RIVER.n_states)))
    again = FedLSVI(2).learn(RIVER, 40, features=bound.table, progress=False)
    assert np.array_equal(run.w, again.w)
    # the folder needs no name: it holds the table
    assert np.array_equal(fedlsvi.load(tmp_path / "x").policy.table, again.policy.table)


def test_on_continuous_states_a_class_learns_as_its_function_does() -> None:
    bound = Powers().bind(ENV)
    runs = [
        FedLSVI(2).learn(ENV, 30, features=f, progress=False) for f in (Powers(), bound.__call__)
    ]
    assert np.array_equal(runs[0].w, runs[1].w)


class Unbound(Powers):
    def bind(self, env: Any) -> FeatureMap:
        self.n_actions = env.n_actions
        return self


class Forgetful(Powers):
    def bind(self, env: Any) -> Any:
        super().bind(env)


class Plain(Powers):
    def bind(self, env: Any) -> Any:
        return super().bind(env).__call__


class Actionless(Powers):
    def bind(self, env: Any) -> FeatureMap:
        bound = super().bind(env)
        bound.n_actions = 0
        return bound


class Flat(Powers):
    def __call__(self, states: np.ndarray) -> np.ndarray:
        return super().__call__(states)[:, :1]


class Hole(Powers):
    def __call__(self, states: np.ndarray) -> np.ndarray:
        phi = super().__call__(states)
        phi[:, 1] = np.nan
        return phi


class Words(Powers):
    def __call__(self, states: np.ndarray) -> Any:
        return np.full((len(states), self.n_actions, self.dim), "x")


class OneHotInName(Powers):
    one_hot = True


class Long(Powers):
    """Longer than 1 where the state is."""

    def __init__(self, degree: int = 2, by: float = 0.5) -> None:
        super().__init__(degree, by)


class OtherFill(Powers):
    def fill(self, states: np.ndarray, out: np.ndarray) -> None:
        out[...] = self(states)[:, ::-1]


class OtherChoice(Powers):
    def chosen(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        return self(states)[:, 0]


class Sized(Powers):
    """Binds to a table of another problem."""

    def bind(self, env: Any) -> FeatureMap:
        return TableFeatures(np.zeros((4, 2, 3)))


class Empty(Powers):
    def bind(self, env: Any) -> FeatureMap:
        return OneHot()


BOTH = [
    (Unbound(), "bad-dim", "Unbound.bind; 0"),
    (Forgetful(), "bad-bind", "Forgetful.bind; None"),
    (Plain(), "bad-bind", "Plain.bind; method"),
    (Actionless(), "bad-n_actions", "Actionless; 0"),
    (Flat(), "bad-shape", "Flat; , 1, "),
    (Hole(), "not-finite", "Hole[x=; a=1, i=0; nan"),
    (Words(), "not-an-array", "Words; ndarray"),
    (OneHotInName(), "not-one_hot", "OneHotInName"),
    (Long(), "norm-above-1", "Long[x=; a=0"),
    (Empty(), "bad-dim", "Empty.bind; OneHot; 0"),
]


@pytest.mark.parametrize(
    ("features", "code", "fragments", "env"),
    [(*case, env) for case in BOTH for env in (ENV, RIVER)]
    + [
        (Sized(), "bad-shape", "(4, 2, 3); RiverSwim; 6 states; 2 actions", RIVER),
        (OtherFill(), "fill-differs", "OtherFill.fill", ENV),
        (OtherChoice(), "chosen-differs", "OtherChoice.chosen", ENV),
        (DescribedFeatures(Forgetful(), np.zeros((6, 1))), "bad-bind", "Forgetful.bind", RIVER),
    ],
)
def test_a_class_that_breaks_the_contract_is_refused(
    features: FeatureMap, code: str, fragments: str, env: Environment
) -> None:
    with refused(InvalidFeatures, code, *fragments.split("; ")):
        FedLSVI(2).learn(env, 10, features=features, progress=False)


class Late(Powers):
    """As it should be at first states near 0, and broken at others."""

    broken = 5.0

    def __call__(self, states: np.ndarray) -> np.ndarray:
        return super().__call__(states) * np.where(states > 0.1, self.broken, 1.0)[:, :, None]


class LateNaN(Late):
    broken = np.nan


@pytest.mark.parametrize(
    ("features", "code"), [(Late(), "norm-above-1"), (LateNaN(), "not-finite")]
)
def test_every_batch_is_checked(features: FeatureMap, code: str) -> None:
    """The state where it breaks is named."""
    env = ContinuousLinearMDP(dim=5, n_actions=3, horizon=4, cells=64, initial=0.05)
    assert resolve(features, env).dim == 9
    with refused(InvalidFeatures, code, type(features).__name__, "[x=[0.", "], a="):
        FedLSVI(2).learn(env, 10, features=features, progress=False)
    with refused(InvalidFeatures, code):
        check_features(features, env)


class OwnMap(FiniteMDP):
    """An environment whose own features are of a class."""

    def default_features(self) -> FeatureMap:
        return Long().bind(self)


def test_the_features_of_an_environment_are_checked_too() -> None:
    env = OwnMap(RIVER.P, RIVER.r, horizon=3)
    with refused(InvalidFeatures, "norm-above-1", "Long[x=5, a=0]"):
        FedLSVI(2).learn(env, 10, progress=False)


class Restless(Powers):
    calls = 0.0

    def __call__(self, states: np.ndarray) -> np.ndarray:
        Restless.calls += 1.0
        return super().__call__(states) / Restless.calls


class Ranked(Powers):
    """What a state gives depends on the others in the batch."""

    def __call__(self, states: np.ndarray) -> np.ndarray:
        return super().__call__(states / np.abs(states).max())


class Writes(Powers):
    def __call__(self, states: np.ndarray) -> np.ndarray:
        phi = super().__call__(states)
        states[:] = 0.0
        return phi


class Misnamed(Powers):
    def spec(self) -> dict[str, Any]:
        return {"name": "hat", "params": {"dim": 9}}


class Informed(Powers):
    privileged = True


class Nameless(Powers):
    def spec(self) -> dict[str, Any]:
        return {"name": "no such map", "params": {}}


@pytest.mark.parametrize(
    ("features", "code", "named"),
    [
        (Restless(), "not-a-function", "Restless"),
        (Ranked(), "depends-on-batch", ""),
        (Writes(), "states-changed", "Writes"),
        (Misnamed(), "spec-of-another-map", "hat"),
        (Nameless(), "bad-spec", "'no such map'"),
    ],
)
def test_check_features_finds_the_breach(features: FeatureMap, code: str, named: str) -> None:
    with refused(InvalidFeatures, code, named):
        check_features(features, ENV)


def test_a_table_keeps_what_its_class_says_of_itself() -> None:
    told = Nameless()
    assert resolve(told, RIVER).spec() == told.spec()
    assert not resolve(told, RIVER).privileged
    assert resolve(Informed(), RIVER).privileged


@pytest.mark.parametrize("env", [ENV, RIVER])
def test_check_features_takes_what_learn_takes(env: Environment) -> None:
    check_features(Powers(), env)
    check_features(None, env)
    check_features(Powers().bind(env).__call__, env)
