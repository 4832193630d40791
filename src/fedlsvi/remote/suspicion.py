"""Whether one site contradicts all others: leave-one-out residuals of what the server holds.

At step h let G_c be a site's Gram matrix over all rounds and b_c its responses. Honest sites learn
the same regression, so the weights of the others predict what a site sends:

    w₋c = (λI + Σ_{i≠c} G_i)⁻¹ Σ_{i≠c} b_i,   e_c = b_c − G_c w₋c,
    ρ_c = e_cᵀ((G_c + I)⁻¹ − (λI + I + Σ_i G_i)⁻¹) e_c.

The second inverse allows for the error of w₋c itself: where the others have seen little, a site
cannot contradict them. (It is Chow's test of two regressions, with a ridge of one visit.)

A liar spoils the residuals of the honest too, because it is one of their "others". So the site with
the largest ρ is taken out, the others are compared among themselves, and it is suspected if

    ρ_c > RATIO · (largest ρ of the others without it) + FLOOR·d·y² + SPREAD·(ξy)²·n_c,

y the largest possible target at step h and n_c = tr G_c. The first term knows the noise of targets
and how different sites really are, the second the bias of ridge regression, the third by how much
the targets of two sites may differ where a heterogeneity of ξ was agreed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedlsvi.core.statistics import unpack
from fedlsvi.protocol.messages import Upload
from fedlsvi.remote.guard import Guard

RATIO, FLOOR, SPREAD = 8.0, 0.1, 0.5
"""Chosen on instances that report nothing (`fedlsvi.experiments.studies.liars`)."""

GROWTH = 1.1
"""Sites are compared whenever the number of episodes has grown by this factor: evidence grows no
faster, and the cost stays small beside that of the run."""

FEWEST = 3
"""Sites: of two that disagree, nobody can tell which is right."""


def due(before: int, after: int) -> bool:
    """Whether sites are compared in the round that led from episode `before` to `after`; a function
    of these alone, so that a resumed run compares in the same rounds."""
    log = math.log(GROWTH)
    return before == 0 or int(math.log(after) / log) > int(math.log(before) / log)


@dataclass(frozen=True)
class Suspect:
    """The site that fits the others least.

    Attributes:
        site: Its position.
        residual: ρ.
        limit: The ρ above which it is suspected.
    """

    site: int
    residual: float
    limit: float

    @property
    def suspected(self) -> bool:
        """Whether it contradicts the others."""
        return self.residual > self.limit


def residuals(gram: np.ndarray, b: np.ndarray, lam: float) -> np.ndarray:
    """ρ of every site, (C,), from Gram matrices (C, d, d), or diagonals (C, d), and b (C, d)."""
    if gram.ndim == 2:
        total = lam + gram.sum(axis=0)
        e = b - gram * (b.sum(axis=0) - b) / (total - gram)
        found: np.ndarray = (e * e * (1.0 / (gram + 1.0) - 1.0 / (total + 1.0))).sum(axis=1)
        return found
    eye = np.eye(gram.shape[1])
    total = lam * eye + gram.sum(axis=0)
    weights = np.linalg.solve(total - gram, (b.sum(axis=0) - b)[:, :, None])
    e = b[:, :, None] - gram @ weights
    own = np.linalg.solve(gram + eye, e)
    pooled = np.linalg.solve(total + eye, e[:, :, 0].T).T
    found = (e * own).sum(axis=(1, 2)) - (e[:, :, 0] * pooled).sum(axis=1)
    return found


def suspect(gram: np.ndarray, b: np.ndarray, lam: float, y_max: float, xi: float) -> Suspect:
    """The site that fits the others least, of at least FEWEST; arguments as for `residuals`."""
    found = residuals(gram, b, lam)
    worst = int(found.argmax())
    others = np.arange(len(b)) != worst
    usual = float(residuals(gram[others], b[others], lam).max())
    visits = float(gram[worst].sum() if gram.ndim == 2 else np.trace(gram[worst]))
    slack = FLOOR * b.shape[1] * y_max**2 + SPREAD * (xi * y_max) ** 2 * visits
    return Suspect(worst, float(found[worst]), RATIO * usual + slack)


def compare(
    guard: Guard,
    cuts: Sequence[tuple[int, int]],
    h: int,
    uploads: Mapping[int, Upload],
    lam: float,
    xi: float,
) -> Suspect | None:
    """The site that contradicts the others, if sites are compared in this round and one does.

    Args:
        guard: Has each agent's Gram matrices before these uploads.
        cuts: (first agent, number of agents) of each site.
        h: The step.
        uploads: Of the sites to compare.
        lam, xi: As in the parameters of the run.
    """
    if len(uploads) < FEWEST or not due(guard.t, guard.t + guard.length):
        return None
    sites, total, layout = sorted(uploads), [], guard.layout
    for site in sites:
        first, agents = cuts[site]
        packed = guard.gram[min(h, len(guard.gram)) - 1, first : first + agents].sum(axis=0)
        if layout.gram_size(h):  # where steps share a matrix, it came with step H
            packed = packed + uploads[site].gram.sum(axis=0)
        total.append(unpack(packed, layout.dim, layout.packing))
    b = np.stack([uploads[site].b.sum(axis=0) for site in sites])
    found = suspect(np.stack(total), b, lam, float(guard.facts.y_max[h - 1]), xi)
    return replace(found, site=sites[found.site]) if found.suspected else None
