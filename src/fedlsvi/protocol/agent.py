"""Algorithm 2, for a cohort of m ≥ 1 agents that share one process.

Comments give the line of the paper's pseudo-code. All arrays have a leading agent axis; one agent's
numbers never depend on who shares its cohort. The policy is frozen within a round and the trigger
is monotone in Δt, so lines 8–19 are carried out for many episodes at once: `explore` looks ahead,
finds the first episode that fires, and `stop` drops whatever lies beyond the round's end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fedlsvi.core.participation_schedule import NOT_THERE
from fedlsvi.core.statistics import Packing, unpack
from fedlsvi.core.trigger import Rule, Trigger
from fedlsvi.errors import TransportError
from fedlsvi.experience.rooms import Added, Increment
from fedlsvi.experience.workers import Workers
from fedlsvi.protocol.heads import HeadPass
from fedlsvi.protocol.messages import (
    Exploit,
    Explore,
    Layout,
    Model,
    Models,
    NextStates,
    Reply,
    Request,
    Signal,
    Start,
    Stop,
    SummedUpload,
    Upload,
)

if TYPE_CHECKING:
    from fedlsvi.protocol.own_features import OwnFeatures


class Values(Protocol):
    """Q_h and V_h of the broadcast model (`fedlsvi.experience.values`)."""

    beta: float

    def update(self, h: int, w: np.ndarray, gram: np.ndarray) -> None:
        """Q_h, V_h ← (w_h, Λ_h) by eq. (2)."""
        ...


class Experience(Protocol):
    """The environments of the cohort's agents and their buffers D_h (`fedlsvi.experience`)."""

    dim: int
    t: int
    length: int
    workers: Workers

    @property
    def worlds(self) -> Sequence[Any]:
        """Where the agents play, or their logs."""
        ...

    @property
    def block(self) -> int:
        """Episodes that are explored at once."""
        ...

    def begin(self, t: int) -> None:
        """Δt ← 0 and Λ^loc ← 0 after episode t; the policy is now frozen."""
        ...

    def explore(self, n: int) -> None:
        """Play n more episodes."""
        ...

    @property
    def present(self) -> np.ndarray:
        """Positions of the agents that take part in the round under way."""
        ...

    @property
    def since(self) -> np.ndarray | None:
        """Where agents come and go, (m,): the last episode of the last round that each was in
        before the one that has ended, as `core.participation_schedule.Attendance` has it; None
        where all are always there."""
        ...

    @property
    def names_users(self) -> bool:
        """Whether the environments say who plays."""
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

    def responses(self, h: int, values: Any) -> np.ndarray:
        """b_h over the whole of D_h with the V_{h+1} of these values, (m, d)."""
        ...

    def fit(self, h: int, w: np.ndarray, values: Any) -> np.ndarray:
        """n, Σy, Σy², Σε and Σε² of the targets y = r + V_{h+1}(x') of step h alone, whatever steps
        share, with ε = y − φᵀw; (m, 5), zeros where it is not known."""
        ...

    def take_increment(self, h: int) -> Increment:
        """What the round adds to the sums of step h, where states are numbers; it is not kept."""
        ...

    def take_added(self) -> Added | None:
        """What the round adds to the sums of all steps, of all agents together, where the memory
        adds them; None where none of them was there."""
        ...

    def returns(self, first: int, last: int) -> np.ndarray | None:
        """Returns of episodes first + 1 … last of the round just closed; None if not counted."""
        ...

    def fewest(self, first: int, last: int) -> int | None:
        """Episodes in the emptiest Λ_h^loc of that round; None where all are in all."""
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
        one_trip: Layout | None = None,
        fits: bool = False,
        together: bool = False,
        own: OwnFeatures | None = None,
    ) -> None:
        self.agents, self.horizon, self.packing = agents, horizon, packing
        self.values, self.experience, self.trigger = values, experience, trigger
        self.one_trip = one_trip  # the sizes, where the end of a round is answered all at once
        self.fits = fits  # whether it says in the end how well the model fits
        self.together = together  # whether its memory adds the agents
        self.own = own  # eliminates what stays with the agent
        self.grams: dict[int, np.ndarray] = {}  # Λ_h in force, packed
        self.weights: dict[int, np.ndarray] = {}  # w_h in force
        self.second: HeadPass | None = None
        self.deployed: Values | None = None

    @property
    def block(self) -> int:
        """How many episodes it explores at once."""
        return self.experience.block

    @property
    def since(self) -> np.ndarray | None:
        """As `Experience.since`."""
        return self.experience.since

    @property
    def away(self) -> bool:
        """Whether its one agent was not in the round that has ended."""
        since = self.experience.since
        return since is not None and int(since[0]) == NOT_THERE

    def receive(self, message: Request, until: Callable[[int], int] | None = None) -> Reply:
        """Answer one message of the server; `until` is for `explore`."""
        match message:
            case Explore(limit=limit):
                return self.explore(limit, until)
            case Exploit(beta=beta):
                self.second = HeadPass(self, beta)
                return None if self.one_trip is not None else self.second.upload(self.horizon)
            case Model(h=h, w=w) if self.second is not None:
                self.deployed = self.second.values
                reply = self.second.update(h, w)
                self.second = None if h == 1 else self.second
                return reply
            case Model():
                return self.update(message)
            case Models() if self.second is not None:
                for h in range(self.horizon, 0, -1):
                    self.second.take(h, message.w[h - 1])
                self.deployed, self.second = self.second.values, None
                return None
            case Models():
                for h in range(self.horizon, 0, -1):
                    self.renew(h, *message.model(h))
                self.rest()
                return None
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
            self.renew(h, *message.model(h))  # line 2
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
            present = world.present
            if t + n == self.T and len(present):
                # lines 21–23
                return Signal(self.T, self.agents[present], np.zeros_like(present))
            limit -= n
        return Signal.silence()

    def stop(self, t: int) -> Upload | SummedUpload:
        """The round ends at episode t, for every agent of the federation."""
        behind = t - self.experience.t - self.experience.length
        if behind > 0:
            self.experience.explore(behind)
        self.experience.close(t - self.experience.t)
        if self.one_trip is not None and self.together:
            size, added = self.one_trip, self.experience.take_added()
            if added is None:
                zeros, nobody = np.zeros(size.upload_words(1), np.uint64), np.empty(0, np.int64)
                return SummedUpload(1, zeros, size.upload_words(1) - size.cells, nobody)
            following = NextStates.sizes(added.cells, size.cells)
            return SummedUpload(1, added.words, added.alike, following)
        if self.one_trip is not None:
            return every_step(self.experience, self.one_trip)
        return self.upload(self.horizon)

    def upload(self, h: int) -> Upload:
        """Λ_h^loc and the full-history target b_h."""
        gram, b = self.experience.summarise(h)  # line 26
        if self.own is not None:
            gram, b = self.own.leaving(h, gram, b, self.away)
        return Upload(h, gram, b)  # line 27

    def update(self, model: Model) -> Upload | None:
        """Take the step's new model, and go on to the step before it."""
        self.renew(model.h, model.w, model.gram)  # lines 28–29
        if model.h > 1:
            return self.upload(model.h - 1)  # line 25
        self.rest()
        return None

    def rest(self) -> None:
        """The models of all steps are here: the next round begins."""
        self.experience.begin(self.experience.t + self.experience.length)  # lines 3–7

    def state(self) -> dict[str, np.ndarray]:
        """Between rounds: what is remembered, apart from the `history` of its experience."""
        own = {} if self.own is None else self.own.state()
        return self.experience.state() | own

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Continue from `state`, before `Start`."""
        self.experience.restore(state)
        if self.own is not None:
            self.own.restore(state)

    def renew(self, h: int, w: np.ndarray, gram: np.ndarray) -> None:
        """Take a step's model; an empty Λ_h is that of step h + 1."""
        if self.own is not None:
            w, gram = self.own.joined(h, w, gram)
        self.grams[h] = gram if gram.size else self.grams[h + 1]
        self.weights[h] = w[: self.experience.dim]
        self.values.update(h, w, unpack(gram, self.experience.dim, self.packing))


def every_step(experience: Experience, size: Layout) -> Upload:
    """What a round added at all steps, of which nothing is remembered
    (`fedlsvi.protocol.one_trip`)."""
    # where steps share their sums, these go with step H
    steps = range(size.horizon, size.horizon + 1) if size.stationary else range(1, size.horizon + 1)
    parts = [experience.take_increment(h) for h in steps]
    gram = np.stack([part.gram for part in parts], axis=1)
    u = np.stack([part.u for part in parts], axis=1)
    tables, following = parts[: size.tables], []
    for agent in range(len(u)):
        cuts = [slice(*np.searchsorted(part.agents, [agent, agent + 1])) for part in tables]
        cells, entries = [np.empty(0, np.int64)], [np.empty(0)]
        for h, (part, cut) in enumerate(zip(tables, cuts, strict=True)):
            rows, columns = np.divmod(part.places[cut], part.columns)
            cells.append((h * size.responses + rows) * size.states + columns)
            entries.append(part.values[cut])
        following.append(
            NextStates.shorter(np.concatenate(cells), np.concatenate(entries), size.cells)
        )
    return Upload(1, gram, u, tuple(following))
