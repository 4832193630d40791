"""What every source and every memory keeps to, in each pair that fits: as groups of their own or as
one, with and without the sums that a bonus that knows the noise needs.

What the sums of a round are is tested against the literal code, in tests/matrix and tests/paper.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, NamedTuple, Protocol

import numpy as np
import pytest

from fedlsvi import PEVI, FedLSVI, experience
from fedlsvi.core.statistics import pack, unpack
from fedlsvi.envs import logged_worlds
from fedlsvi.experience import kinds, table_source
from fedlsvi.experience.buffer import Buffer
from fedlsvi.experience.cell_counts import CellCounts
from fedlsvi.experience.dense_counts import DenseCounts
from fedlsvi.experience.experience import Experience
from fedlsvi.experience.log_buffer import LogBuffer
from fedlsvi.experience.log_source import LogSource
from fedlsvi.experience.rooms import Memory, Source
from fedlsvi.experience.stepped_states import SteppedStates
from fedlsvi.experience.table_source import TableSource
from fedlsvi.experience.transition_counts import TransitionMemory
from fedlsvi.experience.vector_sources import ContinuousSource, SteppedVectors
from fedlsvi.experience.with_absence import WithAbsence
from fedlsvi.experience.with_logs import WithLogs
from fedlsvi.features import OneHot
from fedlsvi.protocol.agent import Cohort
from fedlsvi.protocol.cohorts import cohort_of
from matrix.runs import BETA, DOORS, LAM, SEED, H
from matrix.runs import source as problem
from recorded import recorded

M = 2
EPISODES = [9, 5]
Sums = dict[int, tuple[np.ndarray, np.ndarray]]


class Pair(NamedTuple):
    """A source and the memory that takes in what it plays.

    Attributes:
        world: Where agents play, or what was recorded there.
        diversity: σ.
    """

    source: type
    memory: type
    world: str
    diversity: float = 0.0


PAIRS = {
    "table, dense": Pair(TableSource, DenseCounts, "table"),
    "table, cells": Pair(TableSource, CellCounts, "table"),
    "table, diverse": Pair(TableSource, TransitionMemory, "table", 0.3),
    "stepped, numbered": Pair(SteppedStates, TransitionMemory, "numbered"),
    "stepped, vectors": Pair(SteppedVectors, Buffer, "vectors"),
    "continuous": Pair(ContinuousSource, Buffer, "continuous"),
    "log, numbered": Pair(LogSource, TransitionMemory, "log"),
    "log, vectors": Pair(LogSource, LogBuffer, "log of vectors"),
}

COUNTING = [name for name, pair in PAIRS.items() if hasattr(pair.memory, "take_increment")]
PLAYED = [name for name, pair in PAIRS.items() if pair.source is not LogSource]
VARIANTS = [
    pytest.param(name, pooled, noisy, id=f"{name}, {groups}{bonus}")
    for name in PAIRS
    for pooled, groups in ((False, "H groups"), (True, "1 group"))
    for noisy, bonus in ((False, ""), (True, ", noise"))
    if name in PLAYED or not noisy  # pevi has no such bonus
]
every = pytest.mark.parametrize(("name", "pooled", "noisy"), VARIANTS)


@pytest.fixture(autouse=True)
def by_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """One-hot features are kept by their cells, however few there are."""
    monkeypatch.setattr(kinds, "DENSE_BYTES", 0)


def begun(name: str, pooled: bool, noisy: bool = False, lo: int = 0, hi: int = M) -> Cohort:
    """Agents lo … hi−1 before their first episode, with a model that is not zero."""
    pair = PAIRS[name]
    made = problem(pair.world.removeprefix("log of "), False, True)
    settings: dict[str, Any] = {"lam": LAM, "beta": BETA, "stationary": pooled}
    if pair.source is LogSource:
        if pair.world == "log":
            data = made.options["data"][:M] if made.options else []
        else:
            data = recorded(made.worlds, EPISODES, H, DOORS)[0]
        logs = logged_worlds(data, like=made.envs)
        plan = PEVI(M, **settings).prepare(logs, None, features=made.features).plan
    else:
        settings |= {"bonus": "noise" if noisy else "constant", "diversity": pair.diversity}
        learner = FedLSVI(M, gamma=5.0, **settings)
        plan = learner.prepare(made.envs, 200, SEED, features=features_of(pair, made)).plan
    cohort = cohort_of(plan, lo, hi)
    assert type(cohort.experience.source) is pair.source
    assert type(cohort.experience.memory) is pair.memory
    cohort.values.beta = BETA
    follow(cohort, pooled, 1)
    cohort.experience.begin(0)
    return cohort


def features_of(pair: Pair, made: Any) -> Any:
    return OneHot() if pair.memory is CellCounts else made.features


def follow(cohort: Cohort, pooled: bool, seed: int, size: float = 0.5) -> None:
    """Take a model of random numbers."""
    rng, dim = np.random.default_rng(seed), cohort.experience.dim
    for h in range(H, 0, -1):
        rows = rng.normal(size=(2 * dim, dim)) / np.sqrt(dim)
        gram, w = LAM * np.eye(dim) + rows.T @ rows, size * rng.normal(size=dim)
        if cohort.values.noise is not None:
            w = np.append(w, 0.3)
        sent = np.diag(gram) if cohort.packing == "diagonal" else pack(gram, cohort.packing)
        cohort.renew(h, w, np.empty(0) if pooled and h < H else sent)


def played(cohort: Cohort, *lengths: int, blocks: int | None = None) -> list[Sums]:
    """The sums of rounds of these lengths, explored so many episodes at once; None is all."""
    seen, world = list[Sums](), cohort.experience
    for length in lengths:
        left = length
        while left > 0:
            n = min(left, left if blocks is None else blocks)
            world.explore(n)
            left -= n
        world.close(length)
        seen.append({h: world.summarise(h) for h in range(H, 0, -1)})
        world.begin(world.t + world.length)
    return seen


def same(one: Sums, other: Sums) -> bool:
    return all(
        a.tobytes() == b.tobytes() and a.shape == b.shape
        for h in range(1, H + 1) for a, b in zip(one[h], other[h], strict=True)
    )  # fmt: skip


def answers(cohort: Cohort, values: Any = None) -> list[np.ndarray]:
    values = cohort.values if values is None else values
    return [cohort.experience.responses(h, values) for h in range(H, 0, -1)]


def rooms(protocol: type) -> set[type]:
    """The classes of the package that have all that a protocol asks for."""
    members = [name for name in vars(protocol) if not name.startswith("_")]
    found = set()
    for module in iter_modules(experience.__path__, "fedlsvi.experience."):
        for _, room in inspect.getmembers(import_module(module.name), inspect.isclass):
            concrete = room.__module__ == module.name and Protocol not in room.__bases__
            if concrete and all(hasattr(room, member) for member in members):
                found.add(room)
    return found


def test_every_source_and_every_memory_is_in_a_pair() -> None:
    wholes = {Experience, WithLogs, WithAbsence}
    assert rooms(Source) - wholes == {pair.source for pair in PAIRS.values()}
    assert rooms(Memory) - wholes == {pair.memory for pair in PAIRS.values()}


@every
def test_how_a_round_is_cut_changes_no_bit(name: str, pooled: bool, noisy: bool) -> None:
    """Into blocks, and by dropping what was explored beyond its end."""
    whole, pieces, beyond = (begun(name, pooled, noisy) for _ in range(3))
    expected = played(whole, 7, 2)
    for one, other in zip(expected, played(pieces, 7, 2, blocks=3), strict=True):
        assert same(one, other)
    world = beyond.experience
    world.explore(5)
    world.explore(6)
    world.close(7)
    assert same(expected[0], {h: world.summarise(h) for h in range(H, 0, -1)})
    world.begin(7)
    assert same(expected[1], played(beyond, 2)[0])


@every
def test_agents_sum_for_themselves(name: str, pooled: bool, noisy: bool) -> None:
    """The same bits, whoever is in the same cohort."""
    together = played(begun(name, pooled, noisy), 7, 2)
    for m in range(M):
        alone = played(begun(name, pooled, noisy, m, m + 1), 7, 2)
        for one, other in zip(together, alone, strict=True):
            assert same({h: tuple(a[m : m + 1] for a in part) for h, part in one.items()}, other)


@every
def test_a_round_adds_to_the_ones_before(name: str, pooled: bool, noisy: bool) -> None:
    """Λ^loc is of one round, b of all: two rounds have the sums of one that is as long as both."""
    two, one = (begun(name, pooled, noisy) for _ in range(2))
    (first, second), (both,) = played(two, 7, 2), played(one, 9)
    for h in range(1, H + 1):
        np.testing.assert_allclose(first[h][0] + second[h][0], both[h][0], atol=1e-12)
        np.testing.assert_allclose(second[h][1], both[h][1], atol=1e-12)
    assert not np.allclose(first[H][0], both[H][0])


@every
def test_other_values_ask_and_change_nothing(name: str, pooled: bool, noisy: bool) -> None:
    """`responses` and `fit` with the values of another pass: what is kept, and what is answered
    afterwards, is as it was."""
    cohort, untouched = (begun(name, pooled, noisy) for _ in range(2))
    played(cohort, 7)
    played(untouched, 7)
    before, kept = answers(cohort), cohort.experience.state()
    kept = {key: array.copy() for key, array in kept.items()}
    greedy = cohort.values.another(0.0)
    for h in range(H, 0, -1):
        greedy.update(h, np.full(cohort.experience.dim, 0.2), gram(cohort, pooled, h))
    other = answers(cohort, greedy)
    for h in range(H, 0, -1):
        cohort.experience.fit(h, cohort.weights[h], greedy)
    assert {b.shape[1] for b in other} == {cohort.experience.dim}
    assert not np.allclose(other[-1], before[-1][:, : other[-1].shape[1]], atol=1e-3)
    assert [b.tobytes() for b in answers(cohort)] == [b.tobytes() for b in before]
    after = cohort.experience.state()
    assert {key: array.tobytes() for key, array in after.items()} == {
        key: array.tobytes() for key, array in kept.items()
    }
    assert same(played(cohort, 2)[0], played(untouched, 2)[0])


def gram(cohort: Cohort, pooled: bool, h: int) -> np.ndarray:
    """Λ_h in force; empty where it is that of step h + 1."""
    if pooled and h < H:
        return np.empty(0)
    return unpack(cohort.grams[h], cohort.experience.dim, cohort.packing)


@every
def test_what_is_restored_goes_on_to_the_same_bits(name: str, pooled: bool, noisy: bool) -> None:
    cohort, again = (begun(name, pooled, noisy) for _ in range(2))
    played(cohort, 4, 3)
    world, back = cohort.experience, again.experience
    state = {key: array.copy() for key, array in world.state().items()}
    for first, last in ((0, 4), (4, 7)):
        back.extend(first, {k: a.copy() for k, a in world.history(first, last).items()})
    back.restore(state)
    back.begin(7)
    assert [b.tobytes() for b in answers(again)] == [b.tobytes() for b in answers(cohort)]
    follow(cohort, pooled, 2)
    follow(again, pooled, 2)
    world.begin(7)
    back.begin(7)
    assert same(played(cohort, 2)[0], played(again, 2)[0])


@pytest.mark.parametrize("noisy", [False, True], ids=["constant", "noise"])
@pytest.mark.parametrize("name", PAIRS)
def test_one_group_is_the_sum_of_all(name: str, noisy: bool) -> None:
    """Of Λ, and of b where V = 0: agents follow one policy, and the world's steps are alike."""
    noisy = noisy and name in PLAYED
    apart, shared = begun(name, False, noisy), begun(name, True, noisy)
    for cohort, pooled in ((apart, False), (shared, True)):
        cohort.values.beta = 0.0
        follow(cohort, pooled, 3, size=0.0)
        cohort.experience.begin(0)
    (each,), (one,) = played(apart, 7), played(shared, 7)
    assert [one[h][0].shape[1] for h in range(1, H)] == [0] * (H - 1)
    np.testing.assert_allclose(sum(gram for gram, _ in each.values()), one[H][0], atol=1e-12)
    total = sum(b for _, b in each.values())
    for h in range(1, H + 1):
        np.testing.assert_allclose(one[h][1], total, atol=1e-12)


