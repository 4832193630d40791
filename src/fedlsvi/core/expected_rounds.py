"""When rounds will end, from the mean Gram matrix of an episode alone.

After t episodes of each of M agents Λ_h is close to λI + Mt·Ḡ_h, with Ḡ_h the mean of Σφφᵀ over an
agent's episodes, and Λ_h^loc after Δt more is close to Δt·Ḡ_h. In the eigenvectors of Ḡ_h, whose
eigenvalues are s,

    log det(Λ + Λ^loc)/det Λ = Σ_i log(1 + Δt·s_i/(λ + Mt·s_i)),

so the trigger can be asked without playing. What this leaves out is chance: the first of many
agents fires a little earlier than the mean, and policies change.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fedlsvi.core.statistics import full
from fedlsvi.core.trigger import Trigger, fires


def mean_spectra(gram: np.ndarray, lam: float, played: float) -> np.ndarray:
    """Eigenvalues of the mean Gram matrix of an episode, (G, d).

    Args:
        gram: Λ of each group of steps, (G, d, d) or the diagonals (G, d).
        lam: λ.
        played: Episodes behind it, of all agents.
    """
    values = gram if gram.ndim == 2 else np.linalg.eigvalsh(full(gram))
    spectra: np.ndarray = np.maximum(values - lam, 0.0) / played
    return spectra


def expected_ends(
    trigger: Trigger, spectra: np.ndarray, lam: float, present: float, before: float, t: int
) -> np.ndarray:
    """The last episodes of the rounds after episode t, (K,).

    Args:
        trigger: When rounds end.
        spectra: (G, d) of `mean_spectra`.
        lam: λ.
        present: Agents in a round, M or their mean number.
        before: Episodes that count in Λ beside those of the run: logs, an earlier run.
        t: Episodes of each agent so far.
    """
    ends = []
    while t < trigger.episodes:
        rule = trigger.rule(t)
        grams = lam + (before + present * t) * spectra
        last = t + _length(spectra, grams, rule, trigger.longest(t))
        t = min(last if last <= trigger.latest else trigger.episodes, trigger.episodes)
        ends.append(t)
    return np.array(ends, np.int64)


@njit(cache=True, nogil=True)
def _length(spectra, grams, rule, longest):  # type: ignore[no-untyped-def]
    """The smallest Δt from the floor on that fires, at most `longest`: at once, or by bisection."""
    silent, loud = min(rule.floor, longest) - 1, longest
    middle = silent + 1
    while loud - silent > 1:
        largest = 0.0
        for g in range(spectra.shape[0]):
            ratio = 0.0
            for i in range(spectra.shape[1]):
                ratio += np.log1p(middle * spectra[g, i] / grams[g, i])
            largest = max(largest, ratio)
        if fires(middle, largest, rule):
            loud = middle
        else:
            silent = middle
        middle = (silent + loud) // 2
    return loud
