"""Direct lines: only for who holds the key, one request at a time, asked again after a break; and
the transport contract over them, with doors in this process instead of Ray's actors."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from queue import SimpleQueue
from selectors import EVENT_READ, DefaultSelector
from typing import Any

import pytest

from fedlsvi.remote.conformance import RUN, check_transport, parameters
from fedlsvi.remote.frame_transport import Wired
from fedlsvi.remote.ray import tcp as line_module
from fedlsvi.remote.ray.tcp import Door, Line
from fedlsvi.remote.ray.transport import LOOPBACK, Ray
from fedlsvi.remote.retry_policy import Patience


class Overheard:
    """A door that writes down what it was asked, and answers when it is let."""

    def __init__(self) -> None:
        self.asked: SimpleQueue[bytes] = SimpleQueue()
        self.let: SimpleQueue[bool] = SimpleQueue()
        self.door = Door(LOOPBACK, self.answer)

    def answer(self, frame: bytes) -> bytes:
        self.asked.put(frame)
        if not self.let.get(timeout=10):
            raise EOFError  # as if the process had died
        return frame.upper()


@pytest.fixture
def there() -> Overheard:
    return Overheard()


@pytest.fixture
def line(there: Overheard) -> Iterator[Line]:
    line = Line()
    line.open(there.door.key)
    yield line
    line.close()


def test_one_request_at_a_time_and_the_newest_next(there: Overheard, line: Line) -> None:
    for frame in (b"one", b"two", b"three"):
        line.ask(frame)
    there.let.put(True)
    assert line.answer() == b"ONE"
    assert line.busy
    there.let.put(True)
    assert line.answer() == b"THREE"
    assert not line.busy
    assert [there.asked.get(), there.asked.get()] == [b"one", b"three"]
    for _ in range(2):
        line.ask(b"four")
    there.let.put(True)
    assert line.answer() == b"FOUR"
    assert not line.busy


@pytest.mark.parametrize("later", [False, True])
def test_what_is_owed_is_asked_again(there: Overheard, line: Line, later: bool) -> None:
    line.ask(b"one")
    there.let.put(False)
    with pytest.raises((EOFError, OSError)):
        line.answer()
    line.close()
    assert line.busy
    if later:
        line.ask(b"two")
    line.open(there.door.key)
    there.let.put(True)
    assert line.answer() == (b"TWO" if later else b"ONE")


def test_strangers_are_not_heard(there: Overheard) -> None:
    key = there.door.key
    with pytest.raises(ConnectionError):
        Line().open(replace(key, secret=bytes(32)))
    with pytest.raises(AuthenticationError):
        Client((key.host, key.port), authkey=b"guess")
    with socket.create_connection((key.host, key.port), 10) as caller:
        caller.sendall(b"\x00\x00\x00\x03one" * 3)
        with suppress(ConnectionResetError):
            while caller.recv(1024):
                pass  # the challenge, then the end
    assert there.asked.empty()


def test_who_does_not_show_the_key_in_time_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that says nothing, and one that stops in the middle of a word."""
    monkeypatch.setattr(line_module, "REACH_SECONDS", 0.05)
    there = Overheard()
    for words in (b"", b"\x00"):
        with socket.create_connection((there.door.key.host, there.door.key.port), 60) as caller:
            caller.sendall(words)
            with suppress(ConnectionResetError):
                while caller.recv(1024):
                    pass


def test_a_door_outlives_a_crowd(monkeypatch: pytest.MonkeyPatch) -> None:
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

    monkeypatch.setattr(line_module.socket, "create_server", create)
    monkeypatch.setattr(line_module, "CROWDED_SECONDS", 0.0)
    there, line = Overheard(), Line()
    line.open(there.door.key)
    line.ask(b"one")
    there.let.put(True)
    assert line.answer() == b"ONE"
    line.close()


class Doors(Ray):
    """The lines of `Ray` to doors in this process."""

    def __init__(self, made: list[Callable[[], Any]], patience: Patience) -> None:
        handlers = [make() for make in made]
        Wired.__init__(self, parameters(6), [h.agents for h in handlers], RUN, patience)
        self._doors, self._lines, self._selector = {}, [], DefaultSelector()
        for c, handler in enumerate(handlers):
            self._lines.append(Line())
            self._lines[c].open(Door(LOOPBACK, handler.handle).key)
            self._selector.register(self._lines[c], EVENT_READ, c)

    def close(self) -> None:
        self._hang_up()


def test_conformance() -> None:
    check_transport(lambda made, patience: Doors(list(made), patience))
