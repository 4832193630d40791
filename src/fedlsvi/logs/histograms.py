"""Bins that sites agree on: a histogram of each variable, added up over sites, and its quantiles.

What a site contributes is a log like any other, of episodes with a single step: one for each stay
and variable, whose state is the cell of a value of that stay, at a step drawn at random, and whose
reward is 1. Λ and u of such a log are the histogram. So exact and secure sums, differential privacy
and the files by mail are those of every study, and a stay counts once for each variable, however
long it is.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from fedlsvi.errors import InvalidInput, warn
from fedlsvi.logs.recipe import Recipe, Variable

if TYPE_CHECKING:
    from fedlsvi.logs.clinical import Episodes, Stays


def samples(recipe: Recipe, stays: Stays) -> Episodes:
    """A value of each stay and open variable, as a log; which one is drawn is always the same."""
    from fedlsvi.logs.clinical import Episodes

    rng, first, parts = np.random.default_rng(0), 0, []
    whose = stays.ids if stays.patients is None else stays.patients
    for own in recipe.open:
        state, limits = own in recipe.states, own.range or []
        values = stays.measured[own.name]
        place = np.arange(values.shape[1])[None] - (0 if state else 1)
        usable = ~np.isnan(values) & (place >= 1) & (place <= stays.steps[:, None])
        if not state:  # nothing is a class of its own
            usable &= values >= limits[0]
        chances = np.where(usable, rng.random(values.shape), -1.0)
        who = np.flatnonzero(usable.any(axis=1))
        drawn = values[who, chances[who].argmax(axis=1)]
        share = (drawn - limits[0]) / (limits[1] - limits[0])
        cell = np.clip((share * own.cells).astype(np.int64), 0, own.cells - 1)
        ids = np.char.add(stays.ids[who].astype(str), f" {own.name}")
        parts.append((ids, first + cell, whose[who]))
        first += own.cells
    episode, cell, patient = (np.concatenate(each) for each in zip(*parts, strict=True))
    n = len(cell)
    log = {
        "episode": episode, "step": np.ones(n, int), "observation": cell,
        "action": np.zeros(n, int), "reward": np.ones(n), "terminated": np.ones(n, bool),
        "patient": patient,
    }  # fmt: skip
    return Episodes(log, len(stays.ids), {why: n for why, n in stays.left_out.items() if n})


def with_edges(recipe: Recipe, gram: np.ndarray, w: np.ndarray) -> Recipe:
    """The recipe with the edges that follow from all sites' histograms.

    Args:
        recipe: An open one.
        gram: (1, S) Λ that `pevi` has learned from the logs that `logs.clinical.episodes` makes of
            the recipe (`run.gram_packed`).
        w: (1, S) the weights (`run.w`): u = Λw are the counts in the cells of its variables, one
            after the other. They may have noise.
    """
    counts, agreed, first = gram[0] * w[0], {}, 0
    for own in recipe.open:
        agreed[own.name] = _edges(own, counts[first : first + own.cells], own in recipe.states)
        first += own.cells
    parts = {
        key: [replace(own, edges=agreed[own.name], quantiles=None) if own.name in agreed else own
              for own in getattr(recipe, key)]
        for key in ("states", "actions")
    }  # fmt: skip
    return Recipe.of(replace(recipe, states=parts["states"], actions=parts["actions"]).table())


def _edges(own: Variable, counts: np.ndarray, state: bool) -> list[float]:
    """Quantiles of a histogram, linear within a cell; of doses, behind the smallest that counts."""
    total = np.append(0.0, np.cumsum(np.maximum(counts, 0.0)))
    if total[-1] <= 0.0:
        raise InvalidInput(f"no site has a value of {own.name}", code="no-records")
    assert own.range is not None
    assert own.quantiles is not None
    low, high = own.range
    levels = np.arange(1, own.quantiles) / own.quantiles
    cuts = np.interp(levels * total[-1], total, np.linspace(low, high, own.cells + 1))
    edges = [float(f"{cut:.4g}") for cut in cuts]
    edges = edges if state else [float(low), *edges]
    rising = [edges[0], *(b for a, b in pairwise(edges) if b > a)]
    if len(rising) < len(edges):
        warn(f"{own.name} has {len(rising) + 1} bins instead of {len(edges) + 1}: too many of its "
             "values are alike")  # fmt: skip
    return rising
