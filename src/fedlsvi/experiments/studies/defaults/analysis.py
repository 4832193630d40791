"""Choose (λ, β/H) on the tuning instances, and report it on instances that took no part."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from fedlsvi.experiments.studies.defaults.sweep import Score

Pair = tuple[float, float]


def by_family(scores: Iterable[Score], field: str) -> dict[Pair, dict[str, float]]:
    """Mean score of each (λ, β/H) on each family."""
    cells: dict[Pair, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for s in scores:
        cells[s.lam, s.scale][s.family].append(getattr(s, field))
    return {
        pair: {family: float(np.mean(values)) for family, values in row.items()}
        for pair, row in cells.items()
    }


def ranking(scores: Iterable[Score]) -> list[tuple[float, Pair]]:
    """Pairs by their normalised regret, averaged over families with equal weight; best first."""
    table = by_family(scores, "normalised")
    return sorted((float(np.mean(list(row.values()))), pair) for pair, row in table.items())


def markdown(tune: list[Score], test: list[Score], shown: list[Pair]) -> str:
    """The table of docs/defaults.md: mean on the tuning set, then family by family held out."""
    tuned = {pair: mean for mean, pair in ranking(tune)}
    held, late = by_family(test, "normalised"), by_family(test, "late")
    families = sorted(next(iter(held.values())))
    head = ["λ", "β/H", "tuning mean", "held-out mean", "last tenth", *families]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for pair in shown:
        lam, scale = pair
        row = held[pair]
        cells = [
            f"{lam:g}",
            f"{scale:g}" if scale > 0.0 else "theorem",
            f"{tuned[pair]:.3f}",
            f"{np.mean(list(row.values())):.3f}",
            f"{np.mean(list(late[pair].values())):.3f}",
            *(f"{row[family]:.3f}" for family in families),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
