"""What the server checks where it sees only sums over all agents.

A sum of M agents over n episodes is what one agent could send after M·n episodes: Λ finite,
symmetric, ⪰ 0, tr Λ ≤ M·n, and b = Σφy for some |y| ≤ y_max. So the checks are those of the guard
for one such agent. What cannot be checked any more is written in docs/privacy.md: the share of one
site, its count of episodes, and whether the agent that signalled had reason to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedlsvi.config import Parameters
from fedlsvi.core.fixed_point import rounding
from fedlsvi.protocol.aggregation import FixedPointSums
from fedlsvi.protocol.messages import (
    Increments,
    Layout,
    NextStates,
    Reply,
    Request,
    Signal,
    Start,
    Stop,
    Upload,
)
from fedlsvi.protocol.one_trip import TripSums
from fedlsvi.remote.facts import Facts
from fedlsvi.remote.guard import TOLERANCE, Guard, Refusal
from fedlsvi.remote.trip_guard import TripGuard


class SumGuard:
    """The guard of sums.

    Args:
        layout: Of the run.
        facts: Of the run.
        parameters: The numbers in force; the rounding of the sums is allowed for.
    """

    def __init__(self, layout: Layout, facts: Facts, parameters: Parameters) -> None:
        self.n_agents, bits = layout.n_agents, parameters.scale_bits
        self._sums, self._trips = FixedPointSums(layout, bits), TripSums(layout, parameters)
        alone = replace(layout, n_agents=1, secure=False)
        # one that plays M·T episodes and is asked for all of them; nobody signals
        longer = replace(
            facts, episodes=self.n_agents * facts.episodes, overshoot="keep",
            logged=self.n_agents * facts.logged,
        )  # fmt: skip
        # rounding of at most 1/2 unit in each of d² entries of M agents, per episode of theirs
        slack = TOLERANCE + layout.dim * rounding(bits, 1)
        self._guard: Guard | TripGuard = Guard(alone, longer, slack)
        if layout.states:
            self._guard = TripGuard(alone, longer, slack)

    def sends(self, message: Request) -> None:
        """The server sends this."""
        M = self.n_agents
        match message:
            case Start(t=t) | Stop(t=t):
                self._guard.sends(replace(message, t=M * t))
            case _:
                self._guard.sends(message)

    def stops(self, signal: Signal) -> None:
        """Nobody has to show a determinant: a sum does not."""

    def check(self, first: int, reply: Increments | Upload) -> None:
        """Alone, a masked upload is as good as noise."""

    def complete(self, k: int, h: int, replies: Sequence[tuple[int, Reply]]) -> None:
        """Refuse masked uploads of step h whose sum no agents could have made.

        Raises:
            Refusal: By "agent −1": whoever lied, or masks that do not cancel.
        """
        masked = [reply for _, reply in replies]
        try:
            if isinstance(self._guard, TripGuard):
                gram, u, following = self._trips(masked)
                whole = NextStates(np.empty(0, np.int64), following.ravel())
                reply = Increments(gram[None].copy(), u[None].copy(), (whole,))
                self._guard.check(0, reply)
                self._guard.complete(k, 1, [(0, reply)])
            else:
                sums = self._sums(masked, h)
                gram = sums[0][None, : self._guard.gram_size(h)]
                upload = Upload(h, gram.copy(), sums[1][None].copy())
                self._guard.upload(0, 1, h, upload)
                self._guard.accept(0, upload)
                self._guard.upto[:] = 0  # whose increments still wait cannot be seen
        except Refusal as error:
            name = f"{error.field} (in the sum over all sites)"
            raise Refusal(-1, k, error.step, name, error.value, error.bound) from None

    def state(self) -> dict[str, np.ndarray]:
        """What a checkpoint must hold."""
        return {f"sum_{key}": array for key, array in self._guard.state().items()}

    def restore(self, arrays: Mapping[str, np.ndarray], t: int, k: int) -> None:
        """Continue after round k, episode t."""
        own = {
            key.removeprefix("sum_"): array
            for key, array in arrays.items()
            if key.startswith("sum_")
        }
        self._guard.restore(own, self.n_agents * t, k)
