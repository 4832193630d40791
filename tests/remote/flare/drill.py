"""What an operator must survive, step by step, wherever the parties run.

A server, three sites and an administrator. Site-1 is a site that attacks: it calls the others as
the server would. Strangers knock at the server's port. One site is killed, another one's cable is
pulled, the server is killed, the job is ended by the administrator, and everybody gets new
certificates; after each the job is started again. At the end the model must have the bytes of the
same run in one process, and every site's log must agree with the server's ledger.

`namespaces.py` goes through it where every party has an address of its own (as root),
`test_drill.py` on loopback.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from parties import FEDERATION, OWN, SITES, InThisProcess, processes
from strangers import speak, unregistered

import fedlsvi
from fedlsvi.cli import main
from fedlsvi.remote.audit import verify
from fedlsvi.remote.flare import project
from fedlsvi.storage import files
from holding import Hold
from patience import PATIENCE, wait_until

TRIAL = replace(
    FEDERATION,
    episodes=1500,
    settings={"gamma": 40.0, "aggregation": "float"},
    retry={"deadline": 60.0, "attempts": 1},
)
"""Named as site-1 signs."""

STARTS = 5
"""How often the job is started; site-1 attacks each time."""


class Where(Protocol):
    """Where the parties run, and the cable from each site to the server.

    Attributes:
        host: The server's name.
        port: Its port.
    """

    host: str
    port: int

    def settle(self, folder: Path) -> None:
        """A project was written: prepare its kits for this place."""

    def within(self, party: str) -> Sequence[str]:
        """The command that a party is started with."""

    def pull(self, site: str) -> None:
        """Pull a site's cable: nothing passes, and nobody is told."""

    def plug(self, site: str) -> None:
        """Put it back."""


class Drill:
    """The federation, and what happens to it; each finding is printed."""

    def __init__(self, home: Path, where: Where) -> None:
        own: dict[str, dict[str, Any]] = {
            site: {"agents": 1, "env": dict(env)} for site, env in OWN.items()
        }
        own["site-1"]["env"] |= {key: str(home / key) for key in ("answers", "hold")}
        self.hold = Hold(home / "hold")
        self.home, self.where, self.begun = home, where, time.monotonic()
        self.folder = project.init(home / "project", TRIAL, own, where.host, where.port)
        where.settle(self.folder)
        self.job = ""

    def say(self, what: str) -> None:
        print(f"{time.monotonic() - self.begun:6.0f} s  {what}", flush=True)

    def launch(self, *parties: str) -> None:
        names = parties or (self.where.host, *SITES)
        within = {party: self.where.within(party) for party in names}
        project.launch(self.folder, names, within)

    def start(self) -> None:
        """Until the run has done some more rounds, and stands still inside a synchronisation."""
        self.hold.order(step=3, uploads=5)
        self.job = project.start(self.folder, PATIENCE)
        try:
            self.hold.wait()
        except AssertionError as error:
            raise AssertionError(f"{error}: {project.status(self.folder)}") from None

    def ended(self) -> str:
        """What stands still goes on: how the job ended, and why; never well."""
        self.hold.release()
        state = project.wait(self.folder, self.job, PATIENCE)
        assert state != project.COMPLETED
        why = f"{state}: {project.reason(self.folder, self.job)}"
        self.say(f"the job ended as {why}")
        return why

    def kill(self, party: str) -> None:
        """SIGKILL to all processes of a party."""
        for pid in processes(self.folder, party).values():
            os.kill(pid, signal.SIGKILL)
        project.stop(self.folder, [party], kill=True)
        episodes = project.progress(self.folder)["episodes"]
        assert 0 < episodes < TRIAL.episodes
        self.say(f"{party} killed at episode {episodes}")

    def killed_site(self) -> None:
        self.kill("site-2")
        assert "site-2" in self.ended()
        self.launch("site-2")

    def pulled_cable(self) -> None:
        self.where.pull("site-3")
        self.say("site-3 unplugged")
        assert "site-3" in self.ended()
        gone = lambda: "site-3" not in project.status(self.folder)["connected"]  # noqa: E731
        wait_until(gone, "an unplugged site stays connected")
        self.say("site-3 is not connected")
        self.where.plug("site-3")

    def killed_server(self) -> None:
        self.kill(self.where.host)
        self.hold.release()
        self.launch(self.where.host)

    def aborted_and_renewed(self) -> None:
        """The administrator ends the job with the command for scripts; everybody gets new
        certificates."""
        assert main(["federate", "abort", str(self.folder)]) == 0
        assert "an administrator ended it" in self.ended()
        project.stop(self.folder, kill=True)
        project.clean(self.folder)
        self.folder, missing = project.renew(self.folder, self.home / "renewed")
        assert not missing
        self.where.settle(self.folder)
        self.launch()
        self.say("everybody has new certificates")

    def strangers(self) -> None:
        """No certificate, another authority's, the one from before the renewal, one's own: not a
        byte comes back."""
        address = self.where.host, self.where.port
        other = project.init(self.home / "other", TRIAL, {"site-1": {}}, *address)
        own = self.home / "self-signed"
        own.mkdir()
        before = self.home / "project"
        kits = (None, *(made / "kits" / "site-1" / "startup" for made in (other, before)),
                unregistered(own, "site-1"))  # fmt: skip
        for kit in kits:
            assert speak(kit, address) == b""
        self.say("strangers without a certificate of the project got nothing")

    def compared(self, here: InThisProcess) -> None:
        """The model, the logs of what left, and what the attacker heard."""
        self.hold.release()
        state = project.wait(self.folder, self.job, PATIENCE)
        assert state == project.COMPLETED, project.reason(self.folder, self.job)
        run = fedlsvi.load(project.server_folder(self.folder))
        assert [record.last for record in run.records] == here.ends
        assert run.w.tobytes() == here.server.w.tobytes()
        assert run.gram_packed.tobytes() == here.server.gram.tobytes()
        self.say(f"{run.rounds} rounds: the model has the bytes of one process")
        ledger = files.read_json(project.server_folder(self.folder) / "ledger.json", {str: object})
        for site in SITES:
            log = project.site_folder(self.folder, site) / "sent.jsonl"
            verify(log, ledger["every"]["up_stats"], run=ledger["run"])
        self.say("every site's log agrees with the ledger")
        answers = (self.home / "answers").read_text().splitlines()
        assert len(answers) >= STARTS * 2 * 5 * 2
        assert all("was refused" in answer for answer in answers)
        self.say(f"{len(answers)} calls from site to site, all refused")


def go_through(home: Path, where: Where, here: InThisProcess) -> None:
    """All of it, in an empty folder; `here` is the same run without a network."""
    one = Drill(home, where)
    try:
        one.launch()
        for step in (one.killed_site, one.pulled_cable, one.killed_server, one.aborted_and_renewed):
            one.start()
            step()
        one.start()
        one.strangers()
        one.compared(here)
    finally:
        project.stop(one.folder, kill=True)
        project.clean(one.folder)
