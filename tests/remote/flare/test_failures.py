"""Five failures of sites on real FLARE, as an operator sees them: in `status --watch`, on the page
and in the metrics. And a backup of all parties, restored."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import pytest
from parties import FEDERATION, OWN, SITES, in_this_process, processes
from test_drill import Loopback

import fedlsvi
from fedlsvi.cli import main
from fedlsvi.live.page import WORDS
from fedlsvi.live.watcher import Watcher
from fedlsvi.observers.prometheus import Families
from fedlsvi.remote import server_status
from fedlsvi.remote.audit import verify
from fedlsvi.remote.flare import job_end, project
from fedlsvi.remote.flare.glance import glance
from fedlsvi.remote.metrics import fill
from fedlsvi.remote.release_log import releases
from fedlsvi.remote.server_status import RunStatus, SiteStatus, of_places
from fedlsvi.remote.site import SECRETS
from fedlsvi.storage import files
from holding import Hold
from patience import PATIENCE, wait_until
from repeats import only_ci

# FLARE's threads use what its libraries call deprecated
pytestmark = pytest.mark.filterwarnings("ignore")

FAILING = replace(
    FEDERATION, name="failing", episodes=1500, settings={"gamma": 40.0, "aggregation": "secure"},
    retry={"deadline": 5.0, "attempts": 1, "absent": "wait"},
)  # fmt: skip
SECONDS = 15.0
"""From a failure to its name, and from the return to its name, on a machine with idle cores:
`test_a_failure_and_a_return_are_named_within_fifteen_seconds` adds up the constants."""
LOADED = 4.0
"""How much longer it may take here, where a server, three sites and their jobs share two cores."""


class Operator:
    """Who looks at a federation.

    Args:
        folder: The project.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.page = folder, Watcher(folder)
        self.run = project.server_folder(folder)

    def status(self) -> RunStatus | None:
        """What the server has written last."""
        return server_status.read(self.run)

    def site(self, name: str) -> SiteStatus | None:
        """What is known of a site."""
        status = self.status()
        every = [] if status is None else [site for site in status.sites if site.name == name]
        return every[0] if every else None

    def names(self, name: str, words: str, since: float, *fine: str) -> SiteStatus:
        """Wait until a site is named with these words, in all three places, and how long it took.

        Args:
            name: The site.
            words: Part of the reason.
            since: When it failed.
            fine: Sites that must not be named with it.
        """
        said = lambda: (site := self.site(name)) and site.state != "here" and words in site.why  # noqa: E731
        wait_until(said, f"nobody says that {name} has failed: {self.status()}")
        self.page.look()
        shown, found = self.page._parts["federations"], self.watched()
        site = next(site for site in found.sites if site.name == name)
        assert site.named is not None
        assert site.named - since < SECONDS * LOADED
        assert escape(words) in shown
        assert WORDS[site.state] in shown
        assert self.metric(name, site.state) == 1.0
        assert self.metric(name, "here") == 0.0
        for other in fine:
            assert self.metric(other, "here") == 1.0
        return site

    def takes_back(self, name: str, since: float) -> None:
        """Wait until a site is said to be there again, in all three places, in the job that goes
        on."""

        def there() -> bool:
            site, status = self.site(name), self.status()
            fresh = status is not None and status.goes_on and status.fresh
            return bool(fresh and site and site.state == "here" and (site.heard or 0.0) > since)

        wait_until(there, f"nobody says that {name} is back: {self.status()}")
        self.page.look()
        assert f"{name} ({WORDS['awaited']}" not in self.page._parts["outcome"]
        (site,) = [site for site in self.watched().sites if site.name == name]
        if site.state == "here" and site.gone is not None:  # no further request has been slow
            assert site.back is not None
            assert site.back - since < SECONDS * LOADED
        wait_until(lambda: self.metric(name, "here") == 1.0, "the metrics do not take it back")

    def watched(self) -> RunStatus:
        """What `status --watch` shows."""
        live = (glance(self.folder) or project.status(self.folder))["live"]
        assert isinstance(live, RunStatus)
        return live

    def metric(self, name: str, state: str) -> float:
        """The sample of a site's state."""
        families = Families()
        fill(lambda: of_places([self.folder]))(families)
        return next(
            sample.value for family in families.all() for sample in family.samples
            if sample.name == "fedlsvi_site_state"
            and (sample.labels["site"], sample.labels["state"]) == (name, state)
        )  # fmt: skip

    def await_rounds(self, job: str, rounds: int) -> None:
        """Until this job has done so many rounds."""

        def done() -> bool:
            status = self.status()
            return status is not None and status.job == job and status.rounds >= rounds

        wait_until(done, "the run does not move")


@pytest.fixture
def loopback() -> Iterator[Loopback]:
    """A place whose cables are taken away at the end."""
    place = Loopback()
    yield place
    for relay in place.cables.values():
        relay.close()


