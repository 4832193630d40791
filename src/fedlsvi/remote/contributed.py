"""What each cohort brought into the sums in one trip (`exchange="one-trip"`).

Step by step the guard has each agent's Λ, and b replaces what was sent before. In one trip all is
added up: u_h = Σφr and N_h = Σφ e_{x'}ᵀ too. So the server keeps them of each cohort, to take out
all of it again, and to form b_h = u_h + N_h V_{h+1} of a cohort that is compared with the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from fedlsvi.experience.finite_kernels import respond
from fedlsvi.protocol.messages import Layout, NextStates, Upload

NOWHERE = np.empty(0, np.int64)
PREFIX = "contributed."
"""Of names of arrays in a checkpoint."""

Ahead = Callable[[int], np.ndarray]
"""V_{h+1} of all columns of N_h, under the model in force."""


def added(one: Upload, other: Upload, layout: Layout) -> Upload:
    """The increments of two rounds of the same agents; b is added in one trip alone, elsewhere the
    later one stands."""
    if not one.every_step:
        return Upload(other.h, one.gram + other.gram, other.b, fit=other.fit)
    pairs = zip(one.following, other.following, strict=True)
    tables = tuple(_both(a, b, layout.cells) for a, b in pairs)
    return Upload(other.h, one.gram + other.gram, one.b + other.b, tables)


def nothing(h: int, agents: int, layout: Layout) -> Upload:
    """In one trip, an upload of agents that add nothing."""
    G, empty = layout.matrices, NextStates(NOWHERE, np.empty(0))
    gram, u = np.zeros((agents, G, layout.packed)), np.zeros((agents, G, layout.responses))
    return Upload(h, gram, u, (empty,) * agents)


def _both(one: NextStates, other: NextStates, size: int) -> NextStates:
    if one.whole or other.whole:
        whole = np.zeros(size)
        for part in (one, other):
            whole[part.places] += part.values
        return NextStates(NOWHERE, whole)
    cells, at = np.unique(np.concatenate([one.cells, other.cells]), return_inverse=True)
    values = np.concatenate([one.values, other.values])
    return NextStates.shorter(cells, np.bincount(at, values, len(cells)), size)


class Contributed:
    """Sums over all rounds of the agents of each cohort.

    Attributes:
        of: Cohort → Λ, u and N of each of its agents.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.of: dict[int, Upload] = {}

    def add(self, c: int, upload: Upload) -> None:
        """An upload of a cohort is in the sums."""
        before = self.of.get(c)
        self.of[c] = upload if before is None else added(before, upload, self.layout)

    def withdraw(self, c: int, agents: int) -> Upload:
        """What takes all of a cohort out again; it is forgotten then."""
        of = self.of.pop(c, None)
        if of is None:
            return nothing(1, agents, self.layout)
        tables = tuple(NextStates(table.cells, -table.values) for table in of.following)
        return Upload(1, -of.gram, -of.b, tables)

    def responses(self, c: int, upload: Upload, ahead: Ahead) -> list[Upload]:
        """Of steps H … 1, as a cohort would send it step by step after this upload: what the round
        added to Λ_h, (1, P), and b_h over all rounds with any V, (1, d)."""
        size, H = self.layout, self.layout.horizon
        total = upload if c not in self.of else added(self.of[c], upload, size)
        gram, u = upload.gram.sum(axis=0), total.b.sum(axis=0)
        following = np.zeros(size.cells)
        for table in total.following:
            following[table.places] += table.values
        tables = following.reshape(size.tables, size.responses, size.states)
        steps = []
        for h in range(H, 0, -1):
            at = min(h, size.matrices) - 1
            b = u[at].copy()
            if h < H:
                respond(ahead(h), u[at], tables[at], b)
            steps.append(Upload(h, gram[at : at + 1], b[None]))
        return steps

    def state(self) -> dict[str, np.ndarray]:
        """Arrays for a checkpoint."""
        arrays: dict[str, np.ndarray] = {}
        for c, of in self.of.items():
            cells = [table.cells for table in of.following]
            values = [table.values for table in of.following]
            parts = {
                "gram": of.gram, "u": of.b, "cells": np.concatenate(cells),
                "values": np.concatenate(values),
                "sizes": np.array([[a.size, b.size] for a, b in zip(cells, values, strict=True)]),
            }  # fmt: skip
            arrays |= {f"{PREFIX}{c}.{name}": array for name, array in parts.items()}
        return arrays

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Continue from `state`."""
        for name in (name for name in arrays if name.startswith(PREFIX) and name.endswith(".u")):
            c = int(name.split(".")[1])
            gram, u, cells, values, sizes = (
                arrays[f"{PREFIX}{c}.{part}"] for part in ("gram", "u", "cells", "values", "sizes")
            )
            cuts = sizes.cumsum(axis=0)[:-1]
            pairs = zip(np.split(cells, cuts[:, 0]), np.split(values, cuts[:, 1]), strict=True)
            following = tuple(NextStates(a.copy(), b.copy()) for a, b in pairs)
            self.of[c] = Upload(1, gram.copy(), u.copy(), following)
