"""The server of a federation: its folder goes on with the run that it holds and with no other."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from time import time_ns
from typing import Any

import pytest

import problems
from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.errors import InvalidSetting, TransportError
from fedlsvi.protocol.messages import Explore, Layout, Model
from fedlsvi.protocol.session import Session
from fedlsvi.remote import federation as federation_module
from fedlsvi.remote import frame_transport
from fedlsvi.remote.codec import run_id
from fedlsvi.remote.conformance import EchoFactory, parameters
from fedlsvi.remote.endpoint_factory import endpoint_factories, guard_for
from fedlsvi.remote.epoch import APART, EPOCH, take_epoch
from fedlsvi.remote.federation import Federation, serve
from fedlsvi.remote.frame_transport import ThreadTransport
from fedlsvi.remote.retry_policy import Absent, RetryPolicy
from fedlsvi.run import Run
from fedlsvi.storage import checkpoint, files
from patience import PATIENCE


class Killed(Exception):
    """The server's process ends."""


class Silent(ThreadTransport):
    """Cohort 1 is not heard from the exploration of round `since` on, at all if that is below 0, or
    from the last model of round `after` on; the server dies when it has asked `asks` times."""

    since: float = math.inf
    after = 0
    silent = False
    asks = math.inf

    def exchange(self, frames: Any, deadline: float) -> Iterator[tuple[int, bytes]]:
        self.asks -= 1
        if self.asks < 0:
            raise Killed
        self.silent |= self.since < 0
        self.silent |= isinstance(self.request, Explore) and self.guard.round >= self.since
        done = isinstance(self.request, Model) and self.request.h == 1 and self.guard.round - 1
        self.silent |= self.after > 0 and done == self.after
        for c, data in super().exchange(frames, deadline):
            if c != 1 or not self.silent:
                yield c, data


class Trial:
    """A federation of two cohorts over frames, with a folder for the server and journals."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def play(
        self, last: int | None = None, seed: int = 1, absent: Absent = "fail",
        since: float = math.inf, agents: int = 4, cohorts: int = 2, gamma: float = 8.0,
        asks: float = math.inf, after: int = 0, **agreed: Any,
    ) -> Run:  # fmt: skip
        """Serve from where it was, and die after round `last` or after so many requests."""
        settings = {"gamma": gamma, "beta": 0.5, "lam": 0.5, "stationary": False}
        learner = FedLSVI(n_agents=agents, **settings)  # type: ignore[arg-type]
        plan = learner.prepare(problems.one_hot().envs, 40, seed).plan
        p, server = plan.parameters, self.folder / "server"
        made = endpoint_factories(plan, cohorts, self.folder / "journals", durable=False, threads=1)
        federation = Federation(
            "trial", 40, p.horizon, p.dim, seed, one_hot=True, settings=settings, **agreed
        )
        cuts = [(factory.lo, factory.hi - factory.lo) for factory in made]
        opened = federation.open_run(server, cuts, print)  # before any site takes up its journal
        assert opened.header.parameters == p
        run, retry = run_id(p, seed), RetryPolicy(PATIENCE, 1, absent=absent)
        transport = Silent(p, made, run, retry, guard_for(plan))
        transport.since, transport.asks, transport.after = since, asks, after

        def observe(record: Any) -> None:
            if record.k == last:
                raise Killed

        try:
            return serve(opened, transport, [observe])
        finally:
            transport.close()

    def notes(self) -> dict[int, list[str]]:
        """What its records say was out of the ordinary, by round."""
        rows = (self.folder / "server" / "records.jsonl").read_text().splitlines()
        return {record["k"]: record["notes"] for record in map(json.loads, rows)}


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path)


def test_it_goes_on_where_it_was(trial: Trial, tmp_path: Path) -> None:
    with pytest.raises(Killed):
        trial.play(last=3)
    assert trial.play().w.tobytes() == Trial(tmp_path / "other").play().w.tobytes()


def test_records_that_are_on_disk_leave_the_memory(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run may have many thousand rounds; its result reads them back, also after a restart."""
    sessions: list[Session] = []

    class Watched(Session):
        def __init__(self, player: Any) -> None:
            super().__init__(player)
            sessions.append(self)

    monkeypatch.setattr(federation_module, "Session", Watched)
    with pytest.raises(Killed):
        trial.play(last=3)
    run = trial.play()
    assert [len(session.records) for session in sessions] == [1, 1]
    assert [record.k for record in run.records] == list(range(1, run.rounds + 1))


