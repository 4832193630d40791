"""TCP connections: only for holders of the secret, one request at a time, repeated after a break;
and the transport contract over them, with servers in this process instead of Ray actors."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from queue import SimpleQueue
from selectors import EVENT_READ, DefaultSelector
from threading import active_count
from time import sleep
from typing import Any

import pytest

from fedlsvi.remote.codec import longest_request
from fedlsvi.remote.conformance import RUN, check_transport, parameters
from fedlsvi.remote.frame_transport import FrameTransport
from fedlsvi.remote.ray import tcp
from fedlsvi.remote.ray.cluster import LOOPBACK
from fedlsvi.remote.ray.tcp import TcpConnection, TcpServer
from fedlsvi.remote.ray.transport import RayTransport
from fedlsvi.remote.retry_policy import RetryPolicy
from patience import PATIENCE, wait_until

LONGEST = 1000


class Overheard:
    """A server that writes down what it was asked, and answers when it is let."""

    def __init__(self) -> None:
        self.asked: SimpleQueue[bytes] = SimpleQueue()
        self.let: SimpleQueue[bool] = SimpleQueue()
        self.server = TcpServer(LOOPBACK, self.answer, LONGEST)

    def answer(self, frame: bytes) -> bytes:
        self.asked.put(frame)
        if not self.let.get(timeout=PATIENCE):
            raise EOFError  # as if the process had died
        return frame.upper()


@pytest.fixture
def there() -> Overheard:
    return Overheard()


@pytest.fixture
def connection(there: Overheard) -> Iterator[TcpConnection]:
    connection = TcpConnection(LONGEST)
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
        TcpConnection(LONGEST).open(replace(key, secret=bytes(32)))
    with socket.create_connection((key.host, key.port), PATIENCE) as caller:
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
        with socket.create_connection(
            (there.server.key.host, there.server.key.port), PATIENCE
        ) as caller:
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
    there, connection = Overheard(), TcpConnection(LONGEST)
    connection.open(there.server.key)
    connection.ask(b"one")
    there.let.put(True)
    assert connection.answer() == b"ONE"
    connection.close()


def test_a_crowd_of_strangers_takes_no_threads_and_keeps_nobody_out(
    there: Overheard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds that say nothing: the oldest are sent away, and who knows the secret gets in."""
    monkeypatch.setattr(tcp, "REACH_SECONDS", PATIENCE)  # so that nobody leaves by itself
    before, key = active_count(), there.server.key
    crowd = [socket.create_connection((key.host, key.port), PATIENCE) for _ in range(300)]
    try:
        connection = TcpConnection(LONGEST)
        connection.open(key)
        connection.ask(b"one")
        there.let.put(True)
        assert connection.answer() == b"ONE"
        # each has a thread, and a timer that ends it; who was sent away, until they have ended
        few = lambda: active_count() - before <= 2 * (tcp.UNKNOWN_CALLERS + 2)  # noqa: E731
        wait_until(few, "every stranger has a thread")
        assert len(there.server._unknown) <= tcp.UNKNOWN_CALLERS
        connection.close()
    finally:
        for caller in crowd:
            caller.close()


@pytest.mark.parametrize("length", [LONGEST + 1, 2**32 - 1])
def test_a_frame_is_not_read_if_it_is_too_long(
    length: int, there: Overheard, connection: TcpConnection
) -> None:
    """On either side: its length is enough to hang up."""
    connection.ask(bytes(LONGEST))
    there.let.put(True)
    assert connection.answer() == bytes(LONGEST)
    assert connection._end is not None
    connection._end._socket.sendall(struct.pack("!I", length) + b"x")
    with pytest.raises((EOFError, OSError)):
        connection.answer()
    assert there.asked.get() == bytes(LONGEST)
    assert there.asked.empty()
    one, other = socket.socketpair()
    with one, other:
        one.sendall(struct.pack("!I", length))
        with pytest.raises(OSError, match=str(length)):
            tcp.FramedSocket.receive(_framed(other))


def _framed(end: socket.socket) -> tcp.FramedSocket:
    framed = tcp.FramedSocket.__new__(tcp.FramedSocket)  # a socket pair has no options of TCP
    framed._socket, framed._longest = end, LONGEST
    return framed


def test_a_frame_that_trickles_in_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a byte comes."""
    monkeypatch.setattr(tcp, "STALLED_SECONDS", 0.05)
    one, other = socket.socketpair()
    with one, other:
        other.settimeout(0.02)

        class Trickle:
            def recv(self, length: int, flags: int) -> bytes:
                sleep(0.01)
                return b"x"

        framed = _framed(other)
        framed._socket = Trickle()  # type: ignore[assignment]
        with pytest.raises(OSError, match="halfway"):
            framed._read(LONGEST)


class TcpInProcess(RayTransport):
    """The connections of `RayTransport` to servers in this process."""

    def __init__(self, made: list[Callable[[], Any]], retry: RetryPolicy) -> None:
        handlers = [make() for make in made]
        FrameTransport.__init__(self, parameters(6), [h.agents for h in handlers], RUN, retry)
        self._keys, self._connections, self._selector = {}, [], DefaultSelector()
        for c, handler in enumerate(handlers):
            self._connections.append(TcpConnection(self.longest_answer(c)))
            server = TcpServer(LOOPBACK, handler.handle, longest_request(self.layout))
            self._connections[c].open(server.key)
            self._selector.register(self._connections[c], EVENT_READ, c)

    def close(self) -> None:
        self._hang_up()


def test_conformance() -> None:
    check_transport(lambda made, retry: TcpInProcess(list(made), retry))
