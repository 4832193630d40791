"""What no honest agent could have sent is refused, by name, before anything changes: one
contribution for each check that breaks this check and, where there is such a one, no other."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import problems
from fedlsvi import FedLSVI
from fedlsvi.core.statistics import pack
from fedlsvi.protocol.messages import Model, Signal, Stop, Upload
from fedlsvi.remote.bounds import Bounds
from fedlsvi.remote.codec import decode_reply, encode
from fedlsvi.remote.contribution import Contribution
from fedlsvi.remote.guard import Guard, Refusal
from guarded import (
    AGENTS,
    BAD,
    EVERY,
    FIRST,
    PACKINGS,
    PAST,
    Y_MAX,
    D,
    H,
    M,
    Scene,
    T,
    judge,
    named,
    part,
    passes,
    refusal_of,
    scene,
    state,
)
from repeats import repeats
from transports_over_frames import over_frames

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
        passes(made.guard, made.honest(h, share))


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
    return loc, s.guard.last[0, BAD] + 0.5 * (np.diag(loc) == 1.0)


def remainder_off_the_diagonal(s: Scene, h: int) -> Row:
    """The same two; beside them entries without any diagonal."""
    loc = np.diag([1.0, 1.0, 0.0, 0.0, 0.0])
    loc[2, 3] = loc[3, 2] = 0.1
    loc[2, 4] = loc[4, 2] = -0.1
    return loc, s.guard.last[0, BAD] + 0.5 * np.diag(loc)


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
        passes(made.guard, made.honest(h))


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
    response[0] = made.guard.last[0, BAD][0] - 1e-3
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
                refusal_of(made.guard, part(h, gram, b), f"{name}[4]", "finite")


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
        b[0] = s.guard.last[0, BAD, 0] + share * s.loc(BAD)[0] + more
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
        refusal = refusal_of(made.guard, made.changed(h, *change(made, h)), field, bound)
        if name.startswith(("b", "Δb")):
            assert abs(refusal.value) == pytest.approx(0.001)  # type: ignore[arg-type]
        passes(made.guard, made.honest(h))


# signals and models


def signal(t: int, *pairs: tuple[int, int]) -> Signal:
    """(agent, step) of those who signal at episode t."""
    agents, steps = zip(*pairs, strict=True) if pairs else ((), ())
    return Signal(t, np.array(agents, np.int64), np.array(steps, np.int64))


@pytest.mark.parametrize(("gamma", "overshoot", "last"), [
    (11.5, "cut", PAST + 12), (12.0, "cut", PAST + 12), (1e9, "cut", T), (11.5, "keep", T),
])  # fmt: skip
def test_no_round_is_longer_than_the_ceiling_of_gamma(
    gamma: float, overshoot: str, last: int
) -> None:
    """Nor than the run; one that keeps its overshoot ends where its window does."""
    guard = scene("packed").knowing(gamma=gamma, overshoot=overshoot)
    before, step = state(guard), 0 if last == T else 1
    guard.signal(FIRST, AGENTS, signal(PAST + 1, (FIRST, 1)))
    guard.signal(FIRST, AGENTS, signal(last, (FIRST, step)))
    for t in (last + 1, PAST, -1):
        with pytest.raises(Refusal) as caught:
            guard.signal(FIRST, AGENTS, signal(t, (FIRST, step)))
        refusal = caught.value
        assert (refusal.field, refusal.value) == ("signal's t", t)
        assert refusal.bound == f"{PAST + 1} to {last}"
        assert (refusal.agent, refusal.round, refusal.step) == (FIRST, 2, 0)
    assert state(guard) == before


@pytest.mark.parametrize(("pairs", "agent", "field"), [
    ([(0, 1)], FIRST, "agents"), ([(FIRST + AGENTS, 1)], FIRST, "agents"), ([], FIRST, "agents"),
    ([(2, 1), (1, 1)], FIRST, "agents"), ([(2, 1), (2, 1)], FIRST, "agents"),
    ([(1, 1), (3, 0)], 3, "step"), ([(1, H), (2, H + 1)], 2, "step"), ([(2, -1)], 2, "step"),
])  # fmt: skip
def test_who_signals_and_where(pairs: Any, agent: int, field: str) -> None:
    guard = scene("packed").guard
    guard.signal(FIRST, AGENTS, signal(PAST + 2, (1, 1), (2, H), (3, 2)))
    guard.signal(FIRST, AGENTS, Signal.silence())
    with pytest.raises(Refusal) as caught:
        guard.signal(FIRST, AGENTS, signal(PAST + 2, *pairs))
    refusal = caught.value
    assert (refusal.field, refusal.agent) == (f"signal's {field}", agent)
    numbers, steps = "numbers from 1 to 3, rising", "0 in the last episode, else a step"
    assert refusal.bound == (numbers if field == "agents" else steps)


def test_the_last_episode_names_no_step() -> None:
    guard = scene("packed").knowing(gamma=float(T))
    guard.signal(FIRST, AGENTS, signal(T, (1, 0), (2, 0)))
    with pytest.raises(Refusal) as caught:
        guard.signal(FIRST, AGENTS, signal(T, (1, 0), (2, 1)))
    assert (caught.value.field, caught.value.agent) == ("signal's step", 2)


@pytest.mark.parametrize("packing", PACKINGS)
def test_nobody_is_later_than_an_episode_after_the_trigger(packing: str) -> None:
    """Whoever stayed below γ/(n − 1) an episode ago has at most (1 + 1/λ_min(Λ)) times as much now.
    γ is set such that agent BAD, who has the largest ratio, is just above or just below."""
    made = scene(packing)
    ratios = made.log_ratios()
    assert ratios[FIRST:].argmax() == BAD - FIRST
    square = made.model if made.model.ndim == 2 else np.diag(made.model)
    grown = math.log1p(1.0 / np.linalg.eigvalsh(square)[0])
    gamma = (made.n - 1) * math.exp(ratios[BAD] - grown)
    bound = f"below {ratios[BAD] - 1e-4 + 1e-6:.9g}: it would have signalled before"
    low, high = (made.knowing(gamma=gamma * math.exp(by)) for by in (-1e-4, 1e-4))
    for h in EVERY:
        refusal = refusal_of(low, made.honest(h), "log ratio of determinants", bound)
        assert refusal.value == pytest.approx(ratios[BAD], abs=1e-7)
        passes(high, made.honest(h))
        passes(made.knowing(gamma=low.bounds.trigger.gamma, overshoot="keep"), made.honest(h))


@pytest.mark.parametrize("packing", PACKINGS)
def test_who_signals_has_the_ratio_where_it_says(packing: str) -> None:
    """γ is set such that agent BAD just has n·ratio ≥ γ, or just not."""
    made = scene(packing)
    ratio = made.log_ratios()[BAD]
    low, high = (made.knowing(gamma=made.n * math.exp(ratio + by)) for by in (-1e-4, 1e-4))
    bound = f"at least {ratio + 1e-4:.9g}: it signalled here"
    for h in EVERY:
        refusal_of(named(high, BAD, h), made.honest(h), "log ratio of determinants", bound)
        passes(named(low, BAD, h), made.honest(h))
        passes(named(high, BAD, h % H + 1), made.honest(h))  # another step's matter
        passes(named(high, 0, h), made.honest(h))  # an agent of another cohort


@pytest.mark.parametrize("h", EVERY)
@pytest.mark.parametrize("packing", PACKINGS)
def test_a_model_is_no_larger_than_its_responses_allow(packing: str, h: int) -> None:
    """wᵀΛw = bᵀΛ⁻¹b ≤ M·t·y_max² for the sum b of M responses; here a thousandth on either side."""
    made = scene(packing)
    guard, gram = deepcopy(made.guard), made.model + sum(made.loc(a) for a in range(M))
    square = np.diag(gram) if packing == "diagonal" else gram
    most = M * made.t * Y_MAX[h - 1] ** 2
    w = np.array([1.0, -2.0, 0.5, 0.0, 3.0])
    w *= np.sqrt(most / (w @ square @ w))
    before, packed = state(guard), pack(gram, made.packing)
    with pytest.raises(Refusal) as caught:
        guard.sends(Model(h, 1.0005 * w, packed))
    refusal = caught.value
    assert (refusal.field, refusal.bound) == ("wᵀΛw of the new model", f"at most {most:g}")
    assert (refusal.agent, refusal.round, refusal.step) == (-1, 2, h)
    assert "agent -1" not in str(refusal)
    assert refusal.value == pytest.approx(1.0005**2 * most)
    assert state(guard) == before
    guard.sends(Model(h, 0.9995 * w, packed))
    assert np.array_equal(guard._model[h - 1], packed)
    assert (guard.t, guard.round) == ((made.t, 3) if h == 1 else (PAST, 2))


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_restored_guard_goes_on_where_the_other_was(packing: str) -> None:
    """Episode and round, each agent's Gram matrices, and b of the last step."""
    made = scene(packing)
    guard = Guard(made.guard.layout, made.guard.bounds)
    guard.restore({name: a.copy() for name, a in made.guard.state().items()}, PAST, 1)
    guard._model[:], guard.length = made.guard._model, made.n
    assert state(guard) == state(made.guard)
    for h in EVERY:
        honest = made.honest(h)
        guard.check(FIRST, honest)
        with pytest.raises(Refusal) as caught:
            guard.check(FIRST, part(h, honest.gram, honest.b + 10.0 * T))
        assert (caught.value.agent, caught.value.round, caught.value.step) == (FIRST, 2, h)


