"""The contract of a transport: deliver one message to every cohort, return their replies in order.

A transport implements `deliver`. Counting what travels and waiting for the first signal are the
same for all of them and stand here. Where an agent cannot call the server by itself, the server
asks: "explore at most n more episodes or until your trigger". n gallops from a little beyond the
length of the last round, which late in a run is close to the next one's, so that most rounds take
one question; it never passes `Trigger.longest`, because no round does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.config import Parameters
from fedlsvi.core.trigger import Trigger
from fedlsvi.errors import TransportError
from fedlsvi.protocol.ledger import Ledger
from fedlsvi.protocol.membership import Membership
from fedlsvi.protocol.messages import (
    Exploit,
    Explore,
    Keep,
    Layout,
    MaskedUpload,
    Model,
    Models,
    Reply,
    Request,
    Signal,
    Start,
    Stop,
    SummedUpload,
    Upload,
)

DOWN = {
    Start: "init", Stop: "signal", Exploit: "signal", Keep: "signal",
    Model: "down_model", Models: "down_model",
}  # fmt: skip


def layout(p: Parameters) -> Layout:
    """What server and agents agree on, of the numbers in force."""
    secure = p.aggregation == "secure"
    shape = (p.n_agents, p.horizon, p.dim, p.packing)
    return Layout(*shape, p.stationary, secure, p.columns, p.noisy)


class Answering(Protocol):
    """Agents in this process that answer messages: a cohort, or the sites of a bandit."""

    agents: np.ndarray

    @property
    def block(self) -> int:
        """How many episodes it explores at once."""
        ...

    @property
    def since(self) -> np.ndarray | None:
        """As `agent.Experience.since`."""
        ...

    def receive(self, message: Request) -> Reply:
        """Answer one message of the server."""
        ...


class Transport(ABC):
    """Between one server and its cohorts. Subclasses say how a message is delivered."""

    asks = False
    """Whether `Explore` really travels (and is counted), or only drives a simulation."""

    def __init__(self, n_agents: int, trigger: Trigger, overshoot: str = "cut") -> None:
        self.ledger, self.membership = Ledger(n_agents), Membership(n_agents)
        self.trigger, self.overshoot = trigger, overshoot
        # of the round under way: episodes kept beyond the signal, its length, seconds of waiting
        self.kept = 0
        self.last = 0
        self.explored = 0.0
        self._welcome = 0  # scalars of the message that begins a run, or brings the model

    @abstractmethod
    def deliver(self, message: Request) -> Sequence[Reply]:
        """Deliver to every cohort and return the replies in the order of agents."""

    def close(self) -> None:  # noqa: B027 (nothing to release by default)
        """Release what the transport holds."""

    def dismiss(self) -> None:  # noqa: B027 (agents in this process keep nothing)
        """The last model is written down: agents elsewhere delete what hid their uploads."""

    def rest(self, k: int, t: int) -> None:  # noqa: B027 (agents in this process need no care)
        """Round k has ended with episode t; nothing is under way."""

    @property
    def noise_key(self) -> bytes | None:
        """The secret of a private run's noise, where it is in this process."""
        return None

    def use_noise_key(self, key: bytes) -> None:
        """Go on with the noise of this secret."""
        raise NotImplementedError

    def use_values(self, ahead: Callable[[int], np.ndarray]) -> None:  # noqa: B027
        """In one trip, V_{h+1} of all states under the model in force: whoever compares what agents
        send needs it."""

    def last_releases(self, p: Parameters, k: int, h: int) -> list[int]:
        """Of a private run, up to release k: the last that the sums of step h have of each agent,
        or of all."""
        attendance = self.membership.attendance
        if attendance is None:
            return [k]
        last = [p.release_number(t) for t in attendance.last.tolist()]
        for m in attendance.there.tolist():
            last[m] = k
        return last

    def take_notes(self) -> list[str]:
        """What was out of the ordinary since this was last asked."""
        return []

    def state(self, t: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values for a checkpoint after episode t, beyond the server's model.
        Agents elsewhere make what they hold durable first."""
        return self.membership.state()

    def restore(
        self, arrays: Mapping[str, np.ndarray], plain: Mapping[str, Any], t: int, k: int
    ) -> None:
        """Continue after round k, from what `state` gave."""
        self.membership.restore(arrays, plain)

    def broadcast(self, message: Request) -> Sequence[Reply]:
        """Deliver to every cohort, and enter what went both ways into the ledger."""
        self.enter(DOWN[type(message)], message.scalars)
        if isinstance(message, Start):
            self._welcome = message.scalars
        replies = self.with_carried(self.deliver(message))
        for reply in replies:
            if isinstance(reply, Upload):
                # equal for all agents: enter it once, as a share of each
                sums = reply.gram.size + reply.b.size + reply.fit.size
                self.enter("up_stats", sums // len(reply.b))
                break
            if isinstance(reply, SummedUpload):
                self.enter("up_stats", reply.alike)
                break
            if isinstance(reply, MaskedUpload):
                self.enter_sites("up_stats", reply.scalars)
                break
        sizes = self.next_states_sent(replies)
        if len(sizes):
            there = self.membership.agents_there()
            agents = np.arange(len(sizes)) if there is None else there
            if len(sizes) > len(agents):  # rows of who is away are empty
                sizes = sizes[agents]
            self.ledger.some("up_stats", agents, sizes)
        return replies

    def next_states_sent(self, replies: Sequence[Reply]) -> np.ndarray:
        """Scalars of N of each agent in these replies, or of each that is there; nothing where N
        is not sent."""
        if replies and isinstance(replies[0], SummedUpload):
            return np.concatenate([r.following for r in replies if isinstance(r, SummedUpload)])
        uploads = [reply for reply in replies if isinstance(reply, Upload)]
        sent = [table.scalars for upload in uploads for table in upload.following]
        return np.array(sent, np.int64)

    def with_carried(self, replies: Sequence[Reply]) -> Sequence[Reply]:
        """The replies, with what represents the agents that are away by schedule."""
        uploads = [r for r in replies if isinstance(r, Upload) and not r.every_step]
        if self.membership.attendance is None or not uploads:
            return replies
        firsts = np.cumsum([0, *(len(upload.b) for upload in uploads)]).tolist()
        made = [self.membership.carried(m, u) for m, u in zip(firsts, uploads, strict=False)]
        self.membership.accept(made)
        return made

    def enter(self, category: str, scalars: int) -> None:
        """Every agent that takes part sent or received this many scalars."""
        there = self.membership.agents_there()
        if there is None:
            self.ledger.each(category, scalars)
        else:
            self.ledger.some(category, there, scalars)

    def may_end(self, t: int) -> bool:
        """Whether the round that begins after episode t may last until T."""
        return self.trigger.longest(t) >= self.trigger.episodes - t

    def sites(self) -> np.ndarray:
        """The first agent of each site, which stands for it in the ledger."""
        raise TransportError(
            f"{type(self).__name__} does not say which agents share a site, which secure "
            'aggregation needs: define sites(), or use aggregation="float"',
            code="no-sites",
        )

    def enter_sites(self, category: str, scalars: int) -> None:
        """Every site sent or received this many scalars, however many agents it has."""
        self.ledger.some(category, self.sites(), scalars)

    def wait(self, t: int, left: int) -> Signal:
        """The first signal of the round that began after episode t; `left` episodes remain."""
        # who was there all along has the model
        self.ledger.some("init", self.membership.begin(t), self._welcome)
        explored, began = 0, perf_counter()
        for n in self._windows(min(left, self.trigger.longest(t)), self.trigger.floor(t)):
            if left - explored - n < self.trigger.min_round:  # the next round would be too short
                n = left - explored
            replies = self.deliver(Explore(n))
            explored += n
            if self.asks:
                self.enter("signal", 2)
            signal = merge(replies)
            if signal.t > 0:
                self.ledger.some("signal", signal.agents, 2)
                self.last = signal.t - t
                self.explored = perf_counter() - began
                self.kept = 0
                if self.overshoot == "keep":
                    self.kept = t + explored - signal.t
                    return Signal(t + explored, signal.agents, signal.steps)
                return signal
        there = self.membership.agents_there()
        if there is not None and not len(there):  # all that are due cannot be reached
            self.last, self.explored, self.kept = explored, perf_counter() - began, 0
            return Signal(t + explored, there, there)
        raise TransportError(
            f"no agent signalled within {plural(explored, 'episode')} after episode {t}",
            code="no-signal",
        )

    def _windows(self, cap: int, floor: int = 1) -> Iterator[int]:
        """Numbers of episodes to ask for, one after the other, that add up to `cap`; nobody fires
        before the `floor`."""
        guess = min(cap, max(floor, self.last + self.last // 64 + 1))
        yield guess
        done, size = guess, max(1, guess // 16)
        while done < cap:
            n = min(size, cap - done)
            yield n
            done += n
            size *= 2


class InProcess(Transport):
    """Calls each cohort in turn. One cohort of all agents is the fastest; several give the same."""

    def __init__(
        self, cohorts: Sequence[Answering], trigger: Trigger, overshoot: str = "cut"
    ) -> None:
        super().__init__(sum(len(c.agents) for c in cohorts), trigger, overshoot)
        self.cohorts = cohorts

    def deliver(self, message: Request) -> Sequence[Reply]:
        return deliver_to(self.cohorts, message)

    def sites(self) -> np.ndarray:
        return np.array([cohort.agents[0] for cohort in self.cohorts])


def deliver_to(cohorts: Sequence[Answering], message: Request) -> list[Reply]:
    """The replies of cohorts in this process. They explore in turns of their smallest block: what
    one plays beyond another's signal is dropped, and a slow simulator should not play it."""
    if not isinstance(message, Explore):
        return [cohort.receive(message) for cohort in cohorts]
    left = message.limit
    replies: list[Reply] = []
    while left > 0 and merge(replies).t == 0:
        n = min(left, *(cohort.block for cohort in cohorts))
        replies = [cohort.receive(Explore(n)) for cohort in cohorts]
        left -= n
    return replies


def merge(replies: Sequence[Reply]) -> Signal:
    """The earliest episode at which any agent fires, with everyone who fires there."""
    signals = [r for r in replies if isinstance(r, Signal) and r.t > 0]
    if not signals:
        return Signal.silence()
    t = min(s.t for s in signals)
    first = [s for s in signals if s.t == t]
    if len(first) == 1:
        return first[0]
    return Signal(
        t, np.concatenate([s.agents for s in first]), np.concatenate([s.steps for s in first])
    )
