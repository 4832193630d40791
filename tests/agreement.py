"""What it means that a run of the library is the literal run, and what every run must satisfy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from literal import Array, LiteralRun
from problems import Problem, Setting


def assert_close(got: Array, expected: Array, what: str, tolerance: float = 1e-9) -> None:
    """|got − expected| ≤ tolerance·max(1, |expected|), entry by entry."""
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.shape == expected.shape, f"{what}: shape {got.shape}, expected {expected.shape}"
    error = np.abs(got - expected) / np.maximum(1.0, np.abs(expected))
    assert error.max(initial=0.0) <= tolerance, f"{what}: off by {error.max():.3g}"


def assert_agrees(run: Any, literal: LiteralRun) -> None:
    """Same τ's, same policies, same signals, w and Λ of every round within 1e-9, same regret."""
    assert list(run.taus) == literal.taus
    assert len(run.models) == len(literal.models)
    for k, (mine, theirs) in enumerate(zip(run.models, literal.models, strict=True), start=1):
        assert_close(mine[0], theirs[0], f"w after round {k}")
        assert_close(mine[1], theirs[1], f"Λ after round {k}")
    assert_close(run.w, literal.w, "w")
    assert_close(run.gram, literal.gram, "Λ")
    if literal.policies[0] is not None:
        for k, table in enumerate(literal.policies):
            assert np.array_equal(run.policies[k], table), f"policy of round {k + 1}"
    if literal.regret is not None:
        assert_close(run.regret, literal.regret, "regret")
    for record, signals, firing in zip(run.records, literal.signals, literal.firing, strict=True):
        assert record.signals == len(signals), f"signals in round {record.k}"
        if firing:  # a round that the budget ended has nobody above the threshold to name
            pairs = {(int(m), int(h)) for m, h in record.triggers}
            assert {m for m, _ in pairs} == signals
            assert pairs <= firing


def assert_few_near_ties(literal: LiteralRun) -> None:
    """Decisions left to round-off are the exception; otherwise the comparison says little."""
    assert literal.deferred <= max(2, 0.02 * literal.decisions), "the problem is all near-ties"


def theorem_3(s: Setting, H: int, d: int) -> float:
    """K ≤ 1 + 2T/γ + dH/log 2 · log(1 + MT/(λd))."""
    growth = math.log1p(s.M * s.T / (s.lam * d)) / math.log(2.0)
    return 1.0 + 2.0 * s.T / s.gamma + d * H * growth


def assert_rounds_are_lawful(run: Any, s: Setting, H: int, d: int) -> None:
    """τ₁ = 1 < τ₂ < … < τ_{K+1} = T + 1, Δt ≤ ⌈γ⌉, ⌈T/⌈γ⌉⌉ ≤ K ≤ Theorem 3; records match."""
    taus, K = list(run.taus), len(run.taus) - 1
    assert taus[0] == 1
    assert taus[-1] == s.T + 1
    lengths = np.diff(taus)
    longest = math.ceil(min(s.gamma, 2.0**62))
    assert lengths.min() >= 1
    assert lengths.max() <= longest
    assert -(-s.T // longest) <= K <= theorem_3(s, H, d)
    assert [record.k for record in run.records] == list(range(1, K + 1))
    for k, record in enumerate(run.records):
        assert (record.first, record.last) == (taus[k], taus[k + 1] - 1)
        assert record.length == lengths[k]
        assert 1 <= record.signals <= s.M
    assert run.records[-1].signals == s.M


def assert_ledger_is_the_formula(run: Any, M: int, H: int, d: int, P: int) -> None:
    """total = M(H(P+d)+3) + K(2MH(P+d)+M) + 2Σs_k, and each category its part of it."""
    K, signals = len(run.taus) - 1, sum(record.signals for record in run.records)
    half = K * M * H * (P + d)
    expected = {
        "init": M * (H * (P + d) + 3),
        "signal": K * M + 2 * signals,
        "up_stats": half,
        "up_raw": 0,
        "down_model": half,
        "down_raw": 0,
    }
    assert {name: run.ledger.scalars.get(name, 0) for name in expected} == expected
    assert sum(run.ledger.scalars.values()) == sum(expected.values()) == run.ledger.total


def compare(problem: Problem, s: Setting, **options: Any) -> tuple[Any, LiteralRun]:
    """Run both, with the library's tables as advice for near-ties, and check all of the above."""
    clip = options.pop("clip", None)
    run = problem.learn(s, **options)
    literal = problem.literal(s, clip=clip, advice=run.policies if problem.finite else None)
    assert_agrees(run, literal)
    assert_few_near_ties(literal)
    assert_rounds_are_lawful(run, s, problem.horizon, literal.w.shape[1])
    return run, literal
