"""The optimistic model (w_h, Λ_h) turned into values and a greedy policy (eq. 2).

`TabularValues` keeps tables for a finite state space and renews one step's rows when that step's
model arrives; `BlockValues` evaluates blocks of continuous states on demand. Every cohort, the
evaluator and an exported policy use these two classes, so all of them see the same numbers.
"""

from __future__ import annotations

from copy import copy
from typing import cast

import numpy as np

from fedlsvi.core.ridge import DenseFactor, DiagonalFactor, factorise
from fedlsvi.core.value import backup, backup_diagonal, take_rows
from fedlsvi.features.base import FeatureMap
from fedlsvi.features.tabular import OneHot, TableFeatures

ROWS = 1024
"""Feature rows whitened by one matrix product. The shape is always the same, because a product of
another shape may round differently and a run must not depend on how its work is cut."""


class TabularValues:
    """V_h and π_h over all states, with the whitened feature rows of the greedy actions."""

    def __init__(
        self,
        features: TableFeatures | OneHot,
        horizon: int,
        beta: float,
        top: np.ndarray,
        diagonal: bool = False,
        taper: np.ndarray | None = None,
    ) -> None:
        n_states, n_actions, self.dim = features.n_states, features.n_actions, features.dim
        self.beta, self.ceilings = beta, top
        self.taper = np.ones(horizon) if taper is None else taper
        # empty arrays tell the compiled loops that features are one-hot
        empty = np.empty((0, 0, 0))
        self.phi = empty if diagonal else np.ascontiguousarray(features.table)
        self.index = features.index if diagonal else np.empty((0, 0), np.int64)
        self.values = np.zeros((horizon + 1, n_states))
        self.policy = np.zeros((horizon, n_states), np.int32)
        self.rows = np.zeros((horizon, n_states, 0 if diagonal else self.dim))
        self.norms = np.zeros((horizon, n_states))
        self.slots = np.zeros((horizon, n_states), np.int64)
        self._states = np.arange(n_states)
        self._whitened = np.empty((0 if diagonal else n_states * n_actions, self.dim))
        # of the step updated last: steps below it may share them
        self._gram, self._factor = np.empty(0), cast("DenseFactor | DiagonalFactor", None)

    @property
    def betas(self) -> np.ndarray:
        """β_h of every step, (H,)."""
        found: np.ndarray = self.beta * self.taper
        return found

    @property
    def marks(self) -> tuple[np.ndarray, ...]:
        """What the trigger needs of the greedy actions: whitened rows y, ‖y‖² and, for one-hot
        features, the coordinate that is 1."""
        return self.rows, self.norms, self.slots

    def update(self, h: int, w: np.ndarray, gram: np.ndarray) -> None:
        """Rebuild Q_h, V_h and π_h from the step's model; a 1-d gram is a diagonal one, and an
        empty one is that of the step before this one in time, h + 1."""
        fresh = gram.size > 0
        if fresh:
            self._gram, self._factor = gram, factorise(gram)
        gram, factor = self._gram, self._factor
        values, greedy = self.values[h - 1], self.policy[h - 1]
        beta, top = self.betas[h - 1], self.ceilings[h - 1]
        if isinstance(factor, DiagonalFactor):
            backup_diagonal(self.index, w, gram, beta, top, values, greedy)
            self.slots[h - 1] = self.index[self._states, greedy]
            self.norms[h - 1] = 1.0 / gram[self.slots[h - 1]]
        else:
            n_states, n_actions, dim = self.phi.shape
            if fresh:
                factor.whiten(self.phi.reshape(-1, dim), out=self._whitened)
            whitened = self._whitened.reshape(n_states, n_actions, dim)
            target = w @ factor.lower
            backup(whitened, target, beta, top, values, greedy, self.norms[h - 1])
            take_rows(whitened, greedy, self.rows[h - 1])

    def another(self, beta: float) -> TabularValues:
        """Tables of its own, to be filled with another β, the same at every step."""
        made = copy(self)
        made.beta, made.taper = beta, np.ones_like(self.taper)
        for name in ("values", "policy", "rows", "norms", "slots", "_whitened"):
            setattr(made, name, getattr(self, name).copy())
        return made

    def act(self, h: int, states: np.ndarray) -> np.ndarray:
        """π_h at a batch of states."""
        actions: np.ndarray = self.policy[h - 1, states]
        return actions


