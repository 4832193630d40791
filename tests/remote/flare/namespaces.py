"""A federation in network namespaces, every party with an address of its own; needs root.

    python tests/remote/flare/namespaces.py

A server, three sites and an administrator. Site-1 is a site that attacks: it calls the others as
the server would. Strangers knock at the server's port. One site is killed, another one's cable is
pulled, the server is killed, the job is ended by the administrator, and everybody gets new
certificates; after each the job is started again. At the end the model must have the bytes of the
same run in one process, and every site's log must agree with the server's ledger.

The tests do the same on loopback: `test_flare.py` attacks, `test_flare_kills.py` kills and renews.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[2])]

from parties import ENV, FEDERATION, processes  # noqa: E402
from test_flare import speak, unregistered  # noqa: E402
from test_flare_kills import wait_for_step  # noqa: E402

import fedlsvi  # noqa: E402
from fedlsvi.protocol.server import Server  # noqa: E402
from fedlsvi.protocol.session import FederatedPlayer, Session  # noqa: E402
from fedlsvi.protocol.transport import InProcess  # noqa: E402
from fedlsvi.remote.audit import verify  # noqa: E402
from fedlsvi.remote.federation import environment  # noqa: E402
from fedlsvi.remote.flare import project  # noqa: E402
from fedlsvi.storage import files  # noqa: E402

HOST, PORT = "fl.fedlsvi.test", 8002
ADDRESS = "10.77.0.1"
SITES = ("site-1", "site-2", "site-3")
TRIAL = replace(
    FEDERATION, episodes=1500, settings={"gamma": 40.0}, retry={"deadline": 20.0, "attempts": 1}
)
"""Named as site-1 signs."""

OWN: dict[str, dict[str, Any]] = {
    "site-1": {"entry": "canary:make", "horizon": 5, "dim": 8}, "site-2": ENV, "site-3": ENV,
}  # fmt: skip


@dataclass(frozen=True)
class Place:
    """The namespace of a party: a cable leads from it to the server's.

    Attributes:
        party: Its name.
        number: Its network is 10.77.<number>.0/30, the server .1 and the party .2.
    """

    party: str
    number: int

    @property
    def name(self) -> str:
        """Of the namespace."""
        return f"fedlsvi-{self.party}"

    @property
    def cable(self) -> str:
        """Its end at the server."""
        return f"fl{self.number}s"


SERVER = Place("server", 0)
PLACES = {name: Place(name, i) for i, name in enumerate((*SITES, "admin"), start=1)}


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@contextmanager
def network() -> Iterator[None]:
    """The namespaces, their cables, and a name for the server in each; all go at the end."""
    made = []
    try:
        for place in (SERVER, *PLACES.values()):
            ip("netns", "add", place.name)
            made.append(place)
            ip("-n", place.name, "link", "set", "lo", "up")
            hosts = Path("/etc/netns") / place.name / "hosts"
            hosts.parent.mkdir(parents=True, exist_ok=True)
            hosts.write_text(f"127.0.0.1 localhost\n{ADDRESS} {HOST}\n")
        ip("-n", SERVER.name, "addr", "add", f"{ADDRESS}/32", "dev", "lo")
        for place in PLACES.values():
            net, far = f"10.77.{place.number}", f"fl{place.number}p"
            ip("link", "add", place.cable, "type", "veth", "peer", "name", far)
            ip("link", "set", place.cable, "netns", SERVER.name)
            ip("link", "set", far, "netns", place.name)
            for at, end, last in ((SERVER.name, place.cable, 1), (place.name, far, 2)):
                ip("-n", at, "addr", "add", f"{net}.{last}/30", "dev", end)
                ip("-n", at, "link", "set", end, "up")
            ip("-n", place.name, "route", "add", ADDRESS, "via", f"{net}.1")
        yield
    finally:
        for place in made:
            subprocess.run(["ip", "netns", "del", place.name], check=False)
            (Path("/etc/netns") / place.name / "hosts").unlink(missing_ok=True)
            (Path("/etc/netns") / place.name).rmdir()
        with suppress(OSError):  # it may hold names of others
            Path("/etc/netns").rmdir()


def plug(site: str, state: str) -> None:
    """Pull a site's cable, or put it back: "down" or "up"."""
    ip("-n", SERVER.name, "link", "set", PLACES[site].cable, state)


def in_this_process() -> Server:
    """The same run without a network."""
    p = TRIAL.parameters(3)
    plans = [TRIAL.plan(environment(env), 3) for env in OWN.values()]
    cohorts = [plan.cohort(c, c + 1) for c, plan in enumerate(plans)]
    player = FederatedPlayer(p, InProcess(cohorts, p.trigger, p.overshoot))
    list(Session(player).rounds())
    return player.server