# sums over all agents


def total(made: Scene, h: int, share: float, grams: float = 1.0) -> Contribution:
    """What all agents send together, and their Λ^loc so many times."""
    agents = range(M)
    gram = sum(pack(made.loc(a), made.packing) for a in agents)
    b = share * Y_MAX[h - 1] * sum(made.total(a) for a in agents)
    if h == H:
        b = made.guard.last[0, 0] + share * sum(made.fresh(a) for a in agents)
    return part(h, (grams * gram)[None], b[None])


SUMMED = " (in the sum over all sites)"


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_sum_is_judged_as_what_one_agent_sends_in_so_many_episodes(packing: str) -> None:
    """Largest targets meet the bounds with equality; more of either is refused, and nobody is
    named."""
    made = scene(packing, 7, rewards=1.0, summed=True)
    wrong = "sum of counts" if packing == "diagonal" else "1ᵀΛ1"
    for h in EVERY:
        for share in (0.0, 1.0):
            made.guard.check(0, total(made, h, share))
        beyond = "an entry of b beyond its bound by" if packing == "diagonal" else "bᵀG⁺b"
        for sent, field in ((total(made, h, 1.0, 2.0), wrong), (total(made, h, 1.01), beyond)):
            with pytest.raises(Refusal) as caught:
                made.guard.check(0, sent)
            refusal = caught.value
            assert (refusal.agent, refusal.field) == (-1, field + SUMMED)
            assert (refusal.round, refusal.step) == (2, h)


