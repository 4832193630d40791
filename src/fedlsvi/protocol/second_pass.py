"""One more backward pass over the same sums, with another β: a policy to deploy.

The policy that explores keeps its bonus. After the last round the server asks for the responses of
each step once more, now with values of β = 0 (or −b, a lower confidence bound). No episode is
played and Λ stays as it is, so d scalars per agent and step go up and d come down:

    V_{H+1} = 0; for h = H … 1: b_h = Σφ(r + V_{h+1}(x')), w_h = Λ_h⁻¹Σ_m b_h, V_h by eq. (2).

The agents' policy that explores, and what they know, stay what they were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedlsvi.core.statistics import factorise, unpack
from fedlsvi.protocol.messages import Exploit, Model, Upload

if TYPE_CHECKING:
    from fedlsvi.protocol.agent import Cohort
    from fedlsvi.protocol.server import Agents, Server


def second_pass(server: Server, agents: Agents, beta: float) -> np.ndarray:
    """The server's side: the weights (H, d) of the pass."""
    w, nothing = np.zeros_like(server.w), np.empty(0)
    uploads = agents.broadcast(Exploit(beta))
    for h in range(len(w), 0, -1):
        _, b = server.sums(uploads, h)
        w[h - 1] = factorise(server.gram[h - 1]).solve(b)
        uploads = agents.broadcast(Model(h, w[h - 1].copy(), nothing))
    return w


def deploy(cohort: Cohort, w: np.ndarray, beta: float) -> None:
    """Give a cohort the policy of a pass that was carried out before."""
    again = SecondPass(cohort, beta)
    for h in range(cohort.horizon, 0, -1):
        again.take(h, w[h - 1])
    cohort.deployed = again.values


class SecondPass:
    """The agents' side, from `Exploit` to the model of step 1; `values` is what comes of it."""

    def __init__(self, cohort: Cohort, beta: float) -> None:
        self.cohort = cohort
        explore: Any = cohort.values  # `TabularValues` or `BlockValues`
        self.values: Any = explore.another(beta)

    def upload(self, h: int) -> Upload:
        """b_h with the V_{h+1} of this pass; Λ^loc is empty."""
        world: Any = self.cohort.experience
        own = world.values
        world.values = self.values
        try:
            b = world.responses(h)
        finally:
            world.values = own
        return Upload(h, np.empty((len(b), 0)), b)

    def update(self, h: int, w: np.ndarray) -> Upload | None:
        """Take a step's weights, and go on to the step before it."""
        self.take(h, w)
        return self.upload(h - 1) if h > 1 else None

    def take(self, h: int, w: np.ndarray) -> None:
        """Q_h and V_h of these weights, beside the Λ_h that is known."""
        grams = self.cohort.grams
        # steps that share Λ take it from the step above them
        shared = h < self.cohort.horizon and grams[h] is grams[h + 1]
        gram = np.empty(0) if shared else grams[h]
        self.values.update(h, w, unpack(gram, self.cohort.experience.dim, self.cohort.packing))
