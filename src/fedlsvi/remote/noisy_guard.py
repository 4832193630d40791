"""What the server checks on uploads of a private run: that they are finite and not too large.

Noise makes a lawful Λ indefinite and counts negative, so of the guard's checks only the bounds on
single entries are left, wider by what noise does not exceed: 16 standard deviations, beyond which
there is less than 10^-56. An entry of Λ, u or N is at most one for each vector of a round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from fedlsvi.config import Parameters
from fedlsvi.core.prefix_tree import changed
from fedlsvi.protocol.messages import Increments, Reply, Request, Signal, Start, Stop
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

    def _most(self, agents: int) -> float:
        """The most that an entry over so many agents can be."""
        p, nodes = self.parameters, sum(map(len, changed(max(1, self.round))))
        noise = self.release.sigma * math.sqrt(nodes * self._all)
        return agents * self.length * (p.horizon // p.matrices) + DEVIATIONS * noise

    def check_sum(self, k: int, h: int, replies: Sequence[Reply]) -> None:
        """Refuse masked uploads whose sum no agents could have made.

        Raises:
            Refusal: By "agent −1": whoever lied, or masks that do not cancel.
        """
        for name, array in zip(("Λ", "u", "N"), self._sums(replies), strict=True):
            self._bounded(-1, f"an entry of {name} (in the sum over all sites)", array,
                          self.parameters.n_agents)  # fmt: skip

    def check(self, first: int, reply: Increments) -> None:
        """Refuse increments of agents from `first` on that none could have; changes nothing."""
        for i, following in enumerate(reply.following):
            self._bounded(first + i, "an entry of Λ", reply.gram[i], 1)
            self._bounded(first + i, "an entry of u", reply.u[i], 1)
            self._bounded(first + i, "an entry of N", following.values, 1)

    def _bounded(self, agent: int, what: str, array: np.ndarray, agents: int) -> None:
        most = self._most(agents)
        worst = float(np.abs(array).max(initial=0.0))
        if not worst <= most:  # NaN too
            raise Refusal(agent, self.round, 1, what, worst, f"at most {most:g}")

    def accept(self, first: int, reply: Increments) -> None:
        """Nothing is remembered of one round for the next."""

    def state(self) -> dict[str, np.ndarray]:
        """What a checkpoint must hold."""
        return {}

    def restore(self, arrays: Mapping[str, np.ndarray], t: int, k: int) -> None:
        """Continue after round k, episode t."""
        self.t, self.round, self.length = t, k + 1, 0
