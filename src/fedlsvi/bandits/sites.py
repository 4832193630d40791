"""The sites of a bandit: Algorithm 2 where an episode is one decision, and its user plays.

At H = 1 no value enters a target, so a site keeps sums and no history: of what it has seen since it
last synchronised, Λ^loc = Σφφᵀ, Σφr and Δt. It answers the messages that an agent of Fed-LSVI
answers (`protocol.agent`), and its `Upload` holds the increments of both sums.

A site decides with the common model, as FedLinUCB does, or with its own unsent data too, as
DisLinUCB does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit

from fedlsvi.core.statistics import DenseFactor, factorise, packed_size, read_only, unpack
from fedlsvi.core.trigger import Rule, fires, settled
from fedlsvi.core.value import upper
from fedlsvi.errors import TransportError
from fedlsvi.protocol.messages import Model, Reply, Request, Start, Stop, Upload


class Ridge(NamedTuple):
    """A model to decide with: Λ = LLᵀ and w."""

    factor: DenseFactor
    w: np.ndarray

    def norms2(self, phi: np.ndarray) -> np.ndarray:
        """‖φ‖²_{Λ⁻¹} of feature rows (n, d)."""
        y = self.factor.whiten(phi)
        norms2: np.ndarray = np.einsum("ni,ni->n", y, y)
        return norms2

    def scores(self, phi: np.ndarray, alpha: float) -> np.ndarray:
        """φᵀw + α‖φ‖_{Λ⁻¹} of feature rows (n, d)."""
        means: np.ndarray = phi @ self.w
        if alpha != 0.0:
            means = upper.py_func(means, self.norms2(phi), alpha)
        return means


class SideBySide:
    """Models of all arms in one matrix, so that scores take one product and not one for each arm.

    Args:
        dim: d.
        arms: K.
    """

    def __init__(self, dim: int, arms: int) -> None:
        self._models: list[Ridge | None] = [None] * arms
        self._w = np.empty((dim, arms))
        self._inverses = np.empty((dim, arms, dim))

    def __len__(self) -> int:
        return len(self._models)

    def take(self, models: Sequence[Ridge]) -> None:
        """The models (K,) in force; those that are new are copied."""
        for a, model in enumerate(models):
            if model is not self._models[a]:
                self._models[a], self._w[:, a] = model, model.w
                self._inverses[:, a] = model.factor.inverse.T

    def scores(self, phi: np.ndarray, alpha: float) -> np.ndarray:
        """(n, K) φᵀw + α‖φ‖_{Λ⁻¹} of feature rows (n, d)."""
        means: np.ndarray = phi @ self._w
        if alpha == 0.0:
            return means
        dim, arms = self._w.shape
        norms2 = np.empty_like(means)
        for first in range(0, len(phi), ROWS):
            y = phi[first : first + ROWS] @ self._inverses.reshape(dim, -1)
            y = y.reshape(-1, arms, dim)
            np.einsum("nki,nki->nk", y, y, out=norms2[first : first + ROWS])
        scores: np.ndarray = upper.py_func(means, norms2, alpha)
        return scores


ROWS = 128
"""Rows for which y is formed at once: it should stay in the cache."""


class Sites:
    """Sites `agents[0]`, `agents[1]`, … that share one copy of the common model.

    Args:
        agents: Their numbers.
        dim: d.

    Attributes:
        length: (m,) Δt, rewards since the last synchronisation.
    """

    block = 1
    since = None
    """Sites of a bandit are always there."""

    def __init__(self, agents: np.ndarray, dim: int) -> None:
        self.agents, self.dim = agents, dim
        self._begin()

    def _begin(self) -> None:
        """Nothing has been seen since the last synchronisation."""
        m = len(self.agents)
        self._gram = np.zeros((m, packed_size(self.dim, "packed")))
        self._b = np.zeros((m, self.dim))
        self.length = np.zeros(m, np.int64)
        self._low, self._high = np.zeros(m), np.zeros(m)  # Σu_j and Σlog(1 + u_j), u = ‖φ‖²_{Λ⁻¹}
        self._own: dict[int, Ridge] = {}

    def receive(self, message: Request) -> Reply:
        """Answer one message of the server."""
        match message:
            case Start():
                self._take(*message.model(1))
            case Model(w=w, gram=gram):
                self._take(w, gram)
            case Stop():
                upload = Upload(1, self._gram, self._b)
                self._begin()
                return upload
            case _:
                raise TransportError(
                    f"a site of a bandit cannot answer a {type(message).__name__}",
                    code="unknown-message",
                )
        return None

    def _take(self, w: np.ndarray, gram: np.ndarray) -> None:
        """The common model."""
        self.gram = unpack(gram, self.dim, "packed")
        factor = factorise(self.gram)
        assert isinstance(factor, DenseFactor)
        self.model = Ridge(factor, w)
        self._own.clear()
        # of rows that were not sent yet u is smaller under a larger Λ: the upper bound stays one
        self._low[:] = 0.0

    def observe(self, phi: np.ndarray, rewards: np.ndarray, at: np.ndarray) -> None:
        """Add rows (n, d) and their rewards (n,), in this order, to the sums of the sites in
        positions `at`."""
        sums = (self._gram, self._b, self.length, self._low, self._high)
        norms2 = self.model.norms2(phi)
        add_rewards(*map(read_only, (phi, rewards, at, norms2)), *sums)
        if self._own:
            for m in set(at.tolist()):
                self._own.pop(m, None)

    def firing(self, rule: Rule) -> np.ndarray:
        """Numbers of the sites whose trigger fires."""
        fired = np.zeros(len(self.agents), np.int64)
        settle(self.length, self._low, self._high, rule, fired)
        for m in np.flatnonzero(fired == 0).tolist():  # the determinant decides
            ratio = self.known(m).factor.logdet - self.model.factor.logdet
            fired[m] = fires_at(self.length[m], ratio, rule)
        return self.agents[fired > 0]

    def known(self, m: int) -> Ridge:
        """The model of everything that the site in position m has seen or was sent."""
        if self.length[m] == 0:
            return self.model
        if m not in self._own:
            factor = factorise(self.gram + unpack(self._gram[m], self.dim, "packed"))
            assert isinstance(factor, DenseFactor)
            self._own[m] = Ridge(factor, factor.solve(self.gram @ self.model.w + self._b[m]))
        return self._own[m]


@njit(cache=True, nogil=True)
def settle(length, low, high, rule, fired):  # type: ignore[no-untyped-def]
    """fired[m] = 1: fires for sure, −1: cannot fire, 0: the determinant decides."""
    for m in range(length.size):
        fired[m] = -1
        if length[m] > 0:
            fired[m] = settled(length[m], np.log1p(low[m]), high[m], rule)


@njit(cache=True, nogil=True)
def fires_at(length, log_ratio, rule):  # type: ignore[no-untyped-def]
    """`core.trigger.fires`, compiled once."""
    return fires(length, log_ratio, rule)


@njit(cache=True, nogil=True)
def add_rewards(phi, rewards, at, norms2, gram, b, length, low, high):  # type: ignore[no-untyped-def]
    """Row after row: gram[m] += φφᵀ, packed, b[m] += φr, and what brackets the determinant."""
    n, dim = phi.shape
    for j in range(n):
        m, k = at[j], 0
        for row in range(dim):
            x = phi[j, row]
            for column in range(row, dim):
                gram[m, k] += x * phi[j, column]
                k += 1
            b[m, row] += x * rewards[j]
        length[m] += 1
        low[m] += norms2[j]
        high[m] += np.log1p(norms2[j])
