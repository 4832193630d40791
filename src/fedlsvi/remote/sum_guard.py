"""What the server checks where it sees only sums over all agents.

A sum of M agents over n episodes is what one agent could send after M·n episodes: Λ finite,
symmetric, ⪰ 0, tr Λ ≤ M·n, and b = Σφy for some |y| ≤ y_max. So the checks are those of the guard
for one such agent. What cannot be checked any more is written in docs/privacy.md: the share of one
site, its count of episodes, and whether the agent that signalled had reason to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fedlsvi.core.fixed_point import rounding
from fedlsvi.protocol.aggregation import Sums
from fedlsvi.protocol.messages import Layout, Request, Start, Stop, Upload
from fedlsvi.remote.guard import TOLERANCE, Facts, Guard, Refusal


class SumGuard:
    """The guard of sums.

    Args:
        layout: Of the run.
        facts: Of the run.
        bits: Bits after the point of the sums, whose rounding is allowed for.
    """

    def __init__(self, layout: Layout, facts: Facts, bits: int) -> None:
        self.n_agents = layout.n_agents
        alone = replace(layout, n_agents=1, secure=False)
        # one that plays M·T episodes and is asked for all of them; nobody signals
        longer = replace(facts, episodes=self.n_agents * facts.episodes, overshoot="keep")
        # rounding of at most 1/2 unit in each of d² entries of M agents, per episode of theirs
        slack = TOLERANCE + layout.dim * rounding(bits, 1)
        self._guard = Guard(alone, longer, slack)

    def sends(self, message: Request) -> None:
        """The server sends this."""
        M = self.n_agents
        match message:
            case Start(t=t) | Stop(t=t):
                self._guard.sends(replace(message, t=M * t))
            case _:
                self._guard.sends(message)

    def check(self, k: int, h: int, sums: Sums) -> None:
        """Refuse sums that no agents could have made.

        Raises:
            Refusal: By "agent −1": whoever lied, or masks that do not cancel.
        """
        gram = sums[0][None, : self._guard.gram_size(h)]
        upload = Upload(h, gram.copy(), sums[1][None].copy())
        try:
            self._guard.upload(0, 1, h, upload)
        except Refusal as error:
            name = f"{error.field} (in the sum over all sites)"
            raise Refusal(-1, k, h, name, error.value, error.bound) from None
        self._guard.accept(0, upload)

    def state(self) -> dict[str, np.ndarray]:
        """What a checkpoint must hold."""
        return {"sum_guard.gram": self._guard.gram, "sum_guard.last": self._guard.last}

    def restore(self, arrays: Mapping[str, np.ndarray], t: int, k: int) -> None:
        """Continue after round k, episode t."""
        own = {f"guard.{key}": arrays[f"sum_guard.{key}"] for key in ("gram", "last")}
        self._guard.restore(own, self.n_agents * t, k)
