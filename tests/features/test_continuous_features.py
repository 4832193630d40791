"""Hat, Fourier and radial features, and callables on continuous states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plane import Plane

from expecting import refused
from fedlsvi.envs import ContinuousLinearMDP, RiverSwim
from fedlsvi.errors import InvalidFeatures
from fedlsvi.features import (
    AggregateFeatures,
    CallableFeatures,
    FeatureMap,
    FourierFeatures,
    HatFeatures,
    OneHot,
    RBFFeatures,
    TableFeatures,
    resolve,
)

ENV = ContinuousLinearMDP(dim=5, n_actions=3, horizon=2)
STATES = np.linspace(0.0, 1.0, 101)[:, None]


@given(st.integers(2, 12), st.integers(1, 6), st.floats(0.0, 1.0))
def test_hat_features_are_the_formula_of_the_tent_map(dim: int, n_actions: int, x: float) -> None:
    phi = HatFeatures(dim, n_actions)(np.array([[x]]))[0]
    for a in range(n_actions):
        t = 1.0 - abs(2.0 * ((x + a / n_actions) % 1.0) - 1.0)
        expected = np.maximum(0.0, 1.0 - np.abs((dim - 1) * t - np.arange(dim)))
        assert np.allclose(phi[a], expected, atol=1e-12)


@pytest.mark.parametrize("features", [HatFeatures(5), RBFFeatures(4), RBFFeatures([[0.0], [9.0]])])
def test_simplex_features_are_laws(features: FeatureMap) -> None:
    bound = features.bind(ENV)
    phi = bound(STATES)
    assert bound.simplex
    assert bound.nonnegative
    assert phi.shape == (101, 3, bound.dim)
    assert phi.min() >= 0.0
    assert np.allclose(phi.sum(axis=-1), 1.0, atol=1e-12)


def test_fourier_features_have_norm_one_everywhere() -> None:
    features = FourierFeatures(n_frequencies=7, bandwidth=0.2, seed=3).bind(ENV)
    far = np.concatenate((STATES, 1e6 * STATES))
    assert features.dim == 3 * 14
    assert np.abs(np.linalg.norm(features(far), axis=-1) - 1.0).max() <= 1e-12


@pytest.mark.parametrize("features", [FourierFeatures(3), RBFFeatures(4)])
def test_actions_have_blocks_of_their_own(features: FeatureMap) -> None:
    """⟨φ(x,a), φ(y,b)⟩ = 0 for a ≠ b, and does not depend on a when a = b."""
    phi = features.bind(ENV)(STATES)
    inner = np.einsum("xai,ybi->xyab", phi, phi)
    off = inner * (1.0 - np.eye(3))
    assert np.abs(off).max() == 0.0
    assert np.abs(inner[:, :, 0, 0]).max() > 0.1
    assert np.allclose(inner[:, :, 0, 0], inner[:, :, 2, 2])


def test_radial_features_far_away_are_the_nearest_centre() -> None:
    phi = RBFFeatures(3, bandwidth=0.01).bind(ENV)(np.array([[0.9999], [1e9]]))
    assert np.allclose(phi[:, 0, :3], [[0.0, 0.0, 1.0]] * 2)


def test_radial_centres_fill_the_box_in_every_dimension() -> None:
    features = RBFFeatures(3, low=[0.0, -1.0], high=[1.0, 1.0]).bind(Plane())
    assert features.dim == 3 * 9  # three actions
    assert features.centres[0].tolist() == [0.0, -1.0]
    assert features.centres[-1].tolist() == [1.0, 1.0]


def test_the_bandwidth_of_given_centres_is_how_far_they_are_apart() -> None:
    """By hand: nearest ones are 3, 3 and 6 apart in x, so 4 on average; y does not vary."""
    bound = RBFFeatures([[0.0, 7.0], [3.0, 7.0], [9.0, 7.0]]).bind(Plane(0.0, 1.0))
    assert bound.spec()["params"]["bandwidth"][0] == pytest.approx(4.0)
    far = RBFFeatures([[0.0], [100.0]]).bind(Plane(state_dim=1))
    assert np.allclose(far.psi(np.array([[50.0]])), 0.5)
    assert 0.5 < far.psi(np.array([[40.0]]))[0, 0] < 0.6
    with refused(InvalidFeatures, "bad-bandwidth"):
        RBFFeatures([[1.0], [1.0]]).bind(Plane(state_dim=1))


@pytest.mark.parametrize("n", [0, -1, 2.5, 2.0, True, "3"])
def test_a_number_of_clusters_is_a_whole_one(n: Any) -> None:
    for clustered in (RBFFeatures.from_states, AggregateFeatures.by_clusters):
        with refused(InvalidFeatures, "bad-n", repr(n)):
            clustered(np.eye(4), n)


def test_fourier_features_are_a_function_of_their_seed() -> None:
    first, again, other = (FourierFeatures(4, seed=s).bind(ENV)(STATES) for s in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("name", ["hat", "fourier", "rbf"])
def test_filling_a_buffer_equals_calling(name: str) -> None:
    features = resolve(name, ENV)
    buffer = np.full((101, 3, features.dim), np.nan)
    features.fill(STATES, buffer)
    assert np.array_equal(buffer, features(STATES))


def test_a_callable_on_continuous_states_is_checked_at_every_call() -> None:
    """Norm ≤ 1 at the first states, but not later: the call that breaks it is refused."""
    features = resolve(lambda x: np.full((len(x), 3, 1), 1.0 + (x > 1.0).max()), ENV)
    assert (features.n_actions, features.dim) == (3, 1)
    assert features(STATES).shape == (101, 3, 1)
    assert features(STATES[:0]).shape == (0, 3, 1)
    with refused(InvalidFeatures, "norm-above-1", "norm 2"):
        features(STATES + 1.0)


@pytest.mark.parametrize(
    ("flag", "value"), [("one_hot", 0.5), ("nonnegative", -0.5), ("simplex", 0.5)]
)
def test_a_declared_flag_is_checked(flag: str, value: float) -> None:
    features = CallableFeatures(lambda x: np.full((len(x), 3, 1), value), **{flag: True})
    with refused(InvalidFeatures, f"not-{flag}"):
        features.bind(ENV)


FIRST = np.zeros(101, np.int32)


@pytest.mark.parametrize(
    ("make", "code", "fragments"),
    [
        (lambda: HatFeatures(1), "bad-dim", "1"),
        (lambda: HatFeatures(4, "abc"), "bad-n_actions", "'abc'"),  # type: ignore[arg-type]
        (lambda: HatFeatures(4, 2)(STATES - 0.3), "needs-unit-interval", "-0.3"),
        (lambda: HatFeatures(4, 2)(STATES * np.nan), "needs-unit-interval", "nan"),
        (lambda: HatFeatures(4, 2).chosen(STATES + 0.5, FIRST), "needs-unit-interval", "1.01"),
        (lambda: HatFeatures(4, 2).bind(ENV), "bad-n_actions", "2; 3; ContinuousLinearMDP"),
        (lambda: HatFeatures(4)(STATES), "unbound", ""),
        (lambda: FourierFeatures(4)(STATES), "unbound", ""),
        (lambda: FourierFeatures(0), "bad-n_frequencies", "0"),
        (lambda: FourierFeatures(1.5), "bad-n_frequencies", "1.5"),  # type: ignore[arg-type]
        (lambda: FourierFeatures(seed=-1), "bad-seed", "-1"),
        (lambda: FourierFeatures(seed="abc"), "bad-seed", "'abc'"),  # type: ignore[arg-type]
        (lambda: FourierFeatures(4, -1.0), "bad-bandwidth", "-1.0"),
        (lambda: FourierFeatures(4, "x"), "bad-bandwidth", "'x'"),  # type: ignore[arg-type]
        (lambda: FourierFeatures(4, [1.0, 2.0]).bind(ENV), "bad-bandwidth", "2; 1"),
        (lambda: RBFFeatures(0), "bad-centres", "0"),
        (lambda: RBFFeatures("abc"), "bad-centres", "'abc'"),  # type: ignore[arg-type]
        (lambda: RBFFeatures([[0.0], []]), "bad-centres", "[[0.0], []]"),
        (lambda: RBFFeatures([0.0]), "bad-centres", "[0.0]"),  # type: ignore[list-item]
        (lambda: RBFFeatures([[0.0, 1.0]]).bind(ENV), "bad-centres", "2; (D, 1)"),
        (lambda: RBFFeatures(3, 0.0), "bad-bandwidth", "0.0"),
        (lambda: RBFFeatures(3, low=1.0).bind(ENV), "bad-high", "low=[1.]"),
        (lambda: RBFFeatures(3, low=np.nan), "bad-low", "nan"),
        (lambda: RBFFeatures(3, low="abc"), "bad-low", "'abc'"),  # type: ignore[arg-type]
        (lambda: OneHot().bind(ENV), "needs-finite-states", "one-hot"),
        (lambda: TableFeatures(np.ones((1, 3, 1))).bind(ENV), "needs-finite-states", "table"),
        (lambda: resolve(lambda x: np.ones((len(x), 2, 1)), ENV), "bad-n_actions", "2; 3"),
        (lambda: HatFeatures(3).bind(RiverSwim()), "needs-unit-interval", "RiverSwim"),
        (lambda: HatFeatures(3).bind(Plane()), "needs-unit-interval", "Plane"),
    ],
)
def test_bad_features_are_refused(make: object, code: str, fragments: str) -> None:
    with refused(InvalidFeatures, code, *fragments.split("; ")):
        make()  # type: ignore[operator]
