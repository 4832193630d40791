"""One upload for each check of the guard that breaks this check and, where there is such an upload,
no other one: at the last step, where b's increments are known, and before it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedlsvi.protocol.messages import Upload
from guarded import BAD, EVERY, FIRST, PACKINGS, PAST, Y_MAX, D, H, Scene, passes, refusal_of, scene

Row = tuple[np.ndarray, np.ndarray]
DENSE = ("packed", "dense")
ACROSS = np.array([1.0, -1.0, 0.0, 0.0, 0.0]) / math.sqrt(2.0)
"""A direction in which 1ᵀΛ1 does not see a change."""


@pytest.mark.parametrize("h", EVERY)
@pytest.mark.parametrize("n", [2, 7])
@pytest.mark.parametrize("packing", PACKINGS)
def test_honest_uploads_pass_up_to_the_largest_targets(packing: str, n: int, h: int) -> None:
    """y = y_max in every episode meets the bounds with equality: b = y Σφ and Λ1 = Σφ on the
    simplex, so bᵀG⁺b = y² 1ᵀG1 = t·y²."""
    made = scene(packing, n, rewards=1.0)
    for share in (0.0, 0.5, 1.0):
        passes(made.guard, made.upload(h, share))


# a Gram matrix or a response that is impossible; agent BAD, features on the simplex


def heavy(s: Scene, h: int) -> Row:
    """tr Λ^loc = 1.001 n."""
    loc = s.loc(BAD)
    loc += (1.001 * s.n - np.trace(loc)) * np.outer(ACROSS, ACROSS)
    return loc, s.b(h)


def not_positive(s: Scene, h: int) -> Row:
    """Λ − cvvᵀ is singular at c = 1/(vᵀΛ⁻¹v); this is a hundredth beyond."""
    loc = s.loc(BAD)
    c = 1.01 / (ACROSS @ np.linalg.solve(loc, ACROSS))
    return loc - c * np.outer(ACROSS, ACROSS), s.b(h)


def one_rank_more(s: Scene, h: int) -> Row:
    return s.loc(BAD) + 0.1 * np.outer(ACROSS, ACROSS), s.b(h)


def negative_remainder(s: Scene, h: int) -> Row:
    """Two episodes, less a little in a direction that neither they nor 1ᵀΛ1 see."""
    seen = np.vstack([s.phi[BAD, PAST:], np.ones(D)])
    unseen = np.linalg.svd(seen)[2][-1]
    return s.loc(BAD) - 0.1 * np.outer(unseen, unseen), s.b(h)


def remainder_below_zero(s: Scene, h: int) -> Row:
    """Two episodes at coordinates 0 and 1; beside them one entry, and 1ᵀΛ1 put right."""
    loc = np.diag([1.0, 1.0, -0.1, 0.0, 0.0])
    loc[0, 1] = loc[1, 0] = 0.05
    return loc, s.guard.last[BAD] + 0.5 * (np.diag(loc) == 1.0)


def remainder_off_the_diagonal(s: Scene, h: int) -> Row:
    """The same two; beside them entries without any diagonal."""
    loc = np.diag([1.0, 1.0, 0.0, 0.0, 0.0])
    loc[2, 3] = loc[3, 2] = 0.1
    loc[2, 4] = loc[4, 2] = -0.1
    return loc, s.guard.last[BAD] + 0.5 * np.diag(loc)


def response(s: Scene, h: int) -> Row:
    """All targets at 1.001 y_max."""
    return s.loc(BAD), 1.001 * Y_MAX[h - 1] * s.total(BAD)


def increment(s: Scene, h: int) -> Row:
    """Nothing in round 1 and 1.001 in every episode of round 2."""
    return s.loc(BAD), 1.001 * s.fresh(BAD)


def small_features(s: Scene, h: int) -> Row:
    return 0.99 * s.loc(BAD), s.b(h)


def large_features(s: Scene, h: int) -> Row:
    return s.loc(BAD) + 0.01 * np.ones((D, D)), s.b(h)


def negative_response(s: Scene, h: int) -> Row:
    b = 0.01 * s.total(BAD)
    b[3] = -0.01
    return s.loc(BAD), b


POSITIVE, UNIT = "0: gram is not positive", "{n}: features sum to one"
IMPOSSIBLE: list[tuple[Callable[[Scene, int], Row], int, float, Any, str, str]] = [
    (heavy, 7, 0.5, EVERY, "trace of gram", "at most {n}"),
    (not_positive, 7, 0.5, EVERY, "smallest eigenvalue of gram", "at least 0"),
    (one_rank_more, 2, 0.5, EVERY, "rank of gram", "at most {n}"),
    (negative_remainder, 2, 0.5, EVERY, "remainder of gram", POSITIVE),
    (remainder_below_zero, 2, 0.5, EVERY, "remainder of gram", POSITIVE),
    (remainder_off_the_diagonal, 2, 0.5, EVERY, "remainder of gram", POSITIVE),
    (response, 7, 1.0, EVERY, "bᵀG⁺b", "at most {energy:g}"),
    (increment, 7, 0.0, [H], "ΔbᵀΛ⁺Δb", "at most {n}"),
    (small_features, 7, 0.5, EVERY, "1ᵀΛ1", UNIT),
    (large_features, 7, 0.5, EVERY, "1ᵀΛ1", UNIT),
    (negative_response, 7, 0.0, EVERY, "smallest entry of b", "at least 0"),
]


@pytest.mark.parametrize("packing", DENSE)
@pytest.mark.parametrize(("change", "n", "rewards", "steps", "field", "bound"), IMPOSSIBLE,
                         ids=[row[0].__name__ for row in IMPOSSIBLE])  # fmt: skip
def test_each_check_alone(
    packing: str, change: Any, n: int, rewards: float, steps: Any, field: str, bound: str
) -> None:
    made = scene(packing, n, rewards)
    for h in steps:
        limit = bound.format(n=n, energy=made.t * Y_MAX[h - 1] ** 2)
        refusal_of(made.guard, made.changed(h, *change(made, h)), field, limit)
        passes(made.guard, made.upload(h))


@pytest.mark.parametrize("h", EVERY)
@pytest.mark.parametrize("packing", DENSE)
def test_signs_and_sums_are_asked_of_those_features_only(packing: str, h: int) -> None:
    """Either flag forbids a negative response, only the simplex fixes 1ᵀΛ1."""
    made = scene(packing, 7, 0.0)
    negative = made.changed(h, *negative_response(made, h))
    small = made.changed(h, *small_features(made, h))
    for flags in ((True, False), (False, True)):
        guard = made.knowing(nonnegative=flags[0], simplex=flags[1])
        refusal_of(guard, negative, "smallest entry of b", "at least 0")
    passes(made.knowing(nonnegative=False, simplex=False), negative)
    passes(made.knowing(simplex=False), small)


@pytest.mark.parametrize("packing", DENSE)
def test_what_was_earned_is_not_taken_back(packing: str) -> None:
    """Rewards and features ≥ 0: no entry of b_H falls from one round to the next."""
    made = scene(packing, 7)
    response = made.b(H)
    response[0] = made.guard.last[BAD][0] - 1e-3
    less = made.changed(H, made.loc(BAD), response)
    for flags in ((True, False), (False, True)):
        guard = made.knowing(nonnegative=flags[0], simplex=flags[1])
        refusal_of(guard, less, "smallest entry of increment of b", "at least 0")
    passes(made.knowing(nonnegative=False, simplex=False), less)


def test_dense_matrices_are_symmetric() -> None:
    made = scene("dense")
    for h in EVERY:
        loc = made.loc(BAD)
        loc[0, 1] += 1e-6
        bad = made.changed(h, loc, made.b(h))
        refusal_of(made.guard, bad, "asymmetry of gram", "0")


@pytest.mark.parametrize("packing", PACKINGS)
def test_numbers_only(packing: str) -> None:
    made = scene(packing)
    for h in EVERY:
        for value in (math.nan, math.inf, -math.inf):
            for name in ("gram", "b"):
                gram, b = made.rows(h)
                (gram if name == "gram" else b)[BAD - FIRST, 4] = value
                refusal_of(made.guard, Upload(h, gram, b), f"{name}[4]", "finite")


# counts


def count_below_zero(s: Scene, h: int) -> Row:
    gram = s.loc(BAD)
    gram[1] += gram[0] + 1.0
    gram[0] = -1.0
    return gram, np.zeros(D)


def half_a_visit(s: Scene, h: int) -> Row:
    gram, at = s.loc(BAD), int(s.loc(BAD).argmax())
    gram[at] -= 0.5
    gram[at - 1] += 0.5
    return gram, np.zeros(D)


def visits(more: float) -> Callable[[Scene, int], Row]:
    def change(s: Scene, h: int) -> Row:
        gram = s.loc(BAD)
        gram[gram.argmax()] += more
        return gram, np.zeros(D)

    return change


def entry(share: float, more: float) -> Callable[[Scene, int], Row]:
    """One entry of b: a share of its bound over both rounds, and something more."""

    def change(s: Scene, h: int) -> Row:
        b = s.b(h)
        most = Y_MAX[h - 1] * (s.before(BAD) + s.loc(BAD))
        b[0] = share * most[0] + more
        return s.loc(BAD), b

    return change


def entry_since(share: float, more: float) -> Callable[[Scene, int], Row]:
    """The same, of the increment over round 2."""

    def change(s: Scene, h: int) -> Row:
        b = s.b(h)
        b[0] = s.guard.last[BAD, 0] + share * s.loc(BAD)[0] + more
        return s.loc(BAD), b

    return change


SUM, BESIDE = "7, the round's episodes", "at most y_max times the count beside it"
COUNTS: list[tuple[str, Callable[[Scene, int], Row], float, Any, str, str]] = [
    ("negative", count_below_zero, 0.0, EVERY, "smallest count", "at least 0"),
    ("half", half_a_visit, 0.0, EVERY, "fraction in a count", "0: counts are integers"),
    ("one more", visits(1.0), 0.0, EVERY, "sum of counts", SUM),
    ("one less", visits(-1.0), 0.0, EVERY, "sum of counts", SUM),
    ("b low", entry(0.0, -0.001), 0.0, EVERY, "smallest entry of b", "at least 0"),
    ("b high", entry(1.0, 0.001), 1.0, EVERY, "an entry of b beyond its bound by", BESIDE),
    ("Δb low", entry_since(0.0, -0.001), 1.0, [H], "smallest entry of increment of b",
     "at least 0"),
    ("Δb high", entry_since(1.0, 0.001), 0.0, [H], "an entry of increment of b beyond its bound by",
     BESIDE),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change", "rewards", "steps", "field", "bound"), COUNTS,
                         ids=[row[0] for row in COUNTS])  # fmt: skip
def test_each_check_of_counts_alone(
    name: str, change: Any, rewards: float, steps: Any, field: str, bound: str
) -> None:
    made = scene("diagonal", 7, rewards)
    for h in steps:
        found = refusal_of(made.guard, made.changed(h, *change(made, h)), field, bound)
        if name.startswith(("b", "Δb")):
            assert abs(found.value) == pytest.approx(0.001)  # type: ignore[arg-type]
        passes(made.guard, made.upload(h))
