"""What agents send, added: in doubles, or in integers (`core.fixed_point`).

Sums of integers do not depend on any order, and masked uploads can be added too, of which only the
sum can be read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from fedlsvi.config import Parameters
from fedlsvi.core import fixed_point
from fedlsvi.core.statistics import add_rows
from fedlsvi.protocol.messages import (
    Layout,
    MaskedUpload,
    NextStates,
    Reply,
    SummedUpload,
    Upload,
)


class UploadSums(ABC):
    """Adds the uploads of one request."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    @abstractmethod
    def total(self, replies: Sequence[Reply]) -> np.ndarray:
        """(words,) Σ over agents of Λ, b or u, and N, one after the other."""

    def __call__(self, uploads: Sequence[Reply], h: int) -> tuple[np.ndarray, np.ndarray]:
        """Σ_m Λ_h^loc, packed (P,), and Σ_m b_h, (d,), of all uploads of step h."""
        kinds = (Upload, MaskedUpload)
        total = self.total([r for r in uploads if isinstance(r, kinds) and r.h == h])
        # the pass after the last round asks for b_h alone
        d, responses = self.layout.dim, self.layout.responses
        gram, b = np.split(total, [max(0, total.size - (d if total.size == d else responses))])
        # a step without a Gram matrix adds nothing to it
        return gram if gram.size else np.zeros(self.layout.packed), b

    def every_step(self, replies: Sequence[Reply]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Σ_m of Λ (H, P), u (H, d) and N (H−1, d, S) of one round; (1, …) where steps share."""
        size, total = self.layout, self.total(replies)
        G, d = size.matrices, size.responses
        gram, u, rest = np.split(total, [G * size.packed, G * (size.packed + d)])
        return gram.reshape(G, -1), u.reshape(G, d), rest.reshape(size.tables, d, size.states)


class FloatSums(UploadSums):
    """Doubles, agent after agent: no bit depends on how agents are split into cohorts."""

    def total(self, replies: Sequence[Reply]) -> np.ndarray:
        uploads = [reply for reply in replies if isinstance(reply, Upload)]
        if not uploads:
            return np.zeros(self.layout.upload_words(1))
        parts = [np.zeros(part[0].size) for part in (uploads[0].gram, uploads[0].b)]
        rest = np.zeros(self.layout.cells if uploads[0].every_step else 0)
        for upload in uploads:
            for part, sent in zip(parts, (upload.gram, upload.b), strict=True):
                add_rows(part, np.ascontiguousarray(sent.reshape(len(sent), -1)))
            for following in upload.following:
                rest[following.places] += following.values
        return np.concatenate([*parts, rest])


class FixedPointSums(UploadSums):
    """Integers modulo 2^64: the same sums for every order, split and transport, masked or not."""

    def __init__(self, layout: Layout, bits: int) -> None:
        super().__init__(layout)
        self.n_agents, self.bits = layout.n_agents, bits

    def total(self, replies: Sequence[Reply]) -> np.ndarray:
        total: np.ndarray | int = 0
        for reply in replies:
            if isinstance(reply, Upload):
                total = total + self.words(reply)
            elif isinstance(reply, SummedUpload | MaskedUpload):
                total = total + reply.words
        if isinstance(total, int):
            return np.zeros(self.layout.upload_words(1))
        return fixed_point.decode(total, self.bits)

    def rows(self, upload: Upload) -> np.ndarray:
        """(m, upload_words) each agent of one cohort, encoded."""
        m = len(upload.b)
        rows = np.concatenate([upload.gram.reshape(m, -1), upload.b.reshape(m, -1)], axis=1)
        words = np.zeros((m, rows.shape[1] + upload.every_step * self.layout.cells), np.uint64)
        words[:, : rows.shape[1]] = self._encode(rows)
        for row, following in zip(words[:, rows.shape[1] :], upload.following, strict=False):
            row[following.places] = self._encode(following.values)
        return words

    def upload(self, like: Upload, rows: np.ndarray) -> Upload:
        """The upload of agents whose words these are, of the form of another."""
        cuts = np.cumsum([like.gram[0].size, like.b[0].size])
        gram, b, rest = np.split(fixed_point.decode(rows, self.bits), cuts, axis=1)
        nowhere = np.empty(0, np.int64)
        following = [NextStates(nowhere, row.copy()) for row in rest] if like.every_step else []
        gram, b = gram.reshape(like.gram.shape).copy(), b.reshape(like.b.shape).copy()
        return Upload(like.h, gram, b, tuple(following))

    def words(self, upload: Upload) -> np.ndarray:
        """(upload_words,) the agents of one cohort, each encoded, then added."""
        m = len(upload.b)
        rows = np.concatenate([upload.gram.reshape(m, -1), upload.b.reshape(m, -1)], axis=1)
        words = fixed_point.add(self._encode(rows))
        if not upload.every_step:
            return words
        rest = np.zeros(self.layout.cells, np.uint64)
        for following in upload.following:
            rest[following.places] += self._encode(following.values)
        return np.concatenate([words, rest])

    def _encode(self, x: np.ndarray) -> np.ndarray:
        return fixed_point.encode(x, self.bits, self.n_agents)


def sums_of(p: Parameters, layout: Layout) -> UploadSums:
    """How the uploads of a run are added."""
    if p.aggregation == "float":
        return FloatSums(layout)
    return FixedPointSums(layout, p.scale_bits)
