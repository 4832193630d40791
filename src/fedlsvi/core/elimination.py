"""Coefficients that an agent keeps to itself, eliminated from what it sends.

Features are φ = (φ_s, φ_o), targets y = φ_sᵀw + φ_oᵀv_m + noise: w is shared, v_m is agent m's own.
With its sums A = Σφφᵀ and b = Σφy, cut into blocks, and P = (A_oo + λI)⁻¹, agent m sends

    S_m = A_ss − A_so P A_os  and  s_m = b_s − A_so P b_o,

the server solves (λI + Σ_m S_m) w = Σ_m s_m, and agent m has v_m = P(b_o − A_os w). This is ridge
regression on the pooled features (φ_s, φ_o ⊗ e_m), of dimension d_s + M·d_o, and loses nothing.
With Λ = λI + Σ_m S_m, the pooled inverse at the features of agent m is the inverse of

    J_m = [[Λ + A_so P A_os, A_so], [A_os, A_oo + λI]],
    ‖φ‖²_{J⁻¹} = ‖φ_s − A_so P φ_o‖²_{Λ⁻¹} + φ_oᵀ P φ_o,

and det(J_m + G)/det J_m is the pooled ratio of determinants for new data G of agent m alone. So an
agent that takes (w, v_m) and J_m for its model needs no other bonus, values or trigger.

S_m never shrinks as A grows (S_m = min_K [I −K]A[I −K]ᵀ + λKKᵀ), and 0 ⪯ S_m ⪯ A_ss.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dtrtrs

from fedlsvi.core.statistics import DenseFactor, factorise


@dataclass(frozen=True)
class OwnBlock:
    """The sums of one agent at one step, with its own block factored: A_oo + λI = LLᵀ.

    Attributes:
        gram: A, (d, d).
        factor: L.
        across: L⁻¹A_os, (d_o, d_s).
        schur: S_m, (d_s, d_s).
    """

    gram: np.ndarray
    factor: DenseFactor
    across: np.ndarray
    schur: np.ndarray

    @classmethod
    def of(cls, gram: np.ndarray, own: int, lam: float) -> OwnBlock:
        """Of A, whose last `own` rows and columns are eliminated."""
        d = len(gram) - own
        factor = factorise(gram[d:, d:] + lam * np.eye(own))
        assert isinstance(factor, DenseFactor)
        across = _whitened(factor, gram[d:, :d])
        return cls(gram, factor, across, gram[:d, :d] - across.T @ across)

    @property
    def shared(self) -> int:
        """d_s."""
        return int(self.across.shape[1])

    def response(self, b: np.ndarray) -> np.ndarray:
        """s_m = b_s − A_so P b_o."""
        d = self.shared
        found: np.ndarray = b[:d] - self.across.T @ _whitened(self.factor, b[d:])
        return found

    def coefficients(self, b: np.ndarray, w: np.ndarray) -> np.ndarray:
        """v_m = P(b_o − A_os w)."""
        d = self.shared
        return self.factor.solve(b[d:] - self.gram[d:, :d] @ w)

    def joint(self, shared: np.ndarray) -> np.ndarray:
        """J_m, (d, d), of the shared Λ."""
        found, d = self.gram.copy(), self.shared
        found[:d, :d] = shared + self.across.T @ self.across
        found[d:, d:] = self.factor.lower @ self.factor.lower.T
        return found

    def explained(self, b: np.ndarray) -> float:
        """b_oᵀPb_o, what the own features explain of Σy² by themselves."""
        return float((_whitened(self.factor, b[self.shared :]) ** 2).sum())

    def directions(self, lam: float) -> float:
        """d_o − λ·tr P, the own directions in force."""
        return len(self.across) - self.factor.unseen(lam)


def _whitened(factor: DenseFactor, right: np.ndarray) -> np.ndarray:
    """L⁻¹ times a matrix or a vector."""
    found: np.ndarray = dtrtrs(factor.lower, right, lower=1)[0]
    return found.reshape(right.shape)
