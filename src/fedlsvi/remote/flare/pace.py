"""How a site's exploration hears that the round is over: in pieces.

A site that fires says so at once; the others, which may be far ahead or behind, are told the
episode and need not look beyond it.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

from fedlsvi.protocol.agent import Cohort
from fedlsvi.protocol.messages import Explore, Signal
from fedlsvi.remote.codec import decode_request
from fedlsvi.remote.endpoint import Station

PIECE = 256
"""Episodes after which a site first looks whether another has signalled; the pieces double."""


class Pace:
    """Lets a cohort explore in pieces, so that it can hear that another site has signalled."""

    def __init__(self) -> None:
        self._turn = (0, 0)  # epoch and number of the request that explores
        self._until: int | None = None
        self._lock = Lock()

    def begin(self, frame: bytes, station: Station, announce: Any) -> None:
        """A request arrives; exploration is announced and paced."""
        address, message = decode_request(frame, station.layout)
        if not isinstance(message, Explore):
            return
        turn = (address.epoch, address.number)
        with self._lock:
            if turn != self._turn:
                self._turn, self._until = turn, None
        cohort = station.cohort

        def explore(limit: int) -> Signal:
            signal = self._explore(cohort, limit)
            if signal.t > 0:
                announce(signal, address)
            return signal

        cohort.explore = explore  # type: ignore[method-assign]

    def hurry(self, turn: tuple[int, int], t: int) -> None:
        """The round ends at episode t or before."""
        with self._lock:
            if turn >= self._turn:
                self._until = t if self._until is None or turn > self._turn else min(
                    t, self._until)  # fmt: skip
                self._turn = turn

    def _explore(self, cohort: Cohort, limit: int) -> Signal:
        world, piece = cohort.experience, PIECE
        while limit > 0:
            n = min(limit, piece)
            if self._until is not None:
                n = min(n, self._until - world.t - world.length)
            if n <= 0:
                break
            signal = Cohort.explore(cohort, n)
            if signal.t > 0:
                return signal
            limit, piece = limit - n, 2 * piece
        return Signal.silence()
