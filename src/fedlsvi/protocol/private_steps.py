"""The server's use of noisy sums that come step by step.

`Server` does not know: `PrivateSteps` stands between it and the transport, adds up what agents send
at a step, and hands it the increment of a repaired Λ_h (`protocol.gram_repair`) beside the b_h that
arrived. What is computed from released numbers is as private as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedlsvi.config import Parameters
from fedlsvi.protocol.aggregation import FixedPointSums
from fedlsvi.protocol.gram_repair import GramRepair
from fedlsvi.protocol.messages import Layout, Model, Reply, Request, Signal, Stop, Upload
from fedlsvi.protocol.one_trip import Transported


class PrivateSteps:
    """The agents of a private run as Algorithm 1 sees them.

    Args:
        transport: The way to the agents.
        layout: The sizes.
        parameters: The numbers in force.

    Attributes:
        repair: Makes noisy Gram matrices positive definite.
        k: The round whose synchronisation is under way, or was the last.
    """

    def __init__(self, transport: Transported, layout: Layout, parameters: Parameters) -> None:
        assert parameters.release is not None
        self.transport, self.layout, self.trigger = transport, layout, parameters.trigger
        self.repair = GramRepair(layout, parameters, parameters.release)
        self._sums, self.k = FixedPointSums(layout, parameters.scale_bits), 0

    def wait(self, t: int, left: int) -> Signal:
        """The first signal of the round that began after episode t."""
        return self.transport.wait(t, left)

    def broadcast(self, message: Request) -> Sequence[Reply]:
        """Deliver, and answer with one upload for all agents where they upload."""
        replies = self.transport.broadcast(message)
        match message:
            case Stop(t=t):
                self.k = self.trigger.number(t)
                return [self._upload(self.layout.horizon, replies)]
            case Model(h=h) if h > 1:
                return [self._upload(h - 1, replies)]
        return replies

    def _upload(self, h: int, replies: Sequence[Reply]) -> Upload:
        """What all agents together add to the repaired Λ_h, and Σ_m b_h."""
        gram, b = self._sums(replies, h)
        size = self.layout.gram_size(h)
        if not size:  # steps share Λ, and it came with step H
            return Upload(h, np.empty((1, 0)), b[None])
        at = min(h, self.layout.matrices) - 1
        return Upload(h, self.repair(slice(at, at + 1), gram[None, :size], self.k), b[None])

    def state(self) -> dict[str, np.ndarray]:
        """What a checkpoint must hold."""
        return self.repair.state()

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Continue from `state`."""
        self.repair.restore(arrays)
