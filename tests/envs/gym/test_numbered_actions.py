"""Actions in a box and combinations of choices become numbers."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import DiscretizeAction

from expecting import refused
from fedlsvi import FedLSVI, cli, load
from fedlsvi.envs import as_environment, from_spec, make
from fedlsvi.envs.gym.actions import Combinations
from fedlsvi.envs.gym.play import evaluate_policy
from fedlsvi.errors import InvalidEnvironment


class Dial(gymnasium.Env[Any, Any]):
    """Pays for actions near the target that is shown; `action_space` is given."""

    observation_space = spaces.Discrete(3)

    def __init__(self, action_space: Any = None) -> None:
        self.action_space = action_space or spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.target = int(self.np_random.integers(3))
        return self.target, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        near = 1.0 - 0.5 * abs(float(np.ravel(action)[0]) - (self.target - 1))
        self.target = int(self.np_random.integers(3))
        return self.target, near, False, False, {}


class Lock(Dial):
    """Pays for one of 2·3 combinations, which are counted from 1 and 5."""

    def __init__(self) -> None:
        super().__init__(spaces.MultiDiscrete([2, 3], start=[1, 5]))

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        return 0, float(action[0] == 2 and action[1] == 6), False, False, {}


def test_a_box_is_gymnasiums_own_grid_bit_by_bit() -> None:
    learner = FedLSVI(2)
    ours = learner.learn(Dial, 60, horizon=3, actions=5, progress=False)
    theirs = learner.learn(lambda: DiscretizeAction(Dial(), 5), 60, horizon=3, progress=False)
    np.testing.assert_array_equal(ours.w, theirs.w)
    np.testing.assert_array_equal(ours.mean_returns, theirs.mean_returns)
    found = evaluate_policy(ours.policy, Dial, 40, actions=5)
    assert found.mean > evaluate_policy("random", Dial, 40, horizon=3, actions=5).mean


def test_combinations_are_numbered_in_c_order() -> None:
    env = Combinations(Lock())
    pairs = [tuple(env.action(k).tolist()) for k in range(env.action_space.n)]
    assert pairs == list(itertools.product([1, 2], [5, 6, 7]))
    run = FedLSVI(2, value_range=2).learn(Lock, 200, horizon=2, progress=False)
    assert run.policy.action(0, 1) == 4  # (2, 6)


def test_points_may_differ_between_dimensions() -> None:
    def flat() -> Dial:
        return Dial(spaces.Box(np.array([-1.0, 0.0]), np.array([1.0, 9.0]), dtype=np.float64))

    assert as_environment(flat, horizon=2, actions=(5, 3)).n_actions == 15
    assert as_environment(flat, horizon=2, actions=[4, 1], repeat=2).n_actions == 4


def test_a_spec_keeps_the_grid() -> None:
    env = make("Pendulum-v1", actions=[3], horizon=4, reward_range=(-17.0, 0.0))
    assert env.spec()["params"]["actions"] == [3]
    assert from_spec(env.spec()).n_actions == env.n_actions == 3


def test_the_command_line_takes_a_grid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "run")
    shown = ("--features", "fourier", "--set", "env.reward_range=[-17, 0]")
    size = ("--set", "env.actions=3", "--set", "env.horizon=5", "--episodes", "4")
    assert cli.main(["run", "--env", "Pendulum-v1", *size, *shown, "--out", folder]) == 0
    assert load(folder).policy.spaces.n_actions == 3
    assert cli.main(["evaluate", folder, "--episodes", "3"]) == 0
    assert "actions = 3" in capsys.readouterr().out


UNBOUNDED = spaces.Box(-np.inf, np.inf, (1,))


@pytest.mark.parametrize(
    ("env", "actions", "code", "named"),
    [
        (Dial, None, "bad-action-space", ("actions=5", "(5, 3)")),
        (Dial, 0, "bad-actions", ("0",)),
        (Dial, "5", "bad-actions", ("'5'",)),
        (Dial, (3, 3), "bad-actions", ("(3, 3)", "1 dimension")),
        (lambda: Dial(UNBOUNDED), 3, "bad-actions", ("inf",)),
        (Lock, 3, "bad-actions", ("MultiDiscrete",)),
        (lambda: Dial(spaces.Discrete(2)), 3, "bad-actions", ("Discrete",)),
        (lambda: Dial(spaces.Box(0.0, 1.0, (9,))), 5, "too-many-actions", ("1,953,125",)),
    ],
)
def test_what_cannot_be_numbered_is_refused(
    env: Any, actions: Any, code: str, named: tuple[str, ...]
) -> None:
    with refused(InvalidEnvironment, code, *named):
        as_environment(env, horizon=2, actions=actions)


def test_actions_are_for_gymnasium_environments() -> None:
    with refused(InvalidEnvironment, "not-gymnasium", "actions"):
        as_environment("river-swim", actions=5)
