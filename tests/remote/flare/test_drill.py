"""The drill of `namespaces.py` on loopback: kills, a pulled cable, an abort, new certificates and
attacks, on real FLARE, to the bytes of one process."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from drill import TRIAL, go_through
from parties import in_this_process
from relay import Relay

from fedlsvi.remote.flare.demo import free_port
from patience import PATIENCE
from repeats import only_ci

# FLARE's threads use what its libraries call deprecated
pytestmark = pytest.mark.filterwarnings("ignore")


class Loopback:
    """All parties on this machine; a relay is the cable of site-3."""

    host = "localhost"

    def __init__(self) -> None:
        self.port = free_port()
        self.cables = {"site-3": Relay(self.port)}

    def settle(self, folder: Path) -> None:
        """The site calls the relay for the server."""
        for site, relay in self.cables.items():
            path = folder / "kits" / site / "startup" / "fed_client.json"
            settings = json.loads(path.read_text())
            (server,) = settings["servers"]
            assert server["service"]["target"] == f"{self.host}:{self.port}"
            server["service"]["target"] = f"{self.host}:{relay.port}"
            path.write_text(json.dumps(settings))

    def within(self, party: str) -> Sequence[str]:
        """Nothing around it."""
        return ()

    def pull(self, site: str) -> None:
        """All connections of the site stand still."""
        assert self.cables[site].passed > 0
        self.cables[site].pull()

    def plug(self, site: str) -> None:
        """They move again."""
        self.cables[site].plug()


@pytest.fixture
def loopback() -> Iterator[Loopback]:
    """A place whose cables are taken away at the end."""
    place = Loopback()
    yield place
    for relay in place.cables.values():
        relay.close()


@only_ci
def test_the_drill_on_loopback(
    tmp_path: Path, loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    go_through(tmp_path, loopback, in_this_process(TRIAL))


def test_nothing_passes_a_pulled_cable() -> None:
    """What was sent meanwhile comes after it is plugged in again, whole and in order; also the end
    of a connection, and one that was made meanwhile."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE)
        relay = Relay(server.getsockname()[1])
        with socket.create_connection(("127.0.0.1", relay.port)) as near:
            far, _ = server.accept()
            near.sendall(b"one")
            assert far.recv(9) == b"one"
            relay.pull()
            near.sendall(b"two")
            near.shutdown(socket.SHUT_WR)
            with socket.create_connection(("127.0.0.1", relay.port)):
                far.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    far.recv(9)
                server.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    server.accept()
                relay.plug()
                far.settimeout(PATIENCE)
                server.settimeout(PATIENCE)
                assert far.recv(9) == b"two"
                assert far.recv(9) == b""
                server.accept()[0].close()
            far.sendall(b"three")
            assert near.recv(9) == b"three"
            far.close()
        assert relay.passed == len(b"onetwothree")
        relay.close()
