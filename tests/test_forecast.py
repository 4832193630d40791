"""`FedLSVI.plan`: what a run will take, before it is played."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pytest

from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.cli import main
from fedlsvi.config import Parameters, Settings
from fedlsvi.envs import ContinuousLinearMDP, RandomLinearMDP, RiverSwim
from fedlsvi.errors import InvalidInput
from fedlsvi.forecast import PHASES, Costs, forecast, held
from fedlsvi.groups import ProblemSize
from fedlsvi.observers.progress import ProgressBar
from fedlsvi.protocol.session import FederatedPlayer, Session

WORLD = RandomLinearMDP(6, 3, 4, 3, seed=0)
HIDDEN = {"exchange": "one-trip", "aggregation": "secure"}
KINDS: list[tuple[Any, dict[str, Any]]] = [
    (WORLD, {}),
    (WORLD, {"preset": "paper", "packing": "dense"}),
    (WORLD, {"exchange": "one-trip"}),
    (WORLD, HIDDEN),
    (WORLD, {"participation": 0.5}),
    (RiverSwim(horizon=5), {"diversity": 0.2}),
    (ContinuousLinearMDP(dim=4, n_actions=2, horizon=3, seed=0), {}),
]


@pytest.mark.parametrize(("env", "settings"), KINDS)
def test_a_run_that_is_over_at_once_is_known_exactly(env: Any, settings: dict[str, Any]) -> None:
    learner = FedLSVI(3, **settings)
    said = learner.plan(env, 60, seed=2)
    run = learner.learn(env, 60, seed=2, progress=False)
    assert said.ends.tolist() == [record.last for record in run.records]
    assert said.scalars == run.ledger.total
    assert said.rounds == run.rounds
    low, high = said.rounds_bound
    assert low <= said.rounds <= high


@pytest.mark.parametrize("settings", [{"gamma": 1.0, "rounds": 7}, HIDDEN | {"rounds": 7}])
def test_rounds_that_end_by_a_schedule_need_no_calibration(settings: dict[str, Any]) -> None:
    learner = FedLSVI(3, **settings)
    said = _after_one_round(learner, 4_000)
    run = learner.learn(WORLD, 4_000, progress=False)
    assert said.ends.tolist() == [record.last for record in run.records]
    assert said.scalars == pytest.approx(run.ledger.total, rel=0.02)


def test_rounds_are_close_to_those_of_the_run() -> None:
    """One round was played, of dozens."""
    learner = FedLSVI(4, preset="paper")
    said = _after_one_round(learner, 20_000)
    run = learner.learn(WORLD, 20_000, progress=False)
    assert run.rounds > 20
    assert said.rounds == pytest.approx(run.rounds, rel=0.25)
    assert set(said.seconds) == set(PHASES)
    assert np.all(np.diff(said.times) >= 0.0)


def test_history_costs_time_and_memory() -> None:
    env = ContinuousLinearMDP(dim=4, n_actions=2, horizon=3, seed=0)
    short, long = (_after_one_round(FedLSVI(2, rounds=9), T, env) for T in (2_000, 200_000))
    raw = 2 * (200_000 - 2_000) * 3 * 8  # at least a double of every step
    assert long.memory - long.program > short.memory - short.program + raw
    assert long.total_seconds > short.total_seconds


def test_a_setting_that_halves_scalars_does() -> None:
    learner = FedLSVI(4)
    said = learner.plan(WORLD, 2_000)
    name, _, value = said.halved["scalars"].partition("=")
    assert name == "rounds"
    run = FedLSVI(4, rounds=int(value)).learn(WORLD, 2_000, progress=False)
    assert run.ledger.total <= 0.6 * said.scalars


class FewerTakeLonger(Costs):
    """Half as many agents synchronise twice as often; nothing else changes anything."""

    def __init__(self, n_agents: int, often: int) -> None:
        self.n_agents, self.often = n_agents, often

    def ends(self, p: Any) -> np.ndarray:
        return np.arange(1, 101 if p.n_agents == self.n_agents else 100 * self.often + 1)

    def seconds(self, ends: np.ndarray) -> dict[str, float]:
        return {"explore": float(len(ends)), "other": 0.0}

    def scalars(self, ends: np.ndarray) -> int:
        return len(ends)

    memory = scalars


def test_fewer_agents_are_named_only_where_they_halve() -> None:
    """They were named wherever nothing else halved a figure."""
    p = Settings(n_agents=4).resolve(ProblemSize(100, 2, 3, False))
    for often, found in (
        (2, {}),
        (1, dict.fromkeys(("seconds", "scalars", "memory"), "n_agents=2")),
    ):
        costs = FewerTakeLonger(4, often)
        assert costs.halves(p, costs.ends(p), 0) == found


def test_it_says_so_in_words_and_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "--env", "random-linear", "--agents", "2", "--episodes", "50"]
    assert main([*words, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert main(words) == 0
    text = capsys.readouterr().out
    assert f"{found['scalars']:,} " in text
    assert found["total_seconds"] == pytest.approx(sum(found["seconds"].values()))


def test_only_fed_lsvi_is_planned(tmp_path: Any) -> None:
    settings = tmp_path / "other.toml"
    settings.write_text('algorithm = "centralised"\nepisodes = 10\n[env]\nname = "river-swim"\n')
    from fedlsvi.cli import commands

    with refused(InvalidInput, "cannot-plan"):
        commands.main(["plan", str(settings)], standalone_mode=False)


def test_learn_says_and_shows_what_was_planned(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = FedLSVI(2)
    said = learner.plan(WORLD, 40)
    assert said.left(0) == pytest.approx(1.0)
    assert 0.0 <= said.left(40) < said.left(10) < 1.0
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    made: list[Any] = []

    class Bar(ProgressBar):
        def __init__(self, parameters: Parameters, played: int, expected: Any) -> None:
            made.append(expected)
            super().__init__(parameters, played, expected)

    monkeypatch.setattr("fedlsvi.observers.progress.ProgressBar", Bar)
    learner.learn(WORLD, 40, progress=said)
    assert made == [said]
    shown = capsys.readouterr().err
    assert said.sentence() in shown
    assert " left" in shown


def test_arrays_are_counted_once_and_environments_are_not() -> None:
    one = np.zeros(1000)
    assert held([one, one[:10], (one.reshape(10, 100), {"a": one})]) == one.nbytes
    assert held([WORLD]) == 0


def _after_one_round(learner: FedLSVI, episodes: int, env: Any = WORLD) -> Any:
    session = learner.prepare(env, episodes)
    session.close()
    return forecast(session.plan, lambda plan: Session(FederatedPlayer.of(plan, 3)), 0.0)
