"""The server's use of noisy sums that come in one trip: what Algorithm 1 needs of them, made by
computation alone.

Whatever is computed from released numbers is as private as they are. Three things are done:

*A Gram matrix that can be inverted* (`protocol.gram_repair`).

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
from fedlsvi.experience.finite_kernels import respond
from fedlsvi.experience.values import TabularValues
from fedlsvi.protocol.gram_repair import GramRepair
from fedlsvi.protocol.messages import Layout, Reply, Request, Stop, Upload, gram_of
from fedlsvi.protocol.one_trip import OneTrip, Transported


class PrivateOneTrip(OneTrip):
    """`OneTrip` of a private run.

    Args:
        transport, values, layout, parameters: As for `OneTrip`.

    Attributes:
        repair: Makes noisy Gram matrices positive definite.
        theta: (d,), φᵀθ = 1 for all pairs, or zeros.
    """

    def __init__(
        self, transport: Transported, values: TabularValues, layout: Layout, parameters: Parameters
    ) -> None:
        super().__init__(transport, values, layout, parameters)
        p, release = parameters, parameters.release
        assert release is not None
        self.repair, self.trigger = GramRepair(layout, p, release), p.trigger
        self.theta = constant_direction(values)

    def broadcast(self, message: Request) -> Sequence[Reply]:
        """As `OneTrip`, with Λ repaired."""
        if not isinstance(message, Stop):
            return super().broadcast(message)
        super().broadcast(message)
        every = slice(0, self.layout.matrices)
        self._gram = self.repair(every, self._gram, self.trigger.number(message.t))
        return [self._upload(self.layout.horizon)]

    @property
    def noisy(self) -> np.ndarray:
        """ΣΛ as it arrived."""
        return self.repair.noisy

    @property
    def repaired(self) -> np.ndarray:
        """What the server takes for Λ."""
        return self.repair.repaired

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
        return super().state() | self.repair.state()

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Continue from `state`."""
        super().restore(arrays)
        self.repair.restore(arrays)


def constant_direction(values: TabularValues) -> np.ndarray:
    """(d,) θ with φ(x,a)ᵀθ = 1 for all pairs; zeros where there is none."""
    if not values.phi.size:  # one-hot
        return np.ones(values.dim)
    rows = values.phi.reshape(-1, values.dim)
    theta: np.ndarray = np.linalg.lstsq(rows, np.ones(len(rows)), rcond=None)[0]
    exact = np.allclose(rows @ theta, 1.0, rtol=0.0, atol=1e-9)
    return theta if exact else np.zeros(values.dim)