def test_a_sum_does_not_show_who_signalled() -> None:
    """Neither that nobody had reason to, nor that all were late."""
    made = scene("packed", summed=True)
    for gamma in (1e9, 1.0):
        guard = made.knowing(gamma=gamma)
        for h in EVERY:
            named(guard, BAD, h).check(0, total(made, h, 0.5))


# one trip


def trip(made: Scene, h: int, share: float, tables: Sequence[np.ndarray] = ()) -> Contribution:
    """Λ^loc, u = Σφr and N of the cohort."""
    agents = range(FIRST, FIRST + AGENTS)
    gram = np.stack([pack(made.loc(a), made.packing) for a in agents])
    u = np.stack([share * made.fresh(a) for a in agents])
    return part(h, gram, u)._replace(following=tables)


@pytest.mark.parametrize("packing", PACKINGS)
def test_each_step_of_one_trip_is_as_the_last(packing: str) -> None:
    """u is bounded by the round's rewards alone, at every step."""
    made = scene(packing, 7, rewards=1.0, trip=True)
    beyond = "an entry of b beyond its bound by" if packing == "diagonal" else "bᵀG⁺b"
    since = beyond.replace(" b ", " increment of b ") if packing == "diagonal" else "ΔbᵀΛ⁺Δb"
    for h in EVERY:
        for share in (0.0, 0.5, 1.0):
            passes(made.guard, trip(made, h, share))
        for rewards, field in ((1.0, beyond), (0.0, since)):
            other = scene(packing, 7, rewards, trip=True)
            with pytest.raises(Refusal) as caught:
                other.guard.check(FIRST, trip(other, h, 1.01))
            assert (caught.value.field, caught.value.step) == (field, h)


