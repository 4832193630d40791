"""LinUCB in plain NumPy, one decision after another, of which everything is kept."""

from __future__ import annotations

import numpy as np


class PooledLinUCB:
    """Disjoint LinUCB of somebody who sees all data.

    Args:
        arms: K.
        dim: d.
        alpha, lam: As in `fedlsvi.bandits`.
    """

    def __init__(self, arms: int, dim: int, alpha: float = 1.0, lam: float = 1.0) -> None:
        self.alpha = alpha
        self.A = np.stack([lam * np.eye(dim)] * arms)
        self.b = np.zeros((arms, dim))

    def scores(self, x: np.ndarray) -> np.ndarray:
        """(K,) xᵀθ_a + α√(xᵀA_a⁻¹x)."""
        inverses = np.linalg.inv(self.A)
        thetas = np.einsum("aij,aj->ai", inverses, self.b)
        return thetas @ x + self.alpha * np.sqrt(np.einsum("i,aij,j->a", x, inverses, x))

    def learn(self, x: np.ndarray, arm: int, reward: float) -> None:
        """One more reward."""
        self.A[arm] += np.outer(x, x)
        self.b[arm] += x * reward


def unit(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Rows of norm 1."""
    x = rng.normal(size=shape)
    return np.asarray(x / np.linalg.norm(x, axis=-1, keepdims=True))
