"""Who synchronises when: each rule, recomputed from all data after every reward."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedlsvi.bandits import AsyncLinUCB, DisLinUCB, FedLinUCB
from fedlsvi.errors import InvalidSetting
from literal_bandit import unit

M, D, N = 3, 4, 300


def log_ratio(common: np.ndarray, own: np.ndarray) -> float:
    """log det(Λ + Λ^loc)/det Λ."""
    return float(np.linalg.slogdet(common + own)[1] - np.linalg.slogdet(common)[1])


@pytest.mark.parametrize(
    ("learner", "fires"),
    [
        (FedLinUCB(M, arms=1, threshold=15.0), lambda n, q: n * math.exp(q) >= 15.0),
        (FedLinUCB(M, arms=1, threshold=1e9, cap=1.5), lambda n, q: math.exp(q) >= 1.5),
        (DisLinUCB(M, arms=1, threshold=6.0), lambda n, q: n * q >= 6.0),
    ],
)
def test_all_synchronise_when_one_has_learned_enough(learner: FedLinUCB, fires) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(0)
    common, own = np.eye(D), np.zeros((M, D, D))
    length, rounds = np.zeros(M, int), 0
    for x, m in zip(unit(rng, N, D), rng.integers(M, size=N), strict=True):
        learner.partial_fit(x[None], [0], [rng.random()], site=int(m))
        own[m] += np.outer(x, x)
        length[m] += 1
        if fires(length[m], log_ratio(common, own[m])):
            common, rounds = common + own.sum(axis=0), rounds + 1
            own[:], length[:] = 0.0, 0
        assert learner.rounds_ == rounds
    assert 10 < rounds < N
    np.testing.assert_allclose(learner.statistics()[0][0], common, atol=1e-12)


def test_an_asynchronous_site_synchronises_alone() -> None:
    """It sends its own sums and hears the server's; the others keep the model that they have."""
    rng = np.random.default_rng(1)
    learner = AsyncLinUCB(M, arms=1, threshold=0.4, alpha=0.6)
    server, seen, own = np.eye(D), np.stack([np.eye(D)] * M), np.zeros((M, D, D))
    responses, b = np.zeros(D), np.zeros((M, D))
    model, rounds = np.zeros((M, D)), 0
    for x, m in zip(unit(rng, N, D), rng.integers(M, size=N), strict=True):
        r = rng.random()
        learner.partial_fit(x[None], [0], [r], site=int(m))
        own[m] += np.outer(x, x)
        b[m] += r * x
        if log_ratio(seen[m], own[m]) >= math.log(1.4):
            server, responses, rounds = server + own[m], responses + b[m], rounds + 1
            seen[m], model[m] = server, np.linalg.solve(server, responses)
            own[m], b[m] = 0.0, 0.0
        for site in range(M):
            score = x @ model[site] + 0.6 * math.sqrt(x @ np.linalg.solve(seen[site], x))
            assert learner.decision_function(x[None], site)[0, 0] == pytest.approx(score)
        assert learner.rounds_ == rounds
    P = D * (D + 1) // 2
    assert learner.ledger_.scalars == {
        "init": M * (P + D + 3), "signal": 3 * rounds, "up_stats": rounds * (P + D),
        "up_raw": 0, "down_model": rounds * (P + D), "down_raw": 0,
    }  # fmt: skip


def test_a_fresh_site_decides_with_what_it_has_not_sent() -> None:
    rng = np.random.default_rng(2)
    X, r = unit(rng, 30, D), rng.random(30)
    learner = DisLinUCB(M, arms=1, threshold=1e9, alpha=0.5).partial_fit(X, np.zeros(30, int), r, 1)
    A, x = np.eye(D) + X.T @ X, unit(rng, 1, D)
    width = math.sqrt(x[0] @ np.linalg.solve(A, x[0]))
    expected = x[0] @ np.linalg.solve(A, X.T @ r) + 0.5 * width
    assert learner.decision_function(x, site=1)[0, 0] == pytest.approx(expected)
    assert learner.decision_function(x, site=0)[0, 0] == pytest.approx(0.5)  # it knows nothing
    assert learner.rounds_ == 0


def test_the_ledger_counts_every_synchronisation() -> None:
    """M(P + d + 3) first, then 2M(P + d) + M + 2s per synchronisation of an arm, s = 1 here."""
    rng = np.random.default_rng(3)
    learner = FedLinUCB(M, arms=2)
    for x in unit(rng, 100, D):
        learner.partial_fit(x[None], rng.integers(2, size=1), [rng.random()], int(rng.integers(M)))
    P, rounds = D * (D + 1) // 2, learner.rounds_
    assert learner.ledger_.total == 2 * M * (P + D + 3) + rounds * (2 * M * (P + D) + M + 2)


@pytest.mark.parametrize("more", [{"aggregation": "secure"}, {"aggregation": "exact", "privacy":
                                  {"epsilon": 1.0, "delta": 1e-6}, "decisions": 100}])  # fmt: skip
def test_who_synchronises_alone_cannot_hide(more) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidSetting) as refused:
        AsyncLinUCB(M, arms=2, **more).partial_fit(np.ones((1, D)), [0])
    assert refused.value.code == "bad-trigger"
