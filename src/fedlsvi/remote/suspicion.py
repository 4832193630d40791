"""Whether one site contradicts all others: leave-one-out residuals of what the server holds.

At step h let G_c be a site's Gram matrix over all rounds and b_c its responses. Honest sites learn
the same regression, so the weights of the others predict what a site sends:

    w₋c = (λI + Σ_{i≠c} G_i)⁻¹ Σ_{i≠c} b_i,   e_c = b_c − G_c w₋c,
    ρ_c = e_cᵀ((G_c + I)⁻¹ − (λI + I + Σ_i G_i)⁻¹) e_c.

The second inverse allows for the error of w₋c itself: where the others have seen little, a site
cannot contradict them. (It is Chow's test of two regressions, with a ridge of one visit.)

A liar spoils the residuals of the honest too, because it is one of their "others". So the site with
the largest ρ is taken out (and a second one, where at least five sites are compared), the others
are compared among themselves, and a site that is out is suspected if, beside these others alone,

    ρ_c > RATIO · (largest ρ of the others without it) + FLOOR·d·y² + SPREAD·(ξy)²·n_c,

y the largest possible target at step h and n_c = tr G_c. The first term knows the noise of targets
and how different sites really are, the second the bias of ridge regression, the third by how much
the targets of two sites may differ where a heterogeneity of ξ was agreed.

b replaces what a site sent before, so a site that knew when it is compared could be honest then and
lie in all other rounds. It does not know: besides the rounds of a public schedule, rounds are drawn
with a secret of the server, and nothing that a site receives depends on the draw. What no later
round corrects, the responses of the last one and of the pass after it, is always compared.
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedlsvi.core.statistics import unpack
from fedlsvi.protocol.messages import Upload
from fedlsvi.remote.guard import Guard

RATIO, FLOOR, SPREAD = 8.0, 0.1, 0.5
"""Chosen on instances that report nothing (studies/liars.py)."""

GROWTH = 1.1
"""Sites are compared whenever the number of episodes has grown by this factor: evidence grows no
faster, and the cost stays small beside that of the run."""

SHARE = 0.25
"""Of the other rounds, how many are drawn: a site that lies in n of them gets away with .75ⁿ."""

SECRET_BYTES = 32

COLLUDERS = 2
"""Sites that may tell the same lie, of at least five."""

FEWEST = 3
"""Sites: of two that disagree, nobody can tell which is right."""


def scheduled(before: int, after: int) -> bool:
    """Whether everybody knows that sites are compared in the round that led from episode `before`
    to `after`."""
    log = math.log(GROWTH)
    return before == 0 or int(math.log(after) / log) > int(math.log(before) / log)


def due(before: int, after: int, secret: bytes) -> bool:
    """Whether sites are compared in that round; a function of these alone, so that a resumed run
    compares in the same rounds."""
    if scheduled(before, after):
        return True
    draw = hmac.digest(secret, b"compare" + before.to_bytes(8, "little"), "sha256")
    return int.from_bytes(draw[:4], "little") < SHARE * 2**32


def compares(guard: Guard, secret: bytes) -> bool:
    """Whether sites are compared in the round, or the pass, under way."""
    return guard.lasting or due(guard.t, guard.t + guard.length, secret)


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
    """The site that fits the others least, of at least FEWEST; arguments as for `residuals`.

    One site is taken out, and if nothing is wrong with it another one too, as long as most sites
    are left: two that tell the same lie support each other.
    """
    rest, out = list(range(len(b))), []
    first: Suspect | None = None
    for _ in range(max(1, min(COLLUDERS, (len(b) - 1) // 2))):
        out.append(rest.pop(int(residuals(gram[rest], b[rest], lam).argmax())))
        usual = float(residuals(gram[rest], b[rest], lam).max())
        misfits = [_misfit(c, rest, gram, b, lam, usual, y_max, xi) for c in out]
        worst = max(misfits, key=lambda misfit: misfit.residual / misfit.limit)
        if worst.suspected:
            return worst
        first = worst if first is None else first
    assert first is not None
    return first


def _misfit(
    c: int,
    rest: list[int],
    gram: np.ndarray,
    b: np.ndarray,
    lam: float,
    usual: float,
    y_max: float,
    xi: float,
) -> Suspect:
    """How well site c fits the sites `rest`, whose residuals are at most `usual`."""
    compared = [*rest, c]
    residual = float(residuals(gram[compared], b[compared], lam)[-1])
    visits = float(gram[c].sum() if gram.ndim == 2 else np.trace(gram[c]))
    slack = FLOOR * b.shape[1] * y_max**2 + SPREAD * (xi * y_max) ** 2 * visits
    return Suspect(c, residual, RATIO * usual + slack)


def compare(
    guard: Guard,
    cuts: Sequence[tuple[int, int]],
    h: int,
    uploads: Mapping[int, Upload],
    lam: float,
    xi: float,
    secret: bytes,
) -> Suspect | None:
    """The site that contradicts the others, if sites are compared in this round and one does.

    Args:
        guard: Has each agent's Gram matrices before these uploads.
        cuts: (first agent, number of agents) of each site.
        h: The step.
        uploads: Of the sites to compare.
        lam, xi: As in the parameters of the run.
        secret: Draws the rounds in which sites are compared.
    """
    if len(uploads) < FEWEST or not compares(guard, secret):
        return None
    sites, total, layout = sorted(uploads), [], guard.layout
    for site in sites:
        first, agents = cuts[site]
        packed = guard.gram[min(h, len(guard.gram)) - 1, first : first + agents].sum(axis=0)
        if uploads[site].gram.size:  # where steps share a matrix, it came with step H
            packed = packed + uploads[site].gram.sum(axis=0)
        total.append(unpack(packed, layout.dim, layout.packing))
    b = np.stack([uploads[site].b[:, : layout.dim].sum(axis=0) for site in sites])
    found = suspect(np.stack(total), b, lam, float(guard.bounds.y_max[h - 1]), xi)
    return replace(found, site=sites[found.site]) if found.suspected else None
