"""Tables, one-hot and callables on finite state spaces."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expecting import refused
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
    ("features", "code", "fragments"),
    [
        (bad(1.5), "norm-above-1", "x=2, a=1; 1.5"),
        (bad(np.nan), "not-finite", "x=2, a=1, i=0; nan"),
        (bad(np.inf), "not-finite", "x=2, a=1, i=0; inf"),
        (np.zeros((3, 2)), "bad-shape", "(3, 2)"),
        (np.zeros((3, 2, 0)), "bad-shape", "(3, 2, 0)"),
        ("what", "unknown-features", "'what'"),
        ([[["a"]]], "not-an-array", "list"),
        ([[[0.5 + 0.1j]]], "not-an-array", "list"),
        (np.zeros((4, 2, 1)), "bad-shape", "(4, 2, 1); FiniteMDP; 3 states; (3, 2, d)"),
        (OneHot, "features-not-made", "OneHot()"),
        (OneHot(3, 5), "bad-shape", "3 states; 5 actions; FiniteMDP; 3 and 2"),
        (lambda x: np.zeros((1, 2, 1)), "bad-shape", "(1, 2, 1); 3 states"),
        (lambda x: bad(2.0)[x], "norm-above-1", "x=2, a=1; 2"),
        (lambda x: None, "bad-shape", ""),
        ("hat", "needs-unit-interval", "FiniteMDP"),
        ("rbf", "needs-continuous-states", "rbf; FiniteMDP"),
        ("fourier", "needs-continuous-states", "fourier"),
    ],
)
def test_bad_features_are_refused(features: object, code: str, fragments: str) -> None:
    with refused(InvalidInput, code, *fragments.split("; ")):
        resolve(features, uniform_mdp(3, 2))


def test_norms_may_exceed_one_by_rounding_only() -> None:
    assert TableFeatures(bad(1.0 + 1e-10)).dim == 2
    with refused(InvalidFeatures, "norm-above-1", "1.00000001"):
        TableFeatures(bad(1.0 + 1e-8))


@pytest.mark.parametrize(
    ("phi", "by", "code"),
    [
        (np.zeros((1, 1, 1)), None, "zero-features"),
        (np.ones((1, 1, 1)), 0.0, "bad-by"),
        (np.ones((1, 1, 1)), np.nan, "bad-by"),
        (lambda x: x, None, "bad-by"),
    ],
)
def test_scale_refuses_what_it_cannot_scale(phi: object, by: float | None, code: str) -> None:
    with refused(InvalidFeatures, code):
        scale(phi, by)


def test_unbound_one_hot_says_that_it_is_unbound() -> None:
    with refused(InvalidFeatures, "unbound"):
        OneHot()(np.arange(2))
    with refused(InvalidFeatures, "unbound"):
        _ = OneHot().table


def test_a_feature_map_must_be_callable() -> None:
    with refused(InvalidFeatures, "not-callable", "int"):
        CallableFeatures(3)  # type: ignore[arg-type]
