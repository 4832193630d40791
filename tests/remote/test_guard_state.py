"""What the guard asks of signals and models, what it knows of the problem, and what it remembers
when a run is resumed."""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

import problems
from fedlsvi import FedLSVI
from fedlsvi.core.statistics import pack
from fedlsvi.protocol.messages import Model, Signal, Upload
from fedlsvi.remote.endpoint_factory import guard_for
from fedlsvi.remote.facts import Facts
from fedlsvi.remote.guard import Guard, Refusal
from guarded import (
    AGENTS,
    BAD,
    EVERY,
    FIRST,
    GAMMA,
    PACKINGS,
    PAST,
    Y_MAX,
    D,
    H,
    M,
    T,
    named,
    passes,
    refusal_of,
    scene,
    state,
)


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
        found = caught.value
        assert (found.field, found.value) == ("signal's t", t)
        assert found.bound == f"{PAST + 1} to {last}"
        assert (found.agent, found.round, found.step) == (FIRST, 2, 0)
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
    found = caught.value
    assert (found.field, found.agent) == (f"signal's {field}", agent)
    numbers, steps = "numbers from 1 to 3, rising", "0 in the last episode, else a step"
    assert found.bound == (numbers if field == "agents" else steps)


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
        found = refusal_of(low, made.upload(h), "log ratio of determinants", bound)
        assert found.value == pytest.approx(ratios[BAD], abs=1e-7)
        passes(high, made.upload(h))
        passes(made.knowing(gamma=low.facts.trigger.gamma, overshoot="keep"), made.upload(h))


@pytest.mark.parametrize("packing", PACKINGS)
def test_who_signals_has_the_ratio_where_it_says(packing: str) -> None:
    """γ is set such that agent BAD just has n·ratio ≥ γ, or just not."""
    made = scene(packing)
    ratio = made.log_ratios()[BAD]
    low, high = (made.knowing(gamma=made.n * math.exp(ratio + by)) for by in (-1e-4, 1e-4))
    bound = f"at least {ratio + 1e-4:.9g}: it signalled here"
    for h in EVERY:
        refusal_of(named(high, BAD, h), made.upload(h), "log ratio of determinants", bound)
        passes(named(low, BAD, h), made.upload(h))
        passes(named(high, BAD, h % H + 1), made.upload(h))  # another step's matter
        passes(named(high, 0, h), made.upload(h))  # an agent of another cohort


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
    found = caught.value
    assert (found.field, found.bound) == ("wᵀΛw of the new model", f"at most {most:g}")
    assert (found.agent, found.round, found.step) == (-1, 2, h)
    assert found.value == pytest.approx(1.0005**2 * most)
    assert state(guard) == before
    guard.sends(Model(h, 0.9995 * w, packed))
    assert np.array_equal(guard._model[h - 1], packed)
    assert (guard.t, guard.round) == ((made.t, 3) if h == 1 else (PAST, 2))


@pytest.mark.parametrize(("options", "y_max"), [
    ({}, [3.0, 2.0, 1.0]), ({"value_range": 1.5}, [2.5, 2.0, 1.0]),
    ({"preset": "paper"}, [4.0, 4.0, 1.0]),
    ({"preset": "paper", "value_range": 1.5}, [2.5, 2.5, 1.0]),
])  # fmt: skip
def test_targets_are_a_reward_and_the_next_steps_ceiling(
    options: dict[str, Any], y_max: list[float]
) -> None:
    """H = 3; ceilings are (3, 2, 1) in practice and (3, 3, 3) as printed, at most value_range."""
    settings = FedLSVI(M, gamma=GAMMA, overshoot="keep", **options).settings
    found = Facts.of(settings.resolve(T, H, D, one_hot=False), nonnegative=True)
    assert found.y_max.tolist() == y_max
    assert (found.trigger.gamma, found.episodes, found.overshoot) == (GAMMA, T, "keep")
    assert (found.nonnegative, found.simplex) == (True, False)
    assert Facts.of(settings.resolve(T, H, D, one_hot=False), simplex=True).simplex


@pytest.mark.parametrize(("problem", "shrink", "flags"), [
    (problems.simplex(), 1.0, (True, True)), (problems.simplex(), 0.5, (True, False)),
    (problems.deterministic(), 1.0, (False, False)), (problems.one_hot(), 1.0, (True, True)),
], ids=["simplex", "non-negative", "signed", "one-hot"])  # fmt: skip
def test_the_guard_of_a_plan_knows_its_features(problem: Any, shrink: float, flags: Any) -> None:
    phi = None if shrink == 1.0 else shrink * problem.phi
    session = FedLSVI(M).prepare(problem.envs, T, features=phi)
    plan, guard = session.plan, guard_for(session.plan)
    session.close()
    assert (guard.facts.nonnegative, guard.facts.simplex) == flags
    assert (guard.layout, guard.facts.episodes) == (plan.layout, T)


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_restored_guard_goes_on_where_the_other_was(packing: str) -> None:
    """Episode and round, each agent's Gram matrices, and b of the last step."""
    made = scene(packing)
    guard = Guard(made.guard.layout, made.guard.facts)
    guard.restore({name: a.copy() for name, a in made.guard.state().items()}, PAST, 1)
    guard._model[:], guard.length = made.guard._model, made.n
    assert state(guard) == state(made.guard)
    for h in EVERY:
        honest = made.upload(h)
        guard.upload(FIRST, AGENTS, h, honest)
        with pytest.raises(Refusal) as caught:
            guard.upload(FIRST, AGENTS, h, Upload(h, honest.gram, honest.b + 10.0 * T))
        assert (caught.value.agent, caught.value.round, caught.value.step) == (FIRST, 2, h)
