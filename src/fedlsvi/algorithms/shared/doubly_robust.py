"""The doubly robust correction of a fitted-Q estimate (Jiang and Li 2016, weighted as by Thomas and
Brunskill 2016):

    V̂ + Σ_h Σ_i ρ_ih (r_ih + V̂_{h+1}(x'_ih) − Q̂_h(x_ih, a_ih)) / Σ_i ρ_ih,

where ρ_ih is the product of π/μ over the first h steps of episode i, and V̂ the mean of V̂₁. Where
Q̂ is right the correction is 0 on average, whatever μ is; where ρ is right, it takes away what is
wrong with Q̂. An episode that ended earlier counts with the ρ it ended with and adds 0, because what
follows an end is known; one of which nobody knows what came next does not count. Where no episode
has any weight left, Q̂ stands.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedlsvi.algorithms.shared.policy_log import PolicyLog
from fedlsvi.algorithms.shared.policy_values import PolicyValues, blocks, targets


def correction(
    logs: Sequence[PolicyLog], h: int, ahead: PolicyValues, here: PolicyValues
) -> np.ndarray:
    """(K,) what step h adds in each draw of the logs.

    Args:
        logs: Logs that know with which probability each action was chosen.
        h: The step, from 1.
        ahead, here: The policy's values under the models of step h + 1 and of step h.
    """
    draws = logs[0].weights.shape[1]
    off, total = np.zeros(draws), np.zeros(draws)
    for log in logs:
        total += (log.ratio * (log.ended < h)) @ log.weights
        decided = log.decided[h - 1]
        if decided is None:
            continue
        rows, ratio = decided
        after = (log.H - h) * log.world.absorbing_reward
        for cut in blocks(len(ratio), draws):
            some = rows.cut(cut)
            weights = ratio[cut, None] * log.weights[some.episode]
            wrong = targets(some, h, after, ahead) - here.at(h, some.state, some.action)
            off += (weights * wrong).sum(axis=0)
            total += weights.sum(axis=0)
    return np.divide(off, total, out=np.zeros(draws), where=total > 0.0)
