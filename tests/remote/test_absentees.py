"""`absent="carry"`: rounds close without a cohort that is away, and no episode of it is lost."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import problems
from expecting import refused
from fedlsvi import FedLSVI, resume
from fedlsvi.core.statistics import pack, unpack
from fedlsvi.errors import InvalidSetting, TransportError
from fedlsvi.learner import drive
from fedlsvi.protocol.cohorts import cohort_of
from fedlsvi.protocol.messages import Keep, Model, Stop, Upload, gram_of
from fedlsvi.protocol.server import Server
from fedlsvi.remote.audit import Audit, verify
from fedlsvi.remote.codec import decode_reply, encode
from fedlsvi.remote.endpoint_factory import endpoint_factories
from fedlsvi.remote.guard import Refusal
from fedlsvi.remote.retry_policy import RetryPolicy
from fedlsvi.storage.run_writer import RunWriter, begin
from lossy import Silence, between, lossy
from patience import PATIENCE

LEARNER = FedLSVI(n_agents=4, gamma=8.0, beta=0.5, lam=0.5, stationary=False)
POOLED = FedLSVI(n_agents=4, gamma=8.0, beta=0.5, lam=0.5, stationary=True)
COMING = FedLSVI(
    n_agents=4, gamma=8.0, beta=0.5, lam=0.5, stationary=False, policy="explore", participation=0.6
)
EPISODES = 40
RETRY = RetryPolicy(PATIENCE, 1, absent="carry")


def play(
    problem: Any,
    silence: Silence,
    folder: Path,
    retry: RetryPolicy = RETRY,
    learner: FedLSVI = LEARNER,
) -> Any:
    """A session over frames, played to the end."""
    session = learner.prepare(
        problem.envs, EPISODES, 1, features=problem.features, keep_models=True,
        transport=lossy(silence, folder, retry),
    )  # fmt: skip
    drive(session, [])
    return session


def notes(session: Any) -> list[str]:
    return [note for record in session.records for note in record.notes]


def check_accounts(session: Any) -> None:
    """Played once more with everybody present and the models that this run had in its rounds: Λ has
    every episode of every agent exactly once, and w comes from fresh responses of all. Of a cohort
    that is still away, Λ and b have what it sent up to the last episode that was accepted."""
    server, p = session.player.server, session.plan.parameters
    carried, away = (
        session.player.transport.reachability.absentees,
        session.player.transport.membership.away,
    )
    H, layout = p.horizon, session.player.server.layout
    cohort = cohort_of(session.plan, 0, 4)
    cohort.start(Server(layout, p.lam, p.gamma, p.beta, p.episodes).parameters())
    gram, b = np.zeros_like(session.player.transport.guard.gram), np.zeros((4, H, p.dim))
    upto = np.full((4, H), EPISODES)
    if away:
        assert list(away) == [1]
        upto[2:] = carried.upto[1]
    attendance = session.player.transport.membership.attendance
    for record, (w, model) in zip(session.records, session.models, strict=True):
        upload = cohort.receive(Stop(record.last))
        came = None
        if attendance is not None:
            came = np.isin(np.arange(4), attendance.schedule.during(record.k, record.first - 1))
        for h in range(H, 0, -1):
            counted = record.last <= upto[:, h - 1]
            gram_of(gram, h, H)[counted] += upload.gram[counted]
            fresh = counted if came is None else counted & came
            b[fresh, h - 1] = upload.b[fresh]
            small = np.diagonal(model[h - 1]) if layout.packing == "diagonal" else model[h - 1]
            sent = pack(small, layout.packing)[: layout.gram_size(h)]
            upload = cohort.receive(Model(h, w[h - 1], sent))
    np.testing.assert_allclose(session.player.transport.guard.gram, gram, rtol=1e-12, atol=1e-12)
    for h in range(1, H + 1):
        own = gram[min(h, len(gram)) - 1]
        full = unpack(own.sum(axis=0), layout.dim, layout.packing)
        full = (np.diag(full) if full.ndim == 1 else full) + p.lam * np.eye(layout.dim)
        np.testing.assert_allclose(session.models[-1][1][h - 1], full, rtol=1e-12, atol=1e-12)
        w = np.linalg.solve(full, b[:, h - 1].sum(axis=0))
        np.testing.assert_allclose(server.w[h - 1], w, rtol=1e-7, atol=1e-9)


PROBLEMS = [problems.one_hot(), problems.continuous()]


def test_nobody_away_is_the_run_without_carry(tmp_path: Path) -> None:
    here = LEARNER.learn(problems.simplex().envs, EPISODES, 1, progress=False)
    session = play(problems.simplex(), lambda n: None, tmp_path)
    assert session.player.server.w.tobytes() == here.w.tobytes()
    assert session.player.server.gram.tobytes() == here.gram_packed.tobytes()
    assert len(session.player.transport.reachability.absentees.past) <= 2
    assert not notes(session)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
@pytest.mark.parametrize("kind", ["request", "reply"])
@pytest.mark.parametrize("length", [1, 6, 20])
def test_silence_of_one_exchange_a_round_or_several(
    problem: Any, kind: str, length: int, tmp_path: Path
) -> None:
    session = play(problem, between(20, 19 + length, kind), tmp_path)
    assert not session.player.transport.membership.away
    assert any("agents 2 to 3 carried" in note for note in notes(session))
    assert any("agents 2 to 3 taken back" in note for note in notes(session))
    check_accounts(session)


@pytest.mark.parametrize("kind", ["request", "reply"])
@pytest.mark.parametrize("position", range(8))
def test_silence_at_every_position_of_a_round(position: int, kind: str, tmp_path: Path) -> None:
    """Explore, Stop, the models of each step and Keep: what was accepted before is not counted
    again, what was not comes later."""
    session = play(problems.one_hot(), between(21 + position, 21 + position, kind), tmp_path)
    lost = {t.__name__ for t in session.player.transport.said[20:29]}
    assert {"Explore", "Stop", "Model", "Keep"} <= lost
    assert not session.player.transport.membership.away
    check_accounts(session)


@pytest.mark.parametrize("kind", ["request", "reply"])
@pytest.mark.parametrize("length", [1, 6])
@pytest.mark.parametrize("position", [0, 1, 3])
def test_silence_where_steps_share_a_matrix(
    position: int, length: int, kind: str, tmp_path: Path
) -> None:
    """Once everybody is back, Λ has every episode exactly once, and w is of fresh responses."""
    silence = between(21 + position, 20 + position + length, kind)
    session = play(problems.one_hot(), silence, tmp_path, learner=POOLED)
    assert any("agents 2 to 3 carried" in note for note in notes(session))
    assert not session.player.transport.membership.away
    check_accounts(session)


@pytest.mark.parametrize("start", range(20, 32, 3))
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
def test_who_is_away_by_schedule_when_its_site_is_back(
    problem: Any, start: int, tmp_path: Path
) -> None:
    """What it plays late comes with the response of that round: Λ and b are of the same episodes,
    also of an agent that is away when its site has just returned."""
    session = play(problem, between(start, start + 10), tmp_path, learner=COMING)
    assert any("agents 2 to 3 taken back" in note for note in notes(session))
    check_accounts(session)


@given(
    losses=st.lists(st.tuples(st.integers(1, 120), st.integers(1, 12), st.booleans()), max_size=6),
    problem=st.sampled_from(PROBLEMS),
)
@settings(max_examples=15)
def test_any_silence_loses_no_episode(losses: list[tuple[int, int, bool]], problem: Any) -> None:
    """Also while a cohort is coming back."""

    def silence(n: int) -> str | None:
        for first, length, request in losses:
            if first <= n < first + length:
                return "request" if request else "reply"
        return None

    with tempfile.TemporaryDirectory() as folder:
        check_accounts(play(problem, silence, Path(folder)))


def test_away_for_ever_keeps_what_was_accepted(tmp_path: Path) -> None:
    """Its Gram matrices stay, its responses are the last ones, and every record names it."""
    session = play(problems.one_hot(), lambda n: "request" if n > 20 else None, tmp_path)
    carried, counted = (
        session.player.transport.reachability.absentees,
        session.player.transport.guard.gram,
    )
    away = session.player.transport.membership.away
    assert list(away) == [1]
    lost = away[1]
    for record in session.records[lost:]:
        assert record.notes == [f"round {record.k}: agents 2 to 3 carried, away since round {lost}"]
    assert (carried.upto[1] == counted[:, 2:].sum(axis=2).T).all()
    check_accounts(session)
    by_agent = session.player.transport.ledger.by_agent
    assert by_agent["up_stats"][2] < by_agent["up_stats"][0]


def test_a_cohort_that_stays_away_too_long_is_excluded(tmp_path: Path) -> None:
    retry = RetryPolicy(PATIENCE, 1, absent="carry", carry=3)
    session = play(problems.one_hot(), lambda n: "request" if n > 20 else None, tmp_path, retry)
    assert list(session.player.transport.membership.excluded) == [1]
    assert any("excluded (away for 3 rounds)" in note for note in notes(session))
    assert not session.player.transport.guard.gram[:, 2:].any()
    assert len(session.player.transport.reachability.absentees.past) <= 2


def test_nobody_left_is_said(tmp_path: Path) -> None:
    session = LEARNER.prepare(problems.one_hot().envs, EPISODES, 1, transport=lossy(
        lambda n: "request" if n > 20 else None, tmp_path, RETRY))  # fmt: skip
    transport: Any = session.player.transport
    inner = transport.exchange
    transport.exchange = lambda frames, deadline: (
        inner(frames, deadline) if transport.exchanges < 20 else iter(())
    )
    with refused(TransportError, "nobody-left"):
        drive(session, [])


@pytest.mark.parametrize(
    ("kind", "lost"),
    [("reply", [(22 + position,) for position in range(7)]),
     ("request", [(18, 18 + later) for later in range(5, 17)])],
)  # fmt: skip
def test_the_ledger_and_the_log_of_a_site_agree(
    kind: str, lost: list[tuple[int, ...]], tmp_path: Path
) -> None:
    """What is sent again on a return is counted once at both ends, also where the site is lost once
    more before what it owed was accepted."""
    for positions in lost:
        folder = tmp_path / str(positions[-1])
        session = LEARNER.prepare(
            problems.one_hot().envs, EPISODES, 1,
            transport=lossy(lambda n: kind if n in positions else None, folder, RETRY),  # noqa: B023
        )  # fmt: skip
        transport: Any = session.player.transport
        transport.handlers[1].outbox = Audit(folder / "sent.jsonl", durable=False)
        drive(session, [])
        counted = int(transport.ledger.by_agent["up_stats"][2:].sum())
        verify(folder / "sent.jsonl", counted)
        assert any("taken back" in note for note in notes(session))


@pytest.mark.parametrize("stop", range(30, 54, 3))
def test_resume_with_a_cohort_away(stop: int, tmp_path: Path) -> None:
    """The server dies while a cohort is away, comes back, or has just come back; the resumed run
    takes it back and counts every episode once."""
    problem = problems.one_hot()
    folder, journals = tmp_path / "run", tmp_path / "journals"
    session = LEARNER.prepare(
        problem.envs,
        EPISODES,
        1,
        transport=lossy(between(20, 32), journals, RETRY),
        keep_models=True,
    )
    transport: Any = session.player.transport
    inner = transport.exchange

    def exchange(frames: Any, deadline: float) -> Any:
        if transport.exchanges == stop:
            raise KeyboardInterrupt
        return inner(frames, deadline)

    transport.exchange = exchange
    run = begin(folder, session.plan, "fed-lsvi", LEARNER.settings)
    with pytest.raises(KeyboardInterrupt):
        drive(session, [RunWriter(run, session, 0.0)])
    made: list[Any] = []

    def again(plan: Any) -> Any:
        made.append(lossy(lambda n: None, journals, RETRY)(plan))
        return made[0]

    done = resume(folder, env=problem.envs, transport=again, progress=False)
    assert not made[0].membership.away
    assert any("carried" in note for record in done.records for note in record.notes)
    counts = made[0].guard.gram
    assert (counts.sum(axis=2) == EPISODES).all()
    np.testing.assert_array_equal(np.diagonal(done.gram, axis1=1, axis2=2),
                                  0.5 + counts.sum(axis=1))  # fmt: skip


def test_resume_of_a_run_with_agents_away_needs_carry(tmp_path: Path) -> None:
    session = play(problems.one_hot(), lambda n: "request" if n > 20 else None, tmp_path / "one")
    arrays, plain = session.player.transport.reachability.state()
    arrays |= session.player.transport.guard.state()
    plain |= {"cuts": session.player.transport.cuts, "epoch": 1}
    other = lossy(lambda n: None, tmp_path / "two", RetryPolicy())(session.plan)
    with refused(InvalidSetting, "cohorts-are-away", 'absent="carry"'):
        other.restore(arrays, plain, EPISODES, 5)
    other.close()


def test_what_is_owed_is_checked(tmp_path: Path) -> None:
    """A cohort that comes back with more than it can have seen is refused."""
    session = LEARNER.prepare(
        problems.one_hot().envs, EPISODES, 1, transport=lossy(between(20, 32), tmp_path, RETRY)
    )
    transport: Any = session.player.transport
    handler, lied = transport.handlers[1], []
    honest = handler.handle

    def lies(frame: bytes) -> bytes:
        address, reply = decode_reply(honest(frame), transport.layout)
        if isinstance(reply, Upload) and 1 in transport.membership.away and address.round == 4:
            reply = Upload(reply.h, reply.gram + 1.0, reply.b)
            lied.append(reply.h)
        return encode(reply, address)

    handler.handle = lies
    with refused(Refusal, "impossible-message", "agent 2", "sum of counts"):
        drive(session, [])
    assert lied


def test_a_snapshot_whose_answer_was_lost(tmp_path: Path) -> None:
    """The cohort made its first snapshot, the server does not know, and takes it back from the very
    beginning: what its journal then has is the whole of its history."""
    problem = problems.continuous()
    first = play(problem, lambda n: None, tmp_path / "whole").player.transport.said.index(Keep) + 1
    session = play(problem, between(first, first, "reply"), tmp_path / "lost")
    check_accounts(session)
    live = session.player.transport.handlers[1].cohort.experience
    endpoint = endpoint_factories(session.plan, 2, tmp_path / "lost", durable=False, threads=1)[1]()
    kept = endpoint.cohort.experience
    assert kept.t == EPISODES
    for name, array in live.history(0, EPISODES).items():
        assert array.tobytes() == kept.history(0, EPISODES)[name].tobytes(), name
    endpoint.close()
