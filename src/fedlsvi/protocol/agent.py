"""Algorithm 2, for a cohort of m ≥ 1 agents that share one process.

Comments give the line of the paper's pseudo-code. All arrays have a leading agent axis; one agent's
numbers never depend on who shares its cohort. The policy is frozen within a round and the trigger
is monotone in Δt, so lines 8–19 are carried out for many episodes at once: `explore` looks ahead,
finds the first episode that fires, and `stop` drops whatever lies beyond the round's end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import numpy as np

from fedlsvi.core.statistics import Packing, unpack
from fedlsvi.core.trigger import Rule, Trigger
from fedlsvi.errors import TransportError
from fedlsvi.experience.workers import Workers
from fedlsvi.protocol.messages import (
    Exploit,
    Explore,
    Model,
    Reply,
    Request,
    Signal,
    Start,
    Stop,
    Upload,
)
from fedlsvi.protocol.second_pass import SecondPass


class Values(Protocol):
    """Q_h and V_h of the broadcast model (`fedlsvi.experience.values`)."""

    beta: float

    def update(self, h: int, w: np.ndarray, gram: np.ndarray) -> None:
        """Q_h, V_h ← (w_h, Λ_h) by eq. (2)."""
        ...


class Experience(Protocol):
    """The environments of the cohort's agents and their buffers D_h (`fedlsvi.experience`)."""

    dim: int
    block: int
    t: int
    length: int
    workers: Workers

    def begin(self, t: int) -> None:
        """Δt ← 0 and Λ^loc ← 0 after episode t; the policy is now frozen."""
        ...

    def explore(self, n: int) -> None:
        """Play n more episodes."""
        ...

    def first_firing(self, rule: Rule, n: int) -> tuple[int, np.ndarray, np.ndarray]:
        """Where in the first n of the last episodes the trigger fires: Δt, positions, steps."""
        ...

    def close(self, length: int) -> None:
        """Keep the round's first `length` episodes in D and Λ^loc."""
        ...

    def summarise(self, h: int) -> tuple[np.ndarray, np.ndarray]:
        """Λ_h^loc packed, (m, P), and b_h over the whole of D_h with V_{h+1} in force, (m, d).
        Steps that share a Gram matrix give it at h = H, and an empty one, (m, 0), before."""
        ...

    def state(self) -> dict[str, np.ndarray]:
        """Between rounds: what is remembered, apart from `history`."""
        ...

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Continue from `state`."""
        ...

    def history(self, first: int, last: int) -> dict[str, np.ndarray]:
        """Raw episodes first + 1 … last, where they are kept."""
        ...

    def extend(self, first: int, part: dict[str, np.ndarray]) -> None:
        """Put back what `history` gave."""
        ...


class Cohort:
    """Agents `agents[0]`, `agents[1]`, … of a federation, answering the server's messages."""

    def __init__(
        self,
        agents: np.ndarray,
        horizon: int,
        packing: Packing,
        values: Values,
        experience: Experience,
        trigger: Trigger,
    ) -> None:
        self.agents, self.horizon, self.packing = agents, horizon, packing
        self.values, self.experience, self.trigger = values, experience, trigger
        self.grams: dict[int, np.ndarray] = {}  # Λ_h in force, packed
        self.second: SecondPass | None = None
        self.deployed: Values | None = None

    def receive(self, message: Request, until: Callable[[int], int] | None = None) -> Reply:
        """Answer one message of the server; `until` is for `explore`."""
        match message:
            case Explore(limit=limit):
                return self.explore(limit, until)
            case Exploit(beta=beta):
                self.second = SecondPass(self, beta)
                return self.second.upload(self.horizon)
            case Model(h=h, w=w) if self.second is not None:
                self.deployed = self.second.values
                reply = self.second.update(h, w)
                self.second = None if h == 1 else self.second
                return reply
            case Model():
                return self.update(message)
            case Stop(t=t):
                return self.stop(t)
            case Start():
                self.start(message)
                return None
        raise TransportError(
            f"an agent cannot answer a {type(message).__name__}", code="unknown-message"
        )

    def start(self, message: Start) -> None:
        """Receive the parameters and initialise Q and V."""
        self.trigger = replace(self.trigger, gamma=message.gamma, episodes=message.episodes)
        self.T, self.second = message.episodes, None
        self.values.beta = message.beta
        for h in range(self.horizon, 0, -1):
            self._renew(h, *message.model(h))  # line 2
        self.experience.begin(message.t)  # lines 1, 4–7

    def explore(self, limit: int, until: Callable[[int], int] | None = None) -> Signal:
        """At most `limit` more episodes of this round, or until the first agent signals.

        Agents elsewhere may signal meanwhile: `until` is called with the last episode played, and
        returns the one up to which to go on before it is called again.
        """
        world = self.experience
        while limit > 0:
            t = world.t + world.length
            n = min(limit, world.block, self.T - t)
            if until is not None and (n := min(n, until(t) - t)) <= 0:
                break
            world.explore(n)  # lines 9–16
            asked = max(0, min(n, self.trigger.latest - t))  # line 17, if t < T
            length, fired, steps = world.first_firing(self.trigger.rule(world.t), asked)
            if length > 0:
                return Signal(world.t + length, self.agents[fired], steps)  # line 18
            if t + n == self.T:
                return Signal(self.T, self.agents.copy(), np.zeros_like(self.agents))  # lines 21–23
            limit -= n
        return Signal.silence()

    def stop(self, t: int) -> Upload:
        """The round ends at episode t, for every agent of the federation."""
        behind = t - self.experience.t - self.experience.length
        if behind > 0:
            self.experience.explore(behind)
        self.experience.close(t - self.experience.t)
        return self.upload(self.horizon)

    def upload(self, h: int) -> Upload:
        """Λ_h^loc and the full-history target b_h."""
        gram, b = self.experience.summarise(h)  # line 26
        return Upload(h, gram, b)  # line 27

    def update(self, model: Model) -> Upload | None:
        """Take the step's new model, and go on to the step before it."""
        self._renew(model.h, model.w, model.gram)  # lines 28–29
        if model.h > 1:
            return self.upload(model.h - 1)  # line 25
        self.experience.begin(self.experience.t + self.experience.length)  # lines 3–7
        return None

    def _renew(self, h: int, w: np.ndarray, gram: np.ndarray) -> None:
        self.grams[h] = gram if gram.size else self.grams[h + 1]
        self.values.update(h, w, unpack(gram, self.experience.dim, self.packing))
