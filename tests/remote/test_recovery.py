"""Kills at any moment, on either side or both: the run ends in the same bits."""

from __future__ import annotations

import os
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import problems
from expecting import refused
from fedlsvi import FedLSVI, resume
from fedlsvi.errors import DamagedFile, FedLSVIError, TransportError
from fedlsvi.learner import drive
from fedlsvi.protocol.messages import Explore, Model, Start, Stop
from fedlsvi.remote import frame_transport
from fedlsvi.remote.codec import Address, Failure, decode_reply, encode, run_id
from fedlsvi.remote.endpoint_factory import endpoint_factories
from fedlsvi.remote.frame_transport import ThreadTransport
from fedlsvi.remote.journal import Journal
from fedlsvi.remote.ray import transport as ray_transport
from fedlsvi.storage.run_writer import RunWriter, begin
from killing_frames import kill
from repeats import repeats
from transports_over_frames import dying, over_frames
from variants import MIXED, assert_kept, paid, scalars_of

KILLS = repeats(2, 4)
LEARNER = FedLSVI(n_agents=4, gamma=8.0, beta=0.5, lam=0.5)


@pytest.mark.parametrize(
    "name", ["masks", "logs", "one_hot", "continuous", "diverse"][: repeats(2, 5)]
)
def test_killed_processes_lose_nothing(name: str, tmp_path: Path) -> None:
    """SIGKILL to a process that holds server and agents, at drawn places of its work, each
    followed by resume; wherever it was, exploring or synchronising, w and the rest are the same.
    So where agents have masks of their own, and where one has a log and nothing to play in."""
    cohorts = 4 if name == "masks" else 2
    found = kill(name, "float", cohorts, 300, KILLS, tmp_path)
    assert found["kills"] == KILLS
    assert found["equal"]


def interrupted(
    problem: Any, folder: Path, after: int, make: Any = None, learner: FedLSVI = LEARNER
) -> Any:
    """A session whose server dies when it has asked so often; a checkpoint follows every round."""
    session = learner.prepare(
        problem.envs, 60, 1, features=problem.features,
        transport=dying(make or over_frames(2, folder / "journals"), after),
    )  # fmt: skip
    run = begin(folder / "run", session.plan, "fed-lsvi", learner.settings)
    with pytest.raises(KeyboardInterrupt):
        drive(session, [RunWriter(run, session, 0.0)])
    return session


def check_resumed(problem: Any, folder: Path, make: Any = None, learner: FedLSVI = LEARNER) -> Any:
    """It ends in the bits of a run that nobody disturbed; returns it."""
    here = learner.learn(problem.envs, 60, 1, features=problem.features, progress=False)
    done = resume(
        folder / "run", env=problem.envs, features=problem.features, progress=False,
        transport=make or over_frames(2, folder / "journals"),
    )  # fmt: skip
    assert done.taus == here.taus
    assert done.w.tobytes() == here.w.tobytes()
    assert done.gram.tobytes() == here.gram.tobytes()
    return done


@pytest.mark.parametrize("position", range(8))
def test_resume_after_the_server_died_in_a_synchronisation(position: int, tmp_path: Path) -> None:
    """The server stops between two messages of a round, at every position of one round."""
    interrupted(problems.simplex(), tmp_path, 40 + position)
    check_resumed(problems.simplex(), tmp_path)


@pytest.mark.parametrize("own", MIXED, ids=str)
@pytest.mark.parametrize("after", [17, 23])
def test_no_restart_spends_more_than_the_budget_or_breaks_the_floor(
    after: int, own: dict[str, Any], tmp_path: Path
) -> None:
    """The server dies in the fourth or fifth of a few rounds; what it sent in it comes once more,
    and is counted once."""
    problem = problems.simplex()
    given = {"gamma": 30.0, "policy": "explore"} | paid(own, 4, 3, 10 + 4, noisy=True)
    learner = FedLSVI(n_agents=4, **given)
    interrupted(problem, tmp_path, after, learner=learner)
    done = check_resumed(problem, tmp_path, learner=learner)
    assert_kept(done, own)
    p, asked = done.parameters, done.ledger.scalars["signal"]
    total = sum(n for category, n in done.ledger.scalars.items() if category != "signal")
    assert total == scalars_of(4, 3, 14, done.rounds, noisy=True) - 3 * 4 * done.rounds
    assert asked >= p.n_agents * done.rounds + 2 * sum(r.signals for r in done.records)


