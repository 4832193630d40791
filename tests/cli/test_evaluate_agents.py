"""`fedlsvi evaluate` and `record` where agents differ: every agent's environment, by its name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlsvi import FedLSVI
from fedlsvi.cli import main
from fedlsvi.envs import FiniteMDP, RiverSwim, xi_close
from fedlsvi.envs import registry as envs_registry
from fedlsvi.envs.gym.play import evaluate_policy, record
from fedlsvi.envs.linear import RandomLinearMDP


def ward(agent: int = 0, beds: int = 2) -> FiniteMDP:
    """Whoever acts well is paid 0.2, 0.4 or 0.6 a step."""
    pay = np.array([[0.1, 0.2 * (1 + agent)]])
    return FiniteMDP(np.ones((1, 2, 1)), pay, horizon=beds, name="Ward")


@pytest.fixture
def wards(here: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run of three agents, each on a ward of its own."""
    monkeypatch.setattr(envs_registry.REGISTRY, "rows", dict(envs_registry.REGISTRY.rows))
    envs_registry.register("ward", ward, "one for each agent")
    line = ["run", "--env", "ward", "--set", "env.beds=3", "--agents", "3", "--episodes", "30"]
    assert main([*line, "--out", "run"]) == 0
    return "run"


def evaluated(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["evaluate", *arguments, "--format", "json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_every_agents_environment_is_played(wards: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = evaluated(capsys, wards, "--episodes", "4")
    assert found["environment"] == "the environments of 3 agents"
    assert found["mean"] == pytest.approx(1.2)
    assert found["low"] == pytest.approx(found["high"])  # each ward pays the same every time
    assert found["episodes"] == 4
    for m, row in enumerate(found["agents"]):
        assert row["agent"] == m
        assert row["environment"] == f"Ward (beds = 3, agent = {m})"
        assert row["mean"] == pytest.approx(0.6 * (1 + m))
    assert main(["evaluate", wards]) == 0
    assert "agent 2, Ward (beds = 3, agent = 2): 1.8 [" in capsys.readouterr().out


def test_one_agents_environment_is_named(wards: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = evaluated(capsys, wards, "--set", "env.agent=2")
    assert found["environment"] == "Ward (beds = 3, agent = 2)"
    assert found["mean"] == pytest.approx(1.8)
    assert "agents" not in found
    assert main(["record", wards, "--out", "episode.txt"]) == 0
    assert "one episode of agent 0 in Ward (beds = 3, agent = 0), ret" in capsys.readouterr().out


def test_unusual_parameters_are_shown(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = FedLSVI(2).learn(RiverSwim(4, 8), 20, progress=False)
    run.policy.save("swim")
    assert evaluated(capsys, "swim")["environment"] == "RiverSwim (n_states = 4, horizon = 8)"
    changed = evaluated(capsys, "swim", "--set", "env.initial=2")
    assert changed["environment"] == "RiverSwim (n_states = 4, horizon = 8, initial = 2)"


def test_agents_given_one_by_one(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A list, of which the folder keeps an entry for each; and arrays."""
    swims = [RiverSwim(4, 8), RiverSwim(4, 8, initial=3)]
    FedLSVI(2).learn(swims, 20, progress=False, folder="swims")
    names = [row["environment"] for row in evaluated(capsys, "swims")["agents"]]
    assert [name.count("initial = 3") for name in names] == [0, 1]
    arrays = [ward(0, 3), ward(1, 3)]
    FedLSVI(2).learn(arrays, 30, progress=False, folder="arrays")
    assert [row["mean"] for row in evaluated(capsys, "arrays")["agents"]] == pytest.approx(
        [0.6, 1.2]
    )


def test_each_agent_begins_where_it_did_in_the_run(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two families: first states of their own, and draws of their own."""
    worlds = xi_close(RandomLinearMDP(4, 2, 3, 3, initial=[0, 3]), 2, 0.2)
    run = FedLSVI(2).learn(worlds, 30, progress=False, folder="run")
    found = evaluated(capsys, "run", "--episodes", "9")["agents"]
    for m, env in enumerate(worlds):
        assert found[m]["mean"] == evaluate_policy(run.policy, env, 9, agent=m).mean
        record(run.policy, env, "episode.txt", agent=m)
        assert f"step 1 of 3, state {3 * m}\n" in Path("episode.txt").read_text()
    world = RiverSwim(4, 8, initial="uniform")
    ours, theirs = (evaluate_policy("random", world, 9, agent=m).returns for m in range(2))
    assert not np.array_equal(ours, theirs)


def test_one_episode_has_no_interval(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    FedLSVI(1).learn(RiverSwim(4, 8), 20, progress=False).policy.save("swim")
    found = evaluated(capsys, "swim", "--episodes", "1")
    assert found["low"] is found["high"] is None
    assert main(["evaluate", "swim", "--episodes", "1"]) == 0
    assert "(1 episode: too few for an interval)" in capsys.readouterr().out
