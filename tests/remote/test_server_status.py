"""The status of a federation: who is there, who is waited for and why, and a pause."""

from __future__ import annotations

import inspect
import json
from dataclasses import asdict, replace
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any

import pytest

from fedlsvi import FedLSVI
from fedlsvi.cli import federation_status as shown
from fedlsvi.envs import RandomLinearMDP
from fedlsvi.errors import StoreError
from fedlsvi.live import watcher
from fedlsvi.protocol.records import STOP, RoundRecord
from fedlsvi.remote import retry_policy, waiting
from fedlsvi.remote.codec import MODEL, Failure, encode, peek
from fedlsvi.remote.retry_policy import RetryPolicy
from fedlsvi.remote.server_status import STATUS, ServerStatus, SiteStatus, parse, read
from fedlsvi.remote.waiting import Awaited, Watch
from patience import PATIENCE
from transports_over_frames import over_frames

ENV = RandomLinearMDP(n_states=8, n_actions=2, dim=4, horizon=3, seed=2)
NAMES = ["north", "south", "west"]


def record(k: int, last: int) -> RoundRecord:
    seconds = {"explore": 0.5, "synchronise": 0.25, "evaluate": 0.0}
    return RoundRecord(k, 1, last, 1, [], [0.0], {"up_stats": 7}, None, 0, seconds, ["a note"])


def status_of(folder: Path) -> ServerStatus:
    return ServerStatus(folder, "trial", "job-1", 40)


def test_a_site_that_fails_is_named_in_the_file_and_so_is_its_return(tmp_path: Path) -> None:
    """Its disk is full: whoever reads the file sees the site, its reason and, later, nobody."""
    full, status = Event(), status_of(tmp_path)
    full.set()
    watches: list[Watch] = []
    seen: list[SiteStatus] = []

    def looked(late: Any) -> None:
        status.look(late)
        found = read(tmp_path)
        assert found is not None
        assert found.fresh
        if found.sites[1].state == "awaited" and found.sites[1].why.count("StoreError"):
            seen.append(found.sites[1])
            full.clear()

    def made(plan: Any) -> Any:
        transport = over_frames(3, retry=RetryPolicy(PATIENCE, 2, absent="wait"))(plan)
        handle = transport.handlers[1].handle

        def failing(frame: bytes) -> bytes:
            kind, _, address = peek(frame)
            if full.is_set() and kind == MODEL:
                return encode(Failure(StoreError.__name__), address)
            answer: bytes = handle(frame)
            return answer

        transport.handlers[1].handle = failing
        status.begin(transport, NAMES, 0, 0, lambda k: None)
        watch = Watch(
            lambda: transport.waiting, NAMES.__getitem__, lambda said: None, 0.0, 0.001, looked
        )
        watches.append(watch.__enter__())
        return transport

    learner = FedLSVI(n_agents=3)
    run = learner.learn(ENV, 40, 0, transport=made, progress=False, observers=[status])
    watches[0].__exit__()
    assert seen
    assert seen[0].since is not None
    assert (seen[0].gone, seen[0].back) == (pytest.approx(seen[0].since, abs=1.0), None)
    status.end("complete")
    found = read(tmp_path)
    assert found is not None
    assert [site.state for site in found.sites] == ["here"] * 3
    assert (found.state, found.round, found.episode) == ("complete", run.rounds, 40)
    assert found.scalars == run.ledger.scalars
    assert all(site.heard and site.up > 0 and site.down > 0 for site in found.sites)
    south = found.sites[1]
    assert south.gone is not None
    assert south.named is not None
    assert south.back is not None
    assert south.gone <= south.named <= south.back


def test_who_is_lost_is_named_until_the_job_ends(tmp_path: Path) -> None:
    """Each absence is told from the one before."""
    status = status_of(tmp_path)
    status.begin(over_frames(3)(FedLSVI(n_agents=3).prepare(ENV, 40, 0).plan), NAMES, 0, 0,
                 lambda k: None)  # fmt: skip
    for round_ in (3, 4):
        status.look([Awaited(1, "Stop", round_, monotonic() - 12.0)])
        status.look([])
    south = read(tmp_path).sites[1]  # type: ignore[union-attr]
    assert south.state == "here"
    assert south.named - south.gone == pytest.approx(12.0, abs=1.0)  # type: ignore[operator]
    status.lost("west", "its process has ended")
    status.end("failed", "west was lost")
    found = read(tmp_path)
    assert found is not None
    assert [site.state for site in found.sites] == ["here", "here", "away"]
    assert "ended" in found.sites[2].why
    assert (found.sites[2].named is not None, found.sites[2].back) == (True, None)
    table = status.table()
    for site in table["sites"]:
        for later in ("gone", "named", "back"):
            del site[later]
    assert parse(table) is not None  # as an earlier version wrote it


