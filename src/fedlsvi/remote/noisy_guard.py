"""What the server checks on uploads of a private run: that they are finite and not too large.

Noise makes a lawful Λ indefinite and counts negative, so of the guard's checks only the bounds on
single entries are left, wider by what noise does not exceed: 16 standard deviations, beyond which
there is less than 10^-56. An entry of Λ, u or N is at most one for each vector of a round, and one
of b_h at most y_h for each vector of all rounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from fedlsvi.config import Parameters
from fedlsvi.core.prefix_tree import changed
from fedlsvi.core.stepwise_release import StepwiseRelease
from fedlsvi.protocol.aggregation import FixedPointSums
from fedlsvi.protocol.messages import Increments, Reply, Request, Signal, Start, Stop, Upload
from fedlsvi.protocol.one_trip import TripSums
from fedlsvi.protocol.transport import layout
from fedlsvi.remote.guard import Refusal

DEVIATIONS = 16.0


class NoisyGuard:
    """The checks of a private run, on sums over sites or on each agent.

    Args:
        parameters: The numbers in force, of a private run.
        sites: How many sites there are.
    """

    def __init__(self, parameters: Parameters, sites: int) -> None:
        p = parameters
        assert p.release is not None
        assert p.privacy is not None
        self.parameters, self.release = p, p.release
        self._steps = FixedPointSums(layout(p), p.scale_bits)
        self._sums, self.t, self.round, self.length = TripSums(layout(p), p), 0, 1, 0
        honest = max(1, sites - p.privacy["colluders"])
        self._all = sites / honest if p.aggregation == "secure" else 1.0

    def sends(self, message: Request) -> None:
        """The server sends this."""
        match message:
            case Start(t=t):
                self.t, self.length = t, 0
            case Stop(t=t):
                self.length, self.round = t - self.t, self.parameters.trigger.number(t)
                self.t = t

    def stops(self, signal: Signal) -> None:
        """All agents end a round where the schedule says so: there is nothing to show."""

    @property
    def _vectors(self) -> int:
        """Vectors that an episode puts into one sum."""
        return self.parameters.horizon // self.parameters.matrices

    def _most(self, agents: int) -> float:
        """The most that an entry over so many agents can be."""
        nodes = sum(map(len, changed(max(1, self.round))))
        noise = self.release.sigma * math.sqrt(nodes * self._all)
        return agents * self.length * self._vectors + DEVIATIONS * noise

    def _most_response(self, h: int, agents: int) -> float:
        """The most that an entry of b_h over so many agents can be."""
        release = self.release
        assert isinstance(release, StepwiseRelease)
        seen = agents * self.t * self._vectors * release.targets[h - 1]
        return seen + DEVIATIONS * release.response_sigma(h) * math.sqrt(self._all)

    def complete(self, k: int, h: int, replies: Sequence[tuple[int, Reply]]) -> None:
        """Refuse masked uploads whose sum no agents could have made; nothing is remembered of one
        round for the next.

        Raises:
            Refusal: By "agent −1": whoever lied, or masks that do not cancel.
        """
        if self.parameters.aggregation != "secure":
            return
        M, where = self.parameters.n_agents, "(in the sum over all sites)"
        masked = [reply for _, reply in replies]
        if isinstance(self.release, StepwiseRelease):
            gram, b = self._steps(masked, h)
            self._bounded(-1, f"an entry of Λ {where}", gram, self._most(M), h)
            self._bounded(-1, f"an entry of b {where}", b, self._most_response(h, M), h)
            return
        for name, array in zip(("Λ", "u", "N"), self._sums(masked), strict=True):
            self._bounded(-1, f"an entry of {name} {where}", array, self._most(M))

    def check(self, first: int, reply: Increments | Upload) -> None:
        """Refuse what no agents from `first` on could have sent; changes nothing."""
        most = self._most(1)
        if isinstance(reply, Upload):
            for i, (gram, b) in enumerate(zip(reply.gram, reply.b, strict=True)):
                own = self._most_response(reply.h, 1)
                self._bounded(first + i, "an entry of Λ", gram, most, reply.h)
                self._bounded(first + i, "an entry of b", b, own, reply.h)
            return
        for i, following in enumerate(reply.following):
            self._bounded(first + i, "an entry of Λ", reply.gram[i], most)
            self._bounded(first + i, "an entry of u", reply.u[i], most)
            self._bounded(first + i, "an entry of N", following.values, most)

    def _bounded(
        self, agent: int, what: str, array: np.ndarray, most: float, step: int = 1
    ) -> None:
        worst = float(np.abs(array).max(initial=0.0))
        if not worst <= most:  # NaN too
            raise Refusal(agent, self.round, step, what, worst, f"at most {most:g}")

    def state(self) -> dict[str, np.ndarray]:
        """What a checkpoint must hold."""
        return {}

    def restore(self, arrays: Mapping[str, np.ndarray], t: int, k: int) -> None:
        """Continue after round k, episode t."""
        self.t, self.round, self.length = t, k + 1, 0
