"""Studies without a test module of their own: one small run each, checked against a plain one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedlsvi import FedLSVI
from fedlsvi.envs import NChain
from studies import (
    acrobot,
    defaults,
    diversity,
    door_key,
    environments,
    exploit,
    more_agents,
    pessimism,
    stationary,
)

pytestmark = pytest.mark.filterwarnings("ignore::fedlsvi.errors.TrafficWarning")


def test_the_score_of_a_pair_is_its_regret_over_that_of_the_uniform_policy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(defaults, "EPISODES", 40)
    env = defaults.families()["n-chain"](0)
    whole, late = defaults.score(env, 0.001, 0.1, seed=1)
    plain = FedLSVI(
        8, lam=0.001, beta=0.1 * env.horizon, cap="off", rounds="off", stationary=False,
        policy="explore", diversity=0,
    )  # fmt: skip
    run = plain.learn(env, 40, 1, progress=False)
    gap = env.initial_law(0) @ (env.optimal_values()[0] - env.uniform_values()[0])
    assert run.regret is not None
    assert whole == pytest.approx(run.regret[-1] / (8 * 40 * gap))
    assert late == pytest.approx((run.regret[-1] - run.regret[-5]) / (8 * 4 * gap))


def test_one_model_for_all_steps_loses_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stationary, "EPISODES", 100)
    env = stationary.problems()["river-swim"](0)
    apart, pooled = (stationary.scores(env, 0, own) for own in (False, True))
    assert 0.0 < pooled[0] < apart[0] < 2.0


def test_losses_are_measured_between_the_optimum_and_the_uniform_policy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = exploit.losses(NChain(n_states=5), 30, seed=0)
    assert len(found) == 2 + len(exploit.PESSIMISM)
    assert min(found) >= -1e-12
    assert found[1] <= found[0]  # without the bonus it is at least as good


def test_scores_of_pessimism_count_from_the_behaviour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pessimism, "FAMILIES", {"garnet": pessimism.FAMILIES["garnet"]})
    monkeypatch.setattr(pessimism, "EPISODES", (20,))
    scores = list(pessimism.sweep(range(1), (0.0, 0.01)))
    assert [s.behaviour for s in scores] == ["uniform"] * 2 + ["half optimal"] * 2
    assert all(-1.0 <= s.score <= 1.0 + 1e-9 for s in scores)
    assert pessimism.means(scores)[0.01]["garnet"] > 0.5
    env = pessimism.FAMILIES["garnet"](0)
    optimal = pessimism.mixture(env, 1.0)
    np.testing.assert_allclose(env.policy_values(optimal), env.optimal_values())


def test_agents_that_differ_find_the_corner_of_a_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diversity, "EPISODES", 60)
    alike, apart = (diversity.score("room 5x5", 10, size) for size in (0.0, 0.2))
    assert apart["regret"] < alike["regret"]
    assert apart["loss"] == pytest.approx(0.0)
    assert diversity.room(5, 30).optimal_values()[0, 0] == 1.0


def test_the_least_number_of_episodes_from_which_on_all_runs_solve_it() -> None:
    assert more_agents.first_solved({5: 0.96, 10: 0.1, 15: 0.96, 20: 0.95}) == 15
    assert more_agents.first_solved({5: 0.96, 10: 0.94}) is None


def test_an_environment_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    short = replace(environments.TABLE["Catch"], episodes=40, played=20)
    monkeypatch.setitem(environments.EVERY, "Catch", short)
    run = environments.play("Catch", 0)
    assert -1.0 <= run["random"] < run["ours"] <= 1.0
    assert -1.0 <= environments.tabular("Catch", 0) <= 1.0
    assert environments.line("Catch", [run]).startswith("| Catch | 4×40, H = 9 |")


def test_values_are_exact_where_an_environment_has_a_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All hangs on one table: what a good policy earns is the same for every seed."""
    short = replace(environments.TABLE["CliffWalking-v1"], episodes=40)
    monkeypatch.setitem(environments.EVERY, "CliffWalking-v1", short)
    run = environments.play("CliffWalking-v1", 0)
    assert run["optimal"] == pytest.approx(-13.0)
    assert run["random"] == pytest.approx(-273.555, abs=0.001)  # sampled, it differs by seed
    assert run["ours"] <= run["optimal"] + 1e-9
    assert environments.tabular("CliffWalking-v1", 0) == pytest.approx(-20.0)  # it stands still
    assert "| -13 | 1 |" in environments.line("CliffWalking-v1", [run])
    table = tmp_path / "runs.csv"
    environments.write(table, [run | {"advice": ["steps-differ"]}])
    head, row = table.read_text().splitlines()
    assert dict(zip(head.split(","), row.split(","), strict=True))["advice"] == "steps-differ"


def test_a_row_of_acrobot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acrobot, "PLAYED", 2)
    monkeypatch.setitem(acrobot.LINES, "defaults", (2, *acrobot.LINES["defaults"][1:]))
    run = acrobot.play("defaults", 0)
    assert -500.0 <= run["earned"] <= 0.0
    assert acrobot.row("a", "defaults", [run]).startswith(f"| a | 4×2 | {run['earned']:.0f} |")


def test_goals_are_counted_behind_each_door(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("minigrid")
    monkeypatch.setattr(door_key, "PLAYED", 4)
    monkeypatch.setitem(door_key.SETTINGS, "short", (1, 5, {}))
    run = door_key.play("short", 0)
    assert len(run["goals"]) == len(run["earned"]) == len(door_key.DOORS)
    assert all(0 <= goals <= 2 * 4 * 5 for goals in run["goals"])  # some are played twice
    assert all(0.0 <= earned <= 1.0 for earned in run["earned"])
