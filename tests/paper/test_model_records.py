"""What a record says of a round's model, and the paper's clip where the largest return is known."""

from __future__ import annotations

import numpy as np
import pytest

from agreement import compare
from fedlsvi.core.value import ceilings
from problems import Problem, Setting, continuous, one_hot, simplex


@pytest.mark.parametrize("problem", [simplex(30), one_hot(30), continuous()], ids=lambda p: p.name)
def test_a_record_has_the_log_determinants_of_its_model(problem: Problem) -> None:
    """log det Λ_h, h = 1 … H in this order, of the models after each round."""
    run = problem.learn(Setting(M=3, T=40, gamma=6.0, seed=30, lam=0.5))
    assert len(run.records) == len(run.models) > 3
    for record, (_, gram) in zip(run.records, run.models, strict=True):
        np.testing.assert_allclose(record.logdet, np.linalg.slogdet(gram)[1], atol=1e-9)
    last = run.records[-1].logdet
    assert np.unique(np.round(last, 6)).size == problem.horizon  # or any order would do


def test_the_papers_clip_is_h_or_the_largest_return() -> None:
    """The same at every step; a larger return than H says nothing new."""
    assert ceilings(4, 2.5, "paper").tolist() == [2.5, 2.5, 2.5, 2.5]
    assert ceilings(4, 9.0, "paper").tolist() == [4.0, 4.0, 4.0, 4.0]


@pytest.mark.parametrize("problem", [simplex(31), one_hot(31)], ids=lambda p: p.name)
def test_the_papers_clip_is_the_literal_one(problem: Problem) -> None:
    """preset="paper" projects on [0, value_range] at every step where a return is at most that."""
    s = Setting(M=3, T=30, gamma=5.0, seed=31)
    run, _ = compare(problem, s, clip=[0.8] * problem.horizon, preset="paper", value_range=0.8)
    printed = problem.learn(s, preset="paper")
    assert not np.allclose(run.w, printed.w)
