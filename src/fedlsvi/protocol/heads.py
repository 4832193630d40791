"""The agents' side of a pass with another head: a second policy from what was seen.

The head is what turns (w_h, Λ_h) into Q_h and V_h (`core.heads`). The policy that explores keeps
its own; from `Exploit` on agents answer with the responses of the other one, until its step 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedlsvi.core.statistics import unpack
from fedlsvi.protocol.messages import Upload

if TYPE_CHECKING:
    from fedlsvi.protocol.agent import Cohort


def deploy(cohort: Cohort, w: np.ndarray, beta: float) -> None:
    """Give a cohort the policy of a pass that was carried out before."""
    again = HeadPass(cohort, beta)
    w = w if cohort.own is None else cohort.own.deployed
    for h in range(cohort.horizon, 0, -1):
        again.read(h, w[h - 1])
    cohort.deployed = again.values


class HeadPass:
    """A cohort's answers from `Exploit` to the model of step 1; `values` is what comes of it."""

    def __init__(self, cohort: Cohort, beta: float) -> None:
        self.cohort = cohort
        explore: Any = cohort.values  # `TabularValues` or `BlockValues`
        self.values: Any = explore.another(beta)

    def upload(self, h: int) -> Upload:
        """b_h with the V_{h+1} of this pass, Λ^loc is empty; and how well the model that explores
        fits."""
        cohort = self.cohort
        b = cohort.experience.responses(h, self.values)
        if cohort.own is not None:
            b = cohort.own.responses(h, b)
        nothing = np.empty((len(b), 0))
        if not cohort.fits:
            return Upload(h, nothing, b)
        fit = cohort.experience.fit(h, cohort.weights[h], cohort.values)
        return Upload(h, nothing, b, fit=fit)

    def update(self, h: int, w: np.ndarray) -> Upload | None:
        """Take a step's weights, and go on to the step before it."""
        self.take(h, w)
        return self.upload(h - 1) if h > 1 else None

    def take(self, h: int, w: np.ndarray) -> None:
        """Take a step's weights; where an agent has others of its own, find these first."""
        own = self.cohort.own
        if own is not None:
            b = None
            if not self.cohort.away:
                b = self.cohort.experience.responses(h, self.values)[0]
            w = own.deployed[h - 1] = own.completed(h, w, b)
        self.read(h, w)

    def read(self, h: int, w: np.ndarray) -> None:
        """Q_h and V_h of these weights, beside the Λ_h that is known."""
        grams = self.cohort.grams
        # steps that share Λ take it from the step above them
        shared = h < self.cohort.horizon and grams[h] is grams[h + 1]
        gram = np.empty(0) if shared else grams[h]
        self.values.update(h, w, unpack(gram, self.cohort.experience.dim, self.cohort.packing))
