"""Compiled kernels of the tent map and its hat functions; imported only when they are used.

    T_a(x) = 1 − |2·frac(x + a/A) − 1|,   φ_i(x,a) = max(0, 1 − |(d−1)·T_a(x) − i|),  i = 0..d−1.

Two neighbouring entries of φ are non-zero: 1 − f at knot k and f at knot k + 1.
"""

from __future__ import annotations

from numba import njit


@njit(inline="always")
def knot(x, a, n_actions, dim):  # type: ignore[no-untyped-def]
    """(k, f): the knot below (d−1)·T_a(x), and the weight of the one above it."""
    y = x + a / n_actions
    y -= int(y)
    t = (1.0 - abs(2.0 * y - 1.0)) * (dim - 1)
    k = min(int(t), dim - 2)
    return k, t - k


@njit(cache=True, nogil=True)
def fill_hat(states, out):  # type: ignore[no-untyped-def]
    """out[n, a] = φ(states[n, 0], a). Returns the first row outside [0, 1], or −1."""
    n, n_actions, dim = out.shape
    for e in range(n):
        out[e] = 0.0
        x = states[e, 0]
        if not 0.0 <= x <= 1.0:  # its knots would lie outside `out`
            return e
        for a in range(n_actions):
            k, f = knot(x, a, n_actions, dim)
            out[e, a, k] = 1.0 - f
            out[e, a, k + 1] = f
    return -1


@njit(cache=True, nogil=True)
def fill_chosen(states, actions, n_actions, out):  # type: ignore[no-untyped-def]
    """out[n] = φ(states[n, 0], actions[n]). Returns the first row outside [0, 1], or −1."""
    n, dim = out.shape
    for e in range(n):
        out[e] = 0.0
        x = states[e, 0]
        if not 0.0 <= x <= 1.0:
            return e
        k, f = knot(x, actions[e], n_actions, dim)
        out[e, k] = 1.0 - f
        out[e, k + 1] = f
    return -1
