"""A warning points at the user's line, from every public call that warns."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium import spaces

import fedlsvi
from fedlsvi import FedLSVI, algorithms
from fedlsvi.envs import RandomLinearMDP, RandomMDP, as_environment
from fedlsvi.errors import FedLSVIWarning

LINEAR = RandomLinearMDP(n_states=4, n_actions=2, dim=3, horizon=2, seed=0)
TABLE = RandomMDP(n_states=4, n_actions=2, horizon=3, seed=0)
QUIET: dict[str, Any] = {"progress": False}


class Careless(gymnasium.Env[Any, Any]):
    """Its episodes do not follow the seed of reset."""

    observation_space, action_space = spaces.Discrete(2), spaces.Discrete(2)
    resets = 0

    def reset(self, **options: Any) -> Any:
        Careless.resets += 1
        return Careless.resets % 2, {}

    def step(self, action: Any) -> Any:
        return 0, 0.0, False, False, {}


def certain(folder: Path) -> None:
    FedLSVI(3, gamma=1.0).learn(TABLE, 9, **QUIET)


def seen_on_the_way(folder: Path) -> None:
    FedLSVI(3, gamma=30.0).learn(LINEAR, 60, **QUIET)


def in_a_folder(folder: Path) -> None:
    FedLSVI(3, gamma=30.0).learn(LINEAR, 60, folder=folder / "run", **QUIET)


def more(folder: Path) -> None:
    FedLSVI(3).learn(TABLE, 300, **QUIET).learn_more(300, **QUIET)


def more_in_a_folder(folder: Path) -> None:
    FedLSVI(3).learn(TABLE, 300, folder=folder / "run", **QUIET).learn_more(300, **QUIET)


def resumed(folder: Path) -> None:
    FedLSVI(3).learn(TABLE, 300, folder=folder / "run", **QUIET)
    fedlsvi.resume(folder / "run", episodes=600, **QUIET)


def made(folder: Path) -> None:
    as_environment(Careless, horizon=4)


def learned_in(folder: Path) -> None:
    FedLSVI(2).learn(Careless, 5, horizon=4, **QUIET)


def by_name(folder: Path) -> None:
    algorithms.make("fed-lsvi", n_agents=3, gamma=1.0).learn(TABLE, 9, **QUIET)


def predicted(folder: Path) -> None:
    policy = FedLSVI(3, min_round=5, rounds=1).learn(TABLE, 30, **QUIET).policy
    policy.predict(1)
    policy.predict(1)


CALLS = [
    certain, seen_on_the_way, in_a_folder, more, more_in_a_folder, resumed, made, learned_in,
    by_name, predicted,
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_a_warning_points_at_the_line_of_the_caller(
    call: Callable[[Path], None], tmp_path: Path
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(tmp_path)
    warned = [one for one in caught if issubclass(one.category, FedLSVIWarning)]
    assert warned
    lines = range(call.__code__.co_firstlineno, call.__code__.co_firstlineno + 5)
    for one in warned:
        assert (one.filename, one.lineno in lines) == (__file__, True), str(one.message)


def test_nothing_warns_in_another_way() -> None:
    package = Path(fedlsvi.__file__).parent
    direct = [path for path in package.rglob("*.py") if "warnings.warn(" in path.read_text()]
    assert [path.name for path in direct] == ["errors.py"]