class BlockValues:
    """V_h and π_h at any batch of continuous states, evaluated ROWS feature rows at a time."""

    def __init__(
        self,
        features: FeatureMap,
        horizon: int,
        beta: float,
        top: np.ndarray,
        rows: int = ROWS,
        taper: np.ndarray | None = None,
    ) -> None:
        self.features, self.beta, self.ceilings, self.rows = features, beta, top, rows
        self.taper = np.ones(horizon) if taper is None else taper
        self.size = max(1, rows // features.n_actions)
        self.factors: list[DenseFactor | None] = [None] * horizon
        self.targets: list[np.ndarray] = [np.zeros(features.dim)] * horizon
        self.weights: list[np.ndarray] = [np.zeros(features.dim)] * horizon

    @property
    def betas(self) -> np.ndarray:
        """β_h of every step, (H,)."""
        found: np.ndarray = self.beta * self.taper
        return found

    def update(self, h: int, w: np.ndarray, gram: np.ndarray) -> None:
        """Take the step's model; its factor serves every later block. An empty gram is that of
        step h + 1."""
        factor = factorise(gram) if gram.size else self.factors[h]
        assert isinstance(factor, DenseFactor)  # features of continuous states are never one-hot
        self.factors[h - 1], self.targets[h - 1] = factor, w @ factor.lower
        self.weights[h - 1] = w

    def frozen(self) -> BlockValues:
        """The model as it is now; factors are replaced by `update`, never changed in place."""
        size = (len(self.factors), self.beta, self.ceilings, self.rows, self.taper)
        copy = BlockValues(self.features, *size)
        copy.factors, copy.targets = list(self.factors), list(self.targets)
        return copy

    def another(self, beta: float) -> BlockValues:
        """A model of its own, with the same factors and another β, the same at every step."""
        made = self.frozen()
        made.beta, made.taper = beta, np.ones_like(self.taper)
        return made

    def scratch(self) -> tuple[np.ndarray, ...]:
        """Buffers for `block`: one set per thread."""
        shape = (self.size, self.features.n_actions, self.features.dim)
        return np.zeros(shape), np.empty(shape), np.empty(self.size)

    def block(
        self,
        h: int,
        states: np.ndarray,
        scratch: tuple[np.ndarray, ...],
        values: np.ndarray,
        greedy: np.ndarray,
    ) -> np.ndarray:
        """Fill values and greedy for up to `size` states; returns the whitened rows (n, A, d)."""
        phi, whitened, norms = scratch
        factor = self.factors[h - 1]
        assert factor is not None
        n = len(states)
        self.features.fill(states, phi[:n])
        dim = phi.shape[2]
        factor.whiten(phi.reshape(-1, dim), out=whitened.reshape(-1, dim))
        beta, top = self.betas[h - 1], self.ceilings[h - 1]
        backup(whitened[:n], self.targets[h - 1], beta, top, values[:n], greedy[:n], norms)
        return whitened[:n]

    def act(self, h: int, states: np.ndarray) -> np.ndarray:
        """π_h at a batch of states, with the very numbers the agents see."""
        greedy, values = np.empty(len(states), np.int32), np.empty(len(states))
        scratch = self.scratch()
        for at in range(0, len(states), self.size):
            cut = slice(at, at + self.size)
            self.block(h, states[cut], scratch, values[cut], greedy[cut])
        return greedy

    def act_quickly(self, h: int, states: np.ndarray) -> np.ndarray:
        """`act` without padding to whole blocks: the last bit of a score may differ."""
        factor = self.factors[h - 1]
        assert factor is not None
        phi = np.empty((len(states), self.features.n_actions, self.features.dim))
        self.features.fill(states, phi)
        whitened = factor.whiten(phi.reshape(-1, self.features.dim)).reshape(phi.shape)
        greedy, values = np.empty(len(states), np.int32), np.empty(len(states))
        beta, top, norms = self.betas[h - 1], self.ceilings[h - 1], np.empty(len(states))
        backup(whitened, self.targets[h - 1], beta, top, values, greedy, norms)
        return greedy
