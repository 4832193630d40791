"""What a run says against its settings: at a violation, and nowhere else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedlsvi import FedLSVI, load
from fedlsvi.advice import above_value_range, below_random, rewards_clipped
from fedlsvi.cli.text import single_lines
from fedlsvi.envs import FiniteMDP, RiverSwim
from fedlsvi.policy import Worth
from fedlsvi.report.groups import grouped
from fedlsvi.report.run_page import notes


def pays_for_the_last_action(horizon: int = 4) -> FiniteMDP:
    """Action 1 pays 1 and action 0 nothing, in either of two states."""
    P = np.full((2, 2, 2), 0.5)
    return FiniteMDP(P, np.array([[0.0, 1.0], [0.0, 1.0]]), horizon=horizon)


def codes(run: Any) -> list[str]:
    """What the summary advises."""
    return [advice["code"] for advice in run.summary()["advice"]]


def test_features_that_hide_the_actions_are_worse_than_random() -> None:
    """All pairs look alike, so the first action wins every tie: 0 against 2 for random actions."""
    run = FedLSVI(2, stationary=True).learn(
        pays_for_the_last_action(), 30, features=np.ones((2, 2, 1)), progress=False
    )
    assert run.references()["learned"] == 0.0
    assert codes(run) == ["below-random"]


def test_a_range_below_what_episodes_earn_is_named() -> None:
    run = FedLSVI(2, value_range=1).learn(pays_for_the_last_action(), 30, progress=False)
    (advice,) = run.summary()["advice"]
    assert advice["code"] == "value-range-too-small"
    assert "at least 4" in advice["sentence"]


@pytest.mark.parametrize("value_range", [None, 4.0])
def test_nothing_is_said_where_nothing_is_wrong(value_range: float | None) -> None:
    run = FedLSVI(2, value_range=value_range).learn(pays_for_the_last_action(), 30, progress=False)
    assert run.summary()["advice"] == []


def test_the_same_in_text_on_the_page_and_from_a_folder(tmp_path: Any) -> None:
    run = FedLSVI(2, value_range=1).learn(
        pays_for_the_last_action(), 30, progress=False, folder=str(tmp_path / "run")
    )
    summary = run.summary()
    (advice,) = summary["advice"]
    assert f"  note: {advice['sentence']}" in single_lines(summary)
    assert notes(grouped([run])[0]) == [advice["sentence"]]
    again = load(str(tmp_path / "run"), env=pays_for_the_last_action())
    assert again.summary()["advice"] == [advice]


def test_measured_policies_must_differ_beyond_their_errors() -> None:
    random = Worth(0.0, 1.0, 50)
    assert below_random({"learned": Worth(-4.0, 1.0, 50), "random": random}) is None
    assert below_random({"learned": Worth(-4.5, 1.0, 50), "random": random}) is not None
    assert below_random({"learned": Worth(-4.5, None, 1), "random": random}) is None
    assert below_random({"behaviour": random}) is None


def test_ranges_are_compared_in_mapped_rewards() -> None:
    """Rewards in [−1, 0] over 10 steps: an episode of −4 is worth 6."""
    worth = {"learned": Worth(-4.0, 0.1, 50), "random": Worth(-10.0, 0.0, 50)}
    assert above_value_range(worth, 6.0, (-10.0, -9.0)) is None
    advice = above_value_range(worth, 5.0, (-10.0, -9.0))
    assert advice is not None
    assert "at least 6" in advice.sentence
    assert above_value_range(worth, None, (-10.0, -9.0)) is None


def test_a_clipped_reward_in_ten_episodes_is_worth_a_word() -> None:
    assert rewards_clipped(10_000, 10, 100) is not None
    assert rewards_clipped(10_000, 9, 100) is None
    assert rewards_clipped(10_000, 0, 100) is None
    assert rewards_clipped(None, None, 100) is None


def test_an_easy_table_at_defaults_gets_no_advice() -> None:
    run = FedLSVI(2).learn(RiverSwim(6, horizon=10), 100, progress=False)
    assert codes(run) == []
