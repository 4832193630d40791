"""Correlated noise of prefix sums: the identities that privacy and sums rest on, the figures of a
tree and of the square root beside it, and other implementations of the same optimum."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlsvi.core.factorisation import BITS, LARGEST_OPTIMISED, factorise, square_root
from fedlsvi.core.trigger import schedule


def lengths(rounds: int, episodes: int = 20_000) -> tuple[float, ...]:
    """Of the rounds of a private run."""
    return tuple(np.diff(schedule(episodes, rounds, episodes // 200), prepend=0).astype(float))


def parts(weights: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """B and C from what is added to uploads."""
    d = np.ldexp(factorise(weights).mixing.astype(float), -BITS)
    return np.cumsum(d, axis=0), np.linalg.inv(d)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(1.0, 1e4), min_size=1, max_size=20))
def test_a_round_moves_the_releases_by_no_more_than_the_norm(weights: list[float]) -> None:
    found = factorise(tuple(weights))
    B, C = parts(tuple(weights))
    n = len(weights)
    assert np.allclose(B @ C, np.tril(np.ones((n, n))), atol=1e-9)
    assert np.array_equal(found.mixing, np.tril(found.mixing))
    for k in range(1, n + 1):  # what the first k releases say of any one round, and no more
        moved = max(np.linalg.norm(C[:k, j]) for j in range(n))
        assert moved <= found.norms[k - 1] <= moved * (1.0 + 1e-6)
    assert abs(found.norm - 1.0) < 1e-3  # rounding to 2^-16 costs next to nothing
    assert np.allclose(found.summed, np.square(B).sum(axis=1))
    assert found.spread >= np.linalg.norm(np.linalg.inv(C), 2) * (1 - 1e-9)


def rms(variances: np.ndarray, weights: np.ndarray) -> float:
    return math.sqrt(float((variances * weights).sum() / weights.sum()))


def tree(rounds: int) -> np.ndarray:
    """(N,) the variance of a binary tree's sums: levels times nodes."""
    return np.array([rounds.bit_length() * k.bit_count() for k in range(1, rounds + 1)])


@pytest.mark.parametrize(
    ("rounds", "of_tree", "of_root", "optimised"),
    [(9, 2.64, 1.70, 1.49), (33, 4.22, 2.10, 1.88), (129, 5.43, 2.48, 2.32)],
)
def test_it_has_less_than_half_of_the_noise_of_a_tree(
    rounds: int, of_tree: float, of_root: float, optimised: float
) -> None:
    """The root mean square over episodes of the noise in the sums that they are played with."""
    length = np.array(lengths(rounds, 2_000 if rounds < 100 else 20_000))
    used = length[1:]
    found = factorise((*used.tolist(), float(length[-1])))
    root = np.square(np.cumsum(np.linalg.inv(square_root(rounds)), axis=0)).sum(axis=1)
    assert rms(tree(rounds)[:-1], used) == pytest.approx(of_tree, abs=0.02)
    assert rms(root[:-1], used) == pytest.approx(of_root, abs=0.02)
    assert rms(found.norm**2 * found.summed[:-1], used) == pytest.approx(optimised, abs=0.02)


def test_equal_rounds_have_the_optimum_of_a_descent() -> None:
    """An independent minimisation of tr(GX⁻¹) over correlation matrices, by its gradient."""
    n, rng = 8, np.random.default_rng(0)
    ones = np.tril(np.ones((n, n)))
    weights = rng.uniform(1.0, 10.0, n)
    gram = ones.T @ np.diag(weights) @ ones
    rows = np.eye(n)  # X = RRᵀ with rows of norm 1
    for _ in range(20_000):
        inverse = np.linalg.inv(rows @ rows.T)
        rows += 2e-4 * 2.0 * inverse @ gram @ inverse @ rows
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    best = float(np.trace(gram @ np.linalg.inv(rows @ rows.T)))
    found = factorise(tuple(weights))
    assert found.norm**2 * weights @ found.summed == pytest.approx(best, rel=1e-3)


def test_the_square_root_is_one_and_takes_over_from_many_rounds_on() -> None:
    n = 50
    root = square_root(n) * np.linalg.norm(
        np.cumprod(np.append(1.0, (2 * np.arange(1, n) - 1) / (2 * np.arange(1, n))))
    )
    assert np.allclose(root @ root, np.tril(np.ones((n, n))))
    many = (1.0,) * (LARGEST_OPTIMISED + 1)
    few = many[:-1]
    noise = [math.sqrt(factorise(w).summed.mean()) * factorise(w).norm for w in (few, many)]
    assert noise[0] < noise[1] < 1.1 * noise[0]


def test_one_round_has_its_own_noise_alone() -> None:
    alone = factorise((7.0,))
    assert alone.mixing.tolist() == [[1 << BITS]]
    assert (alone.norm, alone.summed[0], alone.spread) == (pytest.approx(1.0), 1.0, 1.0)


def test_it_is_the_optimum_of_jax_privacy() -> None:
    """Mean squares of `jax_privacy.matrix_factorization.dense.optimize(n, A=√W·A)`, version 2.0.0,
    in doubles, columns divided by their largest norm: equal rounds, and ours with N = 33."""
    length = lengths(33)
    for weights, theirs in ((1.0,) * 16, 2.8540848), ((*length[1:], length[-1]), 3.5386293):
        ours, w = factorise(weights), np.array(weights)
        assert ours.norm**2 * (w @ ours.summed) / w.sum() == pytest.approx(theirs, rel=1e-4)


@pytest.mark.filterwarnings("ignore")  # those of another library
def test_jax_privacy_finds_nothing_better() -> None:
    """The same, asked of the library itself where it is installed."""
    jax = pytest.importorskip("jax")
    dense = pytest.importorskip("jax_privacy.matrix_factorization.dense")
    length = lengths(9)
    for weights in ((1.0,) * 8, (*length[1:], length[-1])):
        w, sums = np.array(weights), np.tril(np.ones((len(weights), len(weights))))
        with jax.enable_x64(True):
            C = np.array(dense.optimize(len(w), A=np.sqrt(w)[:, None] * sums))
        C /= np.sqrt(np.square(C).sum(axis=0).max())
        theirs = w @ np.square(sums @ np.linalg.inv(C)).sum(axis=1) / w.sum()
        ours = factorise(weights)
        assert ours.norm**2 * (w @ ours.summed) / w.sum() == pytest.approx(theirs, rel=1e-4)
