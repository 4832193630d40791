"""What agents send, added in integers (`core.fixed_point`) in place of `server.FloatSums`.

These sums do not depend on any order, and masked uploads can be added too, of which only the sum
can be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedlsvi.core import fixed_point
from fedlsvi.protocol.messages import Increments, Layout, MaskedUpload, Reply, Upload

if TYPE_CHECKING:
    from fedlsvi.protocol.server import Sums


class FixedPointSums:
    """Integers modulo 2^64: the same sums for every order, split and transport, masked or not."""

    def __init__(self, layout: Layout, bits: int) -> None:
        self.size, self.dim = layout.packed, layout.dim
        self.layout, self.n_agents, self.bits = layout, layout.n_agents, bits

    def __call__(self, uploads: Sequence[Reply], h: int) -> Sums:
        every = [
            self.words(upload) if isinstance(upload, Upload) else upload.words
            for upload in uploads
            if isinstance(upload, Upload | MaskedUpload) and upload.h == h
        ]
        total = np.zeros(max((len(words) for words in every), default=self.dim), np.uint64)
        for words in every:
            total += words
        sums = fixed_point.decode(total, self.bits)
        size = len(total) - self.dim  # a step without a Gram matrix adds nothing to it
        return sums[:size] if size else np.zeros(self.size), sums[size:]

    def words(self, upload: Upload | Increments) -> np.ndarray:
        """(upload_words,) the agents of one cohort, each encoded, then added."""
        if isinstance(upload, Increments):
            return self._trip(upload)
        rows = np.concatenate([upload.gram, upload.b], axis=1)
        return fixed_point.add(fixed_point.encode(rows, self.bits, self.n_agents))

    def _trip(self, reply: Increments) -> np.ndarray:
        m = len(reply.u)
        rows = np.concatenate([reply.gram.reshape(m, -1), reply.u.reshape(m, -1)], axis=1)
        words = np.zeros(self.layout.upload_words(1), np.uint64)
        words[: rows.shape[1]] = fixed_point.add(self._encode(rows))
        rest = words[rows.shape[1] :]
        for following in reply.following:
            rest[following.places] += self._encode(following.values)
        return words

    def _encode(self, x: np.ndarray) -> np.ndarray:
        return fixed_point.encode(x, self.bits, self.n_agents)
