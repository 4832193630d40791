"""Counts that are kept by their cells, where the cells differ from step to step."""

from __future__ import annotations

import numpy as np
import pytest

from agreement import compare
from fedlsvi.experience import finite_sparse
from fedlsvi.experience.finite_sparse import SparseExperience
from problems import Setting, transition_rewards


def test_cells_are_those_of_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some pairs reach a state at a later step only; against the literal run."""
    problem = transition_rewards(0)
    reached = np.asarray(problem.one.P) > 0.0
    assert (reached.any(axis=0) & ~reached[0]).any()
    monkeypatch.setattr(finite_sparse, "DENSE_BYTES", 0)
    run, _ = compare(problem, Setting(M=3, T=40, gamma=6.0, seed=1))
    assert run.plan is not None
    assert isinstance(run.plan.cohort(0, 3).experience, SparseExperience)
