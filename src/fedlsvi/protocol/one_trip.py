"""One trip per synchronisation, where states are finite (`exchange="one-trip"`).

Step by step, agents answer H requests one after another, because b_h needs V_{h+1} of the new
model. But b_h = u_h + N_h V_{h+1} with u_h = Σφr and N_h = Σφ e_{x'}ᵀ, which no model enters. So
agents send what a round added to Λ_h, u_h and N_h of all steps at once and keep no history; the
server adds them up and carries out lines 7–12 of Algorithm 1 alone; the models of all steps go out
together. The rounds and models are those of the paper up to rounding.

`Server` does not know: `OneTrip` stands between it and the transport and answers for the agents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from fedlsvi.config import Parameters
from fedlsvi.core import fixed_point
from fedlsvi.core.statistics import unpack
from fedlsvi.experience.finite_kernels import respond
from fedlsvi.experience.values import TabularValues
from fedlsvi.protocol.agent import Cohort
from fedlsvi.protocol.aggregation import FixedPointSums
from fedlsvi.protocol.messages import (
    Increments,
    Layout,
    MaskedUpload,
    Model,
    Models,
    NextStates,
    Reply,
    Request,
    Signal,
    Stop,
    Upload,
    gram_of,
)

Cells = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Entries of N_h that are not zero: agent, place in (d, S), value; agents in order."""


class Takes(Protocol):
    """What experience on finite states can do."""

    def take_increments(self, h: int) -> tuple[np.ndarray, np.ndarray, Cells]:
        """What the round just closed adds to Λ_h (m, P), u_h (m, d) and N_h; it is not kept."""
        ...


class OneTripCohort(Cohort):
    """Agents that answer the end of a round with all steps at once."""

    stationary = False
    """Whether steps share their sums."""

    def receive(self, message: Request, until: Callable[[int], int] | None = None) -> Reply:
        """Answer one message of the server."""
        if isinstance(message, Models):
            self.renew(message)
            return None
        return super().receive(message, until)

    def stop(self, t: int) -> Increments:  # type: ignore[override]
        """The round ends at episode t; what it added leaves, and nothing of it is remembered."""
        behind = t - self.experience.t - self.experience.length
        if behind > 0:
            self.experience.explore(behind)
        self.experience.close(t - self.experience.t)
        world: Any = self.experience
        steps = range(1, self.horizon + 1)
        if self.stationary:  # where they share their sums, these go with step H
            steps = range(self.horizon, self.horizon + 1)
        values: Any = self.values
        taken = [world.take_increments(h) for h in steps]
        width = self.experience.dim * values.values.shape[1]
        return increments(taken, width, 1 if self.stationary else self.horizon - 1)

    def renew(self, models: Models) -> None:
        """Take the models of all steps, and begin the next round."""
        for h in range(self.horizon, 0, -1):
            self._renew(h, models.w[h - 1], gram_of(models.gram, h, self.horizon))
        self.experience.begin(self.experience.t + self.experience.length)


def increments(
    steps: Sequence[tuple[np.ndarray, np.ndarray, Cells]], width: int, tables: int
) -> Increments:
    """The message of a cohort from what each step adds; width is d·S, and N_H is not needed."""
    gram = np.stack([gram for gram, _, _ in steps], axis=1)
    u = np.stack([u for _, u, _ in steps], axis=1)
    before = steps[:tables]
    following = []
    for agent in range(len(u)):
        cuts = [np.searchsorted(owner, [agent, agent + 1]) for _, _, (owner, _, _) in before]
        cells = [
            h * width + cell[lo:hi]
            for h, ((_, _, (_, cell, _)), (lo, hi)) in enumerate(zip(before, cuts, strict=True))
        ]
        values = [
            value[lo:hi] for (_, _, (_, _, value)), (lo, hi) in zip(before, cuts, strict=True)
        ]
        following.append(next_states(cells, values, width * len(before)))
    return Increments(gram, u, tuple(following))


def next_states(cells: Sequence[np.ndarray], values: Sequence[np.ndarray], size: int) -> NextStates:
    """What one agent adds to N, in the shorter of two forms; places are ascending."""
    places = np.concatenate([np.empty(0, np.int64), *cells])
    entries = np.concatenate([np.empty(0), *values])
    if 2 * places.size < size:
        return NextStates(places, entries)
    whole = np.zeros(size)
    whole[places] = entries
    return NextStates(np.empty(0, np.int64), whole)


