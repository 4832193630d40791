"""Experience in a finite state space where no step differs from another: one sum for all of them.

Neither P nor r depends on h, so a transition seen at any step is a sample for every step:

    Λ = λI + Σ_h Σ φφᵀ,   b_h = Σ_{h'} Σ φ(r + V_{h+1}(x')) = u + N V_{h+1}

with u and N summed over steps once. Λ^loc goes with the upload of step H, and the trigger looks at
one determinant.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedlsvi.core.statistics import Packing, shared, unpack
from fedlsvi.experience import finite_kernels
from fedlsvi.experience.finite import FiniteExperience
from fedlsvi.experience.finite_sparse import SparseExperience
from fedlsvi.experience.stepped_finite import GymFiniteExperience, TransitionCounts
from fedlsvi.experience.trigger_search import CountTrigger


class StationaryFiniteExperience(FiniteExperience):
    """`FiniteExperience` with u (1, m, d), N (1, m, d, S) and Λ^loc (m, P) of all steps."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.horizon = len(self._first)
        self._trigger = CountTrigger(len(self.agents), 1, self.workers)

    def _empty_earned(self, horizon: int) -> np.ndarray:
        return super()._empty_earned(1)

    def _empty_response(self, horizon: int, n_states: int) -> np.ndarray:
        return np.zeros((1, len(self.agents), self.dim, n_states))

    def close(self, length: int) -> None:
        """End the round after `length` episodes, and fold it into the sums."""
        self._cut(length)
        m, H = len(self.agents), self.horizon
        few = length <= finite_kernels.FEW
        grams = np.empty((1 if few else H, m, self._packed))
        for lo, hi, env in self._groups:
            about, seen = (self._policy, *self._folding(env)), tuple[Any, ...]()
            if few:
                seen = (self._logged, self._log, *about, self._outer)
                sums = (self.u[0], self.response[0], grams[0])
                self.workers.map(finite_kernels.fold_few, lo, hi, *seen, *sums)
            else:
                seen = (self._logged, self._log, self._table, *about)
                sums = (shared(self.u, H), shared(self.response, H), grams)
                self.workers.map(finite_kernels.fold, lo, hi, *seen, *sums)
        self._gram = grams.sum(axis=0)
        self._logged = 0

    def summarise(self, h: int) -> tuple[np.ndarray, np.ndarray]:
        """Λ^loc of the round just closed at h = H, else (m, 0); b_h over the history, (m, d)."""
        gram = at_last_step(self._gram, h, self.horizon, self.packing, self.dim)
        return gram, self.responses(h)

    def responses(self, h: int) -> np.ndarray:
        """b_h over the whole history, (m, d)."""
        m, b = len(self.agents), np.empty((len(self.agents), self.dim))
        sums = (self.values.values[h], self.u[0], self.response[0], b)
        work = self.response.size // 16  # it streams: 16 cost as much as a draw
        self.workers.map(finite_kernels.respond_all, 0, m, *sums, work=work)
        return b


class StationarySparseExperience(SparseExperience):
    """`SparseExperience` with counts (1, m, cells), u (1, m, d) and Λ^loc (m, d) of all steps."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.horizon = len(self._first)
        self._trigger = CountTrigger(len(self.agents), 1, self.workers)

    def _empty_earned(self, horizon: int) -> np.ndarray:
        return super()._empty_earned(1)

    def _empty_response(self, horizon: int, n_states: int) -> np.ndarray:
        return super()._empty_response(1, n_states)

    def close(self, length: int) -> None:
        """End the round after `length` episodes, and fold it into the counts."""
        H, kept = self.horizon, (self.u, self.response)
        # steps write into the same rows, one after the other
        self.u, self.response = shared(self.u, H), shared(self.response, H)
        super().close(length)
        self.u, self.response = kept

    def _empty_gram(self) -> np.ndarray:
        return shared(np.zeros((1, len(self.agents), self._packed)), self.horizon)

    def summarise(self, h: int) -> tuple[np.ndarray, np.ndarray]:
        """Λ^loc of the round just closed at h = H, else (m, 0); b_h over the history, (m, d)."""
        gram = at_last_step(self._gram[0], h, self.horizon, self.packing, self.dim)
        return gram, self.responses(h)

    def responses(self, h: int) -> np.ndarray:
        """b_h over the whole history, (m, d)."""
        return self._respond(h, 0)


class StationaryGymFiniteExperience(GymFiniteExperience):
    """`GymFiniteExperience` that counts (x, a, x') of all steps together. The state after the end
    of an episode is one of them: absorbing at every step."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.horizon = len(self.seen)
        self.seen = [[TransitionCounts() for _ in self.agents]]
        self._trigger = CountTrigger(len(self.agents), 1, self.workers)

    def summarise(self, h: int) -> tuple[np.ndarray, np.ndarray]:
        """Λ^loc of the round just closed at h = H, else (m, 0); b_h over the history, (m, d)."""
        gram = at_last_step(self._gram[0], h, self.horizon, self.packing, self.dim)
        return gram, self.responses(h)

    def responses(self, h: int) -> np.ndarray:
        """b_h over the whole history, (m, d)."""
        return self._respond(h, 0)


def at_last_step(gram: np.ndarray, h: int, horizon: int, packing: Packing, dim: int) -> np.ndarray:
    """Λ^loc (m, P) as the upload of step h carries it, from the packed one or the diagonal."""
    if h < horizon:
        return np.empty((len(gram), 0))
    if packing == "dense":
        return unpack(gram, dim, "packed").reshape(len(gram), -1)
    return gram
