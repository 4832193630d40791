"""Figures by which an upload is judged (`remote.guard`), found in one compiled pass over agents.

Agents stand in the last axis of the working arrays, so that each step of a short factorisation is
one run over agents. Nothing here enters a model: sums may be reordered for speed.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

TRACE, SHAKY, ENERGY, STEP, LEAST, MOST, DEPTH, GROWTH, SUM = range(9)
"""Rows of what `examine` finds."""

FIGURES = 9

AT_ONCE = 16
"""Agents whose working arrays fit a core's cache."""

ABREAST, LONG = 8, 48
"""So many agents or more are factored abreast, each step a run over agents, where rows are shorter
than LONG; else one after the other, each step a run along rows."""

FAST = {"reassoc", "contract"}


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def factorise_one(a):  # type: ignore[no-untyped-def]
    """The same of one agent, (d, d): each entry is a product of two rows."""
    d = len(a)
    for j in range(d):
        row = a[j]
        for i in range(j, d):
            other, total = a[i], 0.0
            for k in range(j):
                total += other[k] * row[k]
            other[j] -= total
        row[j] = math.sqrt(row[j]) if row[j] > 0.0 else math.nan
        for i in range(j + 1, d):
            a[i, j] /= row[j]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def factorise(a):  # type: ignore[no-untyped-def]
    """a ← L with LLᵀ = a, in the lower triangle, for each agent; NaN from a bad pivot on."""
    d, _, m = a.shape
    if m < ABREAST or d >= LONG:
        one = np.empty((d, d))
        for n in range(m):
            for j in range(d):
                for k in range(j + 1):
                    one[j, k] = a[j, k, n]
            factorise_one(one)
            for j in range(d):
                for k in range(j + 1):
                    a[j, k, n] = one[j, k]
        return
    for j in range(d):
        for k in range(j):
            z = a[j, k]
            for i in range(j, d):
                x, y = a[i, j], a[i, k]
                for n in range(m):
                    x[n] -= y[n] * z[n]
        pivot = a[j, j]
        for n in range(m):
            pivot[n] = math.sqrt(pivot[n]) if pivot[n] > 0.0 else math.nan
        for i in range(j + 1, d):
            x = a[i, j]
            for n in range(m):
                x[n] /= pivot[n]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def energy(lower, x, found):  # type: ignore[no-untyped-def]
    """found = xᵀ(LLᵀ)⁻¹x for each agent; x becomes L⁻¹x."""
    d, m = x.shape
    found[:] = 0.0
    for j in range(d):
        here = x[j]
        for k in range(j):
            y, z = x[k], lower[j, k]
            for n in range(m):
                here[n] -= y[n] * z[n]
        pivot = lower[j, j]
        for n in range(m):
            here[n] /= pivot[n]
            found[n] += here[n] * here[n]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def weights(model, where):  # type: ignore[no-untyped-def]
    """Λ⁻¹ of a packed Λ, in the lower triangle: the weights of tr Λ⁻¹Λ^loc."""
    d = len(where)
    lower, columns, found = np.empty((d, d, 1)), np.zeros((d, d)), np.zeros((d, d))
    for j in range(d):
        for k in range(j + 1):
            lower[j, k, 0] = model[where[j, k]]
    factorise(lower)
    for j in range(d):  # row j of `columns` is column j of L⁻¹
        for i in range(j, d):
            rest = 1.0 if i == j else 0.0
            for k in range(j, i):
                rest -= lower[i, k, 0] * columns[j, k]
            columns[j, i] = rest / lower[i, i, 0]
        for k in range(j + 1):
            for i in range(j, d):
                found[j, k] += columns[j, i] * columns[k, i]
    return found


