"""Heads of a backward pass: what turns a step's model (w_h, Λ_h) into Q_h and V_h.

    Q_h(x, a) = clip(φᵀw_h + β_h‖φ‖_{Λ_h⁻¹} + c_h·ρ‖φ‖²_{Λ_h⁻¹}, 0, c_h)

One number makes most of them: optimistic β > 0, greedy β = 0, pessimistic β < 0. V_h(x) is the
largest Q_h of the allowed actions, or that of the action of a given policy. ρ = λ counts what was
not seen, the share λ‖φ‖²_{Λ⁻¹} of a feature, as the most that it can be worth; ρ = 0 as nothing.
Who keeps tables or factors for it: `experience.values`, and of a given policy
`algorithms.shared.policy_values`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedlsvi.core.value import upper


@dataclass(frozen=True, eq=False)
class Head:
    """How a model is read.

    Attributes:
        beta: β, below 0 where the width is taken off.
        ceilings: (H,) c_h, the upper clip of each step.
        taper: (H,) β_h/β; None is 1 at every step.
        unseen: ρ.
        knows_noise: Whether the bonus knows the noise of the targets (`core.value`).
    """

    beta: float
    ceilings: np.ndarray
    taper: np.ndarray | None = None
    unseen: float = 0.0
    knows_noise: bool = False

    @property
    def betas(self) -> np.ndarray:
        """β_h of every step, (H,)."""
        taper = np.ones(len(self.ceilings)) if self.taper is None else self.taper
        found: np.ndarray = self.beta * taper
        return found

    @property
    def tapers(self) -> bool:
        """Whether β_h differs from step to step."""
        return self.taper is not None and bool((self.taper != 1.0).any())

    def with_beta(self, beta: float) -> Head:
        """The same with another β, tapered alike."""
        return replace(self, beta=beta)

    def even(self, beta: float) -> Head:
        """The same with another β, which does not taper and knows no noise."""
        return replace(self, beta=beta, taper=None, knows_noise=False)

    @property
    def needs_width(self) -> bool:
        """Whether ‖φ‖_{Λ⁻¹} matters."""
        return self.beta != 0.0 or self.unseen != 0.0

    def read(self, h: int, mean: np.ndarray, norms2: Any) -> np.ndarray:
        """Q_h, given φᵀw_h and ‖φ‖²_{Λ_h⁻¹}."""
        top = self.ceilings[h - 1]
        unseen = top * self.unseen * norms2 if self.unseen else 0.0
        found: np.ndarray = np.clip(upper(mean, norms2, self.betas[h - 1]) + unseen, 0.0, top)
        return found
