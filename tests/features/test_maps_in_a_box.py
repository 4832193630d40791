"""Fourier basis, tiles, polynomials; groups of states; low rank; embeddings."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from plane import Plane

from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.envs import ContinuousLinearMDP, Garnet, RandomLinearMDP
from fedlsvi.errors import InvalidFeatures
from fedlsvi.features import (
    AggregateFeatures,
    DescribedFeatures,
    EmbeddingFeatures,
    FourierBasis,
    FourierFeatures,
    HatFeatures,
    LowRankFeatures,
    PolynomialFeatures,
    RBFFeatures,
    SklearnFeatures,
    TileFeatures,
    TorchFeatures,
    make,
)
from fedlsvi.features.base import FeatureMap, check_norms, flags

STATES = np.random.default_rng(0).uniform(-3.0, 3.0, (300, 2))
FINITE = Garnet(6, 2, 2, 3)


@pytest.mark.parametrize(
    ("features", "width"),
    [
        (FourierBasis(3), 16),
        (FourierBasis(3, coupled=1), 7),
        (TileFeatures(4, 5), 4 * 36),
        (TileFeatures(1, [5, 2]), 10),
        (PolynomialFeatures(3), 10),
        (RBFFeatures.from_states(STATES, 9), 9),
        (RBFFeatures(4), 16),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, FeatureMap) else str(v),
)
def test_sizes_norms_blocks_and_records(features: Any, width: int) -> None:
    bound = features.bind(Plane(-2.0, 2.0))
    assert bound.dim == 3 * width
    phi = bound(STATES)
    assert phi.shape == (300, 3, bound.dim)
    check_norms("features", phi)
    for claimed, found in zip(
        (bound.one_hot, bound.nonnegative, bound.simplex), flags(phi), strict=True
    ):
        assert found or not claimed
    actions = np.random.default_rng(1).integers(3, size=300)
    assert np.array_equal(bound.chosen(STATES, actions), phi[np.arange(300), actions])
    spec = bound.spec()
    again = make(spec["name"], **spec["params"]).bind(Plane())
    assert np.array_equal(again(STATES), phi)


def test_the_fourier_basis_is_its_formula() -> None:
    bound = FourierBasis(2, low=[-2.0, 0.0], high=[2.0, 1.0]).bind(Plane())
    x = np.array([[1.0, 0.25]])
    unit = np.array([0.75, 0.25])
    every = [np.cos(np.pi * np.dot(c, unit)) / 3.0 for c in itertools.product(range(3), repeat=2)]
    assert np.allclose(sorted(bound(x)[0, 1, 9:18]), sorted(every))


def test_tiles_are_shifted_grids() -> None:
    bound = TileFeatures(2, 4, low=0.0, high=1.0).bind(Plane(state_dim=1))
    phi = bound(np.array([[0.0], [0.2], [0.24], [1.0], [7.0]]))[:, 0, :10]
    share = 2.0**-0.5
    assert np.allclose(phi.sum(axis=1), 2 * share)
    assert np.argmax(phi[:, :5], axis=1).tolist() == [0, 0, 0, 4, 4]
    assert np.argmax(phi[:, 5:], axis=1).tolist() == [0, 1, 1, 4, 4]
    grid = TileFeatures(1, 4, low=0.0, high=1.0).bind(Plane(state_dim=1))
    assert np.argmax(grid(np.array([[0.0], [0.3], [1.0]]))[:, 0, :4], axis=1).tolist() == [0, 1, 3]
    assert grid.simplex


def test_polynomials_are_monomials() -> None:
    bound = PolynomialFeatures(2, low=-1.0, high=1.0).bind(Plane())
    x, y = 0.5, -0.25
    found = bound(np.array([[x, y]]))[0, 0, :6] * np.sqrt(6.0)
    assert np.allclose(found, [1.0, x, y, x * x, x * y, y * y])


def test_radial_centres_are_spread_over_the_box_of_the_environment() -> None:
    """As for the other maps; centres that are given need no box."""
    bound = RBFFeatures(3).bind(Plane(-2.0, 6.0))
    assert np.unique(bound.centres).tolist() == [-2.0, 2.0, 6.0]
    assert bound.spec()["params"]["bandwidth"] == [4.0, 4.0]
    assert RBFFeatures(3, low=0.0).bind(Plane(-2.0, 6.0)).centres.min() == 0.0
    assert RBFFeatures([[0.0, 1.0]]).bind(Plane(-np.inf, np.inf)).dim == 3


def test_a_box_must_be_known_finite_and_not_too_fine() -> None:
    with refused(InvalidFeatures, "box-unbounded", "high="):
        FourierBasis(2).bind(Plane(-1.0, np.inf))
    with refused(InvalidFeatures, "bad-high"):
        FourierBasis(2, low=1.0, high=0.0).bind(Plane())
    with refused(InvalidFeatures, "box-unbounded", "high="):
        RBFFeatures(2).bind(Plane(-1.0, np.inf))
    vast = float(np.finfo(np.float32).max)  # what a Box of float32 may have for ∞
    for features in (FourierBasis(2), TileFeatures(), PolynomialFeatures(), RBFFeatures(2)):
        for bound in (vast, float(np.iinfo(np.int64).max), np.nan):
            with refused(InvalidFeatures, "box-unbounded", "low="):
                features.bind(Plane(-bound, bound))
        assert features.__class__(low=-1.0, high=1.0).bind(Plane(-vast, vast)).dim > 0
    with refused(InvalidFeatures, "needs-unit-interval", "Plane", "[-50, 50]"):
        HatFeatures().bind(Plane(-50.0, 50.0, state_dim=1))
    for fine in (FourierBasis(9), FourierBasis(10**9, coupled=1), RBFFeatures(9),
                 TileFeatures(1, 9), PolynomialFeatures(10**9)):  # fmt: skip
        with refused(InvalidFeatures, "too-many-features"):
            fine.bind(Plane(0.0, 1.0, state_dim=9))
    with refused(InvalidFeatures, "too-many-features"):
        TileFeatures().bind(Plane(0.0, 1.0, state_dim=400))
    with refused(InvalidFeatures, "bad-tiles"):
        TileFeatures(tiles=[])
    with refused(InvalidFeatures, "bad-order", "0"):
        FourierBasis(0)
    with refused(InvalidFeatures, "bad-low", "nan"):
        TileFeatures(low=np.nan)
    with refused(InvalidFeatures, "bad-low", "'far'"):
        TileFeatures(low="far")  # type: ignore[arg-type]
    with refused(InvalidFeatures, "needs-continuous-states"):
        PolynomialFeatures().bind(FINITE)


def test_groups_share_their_features() -> None:
    bound = AggregateFeatures([0, 0, 1, 1, 2, 2]).bind(FINITE)
    assert bound.one_hot
    assert bound.dim == 6
    assert np.array_equal(bound.table[0], bound.table[1])
    pairs = AggregateFeatures(np.array([[0, 1]] * 5 + [[9, 9]])).bind(FINITE)
    assert pairs.dim == 3  # what nobody uses is dropped
    assert AggregateFeatures(3).bind(FINITE).dim == 6
    clustered = AggregateFeatures.by_clusters(
        [[0.0, 1.0], [0.1, 1.0], [5.0, 1.0], [5.1, 1.0], [9.0, 1.0], [9.0, 1.0]],
        2,
        absorbing=[4, 5],
    )
    assert clustered.groups[0] == clustered.groups[1] != clustered.groups[2]
    assert clustered.groups[4] == clustered.groups[5] == 2
    for bad in ([0, 1], 0, [0.5, 1.0], [-1, 0]):
        with refused(InvalidFeatures, "bad-groups"):
            AggregateFeatures(bad).bind(FINITE)
    for same, n in ([0.0, 1.0], 3), ([2.0, 2.0], 2):
        with refused(InvalidFeatures, "bad-n", f"from 1 to {n - 1}", f"got {n}"):
            AggregateFeatures.by_clusters(np.array(same)[:, None], n)
    assert AggregateFeatures.by_clusters(np.ones((3, 1)), 1).groups.tolist() == [0, 0, 0]
    run = FedLSVI(2).learn(FINITE, 30, features=AggregateFeatures(3), progress=False)
    assert run.w.shape == (3, 6)


def test_low_rank_features_are_privileged_and_nearly_linear() -> None:
    env = RandomLinearMDP(12, 3, 4, 3, seed=1)
    for by in ("rows", "values"):
        bound = LowRankFeatures(12, by=by).bind(env)
        assert bound.privileged
        assert bound.simplex
    # with a cluster for every state the model itself is linear in them
    phi = bound.table.reshape(36, -1)
    laws = env.P[0].reshape(36, -1)
    assert np.abs(phi @ np.linalg.lstsq(phi, laws, rcond=None)[0] - laws).max() < 1e-9
    with refused(InvalidFeatures, "bad-dim", "13"):
        LowRankFeatures(13).bind(env)
    with refused(InvalidFeatures, "bad-by", "'magic'"):
        LowRankFeatures(3, by="magic")
    with refused(InvalidFeatures, "needs-finite-states"):
        LowRankFeatures(3).bind(ContinuousLinearMDP(4, 2, 2))
    assert not make("one-hot").bind(FINITE).privileged


def test_embeddings_take_care_of_their_norms() -> None:
    def embed(states: np.ndarray) -> np.ndarray:
        return np.column_stack((states, np.full(len(states), 2.0)))

    unit = EmbeddingFeatures(embed).bind(Plane())
    assert unit.dim == 9
    assert np.allclose(np.linalg.norm(unit(STATES), axis=2), 1.0)
    scaled = EmbeddingFeatures(embed, norm=5.0).bind(Plane())
    assert np.allclose(scaled(STATES)[:, 0, :2], STATES / 5.0)
    with refused(InvalidFeatures, "norm-too-small", "norm = 2"):
        EmbeddingFeatures(embed, norm=2.0).bind(Plane())(STATES)
    with refused(InvalidFeatures, "bad-embedding"):
        EmbeddingFeatures(lambda states: states[0]).bind(Plane())
    with refused(InvalidFeatures, "bad-norm", "-1.0", "'unit'"):
        EmbeddingFeatures(embed, norm=-1.0)
    with refused(InvalidFeatures, "bad-embed"):
        EmbeddingFeatures(3)  # type: ignore[arg-type]


def test_a_torch_module_stays_as_it_is() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 5), torch.nn.Dropout(0.5), torch.nn.Tanh())
    before = [p.detach().clone() for p in net.parameters()]
    bound = TorchFeatures(net, norm=5.0**0.5).bind(Plane())
    assert bound.dim == 15
    assert np.array_equal(bound(STATES), bound(STATES))  # no dropout
    check_norms("torch", bound(STATES))
    assert all(torch.equal(p, q) for p, q in zip(before, net.parameters(), strict=True))
    with refused(InvalidFeatures, "bad-module"):
        TorchFeatures(lambda x: x)


def test_a_scikit_learn_pipeline_is_an_embedding() -> None:
    pytest.importorskip("sklearn")
    from sklearn.kernel_approximation import RBFSampler
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    sampler = RBFSampler(n_components=8, random_state=0)
    pipeline = make_pipeline(StandardScaler(), sampler).fit(STATES)
    bound = SklearnFeatures(pipeline).bind(Plane())
    assert bound.dim == 24
    assert np.allclose(np.linalg.norm(bound(STATES), axis=2), 1.0)
    with refused(InvalidFeatures, "bad-transformer"):
        SklearnFeatures(3)


def test_states_that_are_described_take_any_map() -> None:
    points = np.random.default_rng(2).normal(size=(6, 2))
    inner = FourierFeatures(4)
    bound = DescribedFeatures(inner, points).bind(FINITE)
    assert bound.table.shape == (6, 2, 16)
    assert np.allclose(np.linalg.norm(bound.table, axis=2), 1.0)
    assert DescribedFeatures(FourierBasis(1), points).bind(FINITE).dim == 8
    with refused(InvalidFeatures, "bad-descriptions", "5"):
        DescribedFeatures(inner, points[:5]).bind(FINITE)
    with refused(InvalidFeatures, "bad-descriptions"):
        DescribedFeatures(inner, points[0])


@pytest.mark.parametrize("unbound", [AggregateFeatures(2), LowRankFeatures(2),
                                     DescribedFeatures(FourierFeatures(2), [[0.0]])])  # fmt: skip
def test_what_is_not_bound_says_so(unbound: FeatureMap) -> None:
    with refused(InvalidFeatures, "unbound"):
        unbound(np.arange(2))


def test_centres_from_states_need_enough_of_them() -> None:
    with refused(InvalidFeatures, "bad-states", "5"):
        RBFFeatures.from_states(STATES[:3], 5)