@njit(cache=True, nogil=True)
def quadratic(w, gram, where):  # type: ignore[no-untyped-def]
    """wᵀΛw of a packed Λ; `where` is (d,) where Λ is diagonal."""
    total = 0.0
    for j in range(len(w)):
        if where.ndim == 1:
            total += w[j] * w[j] * gram[where[j]]
        else:
            for k in range(len(w)):
                total += w[j] * w[k] * gram[where[j, k]]
    return total


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def growth(gram, model, where, close, small, found):  # type: ignore[no-untyped-def]
    """log det(Λ + Λ^loc + small·I)/det Λ for agents who are `close`."""
    d, m = len(where), len(gram)
    near = 0
    for i in range(m):
        near += close[i]
    grown = np.empty((d, d, near + 1))
    for j in range(d):
        for k in range(j + 1):
            p, n = where[j, k], 0
            for i in range(m):
                if close[i]:
                    grown[j, k, n] = model[p] + gram[i, p] + (small if j == k else 0.0)
                    n += 1
            grown[j, k, n] = model[p]
    factorise(grown)
    n = 0
    for i in range(m):
        if close[i]:
            found[i] = 0.0
            for j in range(d):
                found[i] += 2.0 * math.log(grown[j, j, n] / grown[j, j, near])
            n += 1


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def examine(  # type: ignore[no-untyped-def]
    gram, before, b, last, model, weight, where, slack, ridge, small, final, most, close, figures
):
    """Figures of each agent, from packed Λ^loc and the G before it; `weight` is from `weights`, and
    `where` is the place of (j, k).

    Args:
        gram, before: (m, P) packed.
        b, last: (m, d); responses now and, at step H, of the round before.
        figures: (FIGURES, m), filled with these rows:

            - TRACE: tr Λ^loc.
            - SHAKY: 1 where Λ^loc + slack·I is not positive.
            - ENERGY: bᵀ(G + ridge·I)⁻¹b, G with Λ^loc: never above bᵀG⁺b, huge where b leaves G's
              range.
            - STEP: where `final`, the same of b's increment with Λ^loc and slack.
            - LEAST, MOST: −1ᵀΛ^loc1 and 1ᵀΛ^loc1.
            - DEPTH: −min b.
            - GROWTH: tr Λ⁻¹Λ^loc, which is above log det(Λ + Λ^loc)/det Λ because log(1 + x) ≤ x;
              where it is above `most`, and for those who are `close`, that logarithm itself.
            - SUM: the size of the sum over Λ^loc's triangle and b: not finite where something in
              them is not.
    """
    m, d = b.shape
    for lo in range(0, m, AT_ONCE):
        hi = min(lo + AT_ONCE, m)
        loc, total = np.empty((d, d, hi - lo)), np.empty((d, d, hi - lo))
        x = np.empty((d, hi - lo))
        for i in range(lo, hi):
            trace, rest, bound, depth, response = 0.0, 0.0, 0.0, -math.inf, 0.0
            for j in range(d):
                for k in range(j):
                    value = gram[i, where[j, k]]
                    loc[j, k, i - lo] = value
                    total[j, k, i - lo] = before[i, where[j, k]] + value
                    rest += value
                    bound += 2.0 * weight[j, k] * value
                value = gram[i, where[j, j]]
                loc[j, j, i - lo] = value + slack
                total[j, j, i - lo] = before[i, where[j, j]] + value + ridge
                trace += value
                bound += weight[j, j] * (value + small)
                depth = max(depth, -b[i, j])
                response += b[i, j]
                x[j, i - lo] = b[i, j]
            figures[TRACE, i], figures[GROWTH, i], figures[DEPTH, i] = trace, bound, depth
            figures[MOST, i] = trace + 2.0 * rest
            figures[LEAST, i] = -figures[MOST, i]
            figures[SUM, i] = abs(trace + rest + response)
            close[i] = close[i] or not bound <= most
        factorise(loc)
        factorise(total)
        energy(total, x, figures[ENERGY, lo:hi])
        if final:
            for i in range(lo, hi):
                for j in range(d):
                    x[j, i - lo] = b[i, j] - last[i, j]
            energy(loc, x, figures[STEP, lo:hi])
        for i in range(lo, hi):
            figures[SHAKY, i] = 0.0 if loc[d - 1, d - 1, i - lo] > 0.0 else 1.0
            if not final:
                figures[STEP, i] = 0.0
    if close.any():
        growth(gram, model, where, close, small, figures[GROWTH])


@njit(cache=True, nogil=True)
def reveal(gram, where, most, small, rank, rest):  # type: ignore[no-untyped-def]
    """Pivoted Cholesky of each packed matrix until no pivot is above `small`: how many there were
    (it stops at most + 1), and the largest entry of what remains. Where a matrix is positive, no
    entry that remains is larger than the largest pivot left; so a larger one, or a negative pivot,
    shows that it is not. Costs n·d² instead of the d³ of a spectrum."""
    d = len(where)
    a = np.empty((d, d))
    for i in range(len(gram)):
        left = np.ones(d, np.bool_)
        for j in range(d):
            for k in range(d):
                a[j, k] = gram[i, where[j, k]]
        while rank[i] <= most:
            p, pivot = -1, small
            for j in range(d):
                if left[j] and a[j, j] > pivot:
                    p, pivot = j, a[j, j]
            if p < 0:
                break
            left[p] = False
            rank[i] += 1
            for j in range(d):
                if left[j]:
                    share = a[j, p] / pivot
                    for k in range(d):
                        a[j, k] -= share * a[p, k]
        for j in range(d):
            for k in range(d):
                if left[j] and left[k]:
                    rest[i] = max(rest[i], abs(a[j, k]))
