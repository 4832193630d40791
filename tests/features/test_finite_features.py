"""Tables, one-hot and callables on finite state spaces."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlsvi.envs import FiniteMDP, RandomLinearMDP, RiverSwim
from fedlsvi.errors import InvalidFeatures, InvalidInput
from fedlsvi.features import CallableFeatures, OneHot, TableFeatures, resolve, scale


def uniform_mdp(n_states: int, n_actions: int) -> FiniteMDP:
    P = np.full((n_states, n_actions, n_states), 1.0 / n_states)
    return FiniteMDP(P, np.zeros((n_states, n_actions)), horizon=2)


@given(st.integers(1, 6), st.integers(1, 4))
def test_one_hot_is_the_identity_over_pairs(n_states: int, n_actions: int) -> None:
    features = OneHot().bind(uniform_mdp(n_states, n_actions))
    dim = n_states * n_actions
    assert features.dim == dim
    assert np.array_equal(features.table.reshape(dim, dim), np.eye(dim))
    states = np.arange(n_states)[::-1]
    assert np.array_equal(features(states), features.table[states])


@given(st.integers(0, 1000), st.integers(2, 6), st.integers(1, 4), st.integers(1, 5))
def test_scaling_a_table_puts_its_largest_row_on_the_unit_sphere(
    seed: int, n_states: int, n_actions: int, dim: int
) -> None:
    table = 10.0 * np.random.default_rng(seed).standard_normal((n_states, n_actions, dim))
    norms = np.linalg.norm(scale(table), axis=-1)
    assert norms.max() == pytest.approx(1.0, abs=1e-12)
    directions = np.einsum("xai,xai->xa", scale(table), table)
    assert np.allclose(directions, norms * np.linalg.norm(table, axis=-1))
    assert TableFeatures(scale(table)).dim == dim


def test_scaling_a_callable_divides_by_the_given_number() -> None:
    halved = scale(lambda x: np.full((len(x), 2, 1), 2.0), by=2.0)
    assert np.array_equal(halved(np.arange(3)), np.ones((3, 2, 1)))


@pytest.mark.parametrize(
    ("table", "one_hot", "nonnegative", "simplex"),
    [
        ([[[1.0, 0.0]], [[0.0, 1.0]]], True, True, True),
        ([[[0.5, 0.5]], [[0.0, 1.0]]], False, True, True),
        ([[[0.5, 0.1]], [[0.0, 1.0]]], False, True, False),
        ([[[0.5, -0.5]], [[0.0, 1.0]]], False, False, False),
    ],
)
def test_a_table_knows_what_it_is(
    table: list[list[list[float]]], one_hot: bool, nonnegative: bool, simplex: bool
) -> None:
    features = TableFeatures(table)
    assert (features.one_hot, features.nonnegative, features.simplex) == (
        one_hot,
        nonnegative,
        simplex,
    )


def test_a_table_is_copied_and_read_only() -> None:
    given_table = np.zeros((2, 1, 1))
    features = TableFeatures(given_table)
    given_table[0] = 1.0
    assert features.table[0, 0, 0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        features.table[0] = 1.0


def test_a_callable_on_a_finite_space_becomes_its_table() -> None:
    env = uniform_mdp(3, 2)
    features = resolve(lambda x: np.stack([x / 3.0, 1.0 - x / 3.0], axis=1)[:, :, None], env)
    assert isinstance(features, TableFeatures)
    assert np.allclose(features.table[:, 0, 0], [0.0, 1 / 3, 2 / 3])
    assert features.nonnegative
    assert not features.simplex


def test_resolve_takes_everything_a_caller_may_give() -> None:
    env = RandomLinearMDP(n_states=5, n_actions=2, dim=3, horizon=2)
    own = env.phi
    for given_features in (None, own, own.tolist(), TableFeatures(own), lambda x: own[x], "own"):
        assert np.array_equal(resolve(given_features, env).table, own)  # type: ignore[attr-defined]
    assert resolve(OneHot(), env).dim == resolve("one-hot", env).dim == 10
    assert resolve(None, RiverSwim()).one_hot


def test_filling_a_buffer_equals_calling() -> None:
    env = RandomLinearMDP(n_states=5, n_actions=2, dim=3, horizon=2)
    states = np.array([4, 0, 4])
    for features in (env.default_features(), OneHot().bind(env)):
        buffer = np.full((3, 2, features.dim), np.nan)
        features.fill(states, buffer)
        assert np.array_equal(buffer, features(states))


def bad(entry: float) -> np.ndarray:
    table = np.zeros((3, 2, 2))
    table[2, 1, 0] = entry
    return table


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (bad(1.5), r"features\[x=2, a=1\] has norm 1.5 > 1: divide by the largest norm"),
        (bad(np.nan), r"features\[x=2, a=1, i=0\] is nan: replace it"),
        (bad(np.inf), r"features\[x=2, a=1, i=0\] is inf"),
        (np.zeros((3, 2)), r"three axes \(states, actions, d\), got shape \(3, 2\)"),
        (np.zeros((3, 2, 0)), r"got shape \(3, 2, 0\)"),
        ("what", "unknown features 'what'"),
        ([[["a"]]], "array of real numbers, got list"),
        ([[[0.5 + 0.1j]]], "array of real numbers, got list"),
        (np.zeros((4, 2, 1)), r"shape \(4, 2, 1\), FiniteMDP has 3 states and 2 actions: give"),
        (OneHot, r"the class OneHot: make an instance, OneHot\(...\)"),
        (OneHot(3, 5), "OneHot has 3 states and 5 actions, FiniteMDP has 3 and 2"),
        (lambda x: np.zeros((1, 2, 1)), r"gave shape \(1, 2, 1\) for 3 states"),
        (lambda x: bad(2.0)[x], r"features\[x=2, a=1\] has norm 2 > 1"),
        (lambda x: None, "three axes|array of real numbers"),
        ("hat", "hat features need a state in"),
        ("rbf", "rbf features need a continuous state space, FiniteMDP has a finite one"),
        ("fourier", "fourier features need a continuous state space"),
    ],
)
def test_bad_features_are_refused_with_the_place_and_the_fix(
    features: object, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        resolve(features, uniform_mdp(3, 2))


def test_norms_may_exceed_one_by_rounding_only() -> None:
    assert TableFeatures(bad(1.0 + 1e-10)).dim == 2
    with pytest.raises(InvalidFeatures, match=r"has norm 1\.00000001 > 1: divide"):
        TableFeatures(bad(1.0 + 1e-8))


@pytest.mark.parametrize(
    ("phi", "by", "message"),
    [
        (np.zeros((1, 1, 1)), None, "zero everywhere"),
        (np.ones((1, 1, 1)), 0.0, "by must be a positive number, got 0.0"),
        (np.ones((1, 1, 1)), np.nan, "by must be a positive number, got nan"),
        (lambda x: x, None, "by is required to scale a callable"),
    ],
)
def test_scale_refuses_what_it_cannot_scale(phi: object, by: float | None, message: str) -> None:
    with pytest.raises(InvalidFeatures, match=message):
        scale(phi, by)


def test_unbound_one_hot_says_that_it_is_unbound() -> None:
    with pytest.raises(InvalidFeatures, match=r"not bound: call .bind\(env\)"):
        OneHot()(np.arange(2))
    with pytest.raises(InvalidFeatures, match=r"not bound: call .bind\(env\)"):
        _ = OneHot().table


def test_a_feature_map_must_be_callable() -> None:
    with pytest.raises(InvalidFeatures, match="must be callable, got int"):
        CallableFeatures(3)  # type: ignore[arg-type]
