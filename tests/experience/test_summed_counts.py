"""Agents that are added while they are summed: the bits of agents that are kept one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import problems
from expecting import refused
from fedlsvi import FedLSVI, resume
from fedlsvi.config import Settings
from fedlsvi.core.fixed_point import LARGEST
from fedlsvi.envs import RandomLinearMDP, RiverSwim
from fedlsvi.errors import InvalidInput
from fedlsvi.experience import kinds
from fedlsvi.experience.cell_counts import CellCounts
from fedlsvi.experience.dense_counts import DenseCounts
from fedlsvi.experience.summed_counts import SummedCounts
from fedlsvi.experience.table_source import TableSource
from fedlsvi.groups import ProblemSize
from fedlsvi.learner import drive
from fedlsvi.protocol import cohorts
from fedlsvi.protocol.session import Session
from fedlsvi.storage.run_writer import RunWriter, begin

M = 9
ZOO = [*problems.finite_zoo(), problems.heterogeneous(M=M), problems.chain(S=3, H=1)]


def learner(m: int = M, **settings: Any) -> FedLSVI:
    return FedLSVI(m, **{"exchange": "one-trip", "aggregation": "exact"} | settings)


def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on every agent keeps sums of its own."""
    for module in (kinds, cohorts):
        monkeypatch.setattr(module, "adds_up", lambda *about: False)


def memories(session: Session) -> set[type]:
    made: Any = session.player.cohorts
    found = {type(cohort.experience.memory) for cohort in made}
    session.close()
    return found


def assert_same_bits(one: Any, other: Any) -> None:
    assert one.taus == other.taus
    assert one.w.tobytes() == other.w.tobytes()
    assert one.gram.tobytes() == other.gram.tobytes()
    assert one.regret.tobytes() == other.regret.tobytes()
    assert one.ledger.to_dict() == other.ledger.to_dict()
    assert [r.triggers for r in one.records] == [r.triggers for r in other.records]


