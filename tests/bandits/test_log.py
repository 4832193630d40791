"""What is logged is what was decided, and comes back from files as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedlsvi.bandits import DecisionLog, FedLinTS, FedLinUCB, LoggedDecisions
from fedlsvi.errors import InvalidInput
from literal_bandit import unit


def logged(order: np.ndarray) -> tuple[DecisionLog, LoggedDecisions]:
    """Twelve decisions at two sites, with rewards in this order; that of the last never comes."""
    X, sites = unit(np.random.default_rng(0), 12, 3), np.arange(12) % 2
    learner, log = FedLinTS(2, arms=["a", "b"], samples=10, least_probability=0.1), DecisionLog()
    for first in (0, 6):
        some = slice(first, first + 6)
        log.add(X[some], learner.decide(X[some], sites[some]), sites[some])
    log.reward(order, np.cos(order))
    other = FedLinTS(2, arms=["a", "b"], samples=10, least_probability=0.1).decide(X, sites)
    expected = LoggedDecisions(X[:11], other.actions[:11], np.cos(np.arange(11)),
                               other.propensities[:11], sites[:11], other.tokens[:11])  # fmt: skip
    return log, expected


def same(one: LoggedDecisions, other: LoggedDecisions) -> None:
    for name, column in vars(one).items():
        np.testing.assert_array_equal(column, vars(other)[name], err_msg=name)


def test_rewards_may_come_in_any_order() -> None:
    log, expected = logged(np.random.default_rng(1).permutation(11))
    assert len(log) == 12
    same(log.decisions(), expected)
    same(logged(np.arange(11))[0].decisions(), expected)


def test_arrays_and_frames_come_back(tmp_path: Path) -> None:
    _, log = logged(np.arange(11))
    np.savez(tmp_path / "log.npz", **vars(log))
    same(LoggedDecisions(**np.load(tmp_path / "log.npz")), log)
    pytest.importorskip("pandas")
    frame = log.to_frame(["age", "dose", "one"])
    assert list(frame.columns[-4:]) == ["propensity", "age", "dose", "one"]
    same(LoggedDecisions.from_frame(frame), log)
    fewer = LoggedDecisions.from_frame(frame.drop(columns=["token", "site"]), ["dose"])
    np.testing.assert_array_equal(fewer.contexts, log.contexts[:, 1:2])
    np.testing.assert_array_equal(fewer.tokens, np.arange(11))


def test_a_wrong_log_is_refused() -> None:
    X, a, r, p = np.ones((3, 2)), np.zeros(3, int), np.ones(3), np.full(3, 0.5)
    frame = pytest.importorskip("pandas").DataFrame({"action": a, "reward": r, "x": r})
    decided = FedLinUCB(arms=2).decide(X)
    log = DecisionLog().add(X, decided)
    wrong: list[tuple[str, Callable[[], object]]] = [
        ("bad-propensities", lambda: LoggedDecisions(X, a, r, p - 0.5)),
        ("bad-propensities", lambda: LoggedDecisions(X, a, r, p + 1.0)),
        ("bad-reward", lambda: LoggedDecisions(X, a, r[:2], p)),
        ("bad-log", lambda: LoggedDecisions(X, a[:2], r, p)),
        ("bad-site", lambda: LoggedDecisions(X, a, r, p, sites=[0, 1])),
        ("bad-log", lambda: LoggedDecisions.from_frame(frame)),
        ("bad-log", lambda: LoggedDecisions(np.ones((3, 2, 4)), a, r, p).to_frame()),
        ("unknown-token", lambda: log.add(X, decided)),
        ("bad-log", lambda: DecisionLog().add(X[:2], decided)),
        ("unknown-token", lambda: log.reward(7, 1.0)),
        ("bad-log", log.decisions),
    ]
    for code, call in wrong:
        with pytest.raises(InvalidInput) as refused:
            call()
        assert refused.value.code == code