def test_resume_when_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(problems.simplex(), tmp_path, 40)
    monkeypatch.setattr(frame_transport, "time_ns", lambda: time.time_ns() - 3600 * 10**9)
    check_resumed(problems.simplex(), tmp_path)


def test_resume_after_drivers_that_died_before_their_first_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver of Ray (here to threads) writes its epoch beside the journals: the actors have heard
    one that no checkpoint has, and the clock is set back before each start."""
    problem, now = problems.simplex(), time.time_ns()
    monkeypatch.setattr(frame_transport, "time_ns", lambda: now)
    monkeypatch.setattr(ray_transport, "RayTransport", lambda *given: ThreadTransport(*given[:5]))
    make = partial(ray_transport.on_ray, cohorts=2, journal=tmp_path / "journals")
    interrupted(problem, tmp_path, 40, make)
    for _ in range(2):
        now -= 10**12
        with pytest.raises(KeyboardInterrupt):
            resume(tmp_path / "run", env=problem.envs, features=problem.features, progress=False,
                   transport=dying(make, 3))  # fmt: skip
    check_resumed(problem, tmp_path, make)


def flip(path: Path, at: int = -20) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def newest(journal: Path, kind: str) -> Path:
    """The last file of a kind; raw episodes are in files named by two numbers."""
    pattern = "*-*.safetensors" if kind == "history" else f"{9 * '[0-9]'}.{kind}"
    return max(journal.glob(pattern), key=lambda path: path.stem.rpartition("-")[2])


@pytest.mark.parametrize("kind", ["json", "safetensors", "history"])
@pytest.mark.parametrize("after", [12, 43])
def test_a_damaged_snapshot_is_made_again_from_the_one_before(
    kind: str, after: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first one, made again from the very beginning, or a later one. The agents are where they
    were, and a server can go back to that very snapshot."""
    problem = problems.continuous()
    session = interrupted(problem, tmp_path, after)
    journals = sorted((tmp_path / "journals").iterdir())
    assert [len(list(journal.glob("*.json"))) for journal in journals] == [1 + (after > 12)] * 2
    for journal in journals:
        flip(newest(journal, kind))
    (live, _), made = (
        session.player.transport.handlers,
        endpoint_factories(session.plan, 2, tmp_path / "journals"),
    )
    for said in (1, 1):  # the second time it is whole
        endpoint = made[0]()
        assert (endpoint._last, endpoint._reply) == (live._last, live._reply)
        assert endpoint.cohort.experience.length == live.cohort.experience.length
        endpoint.close()
        assert caplog.text.count("is damaged") == said
    check_resumed(problem, tmp_path)


@pytest.mark.parametrize(
    ("gone", "code"), [("safetensors", "journal-damaged"), ("log", "journal-gap")]
)
def test_a_journal_that_leads_nowhere_is_refused(gone: str, code: str, tmp_path: Path) -> None:
    """The newer snapshot is damaged, and the older one or the requests since it are gone."""
    session = interrupted(problems.one_hot(), tmp_path, 43)
    older, last = sorted((tmp_path / "journals" / "agents-0-1").glob("*.safetensors"))
    flip(last)
    older.with_suffix(f".{gone}").unlink()
    with refused(DamagedFile, code):
        endpoint_factories(session.plan, 2, tmp_path / "journals")[0]()


def station_and_frames(folder: Path) -> tuple[Any, Any]:
    plan = LEARNER.prepare(problems.simplex().envs, 60, 1).plan
    factory = endpoint_factories(plan, 2, folder, threads=1)[0]
    run = run_id(plan.parameters, plan.seed)

    def frame(message: Any, number: int, epoch: int = 5) -> bytes:
        return encode(message, Address(run, epoch, number, 1, 0, 2))

    return factory, frame


