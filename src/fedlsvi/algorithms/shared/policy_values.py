"""Values of a policy under models of K draws at once, and the weighted sums that make the models.

Draw k counts episode e W_ek times, so that at every step

    Λ_k = λI + Σ W_ek φφᵀ,   b_k = Σ W_ek φ(r + V_k(x')),   w_k = Λ_k⁻¹ b_k,

over the same rows and features for all k: those are looked up once, and the products with them are
of matrices. A message of the protocol is about one draw, K = 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from fedlsvi.algorithms.shared.policy_log import EVENLY, PolicyLog, StepRows
from fedlsvi.core.heads import Head
from fedlsvi.core.statistics import DenseFactor, DiagonalFactor, Packing, factorise
from fedlsvi.experience.values import Headed

ENTRIES = 1 << 19
"""Numbers of a block, rows × draws, or rows × dimension where that is more."""

Grams = np.ndarray | list[DenseFactor]
"""Λ of K draws: diagonals (d, K), or factors."""


class PolicyValues(Headed):
    """V_h of the policy under the models that were taken last.

    Args:
        features: The bound feature map.
        head: What turns a model into values; V is Q of the policy's action.
    """

    def __init__(self, features: Any, head: Head) -> None:
        super().__init__(head)
        self.features = features

    def update(self, h: int, w: np.ndarray, gram: np.ndarray) -> None:
        """Take the model of the server's step h, whose first is before the episode."""
        factor = factorise(gram)
        diagonal = isinstance(factor, DiagonalFactor)
        self.take(h - 1, w[:, None], gram[:, None] if diagonal else [factor])  # type: ignore[list-item]

    def take(self, h: int, w: np.ndarray, grams: Grams) -> None:
        """Take the models of step h: w (d, K), and Λ of each draw. Step h + 1 is forgotten."""
        self._h, self._w, self._grams = h, w, grams
        if h and isinstance(grams, np.ndarray):
            self._table = self.head.read(h, w, 1.0 / grams)

    def at(self, h: int, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """V_h (n, K) at these states, where the policy takes these actions, or all evenly."""
        assert h == self._h
        if len(actions) and actions[0] == EVENLY:
            each = [self.at(h, states, np.full(len(states), a))
                    for a in range(self.features.n_actions)]  # fmt: skip
            mean: np.ndarray = np.mean(each, axis=0)
            return mean
        if isinstance(self._grams, np.ndarray):
            values: np.ndarray = self._table[self.features.index[states, actions]]
            return values
        found = np.empty((len(states), self._w.shape[1]))
        for cut in blocks(len(states), max(self._w.shape)):
            phi = self.features.chosen(states[cut], actions[cut])
            norms2: Any = 0.0
            if self.head.needs_width:
                lengths = [(factor.whiten(phi) ** 2).sum(axis=1) for factor in self._grams]
                norms2 = np.stack(lengths, axis=1)
            found[cut] = self.head.read(h, phi @ self._w, norms2)
        return found


def blocks(rows: int, width: int) -> Iterator[slice]:
    """Cuts of so many rows, each so wide."""
    size = max(1, ENTRIES // width)
    return (slice(at, at + size) for at in range(0, rows, size))


class Sums(NamedTuple):
    """Of some logs at one step, for K draws."""

    gram: np.ndarray
    """(K, d, d), or (d, K) where features are one-hot."""
    responses: list[np.ndarray]
    """b (d, K) under each of the values that were asked for."""

    @classmethod
    def empty(cls, draws: int, dim: int, packing: Packing, many: int) -> Sums:
        """Sums of nothing, under so many values."""
        size = (dim, draws) if packing == "diagonal" else (draws, dim, dim)
        return cls(np.zeros(size), [np.zeros((dim, draws)) for _ in range(many)])

    def add(self, log: PolicyLog, h: int, after: float, values: Sequence[PolicyValues]) -> None:
        """Add those of a log's step h.

        Args:
            log: The log, with its weights.
            h: The step, from 1.
            after: V_{h+1} behind the end of an episode.
            values: V_{h+1} under all models; they differ in what is not seen, and share Λ.
        """
        rows, features, dense = log.steps[h - 1], values[0].features, self.gram.ndim == 3
        if rows is None:
            return
        dim, draws = self.responses[0].shape
        for cut in blocks(len(rows.action), max(draws, dim if dense else 1)):
            some = rows.cut(cut)
            weights = log.weights[some.episode]
            weighted = [weights * targets(some, h, after, own) for own in values]
            if dense:
                phi = features.chosen(some.state, some.action)
                for gram, weight in zip(self.gram, weights.T, strict=True):
                    gram += (phi.T * weight) @ phi
                for b, target in zip(self.responses, weighted, strict=True):
                    b += phi.T @ target
                continue
            places, where = np.unique(features.index[some.state, some.action], return_inverse=True)
            n = len(where)
            spread = csr_array((np.ones(n), (where, np.arange(n))), shape=(len(places), n))
            self.gram[places] += spread @ weights
            for b, target in zip(self.responses, weighted, strict=True):
                b[places] += spread @ target

    def models(self, lam: float) -> tuple[list[np.ndarray], Grams]:
        """w (d, K) = (λI + Λ)⁻¹b under each of the values, and λI + Λ of each draw."""
        if self.gram.ndim == 2:
            entries = self.gram + lam
            return [b / entries for b in self.responses], entries
        ridge = lam * np.eye(self.gram.shape[1])
        factors = [factorise(gram + ridge) for gram in self.gram]
        weights = [
            np.stack([factor.solve(own) for factor, own in zip(factors, b.T, strict=True)], axis=1)
            for b in self.responses
        ]
        return weights, factors  # type: ignore[return-value]


def targets(rows: StepRows, h: int, after: float, values: PolicyValues) -> np.ndarray:
    """r + V_{h+1}(x'), (n, K), or (n, 1) where nothing follows."""
    found: np.ndarray = (rows.reward + np.where(rows.on, 0.0, after))[:, None]
    if rows.on.any():
        ahead = values.at(h + 1, rows.following[rows.on], rows.ahead[rows.on])
        found = np.repeat(found, ahead.shape[1], axis=1)
        found[rows.on] += ahead
    return found
