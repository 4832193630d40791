"""Ids, specs and lists of agents' environments: what is made is what was asked for."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.envs.registration import EnvSpec
from worlds import Coin, Tiny

from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.cli import in_shell_words
from fedlsvi.envs import RiverSwim, as_environment, make
from fedlsvi.errors import InvalidEnvironment


class Paying(Tiny):
    """The same two states; the second action pays `high`, the first one 1."""

    def __init__(self, high: float) -> None:
        super().__init__()
        row = {0: [(1.0, 0, 1.0, False)], 1: [(1.0, 0, high, False)]}
        self.P = {0: row, 1: row}


def test_agents_count_rewards_in_the_same_units() -> None:
    """1 and 0 for the one agent, 1 and 10 for the other: on average the second action is better."""
    each = [lambda: Paying(0.0), lambda: Paying(10.0)]
    run = FedLSVI(2).learn(each, 100, horizon=3, progress=False)
    assert run.plan is not None
    assert [env.reward_range for env in run.plan.envs] == [(0.0, 10.0)] * 2
    assert run.policy.table[:, 0].tolist() == [1, 1, 1]
    made = [as_environment(one, horizon=3) for one in each]
    with refused(InvalidEnvironment, "agents-disagree", "env[1].reward_range", "10.0"):
        FedLSVI(2).learn(made, 9, progress=False)
    chains = as_environment([RiverSwim(), lambda: Paying(10.0)], horizon=20)  # one is as it is
    assert [env.reward_range for env in chains] == [(0.0, 1.0), (0.0, 10.0)]


def test_an_id_needs_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gymnasium.registry, "Plain", EnvSpec("Plain", Coin, max_episode_steps=4))
    for id in ("Plain", "worlds:Plain"):
        for env in (as_environment(id), make(id, reward_range=(0, 2))):
            assert env.spec()["params"]["id"] == id
            assert env.horizon == 4


class Bare(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Keeps no record of its arguments."""


def test_what_only_resembles_a_registered_environment_is_not_taken_for_it() -> None:
    with refused(InvalidEnvironment, "single-environment"):
        as_environment(Bare(gymnasium.make("CartPole-v1")))
    env = as_environment(EnvSpec("CartPole-v1", Coin, max_episode_steps=4))
    assert (env.n_states, env.horizon) == (4, 4)
    assert env.spec()["name"] is None


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (None, "pip install my-gym"),
        ("import not_there", "'not_there'"),
        ("def (", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError"),
    ],
    ids=["absent", "lacking", "no Python", "failing"],
)
def test_a_module_that_cannot_be_imported_is_told_apart_from_one_that_fails(
    content: str | None, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    if content is not None:
        (tmp_path / "my_gym.py").write_text(content)
    with refused(InvalidEnvironment, "import-failed", "my_gym:Far-v0", named) as caught:
        as_environment("my_gym:Far-v0")
    assert ("sys.path" in str(caught.value)) is (content is None)
    assert "--import" not in str(caught.value)
    assert ("--import my_gym.py" in in_shell_words(caught.value)) is (content is None)


def test_a_known_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "icu_sepsis", None)
    with refused(InvalidEnvironment, "import-failed"):
        as_environment("Sepsis/Not-A-Known-One-v2")
