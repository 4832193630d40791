"""What agents add to one step, in the form that the guard judges, whatever message brought it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedlsvi.core.statistics import read_only
from fedlsvi.privacy.sums import UploadSums
from fedlsvi.protocol.messages import Layout, NextStates, Reply, Upload


class Contribution(NamedTuple):
    """One step of some agents, or of the sum of all of them."""

    h: int
    gram: np.ndarray
    """(m, P), what a round adds to Λ_h; (m, 0) where steps share the matrix of step H."""
    b: np.ndarray
    """(m, d), responses over all rounds; in one trip u_h, what the round adds to Σφr."""
    following: Iterable[np.ndarray] = ()
    """(d, S) of each agent: in one trip, what the round adds to N_h, if steps follow. Two rows
    more where the bonus knows the noise (`experience.moments`)."""
    moments: np.ndarray | None = None
    """(m, 2), Σy² and n over all rounds, where the bonus knows the noise; in one trip Σr² and n of
    the round."""


@dataclass(frozen=True)
class _Tables:
    """N of one step, agent after agent: only one of them is ever unpacked."""

    following: Sequence[NextStates]
    number: int
    shape: tuple[int, int]

    def __iter__(self) -> Iterator[np.ndarray]:
        width = self.shape[0] * self.shape[1]
        begin = self.number * width
        for table in self.following:
            if table.whole:
                yield table.values[begin : begin + width].reshape(self.shape)
                continue
            cut = slice(*np.searchsorted(table.cells, [begin, begin + width]))
            cells = np.zeros(width)
            cells[table.cells[cut] - begin] = table.values[cut]
            yield cells.reshape(self.shape)


def contributions(upload: Upload, layout: Layout) -> Iterator[Contribution]:
    """What each agent of an upload adds, step after step."""
    if not upload.every_step:
        yield _apart(Contribution(upload.h, upload.gram, upload.b), layout)
        return
    for i in range(layout.matrices):
        tables = _Tables(upload.following, i, (layout.responses, layout.states))
        yield _step(layout, i, upload.gram[:, i], upload.b[:, i], tables)


def summed(
    masked: Sequence[Reply], h: int, size: int, layout: Layout, sums: UploadSums
) -> Iterator[Contribution]:
    """What all agents together add, where only their sum can be read.

    Args:
        masked: All sites' uploads of step h, or of all steps at once.
        h: The step.
        size: Of Λ_h in them, P or 0.
        layout: Of the run.
        sums: Adds them.
    """
    if not layout.states:
        gram, b = sums(masked, h)
        part = Contribution(h, read_only(gram[None, :size]), read_only(b[None]))
        yield _apart(part, layout)
        return
    gram, u, following = sums.every_step(masked)
    for i in range(layout.matrices):
        yield _step(layout, i, gram[i : i + 1], u[i : i + 1], following[i : i + 1])


def _step(
    layout: Layout, i: int, gram: np.ndarray, u: np.ndarray, tables: Iterable[np.ndarray]
) -> Contribution:
    """Matrix i of one trip; where steps share it, it belongs to step H."""
    h = layout.horizon if layout.stationary else i + 1
    part = Contribution(h, read_only(gram), read_only(u), tables if i < layout.tables else ())
    return _apart(part, layout)


def _apart(part: Contribution, layout: Layout) -> Contribution:
    """b and what is behind it, each for itself; in the pass after the last round it is alone."""
    if part.b.shape[1] == layout.dim:
        return part
    b, moments = np.split(part.b, [layout.dim], axis=1)
    return part._replace(b=read_only(b), moments=read_only(moments))