def start(plan: Any) -> Start:
    p = plan.parameters
    gram = np.stack([p.lam * np.eye(p.dim)[np.triu_indices(p.dim)]] * p.horizon)
    return Start(np.zeros((p.horizon, p.dim)), gram, p.gamma, p.beta, p.episodes)


def test_a_request_that_comes_again_is_answered_alike_and_counted_once(tmp_path: Path) -> None:
    factory, frame = station_and_frames(tmp_path)
    endpoint = factory()
    endpoint.handle(frame(start(factory.plan), 1))
    asked = frame(Explore(3), 2)
    first = endpoint.handle(asked)
    assert endpoint.handle(asked) == first
    assert endpoint.cohort.experience.length == 3
    late = decode_reply(endpoint.handle(frame(start(factory.plan), 1)), factory.plan.layout)[1]
    assert late == Failure("MessageRefused")
    skipped = decode_reply(endpoint.handle(frame(Explore(3), 9)), factory.plan.layout)[1]
    assert skipped == Failure("MessageRefused")
    foreign = encode(Explore(1), Address(1, 5, 3, 1, 0, 2))
    assert decode_reply(endpoint.handle(foreign), factory.plan.layout)[1] == Failure(
        "MessageRefused"
    )
    assert endpoint.cohort.experience.length == 3
    upload = endpoint.handle(frame(Stop(2), 3))
    endpoint.close()
    again = factory()  # as after a kill: from the journal alone
    assert again.handle(frame(Stop(2), 3)) == upload
    assert again.cohort.experience.length == 2
    again.close()