@only_ci  # over frames: tests/remote/test_server_status.py; backups: tests/remote/test_backup.py
def test_five_failures_are_named_and_a_backup_goes_on_to_the_same_bits(
    tmp_path: Path, loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site is stopped, cannot write, is unplugged, is killed, and comes back with an older
    journal: each is named with its reason, and so is each return. Then all parties are restored
    from the backup that was made before the last two: the model has the bits of one process, and
    no mask has hidden two contents."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    here = in_this_process(replace(FAILING, settings={**FAILING.settings, "aggregation": "exact"}))
    hold, backup = Hold(tmp_path / "hold"), tmp_path / "backup"
    own: dict[str, dict[str, Any]] = {site: {"agents": 1, "env": env} for site, env in OWN.items()}
    own["site-1"] = {"agents": 1, "env": {**OWN["site-1"], "hold": str(hold.folder)}}
    folder = project.init(tmp_path / "project", FAILING, own, loopback.host, loopback.port)
    loopback.settle(folder)
    operator = Operator(folder)
    try:
        project.launch(folder)
        hold.slow(0.5)  # the run is not over before all this has happened
        job = project.start(folder, PATIENCE)
        operator.await_rounds(job, 2)
        pid = processes(folder, "site-2", job)["job"]

        began = time.time()
        os.kill(pid, signal.SIGSTOP)
        operator.names("site-2", "asked", began)
        began = time.time()
        os.kill(pid, signal.SIGCONT)
        operator.takes_back("site-2", began)

        began = time.time()
        full(pid, True)
        operator.names("site-2", "StoreError", began, "site-1", "site-3")
        began = time.time()
        full(pid, False)
        operator.takes_back("site-2", began)

        began = time.time()
        loopback.pull("site-3")
        operator.names("site-3", "asked", began)
        began = time.time()
        loopback.plug("site-3")
        operator.takes_back("site-3", began)

        assert main(["federate", "pause", str(folder)]) == 0
        assert project.wait(folder, job, PATIENCE) == project.COMPLETED
        assert main(["federate", "backup", str(folder), "--out", str(backup)]) == 0
        saved = fedlsvi.load(operator.run).played

        job = project.start(folder, PATIENCE)
        operator.await_rounds(job, 3)  # a site keeps its last two snapshots
        began = time.time()
        os.kill(processes(folder, "site-2", job)["job"], signal.SIGKILL)
        operator.names("site-2", job_end.WHY, began, "site-1")
        assert project.wait(folder, job, PATIENCE) != project.COMPLETED
        assert "site-2 was lost" in project.reason(folder, job)
        assert fedlsvi.load(operator.run).played > saved

        assert main(["federate", "restore", str(backup), str(folder / "kits" / "site-2")]) == 0
        job = project.start(folder, PATIENCE)
        site = operator.names("site-2", "Start was answered", 0.0 + time.time(), "site-1", "site-3")
        assert site.named is not None
        assert site.gone is not None
        assert site.named - site.gone < SECONDS * LOADED
        assert main(["federate", "abort", str(folder)]) == 0
        assert project.wait(folder, job, PATIENCE) != project.COMPLETED

        assert main(["federate", "restore", str(backup), str(folder)]) == 0
        assert fedlsvi.load(operator.run).played == saved
        began = time.time()
        job = project.start(folder, PATIENCE)
        operator.takes_back("site-2", began)  # from both: it was killed, and stale
        hold.slow(0)
        assert project.wait(folder, job, PATIENCE) == project.COMPLETED
    finally:
        project.stop(folder, kill=True)
        project.clean(folder)
    run = fedlsvi.load(operator.run)
    assert [record.last for record in run.records] == here.ends
    assert run.w.tobytes() == here.server.w.tobytes()
    assert run.gram_packed.tobytes() == here.server.gram.tobytes()
    ledger = files.read_json(operator.run / "ledger.json", {str: object})
    for name in SITES:
        home = project.site_folder(folder, name)
        assert verify(home / "sent.jsonl", ledger["every"]["up_stats"], run=ledger["run"]).again > 0
        left = [json.loads(row) for file in home.glob("sent*.jsonl")
                for row in file.read_text().splitlines()]  # fmt: skip
        contents = {(row["round"], row["step"], row["digest"]) for row in left
                    if row["kind"] == "MaskedUpload"}  # fmt: skip
        stages = [stage for _, stage, _, _ in releases(home.parent / SECRETS / home.name)]
        assert len(set(stages)) == len(stages) == len(contents)


def full(pid: int, whether: bool) -> None:
    """Files of a process cannot grow, as on a full disk; or they can again."""
    most = 0 if whether else resource.RLIM_INFINITY
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))


@pytest.mark.parametrize(
    ("line", "site"),
    [
        ("FederatedServer - INFO - Failing job 7-a due to reported failure from north: exception",
         "north"),
        ("Aborting job 7-a due to reported failure from north: unsafe", "north"),
        ("Failing job 8-b due to reported failure from north: exception", ""),
        ("Failing job 7-a due to reported failure from nobody: exception", ""),
        ("\xff\x00", ""),
    ],
)  # fmt: skip
def test_flare_says_whom_a_job_is_failed_for(tmp_path: Path, line: str, site: str) -> None:
    assert job_end.failed_for(tmp_path, "7-a", ["north", "south"]) == ""
    (tmp_path / "log.txt").write_bytes(b"x" * job_end.READ + b"\n" + line.encode("latin-1") + b"\n")
    assert job_end.failed_for(tmp_path, "7-a", ["north", "south"]) == site
