"""Gram matrices that can be inverted, from noisy ones: computation on what was released.

Noise makes ΣΛ indefinite. Its eigenvalues are cut at 0, and λ + c·r is added, r = σ‖B_k‖√(2d), the
norm to expect of the noise after round k (`core.factorisation`). c = .1 of the practical preset is
a study's; the paper's preset adds 2r at its confidence to what is not cut, as the theorem does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedlsvi.config import Parameters
from fedlsvi.core.private_release import PrivateRelease
from fedlsvi.core.statistics import identity, pack, unpack
from fedlsvi.protocol.messages import Layout

SHIFT = 0.1
"""c of the practical preset; studies/private.py chose it."""


def ridge_in_force(p: Parameters) -> float:
    """What is added to Λ of the first round: λ, and of a private run what lifts its eigenvalues."""
    if p.release is None:
        return p.lam
    times = p.noise_times if p.aggregation != "secure" else 1.0
    return p.lam + SHIFT * p.release.gram_norm(times * float(p.release.factors.summed[0]))


class GramRepair:
    """Noisy sums of Gram matrices, and what the server takes for Λ in their place.

    Args:
        layout: The sizes.
        parameters: The numbers in force.
        release: The noise of the run.

    Attributes:
        shift: c of the practical preset.
        noisy: (H, d, d) or (H, d), ΣΛ as it arrived; (1, …) where steps share it.
        repaired: Of the same shape, what the server takes for Λ.
    """

    def __init__(self, layout: Layout, parameters: Parameters, release: PrivateRelease) -> None:
        p = parameters
        self.layout, self.release, self.lam = layout, release, p.lam
        self.paper, self.confidence, self.shift = p.preset == "paper", p.confidence, SHIFT
        self.times = p.noise_times if self.paper or p.aggregation != "secure" else 1.0
        one = identity(layout.dim, p.lam, layout.packing)
        self.repaired = np.stack([one] * layout.matrices)
        self.noisy = np.zeros_like(self.repaired)

    @classmethod
    def of(cls, parameters: Parameters, layout: Layout) -> GramRepair | None:
        """Of a private run; None elsewhere."""
        release = parameters.release
        return None if release is None else cls(layout, parameters, release)

    def __call__(self, at: slice, increments: np.ndarray, rounds: Sequence[int]) -> np.ndarray:
        """What to add to Λ of the steps `at`, (n, P), given what arrived of them; the noise in the
        sums is that after these rounds: the last of all parties, or of each; 0 is none."""
        arrived = unpack(increments, self.layout.dim, self.layout.packing)
        if arrived.ndim == 3:
            arrived = 0.5 * (arrived + arrived.swapaxes(-1, -2))
        self.noisy[at] += arrived
        before = self.repaired[at].copy()
        self.repaired[at] = self._repair(self.noisy[at], rounds)
        return pack(self.repaired[at] - before, self.layout.packing).copy()

    def _repair(self, noisy: np.ndarray, rounds: Sequence[int]) -> np.ndarray:
        """Positive definite matrices in place of the noisy ones."""
        alpha = self.confidence if self.paper else None
        after = np.append(0.0, self.release.factors.summed)
        summed = float(after[list(rounds)].mean())
        norm = self.release.gram_norm(self.times * summed, alpha)
        if noisy.ndim == 2:
            return self._lifted(noisy, norm)
        values, vectors = np.linalg.eigh(noisy)
        made = (vectors * self._lifted(values, norm)[:, None, :]) @ vectors.swapaxes(-1, -2)
        symmetric: np.ndarray = 0.5 * (made + made.swapaxes(-1, -2))
        return symmetric

    def _lifted(self, values: np.ndarray, norm: float) -> np.ndarray:
        """Eigenvalues above 0, given the norm of the noise."""
        before, after = 0.0, self.shift * norm
        if self.paper:  # with probability 1 − α nothing is cut
            before, after = 2.0 * norm, 0.0
        lifted: np.ndarray = np.maximum(values + before, 0.0) + (self.lam + after)
        return lifted

    def state(self) -> dict[str, np.ndarray]:
        """What a checkpoint must hold."""
        return {"private.noisy": self.noisy, "private.repaired": self.repaired}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Continue from `state`."""
        self.noisy[:], self.repaired[:] = arrays["private.noisy"], arrays["private.repaired"]
