"""The contract of a transport: deliver one message to every cohort, return their replies in order.

A transport implements `deliver`. Counting what travels and waiting for the first signal are the
same for all of them and stand here. Where an agent cannot call the server by itself, the server
asks: "explore at most n more episodes or until your trigger". n gallops from a little beyond the
length of the last round, which late in a run is close to the next one's, so that most rounds take
one question; it never passes `Trigger.longest`, because no round does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.config import Parameters
from fedlsvi.core.trigger import Trigger
from fedlsvi.errors import TransportError
from fedlsvi.protocol.agent import Cohort
from fedlsvi.protocol.evaluation import Evaluator
from fedlsvi.protocol.ledger import Ledger
from fedlsvi.protocol.messages import (
    Exploit,
    Explore,
    Increments,
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
    return Layout(*shape, p.stationary, secure, p.states)


class Transport(ABC):
    """Between one server and its cohorts. Subclasses say how a message is delivered."""

    asks = False
    """Whether `Explore` really travels (and is counted), or only drives a simulation."""

    def __init__(self, n_agents: int, trigger: Trigger, overshoot: str = "cut") -> None:
        self.ledger = Ledger(n_agents)
        self.trigger, self.overshoot = trigger, overshoot
        # of the round under way: episodes kept beyond the signal, its length, seconds of waiting
        self.kept = 0
        self.last = 0
        self.explored = 0.0

    @abstractmethod
    def deliver(self, message: Request) -> Sequence[Reply]:
        """Deliver to every cohort and return the replies in the order of agents."""

    def close(self) -> None:  # noqa: B027 (nothing to release by default)
        """Release what the transport holds."""

    def rest(self, k: int, t: int) -> None:  # noqa: B027 (agents in this process need no care)
        """Round k has ended with episode t; nothing is under way."""

    @property
    def present(self) -> int | None:
        """How many agents played the last round, where some may be away; None is all of them."""
        return None

    def measuring(self, evaluator: Evaluator | None) -> Evaluator | None:
        """What measures regret; a transport that leaves agents out counts who played."""
        return evaluator

    def take_notes(self) -> list[str]:
        """What was out of the ordinary since this was last asked."""
        return []

    def state(self, t: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values for a checkpoint after episode t, beyond the server's model.
        Agents elsewhere make what they hold durable first."""
        return {}, {}

    def restore(  # noqa: B027 (nothing beyond the model by default)
        self, arrays: Mapping[str, np.ndarray], plain: Mapping[str, Any], t: int, k: int
    ) -> None:
        """Continue after round k, from what `state` gave."""

    def broadcast(self, message: Request) -> Sequence[Reply]:
        """Deliver to every cohort, and enter what went both ways into the ledger."""
        self.enter(DOWN[type(message)], message.scalars)
        replies = self.deliver(message)
        for reply in replies:
            if isinstance(reply, Upload):
                # equal for all agents: enter it once, as a share of each
                self.enter("up_stats", reply.scalars // len(reply.b))
                break
            if isinstance(reply, MaskedUpload):
                self.enter_sites("up_stats", reply.scalars)
                break
        self._enter_increments([r for r in replies if isinstance(r, Increments)])
        return replies

    def _enter_increments(self, replies: Sequence[Increments]) -> None:
        """What agents sent in one trip: Λ and u are as long for all of them, N is not."""
        if replies:
            first = replies[0]
            self.enter("up_stats", (first.gram.size + first.u.size) // len(first.u))
            sent = [n.scalars for reply in replies for n in reply.following]
            self.ledger.add("up_stats", np.array(sent, np.int64))

    def enter(self, category: str, scalars: int) -> None:
        """Every agent that takes part sent or received this many scalars."""
        self.ledger.each(category, scalars)

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

    def __init__(self, cohorts: Sequence[Cohort], trigger: Trigger, overshoot: str = "cut") -> None:
        super().__init__(sum(len(c.agents) for c in cohorts), trigger, overshoot)
        self.cohorts = cohorts

    def deliver(self, message: Request) -> Sequence[Reply]:
        return [cohort.receive(message) for cohort in self.cohorts]

    def sites(self) -> np.ndarray:
        return np.array([cohort.agents[0] for cohort in self.cohorts])


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