@pytest.mark.parametrize("bonus", ["constant", "noise"])
@pytest.mark.parametrize("problem", ZOO, ids=lambda problem: problem.name)
def test_the_bits_of_agents_kept_one_by_one(
    problem: Any, bonus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds of one episode, of a few, and of more than are summed from the log."""

    def runs() -> list[Any]:
        options: Any = {"features": problem.features, "progress": False}
        return [
            learner(gamma=gamma, bonus=bonus, rounds="off").learn(problem.envs, T, 3, **options)
            for gamma, T in ((1.0, 8), (6.0, 30), (300.0, 150))
        ]

    added = runs()
    one_by_one(monkeypatch)
    for mine, theirs in zip(added, runs(), strict=True):
        assert_same_bits(mine, theirs)
    lengths = [max(np.diff(run.taus)) for run in added]
    assert lengths[0] == 1
    assert 1 < lengths[1] <= 24 < lengths[2]


@pytest.mark.parametrize("gamma", [1.0, 4.0])
def test_a_thousand_agents_have_the_bits_of_agents_kept_one_by_one(
    gamma: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = RandomLinearMDP(50, 5, 20, 10, seed=0)
    many = learner(1000, gamma=gamma, rounds="off")
    added = [many.learn(env, 6, progress=False, threads=n, cohorts=c) for n, c in ((1, 1), (2, 3))]
    one_by_one(monkeypatch)
    apart = many.learn(env, 6, progress=False)
    for run in added:
        assert_same_bits(run, apart)


PRESENT: list[dict[str, Any]] = [
    {"participation": 60},
    {"participation": 0.05},
    {"participation": 40, "present": [[m, 1 + m % 7, 9] for m in range(0, 1000, 2)]},
    {"participation": 2, "gamma": 9.0},  # most cohorts have nobody there
]


@pytest.mark.parametrize("own", PRESENT, ids=str)
def test_those_that_are_there_have_the_bits_of_agents_kept_one_by_one(
    own: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a thousand; each goes on with its own next episode."""
    env = RandomLinearMDP(20, 4, 8, 5, seed=0)
    many = learner(1000, **{"gamma": 2.0, "rounds": "off"} | own)
    added = [many.learn(env, 9, progress=False, threads=n, cohorts=c) for n, c in ((1, 1), (2, 5))]
    one_by_one(monkeypatch)
    apart = many.learn(env, 9, progress=False)
    assert len(apart.records) > 1
    assert max(r.present for r in apart.records) < 1000
    for run in added:
        assert_same_bits(run, apart)
        assert [r.present for r in run.records] == [r.present for r in apart.records]


def test_those_that_are_not_asked_have_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a round, nothing is as long as there are agents."""
    rows, play = [], TableSource.play
    monkeypatch.setattr(
        TableSource, "play", lambda s, *a: (rows.append(len(s.round.states)), play(s, *a))[1]
    )
    run = learner(100_000, participation=50).learn(RandomLinearMDP(8, 3, 4, 4, seed=0), 5)
    assert set(rows) == {50}
    assert run.agent_episodes == 250


@pytest.mark.parametrize("own", [{}, {"participation": 4}, {"participation": 0.5}], ids=str)
@pytest.mark.parametrize("gamma", [1.0, 5.0])
def test_a_run_that_was_killed_goes_on_to_the_same_bits(
    gamma: float, own: dict[str, Any], tmp_path: Path
) -> None:
    """Nothing of the agents is in its checkpoint, but who has played what."""
    env, mine = RandomLinearMDP(8, 3, 4, 4, seed=0), learner(gamma=gamma, **own)
    whole = mine.learn(env, 30, 3, progress=False)
    session = mine.prepare(env, 30, 3)
    folder = begin(tmp_path / "run", session.plan, "fed-lsvi", mine.settings)

    def die(record: Any) -> None:
        if record.k == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drive(session, [RunWriter(folder, session, 0.0), die])
    arrays, _ = session.player.state()
    attendance = {"there", "played", "last", "rounds"} if own else set()
    kept = {name for name in arrays if name.startswith("cohort")}
    assert kept == {f"cohort0.{name}" for name in attendance}
    session.close()
    done = resume(tmp_path / "run", env=env, progress=False)
    assert_same_bits(done, whole)


@pytest.mark.parametrize("way", ["together", "one by one"])
def test_a_log_that_spills_changes_no_bit(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where counts are smaller than the log that they replace."""
    if way == "one by one":
        one_by_one(monkeypatch)
    env, long = RandomLinearMDP(4, 3, 4, 4, seed=0), learner(gamma=400.0, rounds="off")
    whole = long.learn(env, 300, 3, progress=False)
    assert max(np.diff(whole.taus)) > 100
    monkeypatch.setattr("fedlsvi.experience.table_source.LOG_BYTES", 1)
    spilled, spill = [], DenseCounts.spill
    monkeypatch.setattr(DenseCounts, "spill", lambda *a: (spilled.append(1), spill(*a))[1])
    assert_same_bits(long.learn(env, 300, 3, progress=False), whole)
    assert spilled


def test_counts_of_a_round_are_never_larger_than_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round of a hundred episodes of a hundred agents took 200 kB for each of them, in counts."""
    monkeypatch.setattr("fedlsvi.experience.table_source.LOG_BYTES", 1)
    env = RandomLinearMDP(50, 5, 20, 10, seed=0)
    session = learner(3).prepare(env, 10)
    made: Any = session.player.cohorts
    room = made[0].experience.source.round
    session.close()
    log = room.capacity * 4 * (env.horizon + 1)
    assert log > 8 * env.horizon * env.n_states**2 - 4 * (env.horizon + 1)


def test_a_memory_is_chosen_for_what_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    env = RandomLinearMDP(5, 3, 4, 4, seed=0)
    assert memories(learner().prepare(env, 9)) == {SummedCounts}
    assert memories(learner().prepare(env, 9, cohorts=3)) == {SummedCounts}
    for settings in ({"exchange": "stepwise"}, {"aggregation": "float"}, {"aggregation": "secure"}):
        assert memories(learner(**settings).prepare(env, 9, cohorts=3)) == {DenseCounts}
    for settings in ({"diversity": 1.0},):
        run = learner(**settings).learn(env, 9, progress=False)
        assert run.ending == "finished"
    monkeypatch.setattr(kinds, "DENSE_BYTES", 1)
    assert memories(learner().prepare(RiverSwim(), 9)) == {CellCounts}


def test_what_fixed_point_cannot_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rounds that are counted, summed agent by agent, and in places."""
    env = RandomLinearMDP(4, 3, 4, 4, seed=0)
    for gamma, T in ((1.0, 5), (6.0, 30), (300.0, 150)):
        session = learner(gamma=gamma, rounds="off").prepare(env, T)
        made: Any = session.player.cohorts
        memory = made[0].experience.memory
        memory._grid = memory._grid._replace(most=1e-12)
        memory._everyone = LARGEST / 1e-12 / 2.0**memory._bits
        with refused(InvalidInput, "sum-overflow"):
            drive(session, [])


def test_a_record_lists_few_of_those_that_fired() -> None:
    session = learner(500, gamma=1.0).prepare(RiverSwim(), 3)
    session.player.start()
    done = session.player.play_round()
    session.close()
    assert done.signals == 500
    assert [m for m, _ in done.triggers] == list(range(len(done.triggers)))
    assert len(done.triggers) < 100


@pytest.mark.parametrize("m", [10**4, 10**5, 10**6])
def test_rounding_of_many_agents_stays_far_below_lambda(m: int) -> None:
    """All agents round φφᵀ of a transition alike. A hundred thousand at the default λ moved Λ
    by more than λ, and the run ended with a Gram matrix that was not positive definite."""
    T = 10**8 // m
    size = ProblemSize(T, 10, 20, False, steady=False, states=50, nonnegative=True)
    p = Settings(m, exchange="one-trip", aggregation="exact").resolve(size)
    assert p.rounds is not None
    off = p.dim * m * min(p.rounds, T) * 2.0 ** -(p.scale_bits + 1)
    assert off < 0.3 * p.lam
    assert m * p.longest_round * 2.0**p.scale_bits <= LARGEST


def test_many_agents_that_learn_with_a_small_lambda() -> None:
    """Λ would have lost its positive definiteness in the first round."""
    env, settings = RandomLinearMDP(6, 3, 6, 4, seed=0), {"gamma": 1.0, "lam": 1e-8}
    exact = learner(2000, **settings).learn(env, 8, progress=False)
    apart = learner(2000, aggregation="float", **settings).learn(env, 8, progress=False)
    assert exact.taus == apart.taus
    np.testing.assert_allclose(exact.gram, apart.gram, rtol=0.0, atol=1e-9 * 2000)


@pytest.mark.parametrize("settings", [
    {"gamma": 7.5}, {"gamma": 7.5, "min_round": 3}, {"gamma": "anytime"}, {"rounds": 5},
    {"preset": "paper"}, {"gamma": 3.0, "overshoot": "keep"},
], ids=str)  # fmt: skip
def test_no_round_is_longer_than_the_longest(settings: Any) -> None:
    run = learner(2, **settings).learn(RandomLinearMDP(6, 3, 4, 4, seed=0), 60, progress=False)
    assert max(np.diff(run.taus)) <= run.parameters.longest_round
