"""What a run says of its traffic before it plays, and what it warns of."""

from __future__ import annotations

import logging
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedlsvi import FedLSVI, Run
from fedlsvi.algorithms import registry as algorithms
from fedlsvi.cli import main
from fedlsvi.envs import RandomLinearMDP, RandomMDP, RiverSwim
from fedlsvi.errors import TrafficWarning
from fedlsvi.observers.traffic import Traffic, TrafficWatch

LINEAR = RandomLinearMDP(8, 3, 4, horizon=3, seed=0, initial="uniform")
PRIVACY = {"epsilon": 1.0, "delta": 1e-6}
TABLE = RandomMDP(n_states=4, n_actions=2, horizon=3, seed=0)


def learn(env: Any = LINEAR, episodes: int = 200, agents: int = 3, **settings: Any) -> Run:
    return FedLSVI(agents, **settings).learn(env, episodes, progress=False)


def traffic(run: Run) -> Traffic:
    return Traffic.of(run.parameters, run.raw_scalars_per_step)


def caught(**given: Any) -> tuple[Run, list[str]]:
    """A run and the sentences that it warned with."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        run = learn(**given)
    assert all(one.category is TrafficWarning for one in found)
    return run, [str(one.message) for one in found]


@pytest.mark.parametrize(
    "settings",
    [
        {}, {"gamma": 1.0}, {"gamma": 30.0}, {"gamma": 30.0, "min_round": 7}, {"rounds": 6},
        {"gamma": 1.0, "min_round": 11}, {"gamma": "anytime"}, {"gamma": "anytime", "cap": 1.5},
        {"gamma": 20.0, "aggregation": "secure"}, {"gamma": 500.0, "lam": 1.0},
        {"scalars": 6000, "min_round": 3}, {"preset": "paper"},
        {"gamma": 1.0, "participation": 0.4}, {"gamma": 5.0, "exchange": "one-trip"},
        {"gamma": 5.0, "exchange": "one-trip", "aggregation": "secure"},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("env", [LINEAR, TABLE, RiverSwim()], ids=["linear", "table", "steady"])
def test_what_is_said_holds(env: Any, settings: dict[str, Any]) -> None:
    run = learn(env, **settings)
    said = traffic(run)
    assert said.rounds[0] <= run.rounds <= said.rounds[1]
    assert said.scalars[0] <= run.ledger.total <= said.scalars[1]
    if run.parameters.some_away:
        assert said.raw == pytest.approx(run.scalars_raw, rel=0.2)
    else:
        assert said.raw == run.scalars_raw
    assert not said.single or run.records[0].length == 1
    assert not said.above_raw or run.scalars_raw < run.ledger.total


def test_where_every_episode_is_a_round_both_numbers_are_exact() -> None:
    said = traffic(learn(gamma=1.0))
    assert said.rounds == (200, 200)
    assert "200 rounds and" in said.sentence()


def test_a_budget_is_called_one() -> None:
    assert "6 rounds (the budget)" in traffic(learn(rounds=6)).sentence()
    assert "(a bound)" in traffic(learn(gamma=30.0)).sentence()


@pytest.mark.parametrize("budget", ["rounds", "min_round"])
def test_no_alarm_where_neither_happens(budget: str) -> None:
    run, said = caught(episodes=2000, **{budget: {"rounds": 8, "min_round": 100}[budget]})
    assert run.scalars_raw is not None
    assert run.ledger.total <= run.scalars_raw
    assert said == []
    found: list[str] = []
    watch_again(run, found)
    assert (min(r.length for r in run.records) > 1) == (found == [])


def watch_again(run: Run, said: list[str], **facts: Any) -> None:
    """What the server of a federation with this run would have said."""
    watch = TrafficWatch(replace(traffic(run), **facts), federated=True, say=said.append)
    watch.before()
    for record in run.records:
        watch(record)


def test_certain_things_are_said_once_and_before_the_run() -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        seen: list[int] = []
        run = FedLSVI(3, gamma=1.0).learn(
            TABLE, 50, progress=False, observers=[lambda record: seen.append(len(found))]
        )
    assert run.scalars_raw is not None
    assert run.ledger.total > run.scalars_raw
    assert seen == [1] * 50
    assert "rounds=" in str(found[0].message)
    assert "min_round=" not in str(found[0].message)
    assert found[0].filename == __file__
    told: list[str] = []
    watch_again(run, told)
    assert len(told) == 1
    assert "rounds=" in told[0]
    assert "min_round=" in told[0]


def test_what_only_the_run_shows_is_said_when_it_happens() -> None:
    """The trigger might wait for 30 episodes, and does not."""
    run, said = caught(gamma=30.0, episodes=60)
    assert not traffic(run).single
    assert not traffic(run).above_raw
    assert run.scalars_raw is not None
    assert run.ledger.total > run.scalars_raw
    assert min(r.length for r in run.records) == 1
    told: list[str] = []
    watch_again(run, told)
    assert len(told) == 2
    assert "min_round=10" in told[0]
    assert said == told[1:]
    assert f"rounds={traffic(run).paid}" in said[0]


def test_single_episodes_matter_to_who_receives_them() -> None:
    """In a simulation nobody does, and masks or noise hide them."""
    said: list[str] = []
    watch_again(run := learn(gamma=1.0, rounds="off"), said, raw=None, hidden=True)
    assert said == []
    assert traffic(run).single
    for protected in ({"aggregation": "secure"}, {"aggregation": "exact", "privacy": PRIVACY}):
        assert traffic(learn(episodes=30, **protected)).hidden


def test_the_budget_that_is_named_pays(capsys: pytest.CaptureFixture[str]) -> None:
    run, _ = caught(gamma=30.0, episodes=60)
    paid = learn(episodes=60, rounds=traffic(run).paid)
    assert paid.scalars_raw is not None
    assert paid.ledger.total <= paid.scalars_raw
    words = ["run", "--env", "river-swim", "--agents", "3", "--episodes", "200", "--out", "-"]
    assert main([*words, "--set", "gamma=1", "-q"]) == 0
    advice = capsys.readouterr().out.partition("--set ")[2].split()[0]
    assert main([*words, "--set", advice, "-q"]) == 0
    assert "sends less" not in capsys.readouterr().out


def test_where_no_setting_helps_another_way_is_named() -> None:
    _, said = caught(episodes=2, gamma=1.0)
    assert "more episodes" in said[0]


def test_anytime_names_what_can_be_set() -> None:
    _, said = caught(gamma="anytime", episodes=50)
    assert 'gamma="auto"' in said[0]


@pytest.mark.parametrize("name", ["centralised", "fed-lsvi"])
def test_others_and_single_agents_are_not_warned(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        algorithms.make(name, n_agents=1 if name == "fed-lsvi" else 2).learn(
            LINEAR, 30, progress=False
        )


def test_the_sentence_goes_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="fedlsvi.traffic"):
        run = learn(rounds=6)
    assert caplog.messages == [traffic(run).sentence()]


def test_the_shell_says_it_in_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "--env", "river-swim", "--agents", "3", "--episodes", "30", "--seeds", "0:2"]
    words += ["--set", "gamma=1"]
    assert main([*words, "--out", str(tmp_path / "loud")]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("fedlsvi: expect 30 rounds")
    assert lines[1].startswith("fedlsvi: warning: this run will send at least")
    assert main([*words, "--out", str(tmp_path / "quiet"), "-q"]) == 0
    assert capsys.readouterr().err == ""
    assert not logging.getLogger("fedlsvi.traffic").handlers
