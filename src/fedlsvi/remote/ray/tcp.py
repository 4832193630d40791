"""Frames over TCP between two processes that share a secret.

A process that answers opens a `TcpServer` and passes its `TcpKey` on by some other way; the holder
opens a `TcpConnection` with it. Both sides prove that they know the secret (an HMAC-SHA256 of
random challenges, the caller first) before anything else is read. Only bytes travel, never objects,
and they are not encrypted. A frame has a longest length on which both sides agree, and only so many
callers may be unknown at a time.
"""

from __future__ import annotations

import hmac
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from secrets import token_bytes
from threading import Lock, Thread, Timer
from time import monotonic, sleep

_LENGTH = struct.Struct("!I")

CHALLENGE_BYTES = 32

REACH_SECONDS = 5.0
"""How long a server may take to be reached, and a caller to prove that it knows the secret."""

UNKNOWN_CALLERS = 64
"""So many callers may be about to prove that they know the secret; for one more, the one that has
taken longest is sent away. Whoever knows the secret needs a few milliseconds."""

CROWDED_SECONDS = 0.1
"""Pause before the next caller is accepted when no file or thread is left."""

STALLED_SECONDS = 60
"""After so long in the middle of a frame a connection counts as lost."""

GONE_SECONDS = 30
"""After so long without an acknowledgement a machine counts as gone."""

LOST = (OSError, EOFError)
"""The other side hung up, or does not know the secret."""


@dataclass(frozen=True)
class TcpKey:
    """Where a server listens, and the secret that it asks for."""

    host: str
    port: int
    secret: bytes


class FramedSocket:
    """A connected socket that sends and receives frames, each preceded by its length.

    Args:
        connected: The socket.
        longest: Bytes of the longest frame that may arrive.
    """

    def __init__(self, connected: socket.socket, longest: int) -> None:
        self._socket, self._longest = connected, longest
        _tune(connected)

    def fileno(self) -> int:
        """For a selector."""
        return self._socket.fileno()

    def send(self, frame: bytes) -> None:
        """Send a frame."""
        head = _LENGTH.pack(len(frame))
        sent = self._socket.sendmsg((head, frame))
        if sent < len(head) + len(frame):
            self._socket.sendall((head + frame)[sent:])

    def receive(self, longest: int | None = None) -> bytes:
        """The next frame.

        Raises:
            EOFError: The other side hung up.
            OSError: The connection is lost, the frame is longer than it may be, or it takes longer
                than `STALLED_SECONDS`.
        """
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        bound = self._longest if longest is None else longest
        if length > bound:
            raise OSError(f"a frame of {length} bytes, expected at most {bound}")
        return self._read(length)

    def _read(self, length: int) -> bytes:
        data = self._socket.recv(length, socket.MSG_WAITALL)
        end = monotonic() + STALLED_SECONDS
        while len(data) < length:
            if monotonic() > end:
                raise OSError("a frame stopped halfway")
            if not (more := self._socket.recv(length - len(data), socket.MSG_WAITALL)):
                raise EOFError("the connection ended")
            data += more
        return data

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


class TcpServer:
    """Answers frames on a free port of `host`, in background threads.

    Args:
        host: The address to listen on.
        answer: Maps a request to its reply.
        longest: Bytes of the longest request.
    """

    def __init__(self, host: str, answer: Callable[[bytes], bytes], longest: int) -> None:
        self._answer, self._longest = answer, longest
        self._unknown: deque[socket.socket] = deque()  # callers that have not proved themselves
        self._lock = Lock()
        self._socket = socket.create_server((host, 0))
        self.key = TcpKey(host, self._socket.getsockname()[1], token_bytes(32))
        Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._socket.accept()
                with self._lock:
                    self._unknown.append(caller)
                    if len(self._unknown) > UNKNOWN_CALLERS:
                        _hang_up(self._unknown.popleft())
                Thread(target=self._serve, args=(caller,), daemon=True).start()
            except (OSError, RuntimeError):  # no file or thread is left: some callers will leave
                sleep(CROWDED_SECONDS)

    def _serve(self, caller: socket.socket) -> None:
        end = FramedSocket(caller, self._longest)
        with suppress(*LOST), closing(end):
            try:
                with _limited(caller):
                    _authenticate_caller(end, self.key.secret)
            finally:
                with self._lock, suppress(ValueError):  # it was sent away
                    self._unknown.remove(caller)
            while True:
                end.send(self._answer(end.receive()))


