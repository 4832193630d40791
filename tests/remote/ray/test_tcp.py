"""TCP connections: only for holders of the secret, one request at a time, repeated after a break;
and the transport contract over them, with servers in this process instead of Ray actors."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from queue import SimpleQueue
from selectors import EVENT_READ, DefaultSelector
from typing import Any

import pytest

from fedlsvi.remote.conformance import RUN, check_transport, parameters
from fedlsvi.remote.frame_transport import FrameTransport
from fedlsvi.remote.ray import tcp
from fedlsvi.remote.ray.cluster import LOOPBACK
from fedlsvi.remote.ray.tcp import TcpConnection, TcpServer
from fedlsvi.remote.ray.transport import RayTransport
from fedlsvi.remote.retry_policy import RetryPolicy


class Overheard:
    """A server that writes down what it was asked, and answers when it is let."""

    def __init__(self) -> None:
        self.asked: SimpleQueue[bytes] = SimpleQueue()
        self.let: SimpleQueue[bool] = SimpleQueue()
        self.server = TcpServer(LOOPBACK, self.answer)

    def answer(self, frame: bytes) -> bytes:
        self.asked.put(frame)
        if not self.let.get(timeout=10):
            raise EOFError  # as if the process had died
        return frame.upper()


@pytest.fixture
def there() -> Overheard:
    return Overheard()


@pytest.fixture
def connection(there: Overheard) -> Iterator[TcpConnection]:
    connection = TcpConnection()
    connection.open(there.server.key)
    yield connection
    connection.close()


def test_one_request_at_a_time_then_the_newest(there: Overheard, connection: TcpConnection) -> None:
    for frame in (b"one", b"two", b"three"):
        connection.ask(frame)
    there.let.put(True)
    assert connection.answer() == b"ONE"
    assert connection.busy
    there.let.put(True)
    assert connection.answer() == b"THREE"
    assert not connection.busy
    assert [there.asked.get(), there.asked.get()] == [b"one", b"three"]
    for _ in range(2):
        connection.ask(b"four")
    there.let.put(True)
    assert connection.answer() == b"FOUR"
    assert not connection.busy


@pytest.mark.parametrize("later", [False, True])
def test_what_is_owed_is_repeated(there: Overheard, connection: TcpConnection, later: bool) -> None:
    connection.ask(b"one")
    there.let.put(False)
    with pytest.raises((EOFError, OSError)):
        connection.answer()
    connection.close()
    assert connection.busy
    if later:
        connection.ask(b"two")
    connection.open(there.server.key)
    there.let.put(True)
    assert connection.answer() == (b"TWO" if later else b"ONE")


def test_strangers_are_not_heard(there: Overheard) -> None:
    key = there.server.key
    with pytest.raises(ConnectionError):
        TcpConnection().open(replace(key, secret=bytes(32)))
    with socket.create_connection((key.host, key.port), 10) as caller:
        caller.sendall(b"\x00\x00\x00\x03one" * 3)
        with suppress(ConnectionResetError):
            while caller.recv(1024):
                pass  # the challenge, then the end
    assert there.asked.empty()


def test_who_does_not_show_the_key_in_time_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that says nothing, and one that stops in the middle of a word."""
    monkeypatch.setattr(tcp, "REACH_SECONDS", 0.05)
    there = Overheard()
    for words in (b"", b"\x00"):
        with socket.create_connection((there.server.key.host, there.server.key.port), 60) as caller:
            caller.sendall(words)
            with suppress(ConnectionResetError):
                while caller.recv(1024):
                    pass


def test_a_server_outlives_a_crowd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of files for a while: who holds the key is let in afterwards."""

    class Crowded(socket.socket):
        crowd = 3

        def accept(self) -> Any:
            self.crowd -= 1
            if self.crowd >= 0:
                raise OSError(24, "Too many open files")
            return super().accept()

    def create(address: tuple[str, int]) -> Crowded:
        made = Crowded()
        made.bind(address)
        made.listen()
        return made

    monkeypatch.setattr(tcp.socket, "create_server", create)
    monkeypatch.setattr(tcp, "CROWDED_SECONDS", 0.0)
    there, connection = Overheard(), TcpConnection()
    connection.open(there.server.key)
    connection.ask(b"one")
    there.let.put(True)
    assert connection.answer() == b"ONE"
    connection.close()


class TcpInProcess(RayTransport):
    """The connections of `RayTransport` to servers in this process."""

    def __init__(self, made: list[Callable[[], Any]], retry: RetryPolicy) -> None:
        handlers = [make() for make in made]
        FrameTransport.__init__(self, parameters(6), [h.agents for h in handlers], RUN, retry)
        self._keys, self._connections, self._selector = {}, [], DefaultSelector()
        for c, handler in enumerate(handlers):
            self._connections.append(TcpConnection())
            self._connections[c].open(TcpServer(LOOPBACK, handler.handle).key)
            self._selector.register(self._connections[c], EVENT_READ, c)

    def close(self) -> None:
        self._hang_up()


def test_conformance() -> None:
    check_transport(lambda made, retry: TcpInProcess(list(made), retry))
