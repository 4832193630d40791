"""What agents earned, where V* is not known and regret cannot be measured."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fedlsvi.errors import InvalidInput


class ReturnLog:
    """Returns in the environment's own units, by agent, of episodes not yet recorded.

    Whoever plays episodes of a plan writes their returns here, and whoever records them reads them;
    so no environment is stepped twice only to be measured.
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[int, np.ndarray]] = {}

    def put(self, agents: Iterable[int], first: int, earned: np.ndarray) -> None:
        """Agents played episodes from `first` on and earned (m, n); what was known of these
        episodes and later ones is replaced."""
        for m, row in zip(agents, earned, strict=True):
            begin, before = self._kept.get(int(m), (first, row[:0]))
            if not begin <= first <= begin + len(before):
                begin, before = first, row[:0]
            self._kept[int(m)] = (begin, np.concatenate([before[: first - begin], row]))

    def take(self, agents: Iterable[int], first: int, n: int) -> np.ndarray:
        """(m, n) returns of episodes first … first+n−1; earlier ones are forgotten."""
        found = []
        for m in agents:
            begin, earned = self._kept.get(int(m), (first, np.empty(0)))
            here = earned[first - begin : first - begin + n]
            if begin > first or len(here) < n:
                raise InvalidInput(
                    f"record(first={first}, n={n}): agent {m} has not played these episodes: call "
                    "record() after play()",
                    code="recorded-before-played",
                )
            self._kept[int(m)] = (first, earned[first - begin :])
            found.append(here)
        return np.stack(found)