class Drill:
    """The federation, and what happens to it. `say` prints each finding."""

    def __init__(self, folder: Path) -> None:
        own = {site: {"agents": 1, "env": dict(env)} for site, env in OWN.items()}
        own["site-1"]["env"]["answers"] = str(folder / "answers")
        self.home, self.begun = folder, time.monotonic()
        self.folder = project.init(folder / "project", TRIAL, own, HOST, PORT)
        self.within = {
            party: ("ip", "netns", "exec", place.name)
            for party, place in {HOST: SERVER, **PLACES}.items()
        }
        self.job = ""

    def say(self, what: str) -> None:
        print(f"{time.monotonic() - self.begun:6.0f} s  {what}", flush=True)

    def launch(self, *parties: str) -> None:
        project.launch(self.folder, parties or None, self.within)

    def start(self) -> None:
        self.job = project.start(self.folder, 180.0)
        wait_for_step(self.folder, "site-1", 3, 2)  # it plays, and is inside a synchronisation

    def ended(self) -> str:
        """How the job ended, and why."""
        state = project.wait(self.folder, self.job, 300.0)
        return f"{state}: {project.reason(self.folder, self.job)}"

    def kill(self, party: str) -> None:
        """SIGKILL to all processes of a party."""
        for pid in processes(self.folder, party).values():
            os.kill(pid, signal.SIGKILL)
        project.stop(self.folder, [party], kill=True)
        self.say(f"{party} killed at episode {project.progress(self.folder)['episodes']}")

    def strangers(self) -> None:
        """No certificate, another authority's, one's own: not a byte comes back."""
        other = project.init(self.home / "other", TRIAL, {"site-1": {}}, HOST, PORT)
        own = self.home / "self-signed"
        own.mkdir()
        kits = (None, other / "kits" / "site-1" / "startup", unregistered(own, "site-1"))
        for kit in kits:
            assert speak(kit, (HOST, PORT)) == b""
        self.say("strangers without a certificate of the project got nothing")

    def killed_site(self) -> None:
        self.kill("site-2")
        self.say(f"the job ended as {self.ended()}")
        self.launch("site-2")

    def pulled_cable(self) -> None:
        plug("site-3", "down")
        pulled = time.monotonic()
        while "site-3" in project.status(self.folder)["connected"]:
            assert time.monotonic() < pulled + 120.0, "an unplugged site stays connected"
            time.sleep(1.0)
        self.say(f"site-3 unplugged; not connected after {time.monotonic() - pulled:.0f} s")
        why = self.ended()
        assert "site-3's agent 2" in why or "site-3" in why, why
        self.say(f"the job ended as {why}")
        plug("site-3", "up")

    def killed_server(self) -> None:
        self.kill(HOST)
        self.launch(HOST)

    def aborted(self) -> None:
        assert project.abort(self.folder) == [self.job]
        why = self.ended()
        assert "an administrator ended it" in why, why
        self.say(f"the job ended as {why}")

    def renewed(self) -> None:
        project.abort(self.folder)
        self.ended()
        project.stop(self.folder, kill=True)
        project.clean(self.folder)
        self.folder, missing = project.renew(self.folder, self.home / "renewed")
        assert not missing
        self.launch()
        self.say("everybody has new certificates")

    def compared(self, here: Server) -> None:
        """The model, the logs of what left, and what the attacker heard."""
        state = project.wait(self.folder, self.job, 600.0)
        assert state == project.COMPLETED, self.ended()
        run = fedlsvi.load(project.server_folder(self.folder))
        assert run.w.tobytes() == here.w.tobytes()
        assert run.gram_packed.tobytes() == here.gram.tobytes()
        self.say(f"{run.rounds} rounds: the model has the bytes of one process")
        ledger = files.read_json(project.server_folder(self.folder) / "ledger.json", {str: object})
        for site in SITES:
            log = project.site_folder(self.folder, site) / "sent.jsonl"
            verify(log, ledger["every"]["up_stats"], run=ledger["run"])
        self.say("every site's log agrees with the ledger")
        answers = (self.home / "answers").read_text().splitlines()
        assert len(answers) >= 2 * 4 * 2
        assert all("was refused" in answer for answer in answers)
        self.say(f"{len(answers)} calls from site to site, all refused")


def drill(home: Path) -> None:
    """In the administrator's namespace."""
    assert socket.gethostbyname(HOST) == ADDRESS
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    here = in_this_process()
    one = Drill(home)
    steps: tuple[Callable[[], None], ...] = (
        one.killed_site, one.pulled_cable, one.killed_server, one.aborted, one.renewed,
    )  # fmt: skip
    try:
        one.launch()
        for step in steps:
            one.start()
            step()
        one.job = project.start(one.folder, 180.0)
        one.strangers()
        one.compared(here)
    finally:
        project.stop(one.folder, kill=True)
        project.clean(one.folder)


def main() -> int:
    """Lay the network, and go through the drill in the administrator's namespace."""
    if sys.argv[1:2] == ["--inside"]:
        drill(Path(sys.argv[2]))
        return 0
    if os.geteuid() != 0:
        print("network namespaces need root", file=sys.stderr)
        return 2
    inside = ("ip", "netns", "exec", PLACES["admin"].name)
    with network(), tempfile.TemporaryDirectory(prefix="fedlsvi-") as home:
        return subprocess.run([*inside, sys.executable, str(HERE), "--inside", home]).returncode


if __name__ == "__main__":
    sys.exit(main())
