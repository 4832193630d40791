"""Random Fourier features (Rahimi & Recht 2007) on continuous states."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedlsvi.features.blocks import BlockFeatures
from fedlsvi.features.validation import count, fits, positive


class FourierFeatures(BlockFeatures):
    """φ(x,a) = e_a ⊗ [cos(Wx), sin(Wx)]/√D with W ~ N(0, 1/bandwidth²), (D, s).

    cos² + sin² = 1 gives ‖φ‖ = 1 at every state. d = 2·D·A.

    Args:
        n_frequencies: D.
        bandwidth: One number, or one per state dimension.
        seed: Of the frequencies.
    """

    kind = "fourier"

    def __init__(
        self, n_frequencies: int = 16, bandwidth: float | list[float] = 1.0, seed: int = 0
    ) -> None:
        self.n_frequencies = count("n_frequencies", n_frequencies)
        self.seed = count("seed", seed, 0)
        self.bandwidth = positive("bandwidth", bandwidth)

    def prepare(self, state_dim: int) -> int:
        rng = np.random.default_rng(self.seed)
        bandwidth = fits("bandwidth", self.bandwidth, state_dim)
        self.W = rng.standard_normal((self.n_frequencies, state_dim)) / bandwidth
        return 2 * self.n_frequencies

    def psi(self, states: np.ndarray) -> np.ndarray:
        angle = states @ self.W.T
        circles = np.concatenate((np.cos(angle), np.sin(angle)), axis=1)
        psi: np.ndarray = circles / np.sqrt(self.n_frequencies)
        return psi

    def spec(self) -> dict[str, Any]:
        """Registered name and parameters, ready for JSON."""
        params = {
            "n_frequencies": self.n_frequencies,
            "bandwidth": self.bandwidth.tolist(),
            "seed": self.seed,
        }
        return {"name": self.kind, "params": params}
