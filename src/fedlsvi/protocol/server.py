"""Algorithm 1: the central server. Comments give the line of the paper's pseudo-code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedlsvi.core.statistics import (
    Factor,
    factorise,
    identity,
    pack,
    shared,
    unpack,
)
from fedlsvi.core.value import noise_level
from fedlsvi.privacy.sums import FloatSums
from fedlsvi.protocol.messages import Layout, Model, Reply, Request, Signal, Start, Stop

Sums = tuple[np.ndarray, np.ndarray]
"""Σ_m Λ_h^loc, packed (P,), and Σ_m b_h, (d,)."""


class Agents(Protocol):
    """How the server reaches the agents (`protocol.transport`)."""

    def broadcast(self, message: Request) -> Sequence[Reply]:
        """Deliver to every cohort; their replies in the order of agents."""
        ...

    def wait(self, t: int, left: int) -> Signal:
        """Wait until some agent signals in the round that began after episode t."""
        ...


class Aggregation(Protocol):
    """Adds the uploads of one step."""

    def __call__(self, uploads: Sequence[Reply], h: int) -> Sums:
        """Σ_m Λ_h^loc and Σ_m b_h of all uploads of step h."""
        ...


@dataclass(frozen=True)
class Round:
    """What the server knows when a round has ended."""

    k: int
    first: int
    signal: Signal
    logdet: np.ndarray  # (H,) log det Λ_h after the round


class Server:
    """Holds the model {w_h, Λ_h} and the episode counter t; never sees a trajectory."""

    def __init__(
        self,
        layout: Layout,
        lam: float,
        gamma: float,
        beta: float,
        episodes: int,
        aggregation: Aggregation | None = None,
        ceilings: np.ndarray | None = None,
    ) -> None:
        self.sums: Aggregation = aggregation or FloatSums(layout)
        self.layout, self.gamma, self.beta, self.T = layout, gamma, beta, episodes  # line 1
        H, d = layout.horizon, layout.dim
        self.lam = lam
        one = identity(d, lam, layout.packing)
        self.gram = shared(one[None], H) if layout.stationary else np.stack([one] * H)  # line 2
        self.w = np.zeros((H, d))
        # σ̂_h and v_h, where the bonus knows the noise
        self.ceilings = np.empty(0) if ceilings is None else ceilings
        self.noise = 0.5 * self.ceilings
        self.t = 0
        self.k = 0

    def start(self, agents: Agents) -> None:
        """Tell all agents the parameters."""
        agents.broadcast(self.parameters())  # line 3

    def round(self, agents: Agents) -> Round:
        """Wait for a signal, then update backward through the steps; `Session` repeats this while
        t < T (line 4)."""
        H, first = self.layout.horizon, self.t + 1
        signal = agents.wait(self.t, self.T - self.t)  # line 5
        self.t = signal.t
        uploads = agents.broadcast(Stop(self.t))  # line 6
        logdet = np.empty(H)
        for h in range(H, 0, -1):  # line 7
            gram, b = self.sums(uploads, h)  # line 8
            factor = self._grow(h, gram)  # line 9
            self._solve(h, factor, b)  # lines 10–11
            uploads = agents.broadcast(self.model(h))  # line 12
            logdet[h - 1] = factor.logdet
        self.k += 1
        return Round(self.k, first, signal, logdet)

    def parameters(self) -> Start:
        """The first broadcast {w_h, Λ_h, γ, β, T}; after a restart also the episode counter."""
        gram = self._pack(self.gram[: self.layout.matrices])
        w = self.weights
        return Start(w, gram, self.gamma, self.beta, self.T, self.t)

    @property
    def weights(self) -> np.ndarray:
        """w_h of all steps as they travel: with σ̂_h behind them where the bonus knows the noise."""
        return np.column_stack([self.w, self.noise]) if self.noise.size else self.w.copy()

    def model(self, h: int) -> Model:
        """The updated step-h model."""
        gram = self._pack(self.gram[h - 1]) if self.layout.gram_size(h) else np.empty(0)
        w = self.w[h - 1].copy()
        return Model(h, np.append(w, self.noise[h - 1]) if self.noise.size else w, gram)

    def _solve(self, h: int, factor: Factor, b: np.ndarray) -> None:
        """w_h, and σ̂_h from Σy² and n behind b_h."""
        d = self.layout.dim
        w = self.w[h - 1] = factor.solve(b[:d])
        if self.noise.size:
            self.noise[h - 1] = noise_of(factor, w, b, self.lam, float(self.ceilings[h - 1]))

    def _grow(self, h: int, gram: np.ndarray) -> Factor:
        """Λ_h += Σ_m Λ_h^loc, and its factor. Steps that share Λ bring it at h = H, and it is
        factored once."""
        if self.layout.gram_size(h) > 0:
            self.gram[h - 1] += self._unpack(gram)
            self._factor: Factor = factorise(self.gram[h - 1])
        return self._factor

    def _pack(self, gram: np.ndarray) -> np.ndarray:
        """The wire form in a new array: Λ grows in place, a message stays what it was."""
        return pack(gram, self.layout.packing).copy()

    def _unpack(self, gram: np.ndarray) -> np.ndarray:
        return unpack(gram, self.layout.dim, self.layout.packing)


def noise_of(factor: Factor, w: np.ndarray, b: np.ndarray, lam: float, top: float) -> float:
    """σ̂_h of w_h, and of b_h with Σy² and n behind it, (d + 2,)."""
    d = len(w)
    directions = d - factor.unseen(lam)
    return noise_level(float(b[d]), float(w @ b[:d]), float(b[d + 1]), directions, top)
