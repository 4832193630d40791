"""The backup with β < 0, a lower confidence bound: the same formula, clipped at 0 from below."""

from __future__ import annotations

import numpy as np
import pytest

from fedlsvi.core.statistics import DenseFactor, factorise
from fedlsvi.core.value import EVERY, UNKEPT, backup, backup_diagonal
from literal import greedy_index, scores, value


def constant(beta: float) -> np.ndarray:
    return np.array([beta, 0.0, 0.0])


@pytest.mark.parametrize("beta", [-3.0, -0.4, 0.0, 0.4])
def test_backup_is_the_literal_formula(beta: float) -> None:
    rng = np.random.default_rng(3)
    phi = rng.normal(size=(40, 3, 4)) / 4.0
    root = rng.normal(size=(4, 9))
    gram, w = np.eye(4) + root @ root.T, rng.normal(size=4)
    factor = factorise(gram)
    assert isinstance(factor, DenseFactor)
    values, greedy, norms = np.empty(40), np.empty(40, np.int32), np.empty(40)
    whitened = factor.whiten(phi.reshape(-1, 4)).reshape(phi.shape)
    backup(whitened, w @ factor.lower, constant(beta), 0.7, values, greedy, norms, EVERY, UNKEPT)
    for x in range(40):
        assert values[x] == pytest.approx(value(phi[x], w, gram, beta, 0.7), abs=1e-12)
        assert greedy[x] == greedy_index(scores(phi[x], w, gram, beta))
    if beta < -1.0:
        assert (values == 0.0).any()  # the clip from below was reached


def test_one_hot_backup_prefers_what_was_seen() -> None:
    index = np.array([[0, 1], [2, 3]])
    w, gram = np.array([0.5, 0.5, 0.2, 0.9]), np.array([1.0, 100.0, 9.0, 0.01])
    values, greedy = np.empty(2), np.empty(2, np.int32)
    backup_diagonal(index, w, gram, constant(-0.3), 1.0, values, greedy, EVERY, UNKEPT)
    assert greedy.tolist() == [1, 0]
    assert values == pytest.approx([0.47, 0.1])


def test_equal_negative_scores_keep_the_lowest_index() -> None:
    index = np.array([[0, 1, 2]])
    w, gram = np.array([-1.0, -1.0 + 1e-12, -1.0 + 1e-6]), np.ones(3)
    values, greedy = np.empty(1), np.empty(1, np.int32)
    backup_diagonal(index, w, gram, constant(0.0), 1.0, values, greedy, EVERY, UNKEPT)
    assert (greedy.tolist(), values.tolist()) == ([2], [0.0])
    backup_diagonal(index[:, :2].copy(), w, gram, constant(0.0), 1.0, values, greedy, EVERY, UNKEPT)
    assert greedy.tolist() == [0]
