"""A cable that can be pulled, on one machine: connections are passed on, byte for byte."""

from __future__ import annotations

import socket
from contextlib import suppress
from threading import Event, Lock, Thread


class Relay:
    """Listens on loopback and passes on to another port of loopback.

    While it is pulled, whatever arrives waits, as on a cable that TCP tries again and again: nobody
    is told, no connection is refused and none ends. Once it is plugged in again, all of it passes.

    Attributes:
        port: Where it listens.
        passed: Bytes passed on so far; whoever has received some finds them counted.
    """

    def __init__(self, port: int) -> None:
        self._to, self.passed, self._counting = port, 0, Lock()
        self._plugged, self._ends = Event(), list[socket.socket]()
        self._plugged.set()
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._door.getsockname()[1])
        Thread(target=self._accept, daemon=True).start()

    def pull(self) -> None:
        """Nothing passes from here on."""
        self._plugged.clear()

    def plug(self) -> None:
        """All that waits passes."""
        self._plugged.set()

    def close(self) -> None:
        """End every connection."""
        for end in (self._door, *self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self.plug()

    def _accept(self) -> None:
        with suppress(OSError):  # the door is closed
            while True:
                near, _ = self._door.accept()
                self._ends.append(near)
                Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        self._plugged.wait()
        try:
            far = socket.create_connection(("127.0.0.1", self._to))
        except OSError:  # nobody listens there
            near.close()
            return
        self._ends.append(far)
        for one, other in ((near, far), (far, near)):
            Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 16):
                self._plugged.wait()
                with self._counting:
                    self.passed += len(data)
                other.sendall(data)
        self._plugged.wait()  # also an end is not heard of
        with suppress(OSError):
            other.shutdown(socket.SHUT_WR)
