"""A federation in network namespaces, every party with an address of its own; needs root.

    python tests/remote/flare/namespaces.py

A server, three sites and an administrator go through `drill.py`: kills, a pulled cable, attacks, an
abort and new certificates, to the bytes of one process. `test_drill.py` does the same on loopback.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[2])]

from drill import TRIAL, go_through  # noqa: E402
from parties import SITES, in_this_process  # noqa: E402

HOST, PORT = "fl.fedlsvi.test", 8002
ADDRESS = "10.77.0.1"


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


class Namespaces:
    """A namespace for each party; the drill itself runs in the administrator's."""

    host, port = HOST, PORT

    def settle(self, folder: Path) -> None:
        """Kits are as they were handed out."""

    def within(self, party: str) -> Sequence[str]:
        """The party's namespace."""
        place = SERVER if party == HOST else PLACES[party]
        return ("ip", "netns", "exec", place.name)

    def pull(self, site: str) -> None:
        """The server's end of the site's cable is down."""
        ip("-n", SERVER.name, "link", "set", PLACES[site].cable, "down")

    def plug(self, site: str) -> None:
        """It is up again."""
        ip("-n", SERVER.name, "link", "set", PLACES[site].cable, "up")


def inside(home: Path) -> None:
    """In the administrator's namespace."""
    assert socket.gethostbyname(HOST) == ADDRESS
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    go_through(home, Namespaces(), in_this_process(TRIAL))


def main() -> int:
    """Lay the network, and go through the drill in the administrator's namespace."""
    if sys.argv[1:2] == ["--inside"]:
        inside(Path(sys.argv[2]))
        return 0
    if os.geteuid() != 0:
        print("network namespaces need root", file=sys.stderr)
        return 2
    there = Namespaces().within("admin")
    with network(), tempfile.TemporaryDirectory(prefix="fedlsvi-") as home:
        return subprocess.run([*there, sys.executable, str(HERE), "--inside", home]).returncode


if __name__ == "__main__":
    sys.exit(main())
