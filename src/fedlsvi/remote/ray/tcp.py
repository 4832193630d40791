"""A direct line between two processes: frames over TCP, for whoever holds the key.

A process that answers opens a `Door` and hands its key over by some other way; whoever has it opens
a `Line` there. Both sides prove that they hold the key before anything else is read
(`multiprocessing.connection`, an HMAC challenge each way); only bytes travel, never objects. What
travels is not encrypted.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import answer_challenge, deliver_challenge
from secrets import token_bytes
from threading import Thread, Timer
from time import sleep
from typing import Any

_LENGTH = struct.Struct("!I")

REACH_SECONDS = 5.0
"""How long a door may take to be reached, and a caller to prove that it holds the key."""

CROWDED_SECONDS = 0.1
"""Time between two looks at who is waiting, while no file or thread is left for a caller."""

STALLED_SECONDS = 60
"""A frame that stops halfway for so long has lost its line."""

GONE_SECONDS = 30
"""A machine that has not acknowledged what was sent to it for so long is gone."""

LOST = (OSError, EOFError, AuthenticationError, AssertionError)
"""The other side hung up, or does not hold the key."""


@dataclass(frozen=True)
class Key:
    """Where a door is, and what opens it."""

    host: str
    port: int
    secret: bytes


class End:
    """One end of a line. A frame is preceded by its length, as in `multiprocessing.connection`,
    whose challenges travel here first."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        _tune(connected)

    def fileno(self) -> int:
        """For a selector."""
        return self._socket.fileno()

    def send_bytes(self, frame: bytes) -> None:
        """Send a frame."""
        head = _LENGTH.pack(len(frame))
        sent = self._socket.sendmsg((head, frame))
        if sent < len(head) + len(frame):
            self._socket.sendall((head + frame)[sent:])

    def recv_bytes(self, maxlength: int | None = None) -> bytes:
        """The next frame. EOFError where the other side hung up."""
        (length,) = _LENGTH.unpack(self._receive(_LENGTH.size))
        if maxlength is not None and length > maxlength:
            raise OSError(f"a frame of {length} bytes where at most {maxlength} are expected")
        return self._receive(length)

    def _receive(self, length: int) -> bytes:
        data = self._socket.recv(length, socket.MSG_WAITALL)
        while len(data) < length:
            if not (more := self._socket.recv(length - len(data), socket.MSG_WAITALL)):
                raise EOFError("the line ended")
            data += more
        return data

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


class Door:
    """Answers frames on a port of `host`, in threads of its own."""

    def __init__(self, host: str, answer: Callable[[bytes], bytes]) -> None:
        self._answer = answer
        self._socket = socket.create_server((host, 0))
        self.key = Key(host, self._socket.getsockname()[1], token_bytes(32))
        Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        while True:
            try:
                caller, _ = self._socket.accept()
                Thread(target=self._serve, args=(caller,), daemon=True).start()
            except (OSError, RuntimeError):  # no file or thread is left: strangers go in a while
                sleep(CROWDED_SECONDS)

    def _serve(self, caller: socket.socket) -> None:
        end: Any = End(caller)
        with suppress(*LOST), closing(end):
            with _limited(caller):
                deliver_challenge(end, self.key.secret)
                answer_challenge(end, self.key.secret)
            while True:
                end.send_bytes(self._answer(end.recv_bytes()))


class Line:
    """The asking end. One request is under way at a time: while it is, the next one waits here, and
    a later one takes its place."""

    def __init__(self) -> None:
        self._connection: End | None = None
        self._asked: bytes | None = None
        self._next: bytes | None = None

    @property
    def busy(self) -> bool:
        """Whether an answer is owed."""
        return self._asked is not None or self._next is not None

    @property
    def connected(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._connection is not None

    def fileno(self) -> int:
        """For a selector."""
        assert self._connection is not None
        return self._connection.fileno()

    def open(self, key: Key) -> None:
        """Connect, and ask again what was not answered. OSError where that is impossible."""
        caller = socket.create_connection((key.host, key.port), REACH_SECONDS)
        caller.settimeout(None)
        _hurry(caller)
        connection: Any = End(caller)
        try:
            answer_challenge(connection, key.secret)
            deliver_challenge(connection, key.secret)
        except LOST as error:
            connection.close()
            raise ConnectionError(f"no door at {key.host}:{key.port} takes this key") from error
        self._connection = connection
        if again := self._next or self._asked:
            try:
                self._send(again)
            except OSError:
                self.close()
                raise

    def ask(self, frame: bytes) -> None:
        """Send a request, now or when the one under way is answered."""
        if frame == self._asked:
            return
        if self._asked is None and self._connection is not None:
            self._send(frame)
        else:
            self._next = frame

    def _send(self, frame: bytes) -> None:
        assert self._connection is not None
        self._asked, self._next = frame, None
        self._connection.send_bytes(frame)

    def answer(self) -> bytes:
        """What has arrived. OSError or EOFError where the line is lost."""
        assert self._connection is not None
        data = self._connection.recv_bytes()
        self._asked = None
        if self._next is not None:
            self._send(self._next)
        return data

    def close(self) -> None:
        """Hang up; what is owed is asked again by `open`."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _tune(end: socket.socket) -> None:
    """Send small frames at once, and notice a machine that is gone."""
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    waits = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
    # without this, what was sent and never acknowledged is sent again for a quarter of an hour
    waits["TCP_USER_TIMEOUT"] = 1000 * GONE_SECONDS
    for name, value in waits.items():
        if hasattr(socket, name):  # not every system has them
            end.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


@contextmanager
def _limited(caller: socket.socket) -> Iterator[None]:
    """Hang up on a caller that takes too long."""
    late = Timer(REACH_SECONDS, _hang_up, (caller,))
    late.daemon = True
    late.start()
    try:
        yield
    finally:
        late.cancel()


def _hang_up(end: socket.socket) -> None:
    with suppress(OSError):  # it has gone by itself
        end.shutdown(socket.SHUT_RDWR)


def _hurry(end: socket.socket) -> None:
    """A frame that stops halfway is an OSError, not a wait without end."""
    if os.name == "posix":
        stalled = struct.pack("ll", STALLED_SECONDS, 0)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, stalled)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, stalled)
