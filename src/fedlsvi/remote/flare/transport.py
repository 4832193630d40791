"""How the server reaches its sites over NVIDIA FLARE: signed calls that carry frames, and signals
that it passes on while sites explore."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from threading import Lock
from time import monotonic
from typing import Any

from fedlsvi.config import Parameters
from fedlsvi.errors import FedLSVIError, MessageRefused
from fedlsvi.protocol.messages import Explore, Reply, Signal
from fedlsvi.remote.codec import Address, decode_reply, longest_reply
from fedlsvi.remote.flare import log as flare_log
from fedlsvi.remote.flare.signing import Signer
from fedlsvi.remote.frame_transport import FrameTransport
from fedlsvi.remote.guard import Guard, Refusal
from fedlsvi.remote.retry_policy import RetryPolicy

JOIN = struct.Struct("<qq")  # first agent, agents in all
SIGNALLED = struct.Struct("<QQq")  # epoch and number of a request, episode

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SignedSite:
    """A site as the server calls it: every request is signed for this site.

    Attributes:
        proxy: What FLARE calls the site with.
        signer: Holds the server's key.
        name: The site's name.
    """

    proxy: Any
    signer: Signer
    name: str

    def __call__(self, **options: Any) -> SignedSite:
        """The same site, called with these options of FLARE."""
        return replace(self, proxy=self.proxy(**options))

    def hello(self) -> Any:
        """How many agents learn there and with which fedlsvi, as the site says."""
        return self._call("hello", b"")

    def join(self, first: int, n_agents: int) -> None:
        """Number its agents from `first`, of `n_agents` in all."""
        self._call("join", JOIN.pack(first, n_agents))

    def handle(self, frame: bytes) -> Any:
        """Its answer to a request."""
        return self._call("handle", frame)

    def signalled_elsewhere(self, epoch: int, number: int, t: int) -> None:
        """Tell it that somebody signalled at episode t of the round that this request explores."""
        self._call("signalled_elsewhere", SIGNALLED.pack(epoch, number, t))

    def ended(self) -> Any:
        """Tell it that the last model is written down here."""
        return self._call("ended", b"")

    def _call(self, purpose: str, content: bytes) -> Any:
        proof = self.signer.sign(purpose, self.name, content)
        return getattr(self.proxy, purpose)(content, proof)


@dataclass(frozen=True)
class RemovedSite:
    """A site that a run goes on without: it has its place among the agents and is never called."""

    name: str


class Flare(FrameTransport):
    """Frames as calls to sites; `proxies` in the order of agents. `exchange_ended` is called after
    each exchange, for what the engine keeps of it."""

    def __init__(
        self,
        parameters: Parameters,
        proxies: Sequence[Any],
        cuts: Sequence[tuple[int, int]],
        run: int,
        retry: RetryPolicy | None = None,
        guard: Guard | None = None,
        exchange_ended: Callable[[], None] = lambda: None,
    ) -> None:
        sites = [proxy.name for proxy in proxies]
        super().__init__(parameters, cuts, run, retry, guard, sites)
        self.proxies, self._exchange_ended = list(proxies), exchange_ended
        self._pool = ThreadPoolExecutor(4 * len(proxies))
        self._late: dict[Future[bytes], int] = {}
        # of the last request: the earliest signal that was passed on, and the episodes that sites
        # have announced (the earliest of each) and answered
        self._passed: int | None = None
        self._announced: dict[int, int] = {}
        self._answered: dict[int, int] = {}
        self._lock = Lock()

    def next_request(self, cohorts: Iterable[int]) -> None:
        with self._lock:
            super().next_request(cohorts)
            self._passed, self._announced, self._answered = None, {}, {}

    def check_reply(self, c: int, reply: Reply) -> None:
        """Who announced a signal has sent the others to that episode: it answers with no other."""
        super().check_reply(c, reply)
        if isinstance(reply, Signal):
            with self._lock:
                said = self._announced.get(c, reply.t)
                # one that was lost and asked again is silent where somebody had been earlier
                passed = self._passed is not None and self._passed < said
                if reply.t != said and not (reply.t == 0 and passed):
                    first, bound = self.cuts[c][0], f"{said}, as it announced"
                    raise Refusal(first, self.guard.round, 0, "signal's t", reply.t, bound)
                self._answered[c] = said

    def exchange(self, frames: Mapping[int, bytes], deadline: float) -> Iterator[tuple[int, bytes]]:
        end = monotonic() + deadline
        asked = set()
        for c, frame in frames.items():
            proxy = self.proxies[c](timeout=deadline)
            asked.add(call := self._pool.submit(proxy.handle, frame))
            self._late[call] = c
        try:
            yield from self._answers(asked, end)
        finally:
            self._exchange_ended()

    def _answers(self, asked: set[Future[bytes]], end: float) -> Iterator[tuple[int, bytes]]:
        """Whatever arrives until nothing that was asked now is left, or the clock says `end`."""
        while asked and (left := end - monotonic()) > 0.0:
            done, _ = wait(self._late, left, FIRST_COMPLETED)
            asked -= done
            for future in done:
                c = self._late.pop(future)
                try:
                    data = future.result()
                except Exception as error:  # the engine's own: a site that cannot be reached
                    said = flare_log.line(error)
                    log.warning("no answer from %s: %s", self.proxies[c].name, said)
                    self.waiting.said(c, said)
                else:
                    yield c, data

    def signalled(self, frame: bytes, caller: str | None = None) -> None:
        """An agent calls: pass its episode on to the other sites, unless an earlier one was. Where
        all play every episode that was asked for, nobody needs to hear it. `caller` is the site
        that the engine knows to have called: nobody speaks for another."""
        try:
            with self._lock:
                turns = list(self.turns)  # before who is present is looked at: see `_windows`
                if len(frame) > longest_reply(self.layout, self.layout.n_agents):
                    raise MessageRefused(f"{len(frame)} bytes", code="answer-too-long")
                address, signal = decode_reply(frame, self.layout)
                c = next((c for c, cut in enumerate(self.cuts) if cut[0] == address.first), 0)
                if not isinstance(signal, Signal) or not self._may_call(c, address, caller):
                    return
                self.guard.signal(address.first, address.agents, signal)
                if signal.t == 0 or self._answered.get(c, signal.t) != signal.t:
                    return
                self._announced[c] = min(signal.t, self._announced.get(c, signal.t))
                if self._passed is not None and self._passed <= signal.t:
                    return
                self._passed = signal.t
        except FedLSVIError as error:
            log.warning("a signal was refused: %s", error)
            return
        for other in self.membership.cohorts_there():
            if other != c:
                epoch, number = turns[other]
                site = self.proxies[other](expect_result=False)
                site.signalled_elsewhere(epoch, number, signal.t)
        self.enter("signal", 1)

    def _may_call(self, c: int, address: Address, caller: str | None) -> bool:
        """Whether this site was asked to explore, and speaks for itself about that request."""
        if caller not in (None, self.proxies[c].name) or address != self.address(c):
            return False
        exploring = isinstance(self.request, Explore) and self.overshoot == "cut"
        return exploring and c in self.membership.cohorts_there()

    def _windows(self, cap: int, floor: int = 1) -> Iterator[int]:
        """Sites explore until somebody signals: there is nothing to guess. Who was told of a signal
        stopped there, so if its sender is lost the others are asked again. Where nothing can be
        rolled back they are asked for no more than what then stays, as everywhere."""
        if self.overshoot == "keep":
            yield from super()._windows(cap, floor)
            return
        asked = len(self.cuts) + 1
        while len(self.membership.cohorts_there()) < asked:
            asked = len(self.membership.cohorts_there())
            yield cap

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
