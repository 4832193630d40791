"""The model of a finite state space with the scores of all actions, for `diversity=`.

Where every episode has a policy of its own, nobody tabulates them: the scores are kept, and an
action is chosen when its state is visited (`core.perturbation`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedlsvi.core.perturbation import act_perturbed, directions, score_all
from fedlsvi.core.statistics import DiagonalFactor
from fedlsvi.experience.values import TabularValues

KEPT = ("means", "pair_norms", "pair_rows")


class DiverseValues(TabularValues):
    """`TabularValues` that also knows φᵀw, ‖y‖² and y of every pair (x, a).

    Attributes:
        diversity: σ.
        means: (H, S, A) of φᵀw.
        pair_norms: (H, S, A) of ‖φ‖²_{Λ⁻¹}.
        pair_rows: (H, S·A, d) of y; (H, S·A, 0) where features are one-hot.
    """

    def __init__(self, diversity: float, *about: Any) -> None:
        super().__init__(*about)
        self.diversity = diversity
        horizon, n_states = self.policy.shape
        n_actions = self.phi.shape[1] if self.phi.size else self.index.shape[1]
        self.means = np.zeros((horizon, n_states, n_actions))
        self.pair_norms = np.zeros((horizon, n_states, n_actions))
        self.pair_rows = np.zeros((horizon, n_states * n_actions, self.rows.shape[2]))

    @property
    def n_actions(self) -> int:
        """A."""
        return int(self.means.shape[2])

    def update(self, h: int, w: np.ndarray, gram: np.ndarray) -> None:
        """Rebuild step h, the scores of all actions included."""
        super().update(h, w, gram)
        means, norms = self.means[h - 1], self.pair_norms[h - 1]
        if isinstance(self._factor, DiagonalFactor):
            means[:], norms[:] = w[self.index], 1.0 / self._gram[self.index]
        else:
            whitened = self._whitened.reshape(*means.shape, self.dim)
            score_all(whitened, w @ self._factor.lower, means, norms)
            self.pair_rows[h - 1] = self._whitened

    def another(self, beta: float) -> DiverseValues:
        """Tables of its own, to be filled with another β."""
        made = super().another(beta)
        assert isinstance(made, DiverseValues)
        for name in KEPT:
            setattr(made, name, getattr(self, name).copy())
        return made

    def frozen(self) -> DiverseValues:
        """The model as it is now."""
        made = self.another(self.beta)
        made.taper = self.taper
        return made

    @property
    def tables(self) -> tuple[np.ndarray, ...]:
        """What `core.perturbation` takes for the model of all steps."""
        return self.means, self.pair_norms, self.pair_rows

    @property
    def bonus_sizes(self) -> np.ndarray:
        """(β_h, σβ_h) of every step, (H, 2)."""
        return np.stack([self.betas, self.diversity * self.betas], axis=1)

    @property
    def marks(self) -> tuple[np.ndarray, ...]:
        """What the trigger needs, of pairs x·A + a in the place of states."""
        horizon = len(self.policy)
        slots = np.zeros((horizon, 0), np.int64)
        if self.index.size:
            slots = np.tile(self.index.ravel(), (horizon, 1))
        return self.pair_rows, self.pair_norms.reshape(horizon, -1), slots

    def directions(self, seed: int, agents: np.ndarray, first: int, n: int) -> np.ndarray:
        """ζ of each agent and episode, (m·n, d); (m·n, 0) where each ζ_i is drawn when needed."""
        if self.pair_rows.shape[2] == 0:
            return np.empty((len(agents) * n, 0))
        return directions(seed, agents, first, n, self.dim).reshape(-1, self.dim)

    def act_in(self, h: int, x: np.ndarray, seed: int, who: tuple[np.ndarray, ...]) -> np.ndarray:
        """Actions (n,) at step h in states x (n,); who: agents, episodes and ζ of these."""
        chosen = np.empty(len(x), np.int32)
        model = (self.means[h - 1], self.pair_norms[h - 1], self.pair_rows[h - 1])
        x = np.ascontiguousarray(x, np.int64)
        agents, episodes, zeta = who
        betas = self.bonus_sizes[h - 1]
        act_perturbed(x, model, self.index, betas, seed, agents, episodes, zeta, chosen)
        return chosen
