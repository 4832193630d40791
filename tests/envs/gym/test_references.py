"""References in environments that are slow: few episodes, a limit in seconds, and a word about it.

Nothing here looks at a clock: a step takes what the environment says, on a clock of the test's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds import Coin

import fedlsvi
from expecting import refused
from fedlsvi import FedLSVI, policy
from fedlsvi.envs.gym import episodes
from fedlsvi.envs.gym.play import evaluate_policy
from fedlsvi.errors import FedLSVIWarning, InvalidInput
from fedlsvi.observers import progress
from fedlsvi.run import Run

STEP = 0.125
"""Seconds of a step; an episode of four steps with each of three policies takes 1.5."""


class Clock:
    """Time that passes only in steps."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (policy, episodes, progress):
        monkeypatch.setattr(module, "perf_counter", made)
    return made


def learned(clock: Clock, **options: Any) -> Run:
    class Slow(Coin):
        def step(self, action: Any) -> Any:
            clock.now += STEP
            return super().step(action)

    return FedLSVI(2).learn(Slow, 3, horizon=4, progress=False, **options)


def test_as_many_episodes_as_there_is_time_for(clock: Clock) -> None:
    run = learned(clock)
    began = clock.now
    with pytest.warns(FedLSVIWarning, match="3 episodes instead of 50"):
        worth = run.worth(seconds=5.0)
    assert {name: value.episodes for name, value in worth.items()} == {
        "learned": 3, "random": 3, "exploring": 3,
    }  # fmt: skip
    assert clock.now - began == 3 * 1.5
    assert run.worth_known == worth
    assert run.references(seconds=5.0) == {name: value.mean for name, value in worth.items()}


def test_the_limit_is_there_without_asking(clock: Clock) -> None:
    run = learned(clock)
    began = clock.now
    with pytest.warns(FedLSVIWarning, match="20 episodes instead of 50"):
        run.references()
    assert clock.now - began == policy.PATIENCE


def test_without_a_limit_all_are_played(clock: Clock) -> None:
    run = learned(clock)
    assert run.worth(40, seconds=None)["random"].episodes == 40
    assert run.worth(20, seconds=100.0)["random"].episodes == 20


def test_one_episode_is_played_however_slow_it_is(clock: Clock) -> None:
    with pytest.warns(FedLSVIWarning, match="1 episode instead"):
        worth = learned(clock).worth(seconds=0.01)
    assert worth["random"].episodes == 1
    assert worth["random"].standard_error is None


def test_a_run_that_is_loaded_finds_out_how_slow_it_is(clock: Clock, tmp_path: Path) -> None:
    run = learned(clock, folder=tmp_path / "run")
    loaded = fedlsvi.load(tmp_path / "run", env=run.plan.envs[0])  # type: ignore[union-attr]
    run.plan.world.step_seconds = np.inf  # type: ignore[union-attr]
    began = clock.now
    with pytest.warns(FedLSVIWarning, match="3 episodes instead"):
        assert loaded.worth(seconds=5.0)["learned"].episodes == 3
    assert clock.now - began == 4 * STEP + 3 * 1.5  # one episode, to find out


def test_a_summary_of_a_loaded_run_plays_no_slow_episodes(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = learned(clock)
    run.plan.world.step_seconds = np.inf  # type: ignore[union-attr]
    monkeypatch.setattr(policy, "SECONDS", 0.5)
    began = clock.now
    assert run.summary()["values"] is None
    assert clock.now - began == 4 * STEP  # one episode, to find out


def test_a_random_episode_does_not_depend_on_how_many_are_played() -> None:
    few, many = (evaluate_policy("random", Coin, n, horizon=4).returns for n in (3, 40))
    assert np.array_equal(few, many[:3])
    assert len(set(many.tolist())) > 1


@pytest.mark.parametrize("seconds", [0.0, -1.0, "5"])
def test_a_limit_is_a_time(clock: Clock, seconds: Any) -> None:
    with refused(InvalidInput, "bad-seconds"):
        learned(clock).references(seconds=seconds)


@pytest.mark.parametrize("shown", [True, False])
def test_a_bar_says_what_is_going_on(
    shown: bool, clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal
    run = learned(clock)
    run.references(3, progress=shown)
    assert ("measuring policies" in capsys.readouterr().err) is shown
