"""Rewards outside their range are clipped and counted; actions are held for several steps."""

from __future__ import annotations

from functools import partial
from time import sleep
from typing import Any

import gymnasium
import numpy as np
import pytest
from worlds import Coin, Corridor, Tiny, walk_features

import fedlsvi
from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.algorithms import registry
from fedlsvi.cli import main
from fedlsvi.cli.text import single_lines
from fedlsvi.envs import as_environment, make
from fedlsvi.envs.gym import world as gym_world
from fedlsvi.envs.gym.play import evaluate_policy
from fedlsvi.envs.gym.world import SLOW
from fedlsvi.errors import InvalidEnvironment
from fedlsvi.report.groups import Group
from fedlsvi.report.run_page import timing
from fedlsvi.run import Run


class Twice(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Two steps at once, written out."""

    def step(self, action: Any) -> Any:
        state, first, over, cut, info = self.env.step(action)
        if over:
            return state, first, over, cut, info
        state, second, over, cut, info = self.env.step(action)
        return state, first + second, over, cut, info


def _learn(env: Any, **options: Any) -> Run:
    settings = {"n_agents": 2, "gamma": 4.0, "beta": 0.3, "lam": 0.1}
    return FedLSVI(**settings).learn(
        env, 20, 3, features=walk_features, progress=False, **{"horizon": 6, **options}
    )


def _same(a: Run, b: Run) -> None:
    assert a.taus == b.taus
    assert a.w.tobytes() == b.w.tobytes()


def test_a_clipped_reward_is_the_end_of_the_range_and_counted() -> None:
    """What pays 3 and is clipped at 1 is what pays 1."""
    with refused(InvalidEnvironment, "reward-out-of-range", "3"):
        _learn(partial(Corridor, pay=3.0))
    clipped = _learn(partial(Corridor, pay=3.0), clip_rewards=True)
    plain = _learn(partial(Corridor, pay=1.0))
    _same(clipped, plain)
    assert plain.summary()["clipped"] == 0
    counted = clipped.summary()["clipped"]
    assert 0 < counted < clipped.summary()["steps"] == plain.summary()["steps"]
    assert f"{counted} rewards clipped" in "\n".join(single_lines(clipped.summary()))


def test_clipped_rewards_and_steps_are_counted_one_by_one() -> None:
    """Centralised plays nothing ahead: every step and every reward belongs to the run."""
    taken: list[float] = []

    class Counted(Corridor):
        def step(self, action: Any) -> Any:
            answer = super().step(action)
            taken.append(answer[1])
            return answer

    env = as_environment(lambda: Counted(pay=3.0), horizon=6, clip_rewards=True)
    taken.clear()
    learner = registry.make("centralised", n_agents=2)
    run = learner.learn(env, 10, features=walk_features, progress=False)
    assert run.summary(values=False)["steps"] == len(taken)
    assert run.summary(values=False)["clipped"] == sum(paid > 1.0 for paid in taken)


def test_look_ahead_is_counted_too() -> None:
    ahead, step = _learn(lambda: Corridor()), _learn(lambda: Corridor(), block=1)
    _same(ahead, step)
    lengths = 2 * 20 * 6
    assert step.summary()["steps"] <= lengths
    assert step.summary()["steps"] < ahead.summary()["steps"]


@pytest.mark.parametrize("kind", ["walked", "numbered"])
def test_where_steps_are_slow_nothing_is_played_ahead(kind: str) -> None:
    """As with block=1, and to the same bits."""

    def slowly(world: type, seconds: float) -> Any:
        class Slow(world):  # type: ignore[misc]
            def step(self, action: Any) -> Any:
                sleep(seconds)
                return super().step(action)

        return Slow

    def learn(seconds: float, **options: Any) -> Run:
        settings = {"n_agents": 2, "gamma": 4.0, "beta": 0.3, "lam": 0.1}
        world = Corridor if kind == "walked" else Coin
        features = walk_features if kind == "walked" else None
        make = slowly(world, seconds) if seconds else world
        options |= {"features": features, "horizon": 3}
        return FedLSVI(**settings).learn(make, 15, 3, progress=False, **options)

    ahead, slow, one = learn(0.0), learn(1.2 * SLOW), learn(0.0, block=1)
    _same(slow, ahead)
    assert slow.summary()["steps"] == one.summary()["steps"] < ahead.summary()["steps"]


@pytest.mark.parametrize("away", [{}, {"participation": 0.6}, {"present": [[0, 1, 9]]}], ids=str)
@pytest.mark.parametrize("kind", ["walked", "numbered"])
def test_a_slow_simulator_plays_only_what_is_used(
    kind: str, away: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every agent a cohort of its own: none plays beyond the signal of another. Every step counts
    as slow here."""
    monkeypatch.setattr(gym_world, "SLOW", 0.0)
    taken = []

    class Counted(Coin if kind == "numbered" else Corridor):  # type: ignore[misc]
        def step(self, action: Any) -> Any:
            taken.append(action)
            return super().step(action)

    make = Counted if kind == "numbered" else partial(Counted, ends=False)
    env = as_environment(make, horizon=3)
    features = None if kind == "numbered" else walk_features
    taken.clear()
    learner = FedLSVI(3, gamma=4.0, beta=0.3, lam=0.1, **away)
    cohorts = 1 if away else 3
    run = learner.learn(env, 15, 3, features=features, cohorts=cohorts, progress=False)
    assert len(taken) == run.summary(values=False)["steps"] == 3 * run.agent_episodes


def test_a_table_is_clipped_as_it_is() -> None:
    """Tiny pays 0, 1 and 3."""
    whole = as_environment(lambda: Tiny(), horizon=4)
    cut = as_environment(lambda: Tiny(), horizon=4, reward_range=(0.0, 1.0), clip_rewards=True)
    with refused(InvalidEnvironment, "reward-out-of-range", "3"):
        as_environment(lambda: Tiny(), horizon=4, reward_range=(0.0, 1.0))
    r, whole_r = cut.reward_on_transition, whole.reward_on_transition
    assert np.array_equal(r, np.minimum(3.0 * whole_r, 1.0))


def test_the_range_of_random_play_is_the_same_every_time() -> None:
    env = as_environment(lambda: Corridor(pay=-2.5), horizon=6, reward_range="clip")
    assert env.reward_range == (-2.5, 0.0)
    assert env.clip
    mixed = [partial(Corridor, pay=pay) for pay in (-2.5, 1.0)]
    both = as_environment(mixed, horizon=6, reward_range="clip")
    assert {one.reward_range for one in both} == {(-2.5, 1.0)}
    assert all(one.clip for one in both)
    assert _learn(mixed, reward_range="clip").summary()["clipped"] == 0
    with refused(InvalidEnvironment, "no-reward-seen", "Corridor"):
        as_environment(lambda: Corridor(pay=0.0), horizon=6, reward_range="clip")


@pytest.mark.parametrize("pay", [float("nan"), float("inf"), None, "0.5"])
@pytest.mark.parametrize("repeat", [1, 2])
def test_what_is_not_a_number_is_neither_clipped_nor_added_up(pay: Any, repeat: int) -> None:
    class Odd(Coin):
        def reset(self, **options: Any) -> Any:
            self.h = 0
            return super().reset(**options)

        def step(self, action: Any) -> Any:
            self.h += 1
            state, paid, *rest = super().step(action)
            return (state, pay if self.h == 5 else paid, *rest)

    env = as_environment(lambda: Odd(), horizon=4, clip_rewards=True, repeat=repeat)
    with refused(InvalidEnvironment, "bad-reward", "agent 0", str(pay)):
        FedLSVI(1, gamma=1).learn(
            env if repeat == 2 else as_environment(lambda: Odd(), horizon=6, clip_rewards=True),
            3, progress=False,
        )  # fmt: skip


def test_holding_an_action_is_stepping_twice() -> None:
    """Rewards add up, the range is that of the sum, and an end in between is an end."""
    held = _learn(lambda: Corridor(), repeat=2, reward_range=(-1.0, 1.0))
    _same(held, _learn(lambda: Twice(Corridor()), reward_range=(-2.0, 2.0)))
    assert held.reward_range == (-2.0, 2.0)
    env = as_environment(lambda: Corridor(), horizon=6, repeat=2)
    for other, repeat in ((env, 1), (lambda: Corridor(), 2)):
        found = evaluate_policy(held.policy, other, 20, repeat=repeat)
        written = evaluate_policy(held.policy, lambda: Twice(Corridor()), 20)
        assert np.array_equal(found.returns, written.returns)


def test_the_horizon_counts_decisions_and_comes_back_from_a_record() -> None:
    options = {"reward_range": "clip", "repeat": 3}
    env: Any = make("gymnasium", id="MountainCar-v0", **options)
    assert env.horizon == 67  # of 200 steps
    assert env.reward_range == (-3.0, 0.0)
    assert env.step_range == (-1.0, 0.0)
    spec = env.spec()
    again: Any = make(spec["name"], **spec["params"])
    assert again.spec() == spec
    assert (again.reward_range, again.horizon, again.clip) == ((-3.0, 0.0), 67, True)
    assert as_environment(gymnasium.spec("MountainCar-v0"), repeat=4).horizon == 50
    assert as_environment(lambda: gymnasium.make("MountainCar-v0"), repeat=4).horizon == 50
    assert not hasattr(make("gymnasium", horizon=5, repeat=2), "P")  # FrozenLake, stepped


def test_a_time_limit_within_a_held_action_is_named() -> None:
    limited = partial(gymnasium.wrappers.TimeLimit, max_episode_steps=5)
    env = as_environment(lambda: limited(Coin()), horizon=4, repeat=2)
    with refused(InvalidEnvironment, "time-limit", "horizon=3"):
        FedLSVI(1).learn(env, 2, progress=False)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"repeat": 0}, "bad-repeat"),
        ({"repeat": 1.5}, "bad-repeat"),
        ({"clip_rewards": "yes"}, "bad-clip_rewards"),
        ({"reward_range": "norm"}, "bad-reward_range"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, Any], code: str) -> None:
    with refused(InvalidEnvironment, code, str(next(iter(options.values())))):
        as_environment(lambda: Coin(), horizon=4, **options)
    if code != "bad-reward_range":
        with refused(InvalidEnvironment, "not-gymnasium", next(iter(options))):
            as_environment("river-swim", **{key: 2 if key == "repeat" else True for key in options})


@pytest.mark.usefixtures("here")
def test_a_folder_and_the_shell_know_both(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["run", "--env", "MountainCar-v0", "--set", "env.repeat=40", "--features", "fourier",
            "--set", "features.n_frequencies=2", "--set", "env.reward_range=[-0.5,0]",
            "--set", "env.clip_rewards=true", "--episodes", "2", "--out", "r"]  # fmt: skip
    assert main(line) == 0
    assert "rewards clipped to reward_range" in capsys.readouterr().out
    run = fedlsvi.load("r")
    assert run.parameters.horizon == 5
    assert run.reward_range == (-20.0, 0.0)
    assert run.mean_returns is not None
    assert set(run.mean_returns) == {-100.0}
    assert main(["evaluate", "r", "--episodes", "2"]) == 0
    assert "repeat = 40): -200" in capsys.readouterr().out
    assert "lay outside the reward range" in timing(Group("", [run]))
