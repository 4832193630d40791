"""The server's use of noisy sums: what Algorithm 1 needs of them, made by computation alone.

Whatever is computed from released numbers is as private as they are. Three things are done:

*A Gram matrix that can be inverted.* Noise makes ΣΛ indefinite. Its eigenvalues are cut at 0, and
λ + c·r is added, r = σ√(2d·nodes), the norm to expect of the noise. c = .1 of the practical preset
is a study's; the paper's preset adds 2r at its confidence to what is not cut, as the theorem does.

*Values without their mean.* b_h = u_h + N_h V_{h+1} has the noise of N times ‖V‖, and most of ‖V‖
is its mean. But features of a linear MDP span the constant, φᵀθ = 1 for all pairs (sum φᵀμ(x') over
x'), so N·1 = Σφ = ΣΛθ, and for any number v

    w = Λ⁻¹(u + N V) = vθ + Λ⁻¹(u + N(V − v·1)),

which is used with v the mean of V over states. Only V − v meets the noise, and a direction that
was not seen is worth v instead of 0. Where no θ exists v is 0.

*Both without a change to Algorithm 1*: `PrivateOneTrip` hands it increments of the repaired matrix,
and b such that Λ⁻¹b is this w.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedlsvi.config import Parameters
from fedlsvi.core.prefix_tree import nodes
from fedlsvi.core.private_release import PrivateRelease
from fedlsvi.core.statistics import identity, pack, unpack
from fedlsvi.experience.accumulation import respond
from fedlsvi.experience.values import TabularValues
from fedlsvi.protocol.messages import Layout, Reply, Request, Stop, Upload, gram_of
from fedlsvi.protocol.one_trip import OneTrip, Transported

SHIFT = 0.1
"""c of the practical preset; experiments/studies/private.py chose it."""


class PrivateOneTrip(OneTrip):
    """`OneTrip` of a private run.

    Args:
        transport, values, layout, parameters: As for `OneTrip`.

    Attributes:
        noisy: (H, d, d) or (H, d), ΣΛ as it arrived; (1, …) where steps share it.
        repaired: Of the same shape, what the server takes for Λ.
        theta: (d,), φᵀθ = 1 for all pairs, or zeros.
    """

    def __init__(
        self, transport: Transported, values: TabularValues, layout: Layout, parameters: Parameters
    ) -> None:
        super().__init__(transport, values, layout, parameters)
        p, release = parameters, parameters.release
        assert release is not None
        self.lam, self.release, self.trigger = p.lam, release, p.trigger
        self.uploads = 1 if p.aggregation == "secure" else p.n_agents
        self.paper, self.confidence = p.preset == "paper", p.confidence
        one = identity(layout.dim, p.lam, layout.packing)
        self.repaired = np.stack([one] * layout.matrices)
        self.noisy = np.zeros_like(self.repaired)
        self.theta = constant_direction(values)

    def broadcast(self, message: Request) -> Sequence[Reply]:
        """As `OneTrip`, with Λ repaired."""
        if not isinstance(message, Stop):
            return super().broadcast(message)
        super().broadcast(message)
        dim, packing = self.layout.dim, self.layout.packing
        arrived = unpack(self._gram, dim, packing)
        self.noisy += 0.5 * (arrived + arrived.swapaxes(-1, -2)) if arrived.ndim == 3 else arrived
        before, self.repaired = self.repaired, self._repair(self.trigger.number(message.t))
        self._gram = pack(self.repaired - before, packing).copy()
        return [self._upload(self.layout.horizon)]

    def _repair(self, k: int) -> np.ndarray:
        """Positive definite matrices in place of the noisy ones, after round k."""
        alpha = self.confidence if self.paper else None
        norm = noise_norm(self.release, self.uploads, k, alpha)
        if self.noisy.ndim == 2:
            return self._lifted(self.noisy, norm)
        values, vectors = np.linalg.eigh(self.noisy)
        made = (vectors * self._lifted(values, norm)[:, None, :]) @ vectors.swapaxes(-1, -2)
        symmetric: np.ndarray = 0.5 * (made + made.swapaxes(-1, -2))
        return symmetric

    def _lifted(self, values: np.ndarray, norm: float) -> np.ndarray:
        """Eigenvalues above 0, given the norm of the noise."""
        before, after = 0.0, SHIFT * norm
        if self.paper:  # with probability 1 − α nothing is cut
            before, after = 2.0 * norm, 0.0
        lifted: np.ndarray = np.maximum(values + before, 0.0) + (self.lam + after)
        return lifted

    def _upload(self, h: int) -> Upload:
        """The increment of the repaired Λ_h, and b_h with the mean of V_{h+1} apart."""
        at, H = min(h, len(self.u)) - 1, self.layout.horizon
        b = self.u[at].copy()
        if h < H:
            value = self.values.values[h]
            mean = float(value.mean()) if self.theta.any() else 0.0
            respond(value - mean, self.u[at], self.following[at], b)
            gram = self.repaired[at]
            b += mean * (gram * self.theta if gram.ndim == 1 else gram @ self.theta)
        return Upload(h, gram_of(self._gram, h, H)[None].copy(), b[None])

    def state(self) -> dict[str, np.ndarray]:
        """What a checkpoint must hold."""
        own = {"one_trip.noisy": self.noisy, "one_trip.repaired": self.repaired}
        return super().state() | own

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Continue from `state`."""
        super().restore(arrays)
        self.noisy, self.repaired = arrays["one_trip.noisy"], arrays["one_trip.repaired"]


def noise_norm(
    release: PrivateRelease, uploads: int, k: int, confidence: float | None = None
) -> float:
    """r: the spectral norm of the noise in ΣΛ after round k, as expected, or not exceeded by any
    step and round with probability 1 − α.

    Isotropic noise of σ in Frobenius norm has E‖Z‖ ≤ σ√(2d), and ‖·‖ is 1-Lipschitz, so that it is
    exceeded by σx with probability at most 2e^(−x²/2).

    Args:
        release: The noise of the run.
        uploads: How many parties add all of it.
        k: The round.
        confidence: α.
    """
    each = release.sigma * np.sqrt(uploads * len(nodes(k)))
    if release.packing == "diagonal":
        width = np.sqrt(2.0 * np.log(2.0 * release.dim))
    else:
        width = np.sqrt(2.0 * release.dim)
    if confidence is not None:
        width += np.sqrt(2.0 * np.log(2.0 * release.horizon * release.rounds / confidence))
    return float(each * width)


def constant_direction(values: TabularValues) -> np.ndarray:
    """(d,) θ with φ(x,a)ᵀθ = 1 for all pairs; zeros where there is none."""
    if not values.phi.size:  # one-hot
        return np.ones(values.dim)
    rows = values.phi.reshape(-1, values.dim)
    theta: np.ndarray = np.linalg.lstsq(rows, np.ones(len(rows)), rcond=None)[0]
    exact = np.allclose(rows @ theta, 1.0, rtol=0.0, atol=1e-9)
    return theta if exact else np.zeros(values.dim)