@pytest.mark.parametrize("between", [b"", b"damaged"])
def test_a_station_that_raised_takes_its_journal(
    between: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An environment that fails in the middle of an episode, once. The text stays in the log. What
    is refused before the request comes again changes nothing."""
    factory, frame = station_and_frames(tmp_path)
    endpoint = factory()
    endpoint.handle(frame(start(factory.plan), 1))
    explore = endpoint.cohort.experience.explore

    def broken(n: int) -> None:
        explore(n)
        raise OSError("patient 4711 left the room")

    endpoint.cohort.experience.explore = broken
    reply = endpoint.handle(frame(Explore(3), 2))
    assert decode_reply(reply, factory.plan.layout)[1] == Failure("OSError")
    assert b"4711" not in reply
    assert "patient 4711 left the room" in caplog.text
    if between:
        refused = decode_reply(endpoint.handle(between), factory.plan.layout)[1]
        assert refused == Failure("MessageRefused")
    endpoint.handle(frame(Explore(3), 2))
    assert endpoint.cohort.experience.length == 3
    endpoint.close()


def test_journal_notices_damage_and_cuts_an_unfinished_record(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for letter in b"abc":
        journal.append(bytes([letter]) * 100)
    journal.close()
    log = tmp_path / "000000000.log"
    whole = log.read_bytes()
    for cut in (1, 50, 107):
        log.write_bytes(whole[:-cut])
        journal = Journal(tmp_path)
        assert [f[:1] for f in journal.newest()[1]] == [b"a", b"b"]
        journal.append(b"d")
        assert len(journal.newest()[1]) == 3
        journal.close()
    log.write_bytes(whole + bytes(40))  # as the loss of power may leave it
    journal = Journal(tmp_path)
    assert len(journal.newest()[1]) == 3
    journal.close()
    record = len(whole) // 3
    for at in (20, record, record + 3, record + 4):  # a request, a length, the length's checksum
        log.write_bytes(whole)
        flip(log, at)
        damaged, journal = log.read_bytes(), Journal(tmp_path)
        with refused(DamagedFile, "journal-altered", f"byte {at // record * record}"):
            journal.newest()
        assert log.read_bytes() == damaged
        journal.close()
    journal = Journal(tmp_path)
    with refused(TransportError, "in-use"):
        Journal(tmp_path)
    journal.close()


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path)
    journal.newest()

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with refused(FedLSVIError, "cannot-write", "No space left"):
        journal.append(b"x")
    monkeypatch.undo()
    journal.close()


def test_model_messages_are_part_of_the_journal(tmp_path: Path) -> None:
    """Killed between two steps of a synchronisation: the same next upload."""
    factory, frame = station_and_frames(tmp_path)
    endpoint = factory()
    endpoint.handle(frame(start(factory.plan), 1))
    endpoint.handle(frame(Explore(4), 2))
    endpoint.handle(frame(Stop(4), 3))
    p = factory.plan.parameters
    gram = np.eye(p.dim)[np.triu_indices(p.dim)] * 3.0
    model = frame(Model(p.horizon, np.full(p.dim, 0.1), gram), 4)
    upload = endpoint.handle(model)
    endpoint.close()
    again = factory()
    assert again.handle(model) == upload
    again.close()


def test_a_restored_server_needs_journals_of_its_time(tmp_path: Path) -> None:
    """Sites keep two snapshots: a copy of the server from long before does not fit them, and says
    so; with copies of the journals of its time it does."""

    def stop(record: Any) -> None:
        if record.k == 3:
            raise KeyboardInterrupt

    folder, journals = tmp_path / "run", tmp_path / "journals"
    options: dict[str, Any] = {"transport": over_frames(2, journals), "progress": False}
    with pytest.raises(KeyboardInterrupt):
        LEARNER.learn(problems.simplex().envs, 200, 1, folder=folder, checkpoint_seconds=0.0,
                      observers=[stop], **options)  # fmt: skip
    for name in ("run", "journals"):
        shutil.copytree(tmp_path / name, tmp_path / "copies" / name)
    options["env"] = problems.simplex().envs
    run = resume(folder, checkpoint_seconds=0.0, **options)
    assert run.rounds > 6

    def restore(name: str) -> None:
        shutil.rmtree(tmp_path / name)
        shutil.copytree(tmp_path / "copies" / name, tmp_path / name)

    restore("run")
    with refused(TransportError, "agent-failed", "Start"):
        resume(folder, **options)
    restore("journals")
    assert resume(folder, **options).w.tobytes() == run.w.tobytes()


@pytest.mark.parametrize("exchange", ["stepwise", "one-trip"])
def test_a_run_goes_on_without_a_cohort_that_leaves(exchange: Any, tmp_path: Path) -> None:
    """Rounds before stay as they were; then Λ has the episodes of the other agents and no others,
    also those from before. A later server finds it excluded."""
    problem = problems.one_hot()
    learner = FedLSVI(n_agents=4, gamma=8.0, beta=0.5, lam=0.5, exchange=exchange)
    here = learner.learn(problem.envs, 60, 1, features=problem.features, progress=False)
    session = interrupted(problem, tmp_path, 40, learner=learner)
    before = [record.last for record in session.records]
    made = []

    def leaving(plan: Any) -> Any:
        made.append(over_frames(2, tmp_path / "journals")(plan))
        made[-1].leaving = {1: "the organiser removed it"}
        return made[-1]

    again: dict[str, Any] = {"env": problem.envs, "features": problem.features, "progress": False}
    with pytest.raises(KeyboardInterrupt):
        resume(tmp_path / "run", transport=dying(leaving, 20), checkpoint_seconds=0.0, **again)
    done = resume(tmp_path / "run", transport=leaving, **again)
    assert len(before) > 2
    assert [record.last for record in done.records][: len(before)] == before
    assert done.played == 60
    of_all, of_two = (run.gram.trace(axis1=1, axis2=2) - 0.5 * 8 for run in (here, done))
    assert (of_two > 0.0).all()
    assert (2.0 * of_two).tolist() == of_all.tolist()  # each visit counts the same
    assert [list(transport.membership.excluded) for transport in made] == [[1], [1]]
    said = [note for record in done.records for note in record.notes]
    assert sum("agents 2 to 3 excluded (the organiser removed it)" in note for note in said) == 1