class TripSums:
    """Adds the increments of all agents: doubles agent after agent, or integers."""

    def __init__(self, layout: Layout, p: Parameters) -> None:
        self.layout, self.fixed = layout, p.aggregation != "float"
        self._words = FixedPointSums(layout, p.scale_bits)

    def __call__(self, replies: Sequence[Reply]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Σ_m of Λ (H, P), u (H, d) and N (H−1, d, S) of one round; (1, …) where steps share."""
        size = self.layout
        if self.fixed:
            words = np.zeros(size.upload_words(1), np.uint64)
            for reply in replies:
                if isinstance(reply, MaskedUpload):
                    words += reply.words
                elif isinstance(reply, Increments):
                    words += self._words.words(reply)
            total = fixed_point.decode(words, self._words.bits)
        else:
            total = np.zeros(size.upload_words(1))
            for reply in replies:
                if isinstance(reply, Increments):
                    _add(total, reply)
        G, d = size.matrices, size.dim
        end = size.upload_words(1) - size.cells
        gram, u, rest = np.split(total, [end - G * d, end])
        return gram.reshape(G, -1), u.reshape(G, d), rest.reshape(size.tables, d, size.states)


def _add(total: np.ndarray, reply: Increments) -> None:
    """total += every agent's increments, agent after agent."""
    for gram, u, following in zip(reply.gram, reply.u, reply.following, strict=True):
        at = gram.size + u.size
        total[: gram.size] += gram.ravel()
        total[gram.size : at] += u.ravel()
        total[at:][following.places] += following.values


class Transported(Protocol):
    """The transport below."""

    def broadcast(self, message: Request) -> Sequence[Reply]: ...
    def wait(self, t: int, left: int) -> Signal: ...


class OneTrip:
    """The agents as Algorithm 1 sees them: asked once, they answer step by step.

    Args:
        transport: The way to the agents.
        values: Turns the model of a step into V_h; this object's own.
        layout: The sizes.
        parameters: The numbers in force.

    Attributes:
        u: (H, d), Σφr of all agents and rounds; (1, d) where steps share it.
        following: (H−1, d, S), N of all agents and rounds; (1, d, S).
    """

    def __init__(
        self, transport: Transported, values: TabularValues, layout: Layout, parameters: Parameters
    ) -> None:
        self.transport, self.values, self.layout = transport, values, layout
        self._sum = TripSums(layout, parameters)
        H, d = layout.horizon, layout.dim
        self.u = np.zeros((layout.matrices, d))
        self.following = np.zeros((layout.tables, d, layout.states))
        self._w = np.zeros((H, d))

    def wait(self, t: int, left: int) -> Signal:
        """The first signal of the round that began after episode t."""
        return self.transport.wait(t, left)

    def broadcast(self, message: Request) -> Sequence[Reply]:
        """Deliver what agents must hear, and answer the rest from their sums."""
        match message:
            case Stop():
                self._gram, u, following = self._sum(self.transport.broadcast(message))
                self.u += u
                self.following += following
                self._models = np.empty_like(self._gram)
                return [self._upload(self.layout.horizon)]
            case Model(h=h, w=w, gram=gram):
                self._w[h - 1] = w
                gram_of(self._models, h, self.layout.horizon)[:] = gram
                if h > 1:
                    whole = unpack(gram, self.layout.dim, self.layout.packing)
                    self.values.update(h, w, whole)
                    return [self._upload(h - 1)]
                return self.transport.broadcast(Models(self._w.copy(), self._models.copy()))
        return self.transport.broadcast(message)

    def _upload(self, h: int) -> Upload:
        """Σ_m Λ_h^loc, and Σ_m b_h = u_h + N_h V_{h+1} over the whole history."""
        at, H = min(h, len(self.u)) - 1, self.layout.horizon
        b = self.u[at].copy()
        if h < H:
            respond(self.values.values[h], self.u[at], self.following[at], b)
        return Upload(h, gram_of(self._gram, h, H)[None].copy(), b[None])

    def state(self) -> dict[str, np.ndarray]:
        """What a checkpoint must hold."""
        return {"one_trip.u": self.u, "one_trip.following": self.following}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Continue from `state`."""
        self.u[:], self.following[:] = arrays["one_trip.u"], arrays["one_trip.following"]
