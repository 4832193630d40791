"""How much of feature space some data has seen, by hand."""

from __future__ import annotations

import numpy as np

from fedlsvi.core.coverage import Coverage


def test_eigenvalues_are_visits_with_one_hot_features() -> None:
    """Two steps, three pairs: 4, 0 and 9 visits, then 1, 1 and 1; λ = 1, β = 2, ceilings 2 and 1.
    β/√(1 + ν) ≥ ceiling: at step 1 for ν = 0, at step 2 everywhere."""
    gram = np.array([[5.0, 1.0, 10.0], [2.0, 2.0, 2.0]])
    seen = Coverage.of(gram, 1.0, 2.0, np.array([2.0, 1.0]))
    assert seen.eigenvalues.tolist() == [[0.0, 4.0, 9.0], [1.0, 1.0, 1.0]]
    assert seen.unseen.tolist() == [1, 0]
    assert seen.blind.tolist() == [1, 3]
    assert seen.visits.tolist() == [13.0, 3.0]
    assert "step 2 (3 of 3)" in seen.meaning()


def test_rotated_features_have_the_same_coverage() -> None:
    rng = np.random.default_rng(0)
    U = np.linalg.qr(rng.normal(size=(2, 3, 3)))[0]
    diagonal = np.array([[5.0, 2.0, 10.0], [2.0, 3.0, 2.5]])
    dense = np.einsum("hij,hj,hkj->hik", U, diagonal, U)
    one, other = (Coverage.of(gram, 1.0, 0.5, np.ones(2)) for gram in (diagonal, dense))
    assert np.allclose(one.eigenvalues, other.eigenvalues)
    assert not one.blind.any()
    assert "theorem" in one.meaning()


def test_what_was_never_seen_is_as_good_as_unseen_at_every_beta() -> None:
    """At the practical λ and β, pessimism takes a third of the range off where nothing was seen."""
    gram = 0.001 + np.array([[0.0, 0.5, 7.0], [3.0, 1.0, 1.0]])
    seen = Coverage.of(gram, 0.001, 0.02, np.array([2.0, 1.0]))
    assert seen.unseen.tolist() == seen.blind.tolist() == [2, 0]
    assert "2 of 6" in seen.meaning()
    assert "step 1 (2 of 3)" in seen.meaning()
