"""Sums in fixed point: integers modulo 2^64, so that no bit depends on order or grouping.

A real x becomes the integer round(x·2^s), and the sum of M agents is one of integers. s comes from
public numbers alone: with |x| ≤ B/M for each agent, B·2^s ≤ 2^62, and the sum keeps its sign as a
signed integer of 64 bits. Each agent's rounding is at most 2^-(s+1), so that

    |Σ_m x_m − decoded sum| ≤ M·2^-(s+1) + 2^-53·|decoded sum|,

the last term because the sum becomes a double at the end. Whole numbers below 2^53 stay exact.
"""

from __future__ import annotations

import math

import numpy as np

from fedlsvi.errors import InvalidInput

LARGEST = 2.0**62
"""The largest integer that a sum may reach: one bit below the sign of 64."""

MOST_BITS = 52
"""More bits after the point than a double has would say nothing more."""

FEWEST_BITS = 20
"""With fewer bits after the point the rounding could be seen in a model."""


def scale_bits(bound: float) -> int:
    """s: the most bits after the point such that bound·2^s ≤ 2^62."""
    return min(MOST_BITS, math.floor(math.log2(LARGEST) - math.log2(bound)))


def encode(x: np.ndarray, bits: int, n_agents: int) -> np.ndarray:
    """round(x·2^s) modulo 2^64, of one agent of M; uint64 of the same shape.

    Raises:
        InvalidInput: An entry is beyond 1/M of what the sum may reach, or not finite.
    """
    most = LARGEST / n_agents / 2.0**bits
    fits = np.abs(x) <= most  # false for NaN too
    if not fits.all():
        raise InvalidInput(
            f"a statistic is {x[~fits][0]:g}, above {most:g}, the largest value that fixed point "
            "can hold for one agent: keep features in the unit ball and rewards in [0, 1]",
            code="sum-overflow",
        )
    words: np.ndarray = np.rint(np.ldexp(x, bits)).astype(np.int64).view(np.uint64)
    return words


def add(words: np.ndarray) -> np.ndarray:
    """Σ over the first axis, modulo 2^64."""
    total: np.ndarray = np.add.reduce(words, axis=0, dtype=np.uint64)
    return total


def decode(words: np.ndarray, bits: int) -> np.ndarray:
    """The reals that a sum of encoded ones stands for."""
    reals: np.ndarray = np.ldexp(words.view(np.int64).astype(np.float64), -bits)
    return reals


def rounding(bits: int, n_agents: int) -> float:
    """M·2^-(s+1): the most by which rounding moves an entry of the sum of M agents."""
    return n_agents * 2.0 ** -(bits + 1)
