"""The study of bandits: problems that can be learned, and tables of what was played."""

from __future__ import annotations

import numpy as np
import pytest

from fedlsvi.bandits import regression
from studies import bandits


@pytest.mark.parametrize("problem", bandits.PROBLEMS)
def test_contexts_have_norm_one_and_some_arm_is_best(problem: str) -> None:
    if problem in ("digits", "tumours"):
        pytest.importorskip("sklearn")
    make, arms = bandits.PROBLEMS[problem]
    first, again = next(make(3)), next(make(3))
    np.testing.assert_array_equal(first.contexts, again.contexts)
    np.testing.assert_allclose(np.linalg.norm(first.contexts, axis=-1), 1.0)
    assert first.worth.shape == (bandits.SITES, arms)
    assert (np.ptp(first.worth, axis=1) > 0.0).all()


def test_a_smaller_share_synchronises_more_often_and_t_5_is_the_default() -> None:
    found = {}
    for learner in ("t/5", "fed-linucb", "t/40"):
        with bandits.growing(learner):
            found[learner] = bandits.played("shared", learner, 100, steps=60)
    assert found["t/5"] == found["fed-linucb"]
    assert found["t/40"]["rounds"] > found["t/5"]["rounds"] > 0
    assert bandits.SHARES["t/5"] == regression.SHARE


def test_the_tables_compare_with_pooled_data() -> None:
    runs = {(problem, learner, seed): {"regret": 10.0 + (learner == "alone"), "rounds": seed,
                                       "scalars": 100 if learner == "pooled" else 5}
            for problem in bandits.PROBLEMS for learner in bandits.LEARNERS
            for seed in bandits.SEEDS}  # fmt: skip
    lines = list(bandits.table(runs, bandits.LEARNERS, bandits.SEEDS))
    assert "| digits | alone | 11 | 1.10 | 2 | 5 | 0.050 |" in lines
    assert len(lines) == 2 + len(bandits.PROBLEMS) * len(bandits.LEARNERS)
