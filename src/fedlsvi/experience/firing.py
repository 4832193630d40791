"""What the trigger's kernels found, in the words of the agent."""

from __future__ import annotations

import numpy as np


def earliest(
    before: int, when: np.ndarray, steps: np.ndarray
) -> tuple[int, np.ndarray, np.ndarray]:
    """The round's length at the first firing episode (0 if none), the positions of the agents that
    fire there, and their steps. when[i] counts episodes after the first `before`; 0 is silence."""
    fired = when > 0
    if not fired.any():
        return 0, when[:0], steps[:0]
    first = int(when[fired].min())
    chosen = np.flatnonzero(when == first)
    return before + first, chosen, steps[chosen]