@pytest.mark.parametrize("packing", PACKINGS)
def test_next_states_are_those_of_the_round(packing: str) -> None:
    """Every episode of agent a leads to state 0 or 1: N sums n features."""
    made = scene(packing, 7, trip=True)
    honest = [np.stack([0.5 * made.fresh(a)] * 2, axis=1) for a in range(FIRST, FIRST + AGENTS)]
    if packing == "diagonal":
        honest = [np.stack([made.fresh(a), np.zeros(D)], axis=1) for a in range(1, 4)]
    passes(made.guard, trip(made, 2, 0.5, honest))
    cases = [(50.0, "an entry of N beyond its bound by"), (-0.3, "smallest entry of N")]
    if packing == "diagonal":
        cases += [(-1.0, "smallest entry of N"), (0.5, "N·1 − counts")]
    for add, field in cases:
        tables = [table.copy() for table in honest]
        at = int(tables[BAD - FIRST][:, 0].argmax()) if add == 0.5 else 0
        tables[BAD - FIRST][at, 0 if add > 0.0 else 1] += add
        if add < 0.0:
            tables[BAD - FIRST][0, :] = (tables[BAD - FIRST][0].sum() - 2 * add, add)
        with pytest.raises(Refusal) as caught:
            made.guard.check(FIRST, trip(made, 2, 0.5, tables))
        assert (caught.value.agent, caught.value.field) == (BAD, field)


# noise


@pytest.mark.parametrize("exchange", ["stepwise", "one-trip"])
@pytest.mark.parametrize("aggregation", ["exact", "secure"])
def test_noise_passes_and_nothing_larger(exchange: Any, aggregation: Any) -> None:
    learner = FedLSVI(
        n_agents=5, exchange=exchange, aggregation=aggregation, rounds=5,
        privacy={"epsilon": 2.0, "delta": 1e-6},
    )  # fmt: skip
    plan = learner.prepare(
        problems.simplex().envs, 60, 3, features=problems.simplex().features
    ).plan
    p, h = plan.parameters, 2
    guard = Guard(plan.layout, Bounds.of(p))
    guard.sends(Stop(next(t for t in range(1, 61) if p.trigger.number(t))))
    u = p.release.response_sigma(h) if exchange == "stepwise" else p.release.sigma
    sizes = [(1, plan.layout.packed), (1, p.dim)]
    sizes += [(1, p.dim * p.states)] if exchange == "one-trip" else []
    for place, sigma in enumerate([p.release.sigma, u, p.release.sigma][: len(sizes)]):
        for worst, fine in ((5.0 * sigma, True), (50.0 * sigma, False), (np.nan, False)):
            arrays = [np.zeros(size) for size in sizes]
            arrays[place][0, 1] = worst
            sent = part(h, arrays[0], arrays[1])._replace(following=arrays[2:])
            if fine:
                guard.check(0, sent)
                continue
            with pytest.raises(Refusal) as caught:
                guard.check(0, sent)
            assert caught.value.agent == (-1 if aggregation == "secure" else 0)
    assert list(guard.state()) == ([] if aggregation == "secure" else ["guard.gram"])


# one Gram matrix for all steps


def test_whoever_names_another_step_of_a_shared_matrix_shows_its_determinant_too() -> None:
    made = scene("packed")
    layout = replace(made.guard.layout, stationary=True)
    guard = made.knowing(gamma=1e9)
    guard.layout = layout
    for step in EVERY:
        late = named(guard, BAD, step)
        refusal_of(late, made.honest(H), "log ratio of determinants", "at least "
                   f"{math.log(1e9 / made.n):.9g}: it signalled here")  # fmt: skip


# any change of an honest upload


