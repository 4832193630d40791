"""The palette, and who has which colour: an algorithm has the same one in every figure."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any
from zlib import crc32

INK, MUTED, GRID = "#222222", "#666666", "#e3e3e3"
BLUE, VERMILION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
COLOURS = (BLUE, VERMILION, GREEN, ORANGE, "#CC79A7", "#56B4E9", "#8C6D31", "#444444")
"""Okabe and Ito's palette, which colour-blind readers can tell apart, with brown and ink in place
of yellow and black."""

DASHED = (0, (5, 3))
DASHES: tuple[Any, ...] = ("-", DASHED, ":", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

PLACES = (
    *("fed-lsvi", "centralised", "independent", "periodic", "stale", "coop-lsvi", "fed-ucbvi"),
    *("fedq-hoeffding", "async-coop", "low-switching", "coopts-phe", "coopts-lmc"),
    *("fedq-bernstein", "fedq-advantage", "rare-switch", "lsvi-ucb-pp", "pevi", "ucbvi", "psrl"),
    *("q-ucb2", "q-avg", "fed-sarsa", "ucrl-vtr", "fed-ucrl-vtr"),
)
"""The algorithms in the order of the palette; those that are compared most have solid lines."""


def place(algorithm: str) -> int:
    """Its number in the palette; that of a custom algorithm follows from its name."""
    if algorithm in PLACES:
        return PLACES.index(algorithm)
    left = len(COLOURS) * len(DASHES) - len(PLACES)
    return len(PLACES) + crc32(algorithm.encode()) % left


def places(algorithms: Mapping[str, str]) -> dict[str, int]:
    """The number of each of several groups of runs, whatever their order.

    A group has the number of its algorithm; further settings of an algorithm have numbers that
    nobody else here has.

    Args:
        algorithms: The algorithm of each group, by its label.
    """
    own = {label: place(algorithms[label]) for label in sorted(algorithms)}
    free = (number for number in count() if number not in own.values())
    given: dict[str, int] = {}
    for label, number in own.items():
        given[label] = number if number not in given.values() else next(free)
    return given


def look(number: int) -> dict[str, Any]:
    """Colour and dashes of a number in the palette."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": DASHES[number // len(COLOURS) % len(DASHES)],
    }
