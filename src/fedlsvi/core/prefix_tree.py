"""Sums over the first k of N rounds with noise that grows as log N: the binary tree.

Node (l, j) covers rounds j·2^l + 1 … (j+1)·2^l. The first k rounds are the disjoint union of one
node for each bit of k, and the noise of a prefix is the sum of those nodes' noises. Only nodes with
an even j ever occur, so a round lies in at most `levels(N)` = ⌊log₂N⌋ + 1 of them, the first round
in exactly so many (Dwork et al. 2010, Chan, Shi and Song 2011; both count one more).
"""

from __future__ import annotations

Node = tuple[int, int]
"""Level l and number j."""


def nodes(k: int) -> list[Node]:
    """The nodes that together cover rounds 1 … k."""
    return [(bit, (k >> bit) - 1) for bit in range(k.bit_length()) if k >> bit & 1]


def changed(k: int) -> tuple[list[Node], list[Node]]:
    """What the prefix of k rounds has that the one of k − 1 had not, and the reverse."""
    now, before = nodes(k), nodes(k - 1)
    return [n for n in now if n not in before], [n for n in before if n not in now]


def levels(rounds: int) -> int:
    """The most nodes that one of N rounds lies in."""
    return rounds.bit_length()
