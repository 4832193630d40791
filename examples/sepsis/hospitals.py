"""ICU-Sepsis as arrays: fluids only, hospitals that differ, descriptions of its states."""

from __future__ import annotations

import gymnasium
import numpy as np

from fedlsvi.envs import FiniteMDP, GymMDP, as_environment
from fedlsvi.features import AggregateFeatures

ID = "Sepsis/ICU-Sepsis-v2"
ENDS = (713, 714, 715)
"""Death, survival, and what follows both."""

FLUIDS = np.arange(0, 25, 5)
"""The five doses of fluids, without vasopressors."""


def sepsis(horizon: int = 20) -> GymMDP:
    """The problem with all 25 actions, from its table."""
    return as_environment(ID, horizon=horizon)  # type: ignore[no-any-return]


def clinicians(env: FiniteMDP) -> np.ndarray:
    """The clinicians' action probabilities (H, S, A); uniform in states without a patient."""
    law = np.array(gymnasium.make(ID).unwrapped.expert_policy)  # type: ignore[attr-defined]
    law[law.sum(axis=1) == 0.0] = 1.0
    law /= law.sum(axis=1, keepdims=True)
    return np.repeat(law[None], env.horizon, axis=0)


def fluids_only(env: FiniteMDP) -> FiniteMDP:
    """The same patients, with five actions instead of 25."""
    moving = env.reward_on_transition
    assert moving is not None
    return FiniteMDP(
        env.P[0][:, FLUIDS],
        moving[:, :, FLUIDS],
        horizon=env.horizon,
        initial=env.initial_law(0),
        name="fluids only",
    )


def honest_features(env: FiniteMDP, groups: int = 3, seed: int = 0) -> AggregateFeatures:
    """Groups of patients by the 47 numbers that describe a state, times actions; no model needed.

    d = groups·A + 1: the ends share one coordinate.
    """
    described = gymnasium.make(ID).unwrapped.state_cluster_centers  # type: ignore[attr-defined]
    group = AggregateFeatures.by_clusters(described, groups, seed, ENDS).groups
    index = group[:, None] * env.n_actions + np.arange(env.n_actions)
    index[list(ENDS)] = groups * env.n_actions
    return AggregateFeatures(index)


def hospitals(env: FiniteMDP, n: int, xi: float, seed: int = 0) -> list[FiniteMDP]:
    """n hospitals with P^m = (1−ξ)P + ξN^m, so that total variation is at most ξ.

    N^m(·|x,a) is the law of another action in the same state, drawn per hospital, state and
    action: a share ξ of the patients does not get, or does not respond to, the treatment.
    """
    moving = env.reward_on_transition
    assert moving is not None
    found = []
    for m in range(n):
        rng = np.random.default_rng([seed, m])
        other = rng.permuted(np.tile(np.arange(env.n_actions), (env.n_states, 1)), axis=1)
        N = np.take_along_axis(env.P[0], other[:, :, None], axis=1)
        found.append(
            FiniteMDP(
                (1.0 - xi) * env.P[0] + xi * N,
                moving,
                horizon=env.horizon,
                initial=env.initial_law(0),
                name=f"hospital {m}",
            )
        )
    return found
