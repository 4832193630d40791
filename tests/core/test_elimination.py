"""Elimination of a block, against the whole matrix."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlsvi.core.elimination import OwnBlock


def rows(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """n vectors in the unit ball."""
    phi = rng.normal(size=(n, d))
    return phi / np.maximum(1.0, np.linalg.norm(phi, axis=1, keepdims=True))


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32), d=st.integers(1, 4), own=st.integers(1, 4), M=st.integers(1, 4),
    n=st.integers(0, 12), lam=st.sampled_from((0.01, 1.0)),
)  # fmt: skip
def test_equals_the_pooled_regression(
    seed: int, d: int, own: int, M: int, n: int, lam: float
) -> None:
    """w, v_m, ‖φ‖_{Λ⁻¹}, determinants of new data, and the residual sum of squares."""
    rng = np.random.default_rng(seed)
    phi, y = [rows(rng, n, d + own) for _ in range(M)], [rng.random(n) for _ in range(M)]
    whole = lam * np.eye(d + M * own)
    b, places = np.zeros(len(whole)), []
    for m in range(M):
        place = np.r_[0:d, d + m * own : d + (m + 1) * own]
        whole[np.ix_(place, place)] += phi[m].T @ phi[m]
        b[place] += phi[m].T @ y[m]
        places.append(place)
    pooled, inverse = np.linalg.solve(whole, b), np.linalg.inv(whole)
    blocks = [OwnBlock.of(part.T @ part, own, lam) for part in phi]
    sums = [part.T @ targets for part, targets in zip(phi, y, strict=True)]
    shared = lam * np.eye(d) + sum(block.schur for block in blocks)
    s = sum(block.response(part) for block, part in zip(blocks, sums, strict=True))
    w = np.linalg.solve(shared, s)
    np.testing.assert_allclose(w, pooled[:d], atol=1e-8)
    left = sum(float(t @ t) - block.explained(part)
               for t, block, part in zip(y, blocks, sums, strict=True))  # fmt: skip
    total = sum(float(t @ t) for t in y)
    assert left - w @ s == pytest.approx(total - pooled @ b, abs=1e-8)
    for block, part, place in zip(blocks, sums, places, strict=True):
        v = block.coefficients(part, w)
        np.testing.assert_allclose(v, pooled[place[d:]], atol=1e-7)
        joint = block.joint(shared)
        np.testing.assert_allclose(np.linalg.inv(joint), inverse[np.ix_(place, place)], atol=1e-7)
        new = rows(rng, 3, d + own)
        grown = whole.copy()
        grown[np.ix_(place, place)] += new.T @ new
        ratio = np.linalg.slogdet(grown)[1] - np.linalg.slogdet(whole)[1]
        mine = np.linalg.slogdet(joint + new.T @ new)[1] - np.linalg.slogdet(joint)[1]
        assert mine == pytest.approx(ratio, abs=1e-7)
        unseen = lam * np.trace(np.linalg.inv(block.gram[d:, d:] + lam * np.eye(own)))
        assert block.directions(lam) == pytest.approx(own - unseen)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), d=st.integers(1, 4), own=st.integers(1, 4))
def test_what_is_sent_never_shrinks_and_is_less_than_what_there_is(
    seed: int, d: int, own: int
) -> None:
    """0 ⪯ S(A) ⪯ S(A + φφᵀ) ⪯ A_ss + φ_sφ_sᵀ, with one direction more for one vector."""
    phi = rows(np.random.default_rng(seed), 9, d + own)
    sums = [OwnBlock.of(phi[:n].T @ phi[:n], own, 0.1) for n in (8, 9)]
    growth = sums[1].schur - sums[0].schur
    for positive in (sums[0].schur, growth, sums[1].gram[:d, :d] - sums[1].schur):
        assert np.linalg.eigvalsh(positive)[0] >= -1e-12
    assert np.linalg.matrix_rank(growth, tol=1e-9) <= 1


def test_one_episode_can_change_what_is_sent_as_if_most_others_were_gone() -> None:
    """Why privacy is refused: the sensitivity grows with the number of episodes."""
    for n in (100, 10_000):
        # n episodes with (√(1−ε²), ε): what they say of w is nearly all of it, as nε² ≪ 1
        small = np.sqrt(np.sqrt(1e-3) / n)
        phi = np.tile([np.sqrt(1.0 - small**2), small], (n, 1))
        before = OwnBlock.of(phi.T @ phi, 1, 1e-3).schur
        other = np.array([0.0, 1.0])
        after = OwnBlock.of(phi.T @ phi + np.outer(other, other), 1, 1e-3).schur
        assert float(after[0, 0] - before[0, 0]) > 0.8 * n