def test_a_failure_and_a_return_are_named_within_fifteen_seconds() -> None:
    """Whoever is silent is waited for that long, then comes the next look of the server and that of
    the page. Who answers with errors is asked again after a pause, and two looks follow."""
    naming = waiting.PATIENCE + waiting.EVERY + watcher.EVERY
    returning = retry_policy.LONGEST_PAUSE + waiting.EVERY + watcher.EVERY
    assert max(naming, returning, waiting.PATIENCE + waiting.EVERY + shown.EVERY) <= 15.0
    assert inspect.signature(Watch).parameters["patience"].default == waiting.PATIENCE
    assert inspect.signature(Watch).parameters["every"].default == waiting.EVERY


def test_a_pause_ends_the_run_after_the_round(tmp_path: Path) -> None:
    status = status_of(tmp_path)
    assert not status.pause()  # no site has joined
    status.begin(over_frames(3)(FedLSVI(n_agents=3).prepare(ENV, 40, 0).plan), NAMES, 0, 0,
                 lambda k: 0.5 * k)  # fmt: skip
    assert status(record(1, 10)) is None
    assert status.pause()
    assert status(record(2, 20)) is STOP
    assert status.paused
    status(record(3, 40))
    assert not status.paused  # it was the last round: nothing is left to pause
    found = parse(status.table())
    assert found is not None
    assert (found.rounds, found.epsilon, found.seconds["explore"]) == (3, 1.5, 1.5)
    assert found.notes == ["a note"] * 3


@pytest.mark.parametrize("spoil", [b"", b"[1]", b'{"name": 1}', b"\xff" * 9])
def test_a_damaged_status_is_none(tmp_path: Path, spoil: bytes) -> None:
    status_of(tmp_path).write()
    assert read(tmp_path) is not None
    (tmp_path / STATUS).write_bytes(spoil)
    assert read(tmp_path) is None
    (tmp_path / STATUS).unlink()
    assert read(tmp_path) is None


def test_what_scripts_and_programs_get(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit codes tell a run that goes on from one that waits, and one that waits from a failure."""
    live = parse(status_of(tmp_path).table())
    assert live is not None
    here = replace(live, state="running", sites=[SiteStatus("north", 1), SiteStatus("south", 2)])
    late = SiteStatus("south", 2, "awaited", "Stop, round 3", 1.0, refused={"bad-psd": 2})
    waits, failed = replace(here, sites=[here.sites[0], late]), replace(here, state="failed")
    job = {"id": "7", "name": "trial", "status": "RUNNING", "alive": True}
    found = {"name": "trial", "rounds": 2, "episodes": 9, "of": 40, "notes": [], "jobs": [job],
             "waits": "waiting for south (Stop)", "sites": NAMES, "processes": {},
             "connected": ["north"], "server": "answers"}  # fmt: skip
    codes = [shown.exit_code({**found, "live": state}) for state in (here, waits, None)]
    assert codes == [0, 3, 1]
    ended = {**found, "live": failed, "jobs": [{**job, "status": "FAILED", "alive": False}]}
    assert shown.exit_code(ended) == 1
    text = "\n".join(shown.lines({**found, "live": waits}))
    for part in ("south  awaited since 00:00:01 UTC", "2 bad-psd", "waiting for south"):
        assert part in text
    states = iter([{**found, "live": waits}, ended])
    assert shown.watch(lambda: next(states), "json", every=0.0) == 1
    first, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["live"]["sites"][1] == asdict(late)
    assert last["live"]["state"] == "failed"


def test_earlier_jobs_are_shown_if_asked(tmp_path: Path) -> None:
    jobs = [{"id": n, "name": "trial", "status": "FINISHED:COMPLETED"} for n in ("old", "new")]
    found = {"name": "trial", "rounds": None, "episodes": None, "of": 40, "notes": [],
             "waits": "", "jobs": jobs, "sites": [], "processes": {}, "connected": [],
             "server": "answers", "live": None}  # fmt: skip
    assert [sum("old" in line for line in shown.lines(found, every)) for every in (0, 1)] == [0, 1]


def test_bytes_are_written_with_their_unit() -> None:
    sizes = [shown.size(n) for n in (0, 999, 1000, 12_345, 999_999, 4_560_000, 1e15)]
    assert sizes == ["0 B", "999 B", "1 kB", "12.3 kB", "1 MB", "4.56 MB", "1e+03 TB"]
