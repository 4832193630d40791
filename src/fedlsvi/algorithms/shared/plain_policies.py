"""What a learned policy has to beat: rules that need no learning, evaluated from the same logs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedlsvi.algorithms.shared.policy_log import EVENLY, Decides
from fedlsvi.core.statistics import factorise
from fedlsvi.features.base import FeatureMap
from fedlsvi.logs.allowed import visits
from fedlsvi.logs.world import LoggedWorld, transitions_of

LEAST = 1e-3
"""Ridge of the regression that tells which action the behaviour takes."""


class Always:
    """The same action in every state, or all alike.

    Args:
        action: Its number, or `EVENLY`.
    """

    def __init__(self, action: int) -> None:
        self.action = action

    def actions(self, step: int, states: np.ndarray) -> np.ndarray:
        """That action."""
        return np.full(len(states), self.action)


class MostOften:
    """Behaviour cloning: the action that the logs have most often in a state, at whatever step.

    Where no action was ever seen, the one that is most frequent everywhere.
    """

    def __init__(self, worlds: Sequence[LoggedWorld]) -> None:
        size = max(world.n_states for world in worlds), worlds[0].n_actions
        counts = np.sum([visits(own.source, own.key, *size) for own in worlds], axis=0)
        counts = counts + 0.5 * counts.sum(axis=0) / counts.sum()  # less than any visit
        self.table = counts.argmax(axis=1)

    def actions(self, step: int, states: np.ndarray) -> np.ndarray:
        """The action of each state."""
        chosen: np.ndarray = self.table[states]
        return chosen


class MostLikely:
    """The same where states are vectors: φ(x, a)ᵀw is fitted to whether a was taken in x,

    w = (λI + Σ_i Σ_a φ(x_i, a)φ(x_i, a)ᵀ)⁻¹ Σ_i φ(x_i, a_i).
    """

    def __init__(self, worlds: Sequence[LoggedWorld], features: FeatureMap) -> None:
        self.features, d = features, features.dim
        gram, b = LEAST * np.eye(d), np.zeros(d)
        for _, seen in transitions_of(worlds):
            phi = features(seen.state)
            rows = phi.reshape(-1, d)
            gram += rows.T @ rows
            b += phi[np.arange(len(phi)), seen.action].sum(axis=0)
        self.w = factorise(gram).solve(b)

    def actions(self, step: int, states: np.ndarray) -> np.ndarray:
        """The most likely action in each state."""
        chosen: np.ndarray = (self.features(states) @ self.w).argmax(axis=1)
        return chosen


def plain_policies(worlds: Sequence[LoggedWorld], features: FeatureMap) -> dict[str, Decides]:
    """The rules by name; where some actions are not allowed, only the one that keeps to them."""
    finite = worlds[0].finite
    cloned = MostOften(worlds) if finite else MostLikely(worlds, features)
    found: dict[str, Decides] = {"behaviour cloning": cloned}
    if all(world.allowed is None for world in worlds):
        names = worlds[0].action_names
        first = "always action 0" if names is None else f"always {names[0]}"
        found |= {first: Always(0), "random": Always(EVENLY)}
    return found
