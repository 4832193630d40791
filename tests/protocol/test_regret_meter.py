"""The regret meter: exact at every initial state, for each kind of policy and of clock."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.core.random import uniforms
from fedlsvi.envs import ContinuousLinearMDP, DeepSea, FiniteMDP, RandomLinearMDP
from fedlsvi.errors import InvalidInput
from fedlsvi.protocol.plan import Plan
from fedlsvi.protocol.regret_meter import RegretMeter, meter_of

SEED, M = 3, 3
SMALL = [RandomLinearMDP(n_states=5, n_actions=3, dim=3, horizon=3, seed=s) for s in (0, 1)]
AGENTS = dict(enumerate([SMALL[0], SMALL[1], SMALL[0]]))
"""Two of the agents share a world."""


def learned(env: Any, **settings: Any) -> tuple[Plan, Any]:
    """The plan of a short run, and its values at the end."""
    session = FedLSVI(M, **settings).prepare(env, 4, SEED)
    for _ in session.rounds():
        pass
    session.close()
    return session.plan, session.player.values


def tables(seed: int, env: FiniteMDP = SMALL[0]) -> np.ndarray:
    shape = (env.horizon, env.n_states)
    return np.random.default_rng(seed).integers(env.n_actions, size=shape).astype(np.int32)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_table_is_measured_where_each_episode_begins(compiled: bool) -> None:
    meter = RegretMeter(AGENTS, SEED, diverse=False, compiled=compiled)
    for policy in (tables(0), tables(1), tables(1)):
        meter.follow(policy)
        expected = np.zeros(4)
        for m, env in AGENTS.items():
            gap = env.optimal_values()[0] - env.policy_values(policy)[0]
            for e, u in enumerate(uniforms(SEED, [m], 6, 4, 1)[0, :, 0]):
                expected[e] += gap[env.first_state(m, u)]
        np.testing.assert_allclose(meter.regret(6, 4), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("env", "settings"),
    [
        (SMALL[0], {}),
        (SMALL[0], {"diversity": 0.3}),
        (DeepSea(8), {"diversity": 0.0}),
        (ContinuousLinearMDP(dim=6, n_actions=4, horizon=4, seed=0), {}),
    ],
    ids=["table", "diverse", "one first state", "continuous"],
)
def test_what_all_lose_is_the_sum_of_what_each_loses(env: Any, settings: dict[str, Any]) -> None:
    """On one clock, and where each agent counts its own episodes."""
    plan, values = learned(env, **settings)
    meter = meter_of(plan)
    assert meter is not None
    meter.follow(values)
    firsts = np.array([2, 7, 2])
    each = [meter.regret_of(np.array([m]), np.array([t]), 5) for m in range(M) for t in (2, 7)]
    assert np.sum(each) > 1e-3
    np.testing.assert_allclose(meter.regret(2, 5), each[0] + each[2] + each[4], atol=1e-12)
    own = meter.regret_of(np.arange(M), firsts, 5)
    np.testing.assert_allclose(own, each[0] + each[3] + each[4], atol=1e-12)


@pytest.mark.parametrize("diversity", [0.0, 0.3])
def test_a_policy_is_measured_as_it_was_when_the_round_began(diversity: float) -> None:
    plan, values = learned(SMALL[0], diversity=diversity, bonus="constant")
    meter = meter_of(plan)
    assert meter is not None
    meter.follow(values)
    before = meter.regret(1, 6)
    for h in range(plan.parameters.horizon, 0, -1):
        values.update(h, -np.ones(plan.parameters.dim), np.eye(plan.parameters.dim))
    assert meter.regret(1, 6).tobytes() == before.tobytes()
    meter.follow(values)
    assert meter.regret(1, 6).tobytes() != before.tobytes()


@pytest.mark.parametrize("compiled", [False, True])
def test_what_is_no_policy_is_refused_and_forgotten(compiled: bool) -> None:
    meter = RegretMeter({0: SMALL[0]}, SEED, diverse=False, compiled=compiled)
    meter.follow(tables(0))
    before = meter.regret(1, 3)
    for wrong in (tables(0)[:2], tables(0) + 3, tables(0) - 3):
        with refused(InvalidInput, "bad-policy"):
            meter.follow(wrong)
    meter.follow(tables(0))
    np.testing.assert_array_equal(meter.regret(1, 3), before)
