"""Optimistic values (eq. 2): Q_h(x,a) = Π_[0,c](φᵀw_h + β‖φ‖_{Λ_h⁻¹}), V_h(x) = max_a Q_h(x,a).

With Λ = LLᵀ, y = L⁻¹φ and z = Lᵀw, both terms come from y alone: φᵀw = yᵀz and ‖φ‖_{Λ⁻¹} = ‖y‖.
`upper` is the only place in fedlsvi where the bonus is computed.

A bonus that knows the noise (`bonus="noise"`) is never more than that, and less where the targets
y = r + V_{h+1}(x') scatter less than they may: with v_h the largest value that remains,

    min(β_h‖φ‖, 1.5·σ̂_h‖φ‖ + 0.1·v_h‖φ‖²),   σ̂_h² = (RSS_h + v_h²/4) / (max(n_h − d_h, 0) + 1),

RSS_h = Σy² − w_hᵀb_h = ‖y − Φw_h‖² + λ‖w_h‖² of n_h targets, and d_h = d − λ·tr Λ_h⁻¹ directions in
force. The prior is one more target of the largest variance that values in [0, v_h] can have.

Where not every action is allowed in every state, the maximum runs over A_x ⊂ A: kernels take
`allowed` (n, A), or `EVERY`, and this is the only place where a mask decides anything.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

TIE = 1e-9
"""An action replaces one of a lower index only where its score is larger by this fraction: equal
scores that rounding orders differently on another CPU give the same policy."""

EVERY = np.empty((0, 0), np.bool_)
"""In place of a mask: every action is allowed."""

SCALE, EXTRA = 1.5, 0.1
"""Of σ̂_h‖φ‖ and of v_h‖φ‖² (studies/noise.md)."""

UNKEPT = np.empty((0, 0))
"""In place of an array for scores: nobody asks for them."""


@njit(inline="always")
def beats(score, best):  # type: ignore[no-untyped-def]
    """Whether a score is above the best of the actions before it by more than rounding."""
    return score > best + TIE * abs(best) or best == -np.inf


@njit(inline="always")
def upper(mean, norm2, beta):  # type: ignore[no-untyped-def]
    """The unclipped score φᵀw + β‖φ‖_{Λ⁻¹}, given φᵀw and ‖φ‖²_{Λ⁻¹}."""
    return mean + beta * np.sqrt(norm2)


@njit(inline="always")
def slope(norm2, bonus):  # type: ignore[no-untyped-def]
    """What ‖φ‖_{Λ⁻¹} is multiplied by, given a row of `step_bonuses`."""
    if bonus[2] == 0.0:
        return bonus[0]
    return min(bonus[0], bonus[1] + bonus[2] * np.sqrt(norm2))


def step_bonuses(betas: np.ndarray, noise: np.ndarray | None, top: np.ndarray) -> np.ndarray:
    """(H, 3): β_h, and 1.5σ̂_h and 0.1v_h, or zeros where nobody asks for the noise.

    Args:
        betas: (H,) β_h.
        noise: (H,) σ̂_h; None leaves the bonus at β_h‖φ‖.
        top: (H,) v_h, the upper clips.
    """
    rows = np.zeros((len(top), 3))
    rows[:, 0] = betas
    if noise is not None:
        rows[:, 1], rows[:, 2] = SCALE * noise, EXTRA * top
    return rows


def noise_level(
    squares: float, explained: float, targets: float, directions: float, top: float
) -> float:
    """σ̂_h of Σy², wᵀb, n_h, d_h and v_h."""
    residual = max(squares - explained, 0.0) + 0.25 * top * top
    return math.sqrt(residual / (max(targets - directions, 0.0) + 1.0))


# reassociation lets the two sums over d use vector registers; their order is fixed by d and the CPU
@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def backup(y, z, bonus, ceiling, values, greedy, norms, allowed, scores):  # type: ignore[no-untyped-def]
    """values[x] = max_a Q(x,a) and greedy[x] = argmax_a of the unclipped score, lowest index first;
    norms[x] = ‖φ(x, greedy[x])‖²_{Λ⁻¹}; scores[x, a], where they are asked for.

    `bonus` is the step's row of `step_bonuses`; y is (n, A, d): the whitened features of every
    action in n states.
    """
    n, n_actions, dim = y.shape
    masked, kept = allowed.size > 0, scores.size > 0
    for x in range(n):
        best, top, chosen, norm = -np.inf, -np.inf, 0, 0.0
        for a in range(n_actions):
            mean = 0.0
            norm2 = 0.0
            for i in range(dim):
                mean += y[x, a, i] * z[i]
                norm2 += y[x, a, i] * y[x, a, i]
            score = upper(mean, norm2, slope(norm2, bonus))
            if kept:
                scores[x, a] = score
            if masked and not allowed[x, a]:
                continue
            top = max(top, score)
            if beats(score, best):
                best, chosen, norm = score, a, norm2
        values[x] = min(max(top, 0.0), ceiling)
        greedy[x] = chosen
        norms[x] = norm


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def maximum(phi, norms2, w, bonus, ceiling, values, allowed):  # type: ignore[no-untyped-def]
    """values[x] = max_a Q(x,a), given φ (n, A, d) itself and ‖φ‖²_{Λ⁻¹} (n, A)."""
    n, n_actions, dim = phi.shape
    masked = allowed.size > 0
    for x in range(n):
        top = -np.inf
        for a in range(n_actions):
            if masked and not allowed[x, a]:
                continue
            mean = 0.0
            for i in range(dim):
                mean += phi[x, a, i] * w[i]
            top = max(top, upper(mean, norms2[x, a], slope(norms2[x, a], bonus)))
        values[x] = min(max(top, 0.0), ceiling)


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def respond_shared(  # type: ignore[no-untyped-def]
    psi, first, here, after, actions, rewards, ended, norms2, w, limits, behind, allowed, response
):
    """response[a] += ψ(x)(r + V(x')) of n transitions with φ(x, a) = e_a ⊗ ψ(x).

    States have numbers, those of x and x' are here[j] and after[j]; psi (k, D) has ψ from state
    `first` on, and norms2 (·, A) has ‖φ‖²_{Λ⁻¹} of all. w and response are (A, D), limits the bonus
    and the clip. V is `behind` where the episode `ended`. Returns Σ(r + V(x'))².
    """
    bonus, ceiling = limits
    squares = 0.0
    n_actions, dim = w.shape
    masked = allowed.size > 0
    for j in range(here.size):
        value = behind
        if not ended[j]:
            # unsigned: spares the check for negative indices
            y, row, top = np.uint64(after[j]), np.uint64(after[j] - first), -np.inf
            for a in range(n_actions):
                if masked and not allowed[j, a]:
                    continue
                mean = 0.0
                for i in range(dim):
                    mean += psi[row, i] * w[a, i]
                top = max(top, upper(mean, norms2[y, a], slope(norms2[y, a], bonus)))
            value = min(max(top, 0.0), ceiling)
        target, row, own = rewards[j] + value, np.uint64(here[j] - first), np.uint64(actions[j])
        squares += target * target
        for i in range(dim):
            response[own, i] += target * psi[row, i]
    return squares


@njit(cache=True, nogil=True)
def choose(score, greedy):  # type: ignore[no-untyped-def]
    """greedy[x] = argmax_a score[x, a], lowest index first up to `TIE`; score is (n, A)."""
    for x in range(score.shape[0]):
        best, chosen = -np.inf, 0
        for a in range(score.shape[1]):
            if beats(score[x, a], best):
                best, chosen = score[x, a], a
        greedy[x] = chosen


@njit(cache=True, nogil=True)
def settle(score, allowed, ceiling, values, greedy):  # type: ignore[no-untyped-def]
    """`backup` from scores (n, A) that are known: only the mask (n, A) is new."""
    for x in range(score.shape[0]):
        best, top, chosen = -np.inf, -np.inf, 0
        for a in range(score.shape[1]):
            if allowed[x, a]:
                top = max(top, score[x, a])
                if beats(score[x, a], best):
                    best, chosen = score[x, a], a
        values[x] = min(max(top, 0.0), ceiling)
        greedy[x] = chosen


@njit(cache=True, nogil=True)
def take_rows(y, greedy, rows):  # type: ignore[no-untyped-def]
    """rows[x] = y[x, greedy[x]]: the whitened features of the greedy actions."""
    for x in range(y.shape[0]):
        for i in range(y.shape[2]):
            rows[x, i] = y[x, greedy[x], i]


@njit(cache=True, nogil=True)
def backup_diagonal(  # type: ignore[no-untyped-def]
    index, w, gram, bonus, ceiling, values, greedy, allowed, scores
):
    """`backup` for one-hot features: φ(x,a) = e_i with i = index[x,a], so ‖φ‖²_{Λ⁻¹} = 1/Λ_ii."""
    n, n_actions = index.shape
    masked, kept = allowed.size > 0, scores.size > 0
    for x in range(n):
        best, top, chosen = -np.inf, -np.inf, 0
        for a in range(n_actions):
            i = index[x, a]
            norm2 = 1.0 / gram[i]
            score = upper(w[i], norm2, slope(norm2, bonus))
            if kept:
                scores[x, a] = score
            if masked and not allowed[x, a]:
                continue
            top = max(top, score)
            if beats(score, best):
                best, chosen = score, a
        values[x] = min(max(top, 0.0), ceiling)
        greedy[x] = chosen


def ceilings(horizon: int, value_range: float | None, preset: str) -> np.ndarray:
    """The upper clip of each step: H as printed, or min(H−h+1, value_range) in practice."""
    top = float(horizon) if value_range is None else min(float(horizon), value_range)
    if preset == "paper":
        return np.full(horizon, top, np.float64)
    return np.minimum(np.arange(horizon, 0, -1, dtype=np.float64), top)