@pytest.mark.parametrize("noisy", [False, True], ids=["constant", "noise"])
@pytest.mark.parametrize("pooled", [False, True], ids=["H groups", "1 group"])
@pytest.mark.parametrize("name", COUNTING)
def test_an_increment_is_the_upload(name: str, pooled: bool, noisy: bool) -> None:
    """Λ to the bit, and u + NV = b; what was taken is not kept."""
    noisy = noisy and name in PLAYED
    asked, taken = begun(name, pooled, noisy), begun(name, pooled, noisy)
    (sums,), world = played(asked, 7), taken.experience
    world.explore(7)
    world.close(7)
    steps = (H,) if pooled else range(H, 0, -1)
    for h in steps:
        part = world.take_increment(h)
        assert part.gram.tobytes() == sums[h][0].tobytes()
        m, dim = part.gram.shape[0], world.dim
        for step in range(H, 0, -1) if pooled else (h,):
            b = part.u[:, :dim].copy()
            if part.columns:
                table = np.zeros((m, part.u.shape[1] * part.columns))
                table[part.agents, part.places] = part.values
                N = table.reshape(m, -1, part.columns)[:, :dim]
                ahead = np.zeros(part.columns)
                V = asked.values.values[step]
                ahead[: len(V)] = V
                b += N @ ahead
            np.testing.assert_allclose(b, sums[step][1][:, :dim], atol=1e-12)
    world.begin(7)
    for b in answers(taken):
        assert not b.any()


@pytest.mark.parametrize("pooled", [False, True], ids=["H groups", "1 group"])
@pytest.mark.parametrize("name", PLAYED)
def test_a_round_that_is_too_long_is_counted_on_the_way(
    name: str, pooled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sources with little room count episodes before the round ends; the others have room."""
    plain = played(begun(name, pooled, True), 150)[0]
    monkeypatch.setattr(table_source, "LOG_BYTES", 1)
    narrow = begun(name, pooled, True)
    spilled = played(narrow, 150, blocks=narrow.experience.block)[0]
    for h in range(1, H + 1):
        for here, there in zip(spilled[h], plain[h], strict=True):
            np.testing.assert_allclose(here, there, rtol=1e-12, atol=1e-12)
