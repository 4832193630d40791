"""A finite MDP from the counts of logs, and how those who made the logs acted in it.

    P(x'|x,a) = n(x,a,x') / n(x,a),   r(x,a,x') = their mean reward,   π(a|x) = n(x,a) / n(x),

for each step, or for all steps together. Nothing is known of an action that nobody took in a state:
it leads to a place that pays the smallest reward for good. So nobody gains by what is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedlsvi.checks import plural, refuse_large
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.logs.rows import InvalidRecord
from fedlsvi.logs.transitions import CUT, ENDED
from fedlsvi.logs.world import LoggedWorld, transitions_of


class Practice(NamedTuple):
    """A problem, and how people act in it today.

    Attributes:
        env: The problem.
        behaviour: (H, S, A) chances of actions.
        ends: States in which an episode is over.
    """

    env: FiniteMDP
    behaviour: np.ndarray
    ends: tuple[int, ...]

    @property
    def value(self) -> float:
        """What today's practice earns per episode, in the problem's own units."""
        return self.worth(self.behaviour)

    def worth(self, policy: np.ndarray) -> float:
        """The value of a policy, likewise, on average over the laws of the first state."""
        env = self.env
        law = env.initial_laws.mean(axis=0)
        return float(env.original(law @ env.policy_values(policy)[0]))


def fitted_model(worlds: Sequence[LoggedWorld], stationary: bool = False) -> Practice:
    """The MDP and the behaviour of these logs together.

    Args:
        worlds: Logs with numbered states.
        stationary: Whether one model serves all steps.
    """
    first = worlds[0]
    if not first.finite:
        raise InvalidRecord(
            "a model can be fitted to logs with numbered states only: cut observations into bins",
            code="model-needs-states",
        )
    H, A = first.horizon, first.n_actions
    n, groups = first.n_states + 2, 1 if stationary else H
    end, unknown = n - 2, n - 1
    shape = f"{plural(n - 2, 'state')}, {plural(A, 'action')} and {plural(groups, 'step')}"
    refuse_large(
        f"the model of {shape}", 4 * groups * n * A * n, "use stationary=True, or fewer states"
    )
    counts, paid, starts = np.zeros((groups, n, A, n)), np.zeros((groups, n, A, n)), np.zeros(n)
    for _, seen in transitions_of(worlds):
        starts += np.bincount(seen.state[seen.h == 1], minlength=n)
        rows = seen if stationary else seen.per_step(H)  # nothing follows step H
        rows = rows.where(rows.fate != CUT)
        group = np.zeros(len(rows), np.int64) if stationary else rows.h - 1
        place = (group, rows.state, rows.action, np.where(rows.fate == ENDED, end, rows.following))
        np.add.at(counts, place, 1.0)
        np.add.at(paid, place, rows.reward)
    # the place after an end pays 0 in the logs' units, so their range has to contain it
    low, high = first.reward_range
    bottom, top = min(low, 0.0), max(high, 0.0)
    visits = counts.sum(axis=-1)
    P = counts / np.maximum(visits, 1.0)[..., None]
    rewards = low + (high - low) * paid / np.maximum(counts, 1.0)
    rewards = np.where(counts > 0.0, (rewards - bottom) / (top - bottom), 0.0)
    acted = visits.sum(axis=-1) > 0.0
    P[(visits == 0.0) & acted[..., None], unknown] = 1.0
    P[~acted, :, end] = 1.0  # where logs stop, and at the end itself
    P[:, unknown, :, :] = 0.0
    P[:, unknown, :, unknown] = 1.0
    rewards[~acted, :, end] = (0.0 - bottom) / (top - bottom)
    rewards[:, unknown] = 0.0
    law = np.where(acted[..., None], visits, 1.0)
    law /= law.sum(axis=-1, keepdims=True)
    names = ", ".join(dict.fromkeys(world.source.name for world in worlds))
    env = FiniteMDP(P, rewards.clip(0.0, 1.0), horizon=H, initial=starts / starts.sum(),
                    name=f"the model of {names}")  # fmt: skip
    env.reward_range = (bottom, top)
    behaviour = np.ascontiguousarray(np.broadcast_to(law, (H, n, A)))
    return Practice(env, behaviour, (end, unknown))
