"""Random Fourier features (Rahimi & Recht 2007) on continuous states."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np

from fedlsvi.features.base import Bindable
from fedlsvi.features.blocks import BlockFeatures
from fedlsvi.features.validation import count, fits, positive
from fedlsvi.features.widths import Widths, widths_of

SCALES = 3
"""Scales where the bandwidth is left to the environment."""


class FourierFeatures(BlockFeatures):
    """φ(x,a) = e_a ⊗ [cos(Wx), sin(Wx)]/√D with W ~ N(0, 1/bandwidth²), (D, s).

    cos² + sin² = 1 gives ‖φ‖ = 1 at every state. d = 2·D·A.

    Args:
        n_frequencies: D.
        bandwidth: One number, or one per state dimension. The default is how far each number of an
            observation ranges, by its bounds, else in a few episodes with actions in turn; 1 where
            neither is known and in federations, whose sites must use the same.
        seed: Of the frequencies.
        scales: How many bandwidths take turns, each half of the one before it; the default is 3
            where the bandwidth is left out, else 1.
    """

    kind = "fourier"

    def __init__(
        self,
        n_frequencies: int = 16,
        bandwidth: float | list[float] | None = None,
        seed: int = 0,
        scales: int | None = None,
    ) -> None:
        self.n_frequencies = count("n_frequencies", n_frequencies)
        self.seed = count("seed", seed, 0)
        self.bandwidth = None if bandwidth is None else positive("bandwidth", bandwidth)
        self.scales = None if scales is None else count("scales", scales)
        self._widths: Widths | None = None
        self._given = {"n_frequencies": n_frequencies, "bandwidth": bandwidth, "seed": seed,
                       "scales": scales}  # fmt: skip

    def agreed(self) -> Self:
        if self.bandwidth is not None:
            return self
        fixed = copy.copy(self)
        fixed.bandwidth = np.array(1.0)
        fixed._given = self.get_params() | {"bandwidth": 1.0}
        return fixed

    def bind(self, env: Bindable) -> Self:
        ready = copy.copy(self)
        if self.bandwidth is None and hasattr(env, "state_dim"):
            ready._widths = widths_of(env)
        return BlockFeatures.bind(ready, env)

    def prepare(self, state_dim: int) -> int:
        scales = 1 if self.scales is None else self.scales
        if self.bandwidth is None and self._widths is not None:
            scales = SCALES if self.scales is None else self.scales
            self.bandwidth, self.fitted = self._widths
        elif self.bandwidth is None:
            self.bandwidth = np.array(1.0)
        self.scales, self._widths = scales, None
        rng = np.random.default_rng(self.seed)
        bandwidth = fits("bandwidth", self.bandwidth, state_dim)
        W = rng.standard_normal((self.n_frequencies, state_dim)) / bandwidth
        self.W = W * 2.0 ** (np.arange(self.n_frequencies) % scales)[:, None]
        return 2 * self.n_frequencies

    def psi(self, states: np.ndarray) -> np.ndarray:
        angle = states @ self.W.T
        circles = np.concatenate((np.cos(angle), np.sin(angle)), axis=1)
        psi: np.ndarray = circles / np.sqrt(self.n_frequencies)
        return psi

    def psi_names(self, inputs: list[str]) -> list[str]:
        angles = [" ".join(f"{w:+.2g}·{x}" for w, x in zip(row, inputs, strict=True))
                  for row in self.W.tolist()]  # fmt: skip
        return [f"{wave}({angle})" for wave in ("cos", "sin") for angle in angles]

    def spec(self) -> dict[str, Any]:
        """Registered name and parameters, ready for JSON."""
        params: dict[str, Any] = {"n_frequencies": self.n_frequencies}
        if self.bandwidth is not None:
            params["bandwidth"] = self.bandwidth.tolist()
        params["seed"] = self.seed
        if self.scales not in (None, 1):
            params["scales"] = self.scales
        return {"name": self.kind, "params": params}
