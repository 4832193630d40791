"""How well one model fits the targets of each agent and step, from five sums of each.

With y = r + V_{h+1}(x') and ε = y − φᵀw_h of the model in force, an agent sums n, Σy, Σy², Σε and
Σε² over its transitions of step h alone, whatever other steps share Λ. Where the model is right, ε
has mean 0 in every group of transitions that can be told apart beforehand, such as those of a step
or of an agent, and

    z = Σε/√(Σε²)

of a group is about normal: a regression makes its own residuals smaller than that, never larger.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

FIT = 5
"""n, Σy, Σy², Σε and Σε²."""

SURE = 6.0
"""|z| beyond which a group differs: among a thousand groups once in a million runs."""

NOTABLE = 0.02
"""Share of the largest value, by which its mean must differ besides: a difference that matters."""


class Shift(NamedTuple):
    """A group of transitions whose targets the model misses on average.

    Attributes:
        group: The step (1 …) or the agent (0 …).
        mean: Of ε.
        most: The largest value there.
        z: Σε/√(Σε²).
    """

    group: int
    mean: float
    most: float
    z: float


def shifted_step(fit: np.ndarray, ceilings: np.ndarray) -> Shift | None:
    """The step whose targets one model of all steps misses most, where that is beyond doubt.

    Args:
        fit: (M, H, 5).
        ceilings: (H,) the largest values.
    """
    return _largest(fit.sum(axis=0), ceilings, 1)


def shifted_agent(fit: np.ndarray, ceilings: np.ndarray) -> Shift | None:
    """The agent whose targets the common model misses most, likewise."""
    if len(fit) < 2:
        return None
    return _largest(fit.sum(axis=1), np.full(len(fit), ceilings.max()), 0)


def explained(fit: np.ndarray) -> float | None:
    """The share of the variance of the targets within steps that the model explains, 1 − Σε²/Σ(y −
    ȳ_h)²; None where targets do not vary."""
    n, total, squares, _, off = fit.sum(axis=0).T
    known = n > 0
    within = float((squares[known] - total[known] ** 2 / n[known]).sum())
    if within <= 1e-9 * float(squares.sum()):
        return None
    return 1.0 - float(off.sum()) / within


def _largest(groups: np.ndarray, ceilings: np.ndarray, first: int) -> Shift | None:
    """Of groups (G, 5) that are shifted, the one that is furthest off for its largest value."""
    n, _, _, off, squares = groups.T
    seen = np.maximum(n, 1.0)
    z, mean = off / np.sqrt(np.maximum(squares, 1e-300)), off / seen
    shifted = (np.abs(z) > SURE) & (np.abs(mean) > NOTABLE * ceilings)
    if not shifted.any():
        return None
    share = np.where(shifted, np.abs(mean) / ceilings, 0.0)
    k = int(np.argmax(share))
    return Shift(first + k, float(mean[k]), float(ceilings[k]), float(z[k]))