def in_the_middle(problem: Any) -> Any:
    """A session four rounds in, after `Stop`: its guard, and the honest upload of step H."""
    learner = FedLSVI(n_agents=4, gamma=12.0, beta=0.5, lam=0.5, stationary=False)
    session = learner.prepare(problem.envs, 200, 2, transport=over_frames(1))
    playing = session.rounds()
    for _ in range(4):
        next(playing)
    transport: Any = session.player.transport
    signal = transport.wait(session.player.server.t, 200 - session.player.server.t)
    transport.next_request([0])
    transport.guard.sends(Stop(signal.t))
    frame = encode(Stop(signal.t), transport.address(0))
    _, upload = decode_reply(transport.handlers[0].handle(frame), transport.layout)
    assert isinstance(upload, Upload)
    return session, transport.guard, upload


def fingerprint(session: Any) -> str:
    guard = session.player.transport.guard
    parts = (session.player.server.w, session.player.server.gram, guard.gram, guard.last)
    plain = (session.player.server.t, session.player.server.k, guard.t, guard.round, guard.length)
    return hashlib.sha256(b"".join(a.tobytes() for a in parts) + repr(plain).encode()).hexdigest()


def _outer(rng: np.random.Generator, d: int, scale: float) -> np.ndarray:
    x = rng.normal(size=d)
    x *= np.sqrt(scale) / np.linalg.norm(x)
    return np.outer(x, x)[np.triu_indices(d)]


def mutations(n: int, t: int, d: int, y: float) -> dict[str, Callable[[Any, Row, int], Any]]:
    """Ways in which one agent's row of an upload can be impossible."""

    def put(which: int, value: float) -> Callable[[Any, Row, int], None]:
        def change(rng: Any, rows: Row, i: int) -> None:
            rows[which][i, rng.integers(rows[which].shape[1])] = value

        return change

    def negative(rng: Any, rows: Row, i: int) -> None:
        rows[0][i] -= _outer(rng, d, n * rng.uniform(1.05, 3.0))

    def heavy(rng: Any, rows: Row, i: int) -> None:
        rows[0][i] += _outer(rng, d, n * rng.uniform(1.01, 4.0))

    def rotated(rng: Any, rows: Row, i: int) -> None:
        """A response that no rewards in [0, 1] and values below the ceiling could give."""
        direction = rng.normal(size=d)
        rows[1][i] = direction / np.linalg.norm(direction) * y * t * rng.uniform(1.01, 9.0)

    def grown(rng: Any, rows: Row, i: int) -> None:
        rows[1][i] = rows[1][i] * (1.0 + 10.0 ** rng.uniform(3, 8)) + 10.0 * t * y

    def sign(rng: Any, rows: Row, i: int) -> None:
        rows[1][i] = -np.abs(rows[1][i]) - y * t

    return {
        "nan in gram": put(0, np.nan), "inf in gram": put(0, np.inf),
        "nan in b": put(1, np.nan), "inf in b": put(1, -np.inf),
        "not positive": negative, "trace": heavy, "response": rotated, "huge response": grown,
        "negative response": sign,
    }  # fmt: skip


@pytest.mark.parametrize("problem", [problems.simplex(), problems.deterministic()],
                         ids=["simplex", "signed"])  # fmt: skip
def test_malformed_uploads(problem: Any) -> None:
    """All are refused with the agent's name, none changes state; the honest upload passes before
    and after."""
    session, guard, upload = in_the_middle(problem)
    before, H, d = fingerprint(session), guard.layout.horizon, guard.layout.dim
    judge(guard, 0, upload)
    ways = mutations(guard.length, guard.t + guard.length, d, float(guard.bounds.y_max[H - 1]))
    names, rng = list(ways), np.random.default_rng(0)
    for number in range(repeats(500, 5000)):
        rows, i = (upload.gram.copy(), upload.b.copy()), int(rng.integers(4))
        ways[names[number % len(names)]](rng, rows, i)
        with pytest.raises(Refusal) as caught:
            judge(guard, 0, Upload(H, *rows))
        assert caught.value.agent == i, names[number % len(names)]
        assert f"agent {i}, round {guard.round}, step {H}" in str(caught.value)
    judge(guard, 0, upload)
    assert fingerprint(session) == before
    session.close()
