"""How much of feature space some data has seen: the eigenvalues of Σφφᵀ, step by step.

An eigenvalue ν says that the data holds as much about its direction as ν visits of a unit feature
there; with one-hot features it is the number of visits of a pair (x, a). Pessimism takes β/√(λ + ν)
off in that direction. Where this is the whole range of values, or ν is below one visit, the
direction is as good as unseen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedlsvi.checks import plural


@dataclass(frozen=True)
class Coverage:
    """What some data has seen.

    Attributes:
        eigenvalues: (H, d) of Σφφᵀ, ascending.
        lam: λ of the learner that uses it.
        beta: Its β, or (H,) one for every step.
        ceilings: (H,) the largest value of each step.
    """

    eigenvalues: np.ndarray
    lam: float
    beta: float | np.ndarray
    ceilings: np.ndarray

    @classmethod
    def of(
        cls, gram: np.ndarray, lam: float, beta: float | np.ndarray, ceilings: np.ndarray
    ) -> Coverage:
        """From Λ_h = λI + Σφφᵀ, (H, d, d), or (H, d) where it is diagonal."""
        found = np.sort(gram, axis=1) if gram.ndim == 2 else np.linalg.eigvalsh(gram)
        return cls(np.maximum(found - lam, 0.0), lam, beta, ceilings)

    @property
    def unseen(self) -> np.ndarray:
        """(H,) directions with less than one visit."""
        counted: np.ndarray = self._below.sum(axis=1)
        return counted

    @property
    def _below(self) -> np.ndarray:
        # rounding may leave a little less than 1 of a single visit
        below: np.ndarray = self.eigenvalues < 1.0 - 1e-6
        return below

    @property
    def blind(self) -> np.ndarray:
        """(H,) directions that are as good as unseen: below one visit, or with β/√(λ + ν) the whole
        range of values or more."""
        beta = np.broadcast_to(self.beta, len(self.ceilings))[:, None]
        width = beta / np.sqrt(self.lam + self.eigenvalues)
        counted: np.ndarray = (self._below | (width >= self.ceilings[:, None])).sum(axis=1)
        return counted

    @property
    def visits(self) -> np.ndarray:
        """(H,) tr Σφφᵀ: transitions, where features have norm 1."""
        total: np.ndarray = self.eigenvalues.sum(axis=1)
        return total

    def meaning(self) -> str:
        """What it means for the guarantee, in a sentence or two."""
        H, d = self.eigenvalues.shape
        blind = self.blind
        if not blind.any():
            return (
                f"every direction was seen at all {plural(H, 'step')}: at the theorem's β, the "
                "learned policy is worse than any other policy by at most 2β times the widths "
                "along that policy's path"
            )
        h = int(blind.argmax()) + 1
        return (
            f"{blind.sum():,} of {H * d:,} directions, most of them at step {h} ({blind[h - 1]:,} "
            f"of {d:,}), are as good as unseen: the learner gives them little or no value, and a "
            "policy that goes there may be better by any amount"
        )
