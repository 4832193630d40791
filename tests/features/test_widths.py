"""Features that take their widths from the environment: bounds first, else a few episodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from expecting import refused
from fedlsvi import FedLSVI, load
from fedlsvi.envs import ContinuousLinearMDP, as_environment
from fedlsvi.errors import InvalidSetting
from fedlsvi.features import DescribedFeatures, FourierFeatures, make
from fedlsvi.features.widths import widths_of
from fedlsvi.policy import Policy
from fedlsvi.remote.federation import Federation


class Drift(gymnasium.Env[Any, Any]):  # type: ignore[misc]
    """Two numbers in units of their own: one drifts with the action, the other is noise."""

    def __init__(self, units: tuple[float, float] = (1.0, 1.0), bounded: bool = True) -> None:
        self.units = np.array(units)
        high = self.units * 10.0 if bounded else np.full(2, np.inf)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.observation_space = gymnasium.spaces.Box(-high, high, dtype=np.float64)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.state = self.np_random.uniform(-1.0, 1.0, 2)
        return self.state * self.units, {}

    def step(self, action: Any) -> Any:
        self.state = np.array([self.state[0] + action - 0.3, self.np_random.uniform(-1.0, 1.0)])
        return self.state * self.units, float(self.state[0] > 0.0), False, False, {}


def drift(*about: Any) -> Any:
    return as_environment(lambda: Drift(*about), horizon=8)


def test_widths_are_those_of_the_bounds() -> None:
    phi = FourierFeatures(6).bind(as_environment("Acrobot-v1", horizon=5))
    assert phi.bandwidth is not None
    assert phi.bandwidth == pytest.approx([2, 2, 2, 2, 8 * np.pi, 18 * np.pi])
    assert not phi.fitted
    unit = np.random.default_rng(0).standard_normal((6, 6))
    scales = np.array([1, 2, 4, 1, 2, 4])[:, None]
    np.testing.assert_allclose(phi.W, unit / phi.bandwidth * scales, rtol=1e-12)


@pytest.mark.parametrize("bounded", [True, False])
def test_units_do_not_matter(bounded: bool) -> None:
    """The same world in metres and in micrometres has the same features, up to rounding."""
    units = (1e6, 1e-3)
    plain, other = (FourierFeatures(5).bind(drift(u, bounded)) for u in ((1.0, 1.0), units))
    states = np.random.default_rng(1).uniform(-2.0, 2.0, (50, 2))
    np.testing.assert_allclose(plain(states), other(states * np.array(units)), atol=1e-9)
    assert plain.fitted is not bounded


def test_what_is_not_bounded_is_seen_and_the_same_every_time() -> None:
    env = as_environment("CartPole-v1", horizon=30)
    found, again = widths_of(env), widths_of(as_environment("CartPole-v1", horizon=30))
    assert found is not None
    assert again is not None
    assert found.seen
    assert found.values.tobytes() == again.values.tobytes()
    assert found.values[[0, 2]] == pytest.approx([9.6, 0.8377], rel=1e-3)
    assert (found.values[[1, 3]] > 0.1).all()
    assert (found.values[[1, 3]] < 20.0).all()


def test_a_number_that_never_changes_has_width_one() -> None:
    assert widths_of(DescribedStates()) == (pytest.approx([3.0, 1.0]), False)


class DescribedStates:
    """What `DescribedFeatures` shows of a table: the second number is the same for all states."""

    state_dim = 2
    low, high = np.array([0.0, 5.0]), np.array([3.0, 5.0])


def test_a_given_bandwidth_has_one_scale() -> None:
    env = ContinuousLinearMDP(dim=4, horizon=2)
    phi = FourierFeatures(5, bandwidth=0.3, seed=2).bind(env)
    expected = np.random.default_rng(2).standard_normal((5, 1)) / 0.3
    assert phi.W.tobytes() == expected.tobytes()
    assert "scales" not in phi.spec()["params"]


def test_the_spec_makes_the_same_map_without_the_environment() -> None:
    for env in (drift((1.0, 7.0), False), drift()):
        phi = FourierFeatures(4, seed=3).bind(env)
        spec = phi.spec()
        again = make(spec["name"], **spec["params"]).bind(drift((9.0, 9.0), True))
        assert again.W.tobytes() == phi.W.tobytes()
        assert again.spec() == spec


def test_folders_and_policy_files_keep_the_widths(tmp_path: Path) -> None:
    env = drift((1.0, 50.0), False)
    run = FedLSVI(2).learn(
        env, 12, features="fourier", progress=False, folder=str(tmp_path / "run")
    )
    states = np.random.default_rng(0).uniform(-3.0, 3.0, (20, 2)) * np.array([1.0, 50.0])
    wanted = run.policy.values.act(2, states)
    run.policy.save(tmp_path / "policy")
    assert np.array_equal(Policy.load(tmp_path / "policy").values.act(2, states), wanted)
    again = load(tmp_path / "run", env=env)
    assert np.array_equal(again.policy.values.act(2, states), wanted)


def test_seen_widths_are_refused_in_private_runs_and_bounds_are_not() -> None:
    private = FedLSVI(3, privacy={"epsilon": 5.0, "delta": 1e-6}, aggregation="secure", rounds=3)
    with refused(InvalidSetting, "fitted-features"):
        private.prepare(drift((1.0, 1.0), False), 20, features="fourier")
    assert private.prepare(drift(), 20, features="fourier") is not None


def test_sites_of_a_federation_use_the_same_whatever_they_see() -> None:
    agreed = Federation("-", 1, 8, 8, features={"name": "fourier", "n_frequencies": 2})
    phi = agreed.feature_map()
    assert phi is not None
    here, there = (phi.bind(drift(units, False)) for units in ((1.0, 1.0), (5.0, 9.0)))
    assert here.W.tobytes() == there.W.tobytes()
    assert not here.fitted


def test_described_states_are_measured_by_their_descriptions() -> None:
    from fedlsvi.envs import RiverSwim

    env = RiverSwim(6, horizon=4)
    plain = DescribedFeatures(FourierFeatures(3), np.arange(6.0)[:, None]).bind(env)
    other = DescribedFeatures(FourierFeatures(3), 1e5 * np.arange(6.0)[:, None]).bind(env)
    np.testing.assert_allclose(plain.table, other.table, atol=1e-9)