class TcpConnection:
    """The asking side. One request is under way at a time; the next one waits here meanwhile, and a
    later one replaces it.

    Args:
        longest: Bytes of the longest answer.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._end: FramedSocket | None = None
        self._asked: bytes | None = None
        self._next: bytes | None = None

    @property
    def busy(self) -> bool:
        """Whether an answer is owed."""
        return self._asked is not None or self._next is not None

    @property
    def connected(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._end is not None

    def fileno(self) -> int:
        """For a selector."""
        assert self._end is not None
        return self._end.fileno()

    def open(self, key: TcpKey) -> None:
        """Connect, and repeat a request that was not answered.

        Raises:
            OSError: Nobody is reached, or the other side does not know the secret.
        """
        caller = socket.create_connection((key.host, key.port), REACH_SECONDS)
        caller.settimeout(None)
        _limit_stalls(caller)
        end = FramedSocket(caller, self._longest)
        try:
            _authenticate_to_server(end, key.secret)
        except LOST as error:
            end.close()
            raise ConnectionError(f"{key.host}:{key.port} does not accept this key") from error
        self._end = end
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
        if self._asked is None and self._end is not None:
            self._send(frame)
        else:
            self._next = frame

    def _send(self, frame: bytes) -> None:
        assert self._end is not None
        self._asked, self._next = frame, None
        self._end.send(frame)

    def answer(self) -> bytes:
        """What has arrived; OSError or EOFError if the connection is lost."""
        assert self._end is not None
        data = self._end.receive()
        self._asked = None
        if self._next is not None:
            self._send(self._next)
        return data

    def close(self) -> None:
        """Hang up; `open` repeats what was not answered."""
        if self._end is not None:
            self._end.close()
            self._end = None


def _authenticate_caller(end: FramedSocket, secret: bytes) -> None:
    """The server's part: the caller proves itself first, so that strangers learn nothing."""
    mine = token_bytes(CHALLENGE_BYTES)
    end.send(mine)
    theirs, proof = end.receive(CHALLENGE_BYTES), end.receive(CHALLENGE_BYTES)
    _check(proof, _proof(secret, b"caller", mine, theirs))
    end.send(_proof(secret, b"server", mine, theirs))


def _authenticate_to_server(end: FramedSocket, secret: bytes) -> None:
    """The caller's part."""
    theirs, mine = end.receive(CHALLENGE_BYTES), token_bytes(CHALLENGE_BYTES)
    end.send(mine)
    end.send(_proof(secret, b"caller", theirs, mine))
    _check(end.receive(CHALLENGE_BYTES), _proof(secret, b"server", theirs, mine))


def _proof(secret: bytes, role: bytes, server: bytes, caller: bytes) -> bytes:
    """The role keeps one side's proof from passing for the other's."""
    return hmac.digest(secret, role + server + caller, "sha256")


def _check(proof: bytes, expected: bytes) -> None:
    if not hmac.compare_digest(proof, expected):
        raise ConnectionError("the other side does not know the secret")


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
    with suppress(OSError):  # it has hung up itself
        end.shutdown(socket.SHUT_RDWR)


def _limit_stalls(end: socket.socket) -> None:
    """Turn a frame that stops halfway into an OSError instead of an endless wait."""
    if os.name == "posix":
        stalled = struct.pack("ll", STALLED_SECONDS, 0)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, stalled)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, stalled)