@pytest.mark.parametrize("last", [None, 3])
def test_a_server_that_died_before_its_first_checkpoint_is_followed(
    last: int | None, trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock is set back before each start: sites have heard epochs that no checkpoint has."""
    now = time_ns()
    monkeypatch.setattr(frame_transport, "time_ns", lambda: now)
    with pytest.raises(Killed):
        trial.play(last, asks=math.inf if last else 2)
    for _ in range(2):
        now -= 10**12
        with pytest.raises(Killed):
            trial.play(asks=2)
    assert trial.play().w.tobytes() == Trial(tmp_path / "other").play().w.tobytes()


def test_a_site_that_is_away_hears_no_epoch_of_the_clock(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is called after the clock went forward, and once more when that was undone and the server
    had died before a checkpoint."""
    now = time_ns()
    monkeypatch.setattr(frame_transport, "time_ns", lambda: now)
    with pytest.raises(Killed):
        trial.play(3, absent="carry", since=2)
    make, now = Silent.__init__, now + 10**9

    def ahead(self: Silent, *given: Any) -> None:
        nonlocal now
        make(self, *given)
        now += 10**15

    monkeypatch.setattr(Silent, "__init__", ahead)
    with pytest.raises(Killed):
        trial.play(absent="carry", since=0, asks=2)
    monkeypatch.setattr(Silent, "__init__", make)
    now -= 10**15
    trial.play(absent="carry")
    records = (trial.folder / "server" / "records.jsonl").read_text()
    assert "taken back, away since round 2" in records


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 2}, ["seed 1", "2"]),
        ({"gamma": 9.0}, ["gamma 8.0", "9.0"]),
        ({"agents": 5}, ["n_agents 4", "5", "[2, 2]", "[2, 3]"]),
        ({"features": {"name": "rbf"}}, ["features None", "{'name': 'rbf'}"]),
        ({"reward_range": [0.0, 9.0]}, ["reward_range [0.0, 1.0]", "[0.0, 9.0]"]),
        ({"cohorts": 1}, ["[2, 2]", "[4]"]),
    ],
)
def test_another_run_is_refused_in_a_sentence(
    change: dict[str, Any], named: list[str], trial: Trial
) -> None:
    with pytest.raises(Killed):
        trial.play(last=3)
    before = {path: path.read_bytes() for path in (trial.folder / "server").rglob("*.json*")}
    with refused(InvalidSetting, "another-run", *named):
        trial.play(**change)
    assert before == {path: path.read_bytes() for path in before}


def test_carrying_may_begin_after_a_failure(trial: Trial, tmp_path: Path) -> None:
    """The responses of who is away are those that were last accepted, also where the server that
    accepted them would not have carried anybody: the run is the one that carried from the start."""
    with refused(TransportError, "no-answer", "Explore"):
        trial.play(since=4)
    changed = trial.play(since=4, absent="carry")
    always = Trial(tmp_path / "other").play(since=4, absent="carry")
    assert changed.w.tobytes() == always.w.tobytes()


@pytest.mark.parametrize("restart", [False, True])
def test_a_note_is_in_the_record_of_its_round(restart: bool, trial: Trial) -> None:
    """Who is lost with the last model of round 3 has contributed to it and is missing in round 4,
    also where the server is started again in between."""
    if restart:
        with pytest.raises(Killed):
            trial.play(last=3, after=3, absent="carry")
        trial.play(since=-1, absent="carry")
    else:
        trial.play(after=3, absent="carry")
    notes = trial.notes()
    assert not notes[3]
    assert notes[4] == [
        f"round 3: agents 2 to 3 carried (no answer to Model within {PATIENCE:g} s)"
    ]
    assert notes[5] == ["round 5: agents 2 to 3 carried, away since round 4"]


def test_a_note_after_the_last_round_is_in_the_last_record(trial: Trial, tmp_path: Path) -> None:
    other = Trial(tmp_path / "other")
    other.play()
    last = max(other.notes())
    trial.play(after=last, absent="carry")
    words = f"agents 2 to 3 carried (no answer to Model within {PATIENCE:g} s)"
    assert trial.notes()[last] == [f"round {last}: {words}"]


def test_a_run_that_has_ended_plays_no_more(trial: Trial) -> None:
    """Its job may be started again: the same model, and not one more record."""
    ended = trial.play()
    before = trial.notes()
    assert trial.play().w.tobytes() == ended.w.tobytes()
    assert trial.notes() == before


def test_nothing_is_remembered_for_who_was_excluded_before(trial: Trial) -> None:
    """Models of the past are for those who may come back: a run that begins to carry after it has
    excluded somebody keeps no more of them than any other."""
    with pytest.raises(Killed):
        trial.play(last=5, since=3, absent="exclude")
    trial.play(absent="carry")
    last = checkpoint.newest(trial.folder / "server", lambda note: None)
    assert last is not None
    plain = last[0].plain["transport"]
    assert list(plain["excluded"]) == ["1"]
    assert len(plain["carried"]["past"]) <= 2


@pytest.mark.parametrize("held", [{"x": 1}, {"epoch": "a"}, {"epoch": -1}, {"epoch": 2**63}])
def test_an_unusable_epoch_is_replaced(held: dict[str, Any], tmp_path: Path) -> None:
    files.write_json(tmp_path / EPOCH, held)
    factory = EchoFactory(0, 2, Layout(2, 2, 3, "diagonal"))
    transport = ThreadTransport(parameters(2), [factory], 1)
    began = transport.epoch
    take_epoch(transport, tmp_path)
    assert transport.epoch == began
    assert files.read_json(tmp_path / EPOCH, {str: object}) == {"epoch": began}
    take_epoch(transport, tmp_path)
    assert transport.epoch == began + APART
    transport.close()
