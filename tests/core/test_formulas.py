"""Ridge, values, trigger, packing and theory against the plainest NumPy there is."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expecting import refused
from fedlsvi.core import theory
from fedlsvi.core.alias import build, draw
from fedlsvi.core.statistics import PACKINGS, WHOLE, factorise, pack, packed_size, unpack
from fedlsvi.core.trigger import Rule, fires, logdet_in_place, settled
from fedlsvi.core.value import EVERY, UNKEPT, backup, backup_diagonal, ceilings
from fedlsvi.errors import InvalidInput


def _gram(rng: np.random.Generator, d: int, n: int, lam: float = 1.0) -> np.ndarray:
    phi = rng.normal(size=(n, d)) / np.sqrt(d)
    return lam * np.eye(d) + phi.T @ phi


@given(st.integers(1, 12), st.integers(0, 40), st.integers(0, 2**31))
def test_one_factorisation_gives_solution_norm_and_determinant(d, n, seed):
    rng = np.random.default_rng(seed)
    gram, b, phi = _gram(rng, d, n), rng.normal(size=d), rng.normal(size=(5, d))
    factor = factorise(gram)
    np.testing.assert_allclose(factor.solve(b), np.linalg.solve(gram, b), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(factor.logdet, np.linalg.slogdet(gram)[1], rtol=1e-9, atol=1e-9)
    norms = np.einsum("ij,ij->i", phi, np.linalg.solve(gram, phi.T).T)
    y = factor.whiten(phi)
    np.testing.assert_allclose(np.einsum("ij,ij->i", y, y), norms, rtol=1e-9)


@pytest.mark.parametrize("d", [WHOLE - 1, WHOLE, WHOLE + 5, 100, 101, 130])
def test_whitening_in_strips_is_one_product(d):
    """Whatever was in the memory that the rows are written to."""
    rng = np.random.default_rng(d)
    gram, phi = _gram(rng, d, 3 * d), rng.normal(size=(50, d))
    factor = factorise(gram)
    assert len(factor.strips) == 1 if d < WHOLE else len(factor.strips) > 1
    expected = np.linalg.solve(np.linalg.cholesky(gram), phi.T).T
    for out in (None, np.full((50, d), np.nan)):
        y = factor.whiten(phi, out)
        assert out is None or y is out
        np.testing.assert_allclose(y, expected, rtol=1e-9, atol=1e-12)


def test_a_diagonal_gram_is_the_same_thing_cheaper():
    entries = np.array([1.0, 4.0, 2.5])
    diagonal, dense = factorise(entries), factorise(np.diag(entries))
    np.testing.assert_allclose(diagonal.solve(np.ones(3)), dense.solve(np.ones(3)))
    assert diagonal.logdet == pytest.approx(dense.logdet)


@pytest.mark.parametrize("gram", [np.diag([1.0, -1.0]), np.array([1.0, 0.0])])
def test_statistics_that_are_not_positive_are_refused(gram):
    with refused(InvalidInput, "bad-gram"):
        factorise(gram)


@given(st.integers(0, 2**31), st.floats(0.0, 5.0))
def test_backup_is_equation_5(seed, beta):
    """V = clip(max_a φᵀw + β‖φ‖), π the lowest argmax of the unclipped score."""
    rng = np.random.default_rng(seed)
    S, A, d = 7, 3, 4
    phi, w, gram = rng.normal(size=(S, A, d)), rng.normal(size=d), _gram(rng, d, 6)
    score = phi @ w + beta * np.sqrt(
        np.einsum("xai,xai->xa", phi, np.linalg.solve(gram, phi[..., None])[..., 0])
    )
    factor = factorise(gram)
    y = factor.whiten(phi.reshape(-1, d)).reshape(S, A, d)
    values, greedy = np.empty(S), np.empty(S, np.int32)
    norms = np.empty(S)
    backup(
        y, w @ factor.lower, np.array([beta, 0.0, 0.0]), 1.5, values, greedy, norms, EVERY, UNKEPT
    )
    np.testing.assert_allclose(values, np.clip(score.max(axis=1), 0.0, 1.5), atol=1e-10)
    assert np.array_equal(greedy, score.argmax(axis=1))
    chosen = y[np.arange(S), greedy]
    np.testing.assert_allclose(norms, (chosen**2).sum(axis=1))


def test_ties_go_to_the_lowest_action_and_ignore_the_clip():
    """Two actions above the ceiling: the larger unclipped score wins; equal ones: the first."""
    index, gram = np.arange(3).reshape(1, 3), np.ones(3)
    values, greedy = np.empty(1), np.empty(1, np.int32)
    w, bonus = np.array([4.0, 5.0, 5.0]), np.zeros(3)
    backup_diagonal(index, w, gram, bonus, 2.0, values, greedy, EVERY, UNKEPT)
    assert (values[0], greedy[0]) == (2.0, 1)


def test_ceilings_are_reals_whatever_was_given():
    """Tables of values are made like them: whole numbers would round what is learned."""
    for preset in ("paper", "practical"):
        assert ceilings(4, 3, preset).dtype == np.float64
        assert np.array_equal(ceilings(4, 3, preset), ceilings(4, 3.0, preset))


def test_ceilings_of_the_two_presets():
    assert ceilings(4, None, "paper").tolist() == [4, 4, 4, 4]
    assert ceilings(4, None, "practical").tolist() == [4, 3, 2, 1]
    assert ceilings(4, 2.5, "practical").tolist() == [2.5, 2.5, 2, 1]


@given(st.integers(1, 9), st.integers(1, 30), st.integers(0, 2**31))
def test_brackets_hold_the_log_determinant(d, n, seed):
    """1 + s ≤ det(I + Σyyᵀ) ≤ Π(1 + ‖y‖²) ≤ eˢ."""
    y = np.random.default_rng(seed).normal(size=(n, d)) * 0.4
    squares = (y**2).sum(axis=1)
    logdet = logdet_in_place(np.eye(d) + y.T @ y)
    assert logdet == pytest.approx(np.linalg.slogdet(np.eye(d) + y.T @ y)[1], abs=1e-9)
    assert np.log1p(squares.sum()) <= logdet + 1e-9
    assert logdet <= np.log1p(squares).sum() + 1e-9


@given(st.integers(1, 100), st.floats(0, 3), st.floats(0, 2), st.floats(1, 500))
def test_a_settled_trigger_is_never_wrong(length, low, gap, gamma):
    rule = Rule(math.log(gamma))
    verdict = settled(length, low, low + gap, rule)
    if verdict == 1:
        assert fires(length, low, rule)
    if verdict == -1:
        assert not fires(length, low + gap, rule)


def test_a_round_as_long_as_gamma_fires_whatever_the_determinant():
    assert fires(5, 0.0, Rule(math.log(5.0)))
    assert not fires(4, 0.0, Rule(math.log(5.0)))
    assert fires(5, -1e-3, Rule(math.log(5.0)))


@given(st.integers(1, 8), st.integers(0, 2**31))
def test_packing_loses_nothing(d, seed):
    a = np.random.default_rng(seed).normal(size=(3, d, d))
    symmetric = a + a.transpose(0, 2, 1)
    for packing in ("packed", "dense"):
        wire = pack(symmetric, packing)
        assert wire.shape == (3, packed_size(d, packing))
        assert np.array_equal(unpack(wire, d, packing), symmetric)
    assert set(PACKINGS) == {"packed", "dense", "diagonal"}


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12).filter(lambda p: sum(p) > 1e-3))
def test_alias_tables_hold_the_law_exactly(weights):
    law = np.array(weights) / sum(weights)
    t = build(law[None])
    found = np.zeros_like(law)
    n = len(t.prob)
    for k in range(n):
        found[t.keep[k]] += t.prob[k] / n
        found[t.alias[k]] += (1.0 - t.prob[k]) / n
    np.testing.assert_allclose(found, law, atol=1e-12)
    assert law[draw(t, 0, 0.0)] > 0.0
    assert law[draw(t, 0, 1.0 - 2.0**-53)] > 0.0


def test_theorem_3_at_the_recommended_gamma_is_the_papers_display():
    """1 + 2Md + (dH/log 2)·log(1 + MT/d) when γ = T/(Md)."""
    d, H, M, T = 8, 5, 4, 10_000
    expected = 1 + 2 * M * d + d * H / math.log(2) * math.log(1 + M * T / d)
    assert theory.rounds_bound(d, H, M, T, theory.gamma_auto(M, d, T)) == pytest.approx(expected)


def test_theorem_1_keeps_the_factor_the_display_drops():
    """The paper's display, with √log(1 + dMHT/p) put back into its second term, differs from ours
    only where it enlarges the martingale term √(8H³MT log(2/p)) to 4√2·√(Md³H⁴T…)."""
    d, H, M, T, p, gamma, c = 6, 4, 3, 5_000, 0.05, 20.0, 1.3
    log, info = math.log1p(d * M * H * T / p), math.log1p(M * T / d)
    root = math.sqrt(M * d**3 * H**4 * T * log * info)
    delay = math.sqrt(gamma * math.log(gamma)) + 1
    second = 2 * c * M * d**2 * H**2 / math.log(3) * delay * math.sqrt(log) * info
    martingale = math.sqrt(8 * H**3 * M * T * math.log(2 / p))
    beta = theory.beta_theory(d, H, M, T, p=p, c=c)
    ours = theory.regret_bound(d, H, M, T, gamma, beta, p=p)
    assert ours == pytest.approx(2 * c * math.sqrt(6) * root + second + martingale)
    assert martingale < 4 * math.sqrt(2) * root


def test_theorem_2_without_misspecification_is_theorem_1_at_half_the_level():
    size = (6, 4, 3, 5_000, 20.0, 7.0)
    both = theory.regret_bound_misspecified(*size, 0.0), theory.regret_bound(*size, p=0.025)
    assert both[0] == pytest.approx(both[1])
    assert theory.regret_bound_misspecified(*size, 0.1) > both[0]


def test_xi_widens_beta_by_2_h_xi_root_dmt():
    args = (6, 4, 3, 5_000)
    wide = theory.beta_theory(*args, xi=0.2)
    assert wide == pytest.approx(
        theory.beta_theory(*args, p=0.025) + 2 * 4 * 0.2 * math.sqrt(6 * 3 * 5_000)
    )


@pytest.mark.parametrize(("packing", "size"), [("packed", 10), ("dense", 16), ("diagonal", 4)])
def test_scalars_of_a_run_by_hand(packing, size):
    """d = 4, H = 2, M = 3, two rounds, signals 1 and 3: 3(2(P+4)+3) + 2(12(P+4)+3) + 8."""
    expected = 3 * (2 * (size + 4) + 3) + 2 * (12 * (size + 4) + 3) + 8
    assert theory.scalars_total(4, 2, 3, packing, 2, 4) == expected
