"""A guard in the second round of a run made by hand, and what its honest agents would send."""

from __future__ import annotations

import hashlib
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from fedlsvi.core.statistics import identity, pack, read_only
from fedlsvi.core.trigger import Trigger
from fedlsvi.protocol.messages import Layout, Model, Signal, Start, Stop, Upload
from fedlsvi.remote.bounds import Bounds
from fedlsvi.remote.contribution import Contribution, contributions
from fedlsvi.remote.guard import Guard, Refusal

H, D, M, T, LAM, GAMMA, PAST = 3, 5, 4, 100, 2.0, 60.0, 6
"""PAST: episodes of round 1."""

Y_MAX = (3.0, 2.0, 1.0)
"""1 + the ceiling of the next step, with ceilings (3, 2, 1)."""

FIRST, AGENTS = 1, 3
"""The cohort that uploads: agents 1 to 3."""

BAD = 2
"""The agent whose row is changed: the second of the cohort."""

EVERY = range(1, H + 1)
PACKINGS = ("packed", "dense", "diagonal")


@dataclass(frozen=True)
class Scene:
    """Round 2 after `Stop`: n episodes of it, n + PAST in all, model λI + the Grams of round 1."""

    packing: Any
    n: int
    phi: np.ndarray  # (M, PAST + n, d), the features of each agent, the same at all steps
    guard: Guard

    @property
    def t(self) -> int:
        return PAST + self.n

    def gram(self, rows: np.ndarray) -> np.ndarray:
        """Σφφᵀ of one agent: (d, d), or (d,) where features are one-hot."""
        return (rows**2).sum(axis=0) if self.packing == "diagonal" else rows.T @ rows

    def before(self, agent: int) -> np.ndarray:
        """G of round 1."""
        return self.gram(self.phi[agent, :PAST])

    def loc(self, agent: int) -> np.ndarray:
        """Λ^loc of round 2."""
        return self.gram(self.phi[agent, PAST:])

    def total(self, agent: int) -> np.ndarray:
        """Σφ of both rounds."""
        return self.phi[agent].sum(axis=0)

    def fresh(self, agent: int) -> np.ndarray:
        """Σφ of round 2."""
        return self.phi[agent, PAST:].sum(axis=0)

    @property
    def model(self) -> np.ndarray:
        """Λ of the round: of its trigger."""
        start = identity(D, LAM, self.packing)
        return start + sum(self.before(agent) for agent in range(M))

    def rows(self, h: int, share: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
        """(Λ^loc, b) of the cohort: every target at this share of y_max, but at h = H those of
        round 1 as they were."""
        agents = range(FIRST, FIRST + AGENTS)
        gram = np.stack([pack(self.loc(agent), self.packing) for agent in agents])
        b = np.stack([share * Y_MAX[h - 1] * self.total(agent) for agent in agents])
        if h == H:
            b = np.stack([self.guard.last[0, a] + share * self.fresh(a) for a in agents])
        return gram, b

    def honest(self, h: int, share: float = 0.5) -> Contribution:
        """What the cohort sends."""
        return part(h, *self.rows(h, share))

    def b(self, h: int) -> np.ndarray:
        """The honest response of agent BAD."""
        return self.rows(h)[1][BAD - FIRST]

    def changed(self, h: int, loc: np.ndarray, response: np.ndarray) -> Contribution:
        """Honest but for agent BAD."""
        gram, b = self.rows(h)
        gram[BAD - FIRST], b[BAD - FIRST] = pack(loc, self.packing), response
        return part(h, gram, b)

    def log_ratios(self) -> np.ndarray:
        """(M,) log det(Λ + Λ^loc)/det Λ."""
        return np.array([_logdet(self.model + self.loc(a)) - _logdet(self.model) for a in range(M)])

    def knowing(self, **changes: Any) -> Guard:
        """The same guard with other bounds; `gamma` is that of the trigger."""
        other = copy(self.guard)
        if "gamma" in changes:
            changes["trigger"] = replace(self.guard.bounds.trigger, gamma=changes.pop("gamma"))
        other.bounds = replace(self.guard.bounds, **changes)
        return other


def part(h: int, gram: np.ndarray, b: np.ndarray) -> Contribution:
    """One step, as messages hold it."""
    return Contribution(h, read_only(gram), read_only(b))


def judge(guard: Guard, first: int, reply: Upload) -> None:
    """As a transport does with what came from agents `first` and on."""
    for one in contributions(reply, guard.layout):
        guard.check(first, one)


def _logdet(gram: np.ndarray) -> float:
    square = np.diag(gram) if gram.ndim == 1 else gram
    return float(np.linalg.slogdet(square)[1])


def features(packing: str, n: int) -> np.ndarray:
    """(M, PAST + n, d) on the simplex; round 1 of each agent begins with every unit vector, so that
    its Gram matrix is at least I."""
    rng = np.random.default_rng([D, n])
    phi = rng.dirichlet(np.full(D, 0.7), size=(M, PAST + n))
    if packing == "diagonal":
        phi = np.eye(D)[phi.argmax(axis=2)]
    phi[:, :D] = np.eye(D)
    return phi


@lru_cache
def scene(
    packing: str, n: int = 7, rewards: float = 0.5, summed: bool = False, trip: bool = False
) -> Scene:
    """The flow of messages of round 1, then `Stop` of round 2.

    Args:
        packing: Of Gram matrices.
        n: Episodes of round 2.
        rewards: All those of round 1 that b_H, or u_h of one trip, sums up.
        summed: Whether only sums over all agents arrive.
        trip: Whether all steps come at once, each with u_h.
    """
    bounds = Bounds(
        Trigger(GAMMA, T), T, np.array(Y_MAX), nonnegative=True, simplex=True,
        summed=M if summed else 1, trip=trip,
    )  # fmt: skip
    guard = Guard(Layout(M, H, D, packing), bounds)  # type: ignore[arg-type]
    made = Scene(packing, n, features(packing, n), guard)
    start = pack(identity(D, LAM, made.packing), made.packing)
    guard.sends(Start(np.zeros((H, D)), np.stack([start] * H), GAMMA, 1.0, T))
    guard.sends(Stop(PAST))
    past = np.stack([pack(made.before(agent), made.packing) for agent in range(M)])
    b = rewards * made.phi[:, :PAST].sum(axis=1)
    if summed:
        past, b = past.sum(axis=0, keepdims=True), b.sum(axis=0, keepdims=True)
    for h in range(H, 0, -1):
        guard.check(0, part(h, past, b))
        guard.accept(0, part(h, past, b))
        guard.sends(Model(h, np.zeros(D), pack(made.model, made.packing)))
    guard.sends(Stop(PAST + n))
    assert (guard.t, guard.length, guard.round) == (PAST, n, 2)
    return made


def named(guard: Guard, agent: int, h: int) -> Guard:
    """The guard after this agent alone has signalled at this step."""
    other = copy(guard)
    other.stops(Signal(guard.t + guard.length, np.array([agent]), np.array([h])))
    return other


def state(guard: Guard) -> str:
    """A hash of all that the guard remembers."""
    arrays = b"".join(a.tobytes() for a in (guard.gram, guard.last, guard._model))
    plain = (guard.t, guard.round, guard.length, guard._named, guard._requested, guard.bounds)
    return hashlib.sha256(arrays + repr(plain).encode()).hexdigest()


def refusal_of(guard: Guard, sent: Contribution, field: str, bound: str) -> Refusal:
    """The refusal of what was sent: by this check, for this agent, and without a trace."""
    before = state(guard)
    with pytest.raises(Refusal) as caught:
        guard.check(FIRST, sent)
    refusal = caught.value
    assert (refusal.field, refusal.bound) == (field, bound)
    assert (refusal.agent, refusal.round, refusal.step) == (BAD, 2, sent.h)
    assert state(guard) == before
    return refusal


def passes(guard: Guard, sent: Contribution) -> None:
    before = state(guard)
    guard.check(FIRST, sent)
    assert state(guard) == before
