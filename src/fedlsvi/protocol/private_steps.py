"""The server's use of noisy sums that come step by step.

`Server` does not know: `PrivateSteps` stands between it and the transport, adds up what agents send
at a step, and hands it the increment of a repaired Λ_h (`privacy.gram_repair`) beside the b_h that
arrived. What is computed from released numbers is as private as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedlsvi.config import Parameters
from fedlsvi.privacy.gram_repair import GramRepair
from fedlsvi.privacy.sums import sums_of
from fedlsvi.protocol.messages import (
    Exploit,
    Layout,
    Model,
    Reply,
    Request,
    Signal,
    Start,
    Stop,
    Upload,
)
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
        self.transport, self.layout, self.parameters = transport, layout, parameters
        self.repair = GramRepair(layout, parameters, parameters.release)
        self._sums, self.k, self._exploits = sums_of(parameters, layout), 0, False

    def wait(self, t: int, left: int) -> Signal:
        """The first signal of the round that began after episode t."""
        return self.transport.wait(t, left)

    def broadcast(self, message: Request) -> Sequence[Reply]:
        """Deliver, and answer with one upload for all agents where they upload."""
        replies = self.transport.broadcast(message)
        match message:
            case Start():
                self._exploits = False
            case Exploit():
                self._exploits = True
                return [self._upload(self.layout.horizon, replies)]
            case Stop(t=t):
                self.k = self.parameters.release_number(t)
                return [self._upload(self.layout.horizon, replies)]
            case Model(h=h) if h > 1:
                return [self._upload(h - 1, replies)]
        return replies

    def _upload(self, h: int, replies: Sequence[Reply]) -> Upload:
        """What all agents together add to the repaired Λ_h, and Σ_m b_h."""
        gram, b = self._sums(replies, h)
        size = 0 if self._exploits else self.layout.gram_size(h)
        if not size:  # steps share Λ, and it came with step H; or all of it came before
            return Upload(h, np.empty((1, 0)), b[None])
        at = min(h, self.layout.matrices) - 1
        rounds = self.transport.last_releases(self.parameters, self.k, h)
        return Upload(h, self.repair(slice(at, at + 1), gram[None, :size], rounds), b[None])

    def state(self) -> dict[str, np.ndarray]:
        """What a checkpoint must hold."""
        return self.repair.state()

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Continue from `state`."""
        self.repair.restore(arrays)
