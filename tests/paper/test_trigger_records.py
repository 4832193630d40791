"""A record names, of every agent that signals, the lowest step h above the threshold."""

from __future__ import annotations

import pytest

from agreement import compare
from problems import Problem, Setting, continuous, one_hot, simplex


@pytest.mark.parametrize("problem", [simplex(2), one_hot(2), continuous(0.1)], ids=lambda p: p.name)
@pytest.mark.parametrize("gamma", [1.0, 6.0, 25.0])
def test_triggers_name_the_lowest_step(problem: Problem, gamma: float) -> None:
    """γ = 1 fires at every step of every agent; the others at some."""
    run, literal = compare(problem, Setting(M=4, T=30, gamma=gamma, seed=3))
    several = 0
    for record, firing in zip(run.records, literal.firing, strict=True):
        if not firing:  # the budget ended the round: nobody is above the threshold
            continue
        lowest = {(m, min(h for k, h in firing if k == m)) for m, _ in firing}
        assert {(int(m), int(h)) for m, h in record.triggers} == lowest
        several += len(firing) > len(lowest)
    assert several > 0, "no agent was above the threshold at two steps"
