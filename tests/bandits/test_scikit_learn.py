"""The conventions of scikit-learn."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from fedlsvi.bandits import AsyncLinUCB, DisLinUCB, FedLinTS, FedLinUCB
from fedlsvi.errors import InvalidInput, UnknownName
from literal_bandit import unit

sklearn = pytest.importorskip("sklearn")

EXCEPTIONS = {
    "check_fit_score_takes_y": "the second argument is called action: a bandit's target is not y",
    "check_dtype_object": "what is not a number raises InvalidInput, a ValueError, not a TypeError",
}
"""Checks of scikit-learn that do not apply, and why."""


@pytest.mark.filterwarnings("ignore:.*does not inherit from.*:UserWarning")
@pytest.mark.parametrize("cls", [FedLinUCB, DisLinUCB, AsyncLinUCB, FedLinTS])
def test_scikit_learns_own_checks_pass(cls: type[FedLinUCB]) -> None:
    from sklearn.utils.estimator_checks import check_estimator

    results = check_estimator(cls(), expected_failed_checks=EXCEPTIONS, on_skip=None)
    assert {r["check_name"] for r in results if r["status"] == "xfail"} == EXCEPTIONS.keys()


def test_a_clone_has_the_settings_and_nothing_else() -> None:
    X = unit(np.random.default_rng(0), 20, 3)
    learner = FedLinTS(2, arms=["a", "b"], alpha=0.3).fit(X, ["a", "b"] * 10, np.ones(20))
    other = sklearn.base.clone(learner)
    assert other.get_params() == learner.get_params()
    assert not hasattr(other, "_models")
    assert repr(other) == "FedLinTS(n_sites=2, arms=['a', 'b'], alpha=0.3)"
    with pytest.raises(sklearn.exceptions.NotFittedError):
        other.statistics()
    with pytest.raises(UnknownName):
        other.set_params(gamma=2.0)


@pytest.mark.parametrize("aggregation", ["float", "exact", "secure"])
def test_a_pickled_learner_goes_on_as_if_nothing_had_happened(aggregation: str) -> None:
    X = unit(np.random.default_rng(1), 40, 3)
    learner = FedLinUCB(3, arms=2, aggregation=aggregation, choice="softmax")  # type: ignore[arg-type]
    tokens = learner.decide(X[:20]).tokens
    other = pickle.loads(pickle.dumps(learner))
    found = []
    for one in (learner, other):
        one.reward(tokens, np.cos(tokens)).synchronise()
        found.append(one.decide(X[20:]).actions)
    np.testing.assert_array_equal(*found)
    np.testing.assert_array_equal(learner.statistics()[1], other.statistics()[1])


def test_the_columns_of_a_frame_have_names() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(unit(np.random.default_rng(2), 10, 2), columns=["age", "dose"])
    learner = FedLinUCB().fit(frame, np.arange(10) % 2)
    assert list(learner.feature_names_in_) == ["age", "dose"]
    learner.predict(frame)
    with pytest.raises(InvalidInput) as refused:
        learner.predict(frame[["dose", "age"]])
    assert refused.value.code == "bad-contexts"


def test_what_cannot_be_used_is_refused() -> None:
    X = np.ones((4, 2))
    learner = FedLinUCB(2, arms=2).fit(X, [0, 1, 0, 1])
    wrong = {
        "bad-contexts": lambda: learner.predict(np.ones((4, 3))),
        "bad-action": lambda: learner.partial_fit(X, [0, 1]),
        "bad-arm": lambda: learner.partial_fit(X, [0, 1, 2, 3]),
        "bad-reward": lambda: learner.partial_fit(X, [0, 1, 0, 1], [1.0]),
        "bad-site": lambda: learner.predict(X, site=[0, 1, 2, 0]),
        "bad-allowed": lambda: learner.predict(X, allowed=[1, 0]),
    }
    for code, call in wrong.items():
        with pytest.raises(InvalidInput) as refused:
            call()
        assert refused.value.code == code
