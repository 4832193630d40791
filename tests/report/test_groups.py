"""Which runs are seeds of one setting, which are rivals, and what these are called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.algorithms import make
from fedlsvi.envs import ContinuousLinearMDP, FiniteMDP, RandomMDP, as_environment
from fedlsvi.errors import InvalidInput
from fedlsvi.features import FourierFeatures
from fedlsvi.report import write_report
from fedlsvi.report.groups import grouped
from fedlsvi.run import Run
from fedlsvi.storage import load

pytestmark = pytest.mark.usefixtures("sketched")

LAZY = np.eye(2)[np.array([[0, 1], [0, 1], [0, 0]])]
"""Two features for three states and two actions."""

MAPS = {
    "tables": (RandomMDP(3, 2, 2), LAZY, LAZY[:, ::-1]),
    "functions on finite states": (
        RandomMDP(3, 2, 2),
        lambda x: LAZY[x] / 2,
        lambda x: LAZY[x] / 3,
    ),
    "parameters": ("CartPole-v1", FourierFeatures(2, seed=1), FourierFeatures(2, seed=2)),
    "functions": ("CartPole-v1", lambda x: _flat(x, 0.5), lambda x: _flat(x, 0.25)),
}
"""Two feature maps of equal d each."""


def _flat(states: np.ndarray, value: float) -> np.ndarray:
    return np.full((len(states), 2, 1), value)


def played(env: Any, features: Any, seed: int, n_agents: int = 1) -> Run:
    more = {"horizon": 3} if isinstance(env, str) else {}
    learner = FedLSVI(n_agents=n_agents)
    return learner.learn(env, 4, seed, features=features, progress=False, **more)


def in_memory(run: Run, folder: Path) -> Run:
    return run


def from_folder(run: Run, folder: Path) -> Run:
    run.save(str(folder))
    return load(folder)


@pytest.mark.parametrize("kept", [in_memory, from_folder])
@pytest.mark.parametrize("maps", MAPS)
def test_features_tell_settings_apart(
    maps: str, kept: Callable[[Run, Path], Run], tmp_path: Path
) -> None:
    """Seeds 0 and 1 on one map, seed 2 on another of the same dimension: no mean mixes them."""
    env, one, other = MAPS[maps]
    runs = [played(env, phi, seed) for seed, phi in enumerate((one, one, other))]
    assert len({run.parameters.dim for run in runs}) == 1
    read = [kept(run, tmp_path / str(run.seed)) for run in runs]
    for given in (read, [runs[0], *read[1:]]):
        groups = grouped(given)
        assert [[run.seed for run in group.runs] for group in groups] == [[0, 1], [2]]
        assert groups[0].label != groups[1].label
        assert all("features = " in group.label for group in groups)


def test_a_name_and_parameters_say_which_features(tmp_path: Path) -> None:
    env = RandomMDP(3, 2, 2)
    own, table = played(env, None, 0), played(env, LAZY, 0)
    one, two = (group.label for group in grouped([own, table]))
    assert one.endswith("d = 6, features = own")
    assert two.endswith("d = 2, features = table")
    poles, *maps = MAPS["parameters"]
    labels = [group.label for group in grouped([played(poles, phi, 0) for phi in maps])]
    assert labels == [f"fed-lsvi, features = fourier (seed = {seed})" for seed in (1, 2)]
    page = write_report([own, table], tmp_path)[0].read_text(encoding="utf-8")
    assert "2 settings of fed-lsvi" in page
    assert "features = own" in page


def test_one_map_in_other_words_is_one_setting() -> None:
    """The environment's own, its name, and the table of its values."""
    env = RandomMDP(3, 2, 2)
    given = (None, "one-hot", np.eye(6).reshape(3, 2, 6))
    (group,) = grouped([played(env, phi, seed) for seed, phi in enumerate(given)])
    assert group.label == "fed-lsvi"


@pytest.mark.parametrize("env", [
    RandomMDP(3, 2, 2), [RandomMDP(3, 2, 2, agent=m, epsilon=0.2) for m in range(2)],
], ids=["shared", "one for each agent"])  # fmt: skip
def test_runs_here_and_runs_in_folders_are_of_one_problem(env: Any, tmp_path: Path) -> None:
    runs = [played(env, None, seed, 2) for seed in range(2)]
    assert len(grouped([runs[0], from_folder(runs[1], tmp_path / "run")])) == 1


def test_equal_numbers_of_other_kinds_are_one_setting() -> None:
    env = RandomMDP(3, 2, 2)
    runs = [make("low-switching", eta=eta).learn(env, 4, seed, progress=False)
            for seed, eta in enumerate((2, 2.0, np.float64(2.0)))]  # fmt: skip
    assert len(grouped(runs)) == 1


class Nameless(ContinuousLinearMDP):
    """No name makes it again."""


@pytest.mark.parametrize("kept", [in_memory, from_folder])
def test_environments_without_a_name_are_told_apart(
    kept: Callable[[Run, Path], Run], tmp_path: Path
) -> None:
    """By what they do, and by the rewards that 0 and 1 stand for."""
    smooth = [Nameless(4, 2, 3, cells=64, seed=seed) for seed in (0, 0, 1)]
    boxes = [as_environment(lambda: gymnasium.make("CartPole-v1"), horizon=3, reward_range=pay)
             for pay in ((-1, 1), (-1.0, 1.0), (-4, 4))]  # fmt: skip
    tables = [_paid(high) for high in (1.0, 1.0, 2.0)]
    for kind, envs in enumerate((smooth, boxes, tables)):
        phi = MAPS["functions"][1] if envs is boxes else None
        runs = [kept(played(env, phi, seed), tmp_path / f"{kind}-{seed}")
                for seed, env in enumerate(envs)]  # fmt: skip
        assert len(grouped(runs[:2])) == 1
        with refused(InvalidInput, "different-environments"):
            grouped(runs)


def _paid(high: float) -> FiniteMDP:
    env = FiniteMDP(np.full((2, 2, 2), 0.5), np.eye(2), horizon=3)
    env.reward_range = (0.0, high)
    return env
