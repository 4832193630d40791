"""How often do the 95 % intervals of off-policy estimates contain the exact value?

Two problems whose values are known exactly, where the logs have seen what the policy does: 400
times, new logs of two sites are recorded, and the greedy policy of the true values, which no log
has chosen, is evaluated from them: by fitted-Q evaluation, doubly robustly, and by weighted
importance sampling. The behaviour takes the policy's action half of the time, and otherwise any:
with uniform actions one episode in 243 would do all along what the policy does. A third case has
features that are wrong, one for each action.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import process_time
from typing import NamedTuple

import numpy as np

from fedlsvi import offline
from fedlsvi.algorithms.fitted_q_evaluation import Estimate, estimate_value
from fedlsvi.envs import FiniteMDP, RandomLinearMDP, RandomMDP, logged_worlds, record_episodes
from fedlsvi.experiments.measure import Row
from fedlsvi.features import AggregateFeatures
from fedlsvi.features.base import FeatureMap
from fedlsvi.policy import Policy

REPLICATIONS, SITES, EPISODES = 400, 2, 200
REPEATS = 500
"""Of the bootstrap."""
LIMITS = (0.93, 0.97)


class Case(NamedTuple):
    """A problem, its features, how logs of it come about, the policy that is evaluated, and its
    exact value."""

    env: FiniteMDP
    features: FeatureMap
    behaviour: np.ndarray
    policy: Policy
    value: float


def cases() -> dict[str, Case]:
    """One-hot features of 12 pairs, linear ones of dimension 8, and one feature for each action;
    H = 5."""
    tabular = RandomMDP(n_states=4, n_actions=3, horizon=5, seed=1)
    blind = AggregateFeatures(np.tile(np.arange(3), (4, 1))).bind(tabular)
    linear = RandomLinearMDP(n_states=20, n_actions=4, dim=8, horizon=5, seed=2)
    return {
        "one-hot, d = 12": _case(tabular, tabular.default_features()),
        "linear, d = 8": _case(linear, linear.default_features()),
        "wrong, d = 3": _case(tabular, blind),
    }


def _case(env: FiniteMDP, features: FeatureMap) -> Case:
    greedy = env.greedy_policy()
    policy = offline(record_episodes(env, 20, greedy), env=env, progress=False).policy
    policy.table[:] = greedy  # whatever the few episodes taught
    first = np.mean([env.initial_law(m) for m in range(SITES)], axis=0)
    value = float(env.original(first @ env.policy_values(greedy)[0]))
    often = 0.5 * np.eye(env.n_actions)[greedy] + 0.5 / env.n_actions
    return Case(env, features, often, policy, value)


def estimates(case: Case, replications: int) -> Iterator[Estimate]:
    """What is estimated from new logs, again and again."""
    for seed in range(replications):
        logs = [
            record_episodes(case.env, EPISODES, case.behaviour, seed=seed, agent=m)
            for m in range(SITES)
        ]
        yield estimate_value(
            case.policy, logged_worlds(logs, like=case.env), case.features, repeats=REPEATS,
            seed=seed,
        )  # fmt: skip


WAYS = {"fitted-Q": "", "doubly robust": "robust_", "importance sampling": "importance_"}
"""Estimator → what the fields of its interval begin with."""


def main(replications: int = REPLICATIONS) -> list[Row]:
    """400 estimates from 200 episodes at each of two sites, with 500 repeats."""
    rows = []
    for name, case in cases().items():
        began, found = process_time(), list(estimates(case, replications))
        for way, field in WAYS.items():
            ends = (f"{field}low", f"{field}high", field.rstrip("_") or "value")
            low, high, values = (
                np.array([np.nan if x is None else x for x in (getattr(one, end) for one in found)])
                for end in ends
            )
            inside = (low <= case.value) & (case.value <= high)
            off = np.sqrt(np.nanmean((values - case.value) ** 2))
            sound = not (way == "fitted-Q" and name.startswith("wrong"))
            share = float(inside.mean())
            rows += [
                Row(f"{name}, {way}: intervals that contain the exact value", share, "",
                    "0.93 to 0.97" if sound else "",
                    LIMITS[0] <= share <= LIMITS[1] if sound else None),
                Row("  mean width", float(np.nanmean(high - low)), ""),
                Row(f"  root mean square error, where the value is {case.value:.3f}", float(off),
                    ""),
            ]  # fmt: skip
        seconds = (process_time() - began) / replications
        rows.append(Row("  processor time of an estimate", seconds, "s"))
    return rows
