"""What an upload gives away: how far Λ^loc determines which state-action pairs were visited.

Whoever knows the feature table knows the linear map from visit counts n(x,a) to

    Σ n(x,a) φ(x,a)φ(x,a)ᵀ = Λ^loc,   Σ n(x,a) = length of the round.

A count can be solved for, however long the round was, where no vector of the map's null space
touches it; all counts can where the matrices φφᵀ are linearly independent. Pairs with the same φφᵀ
count as one kind: no upload tells them apart. Counts are integers of at least 0, so that a round
with fewer visits than the rank can usually be solved where the map has a null space too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedlsvi.core.statistics import pack
from fedlsvi.features.base import FeatureMap
from fedlsvi.features.tabular import OneHot, TableFeatures

SMALL = 1e-9
"""What counts as zero beside the largest singular value: uploads are exact to about 1e-16."""

MOST_ENTRIES, MOST_WORK = 5_000_000, 500_000_000
"""Numbers in the table, and multiplications, beyond which only bounds are given: about a second."""


@dataclass(frozen=True)
class VisitRecovery:
    """How far uploads determine visits.

    Attributes:
        pairs: S·A.
        kinds: How many of them uploads can tell apart: distinct φφᵀ.
        rank: Rank of the map from counts of kinds to (Λ^loc, length of the round); None where it is
            too large to compute.
        solved: Kinds whose count follows from every upload, whatever its length; None likewise.
    """

    pairs: int
    kinds: int
    rank: int | None
    solved: int | None

    @property
    def complete(self) -> bool:
        """Whether every upload gives the count of every kind."""
        return self.solved == self.kinds


def visit_recovery(features: FeatureMap) -> VisitRecovery | None:
    """What uploads give away about visits; None where states are not finite: there an upload of
    fewer than about d/2 episodes can be taken apart into its φφᵀ, and nothing general is known
    about longer ones."""
    if isinstance(features, OneHot):
        return VisitRecovery(features.dim, features.dim, features.dim, features.dim)
    if not isinstance(features, TableFeatures):
        return None
    pairs = features.n_states * features.n_actions
    if features.one_hot:
        used = len(np.unique(features.index))
        return VisitRecovery(pairs, used, used, used)
    if pairs * features.dim > MOST_ENTRIES:
        return VisitRecovery(pairs, pairs, None, None)
    rows = distinct(features.table.reshape(pairs, -1))
    n, size = len(rows), features.dim * (features.dim + 1) // 2 + 1
    if n * size * min(n, size) > MOST_WORK:
        return VisitRecovery(pairs, n, None, None)
    _, found, right = np.linalg.svd(upload_map(rows), full_matrices=False)
    rank = int((found > SMALL * found[0]).sum())
    reached = (right[:rank] ** 2).sum(axis=0)  # 1 where the unit vector is in the row space
    return VisitRecovery(pairs, n, rank, int((reached > 1.0 - 1e-6).sum()))


def distinct(rows: np.ndarray) -> np.ndarray:
    """Rows (n, d) with different φφᵀ: those that differ in sign alone are the same."""
    first = (np.abs(rows) > 1e-12).argmax(axis=1)
    sign = np.where(rows[np.arange(len(rows)), first] < 0.0, -1.0, 1.0)
    _, kept = np.unique((rows * sign[:, None]).round(12), axis=0, return_index=True)
    return np.ascontiguousarray(rows[np.sort(kept)])


def upload_map(rows: np.ndarray) -> np.ndarray:
    """(d(d+1)/2 + 1, n): a column for each row φ of (n, d), its packed φφᵀ and a one. Entries off
    the diagonal are times √2, so that columns keep the inner products of matrices."""
    outer = rows[:, :, None] * rows[:, None, :]
    weights = np.full((rows.shape[1],) * 2, np.sqrt(2.0))
    np.fill_diagonal(weights, 1.0)
    return np.vstack([pack(outer * weights, "packed").T, np.ones(len(rows))])
