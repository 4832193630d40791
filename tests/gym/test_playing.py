"""Playing and recording: as many steps as are asked for, in the environment's own units."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from worlds import Corridor, walk_features

from fedlsvi import FedLSVI
from fedlsvi.envs import RiverSwim, as_environment
from fedlsvi.envs.gym_play import evaluate_policy, record
from fedlsvi.errors import InvalidInput


@pytest.mark.parametrize("env", ["MountainCar-v0", lambda: Corridor(ends=False)])
def test_a_world_is_played_for_as_long_as_is_asked(env: Any) -> None:
    world = as_environment(env, horizon=6)
    for steps in (4, 6, 9):
        found = evaluate_policy("random", world, 3, horizon=steps)
        assert (found.lengths == steps).all()
        assert np.array_equal(
            found.returns, evaluate_policy("random", env, 3, horizon=steps).returns
        )
    assert (evaluate_policy("random", world, 3).lengths == 6).all()


def test_a_table_from_a_function_is_played_in_its_own_units() -> None:
    taxi = as_environment(lambda: gymnasium.make("Taxi-v4"), horizon=20)
    found = evaluate_policy("random", taxi, 5)
    assert np.array_equal(
        found.returns, evaluate_policy("random", "Taxi-v4", 5, horizon=20).returns
    )
    assert found.mean < -20.0


@pytest.mark.parametrize("env", ["river-swim", "fedlsvi/RiverSwim-v0", RiverSwim()], ids=str)
def test_our_own_environments_are_recorded_by_any_name(env: Any, tmp_path: Path) -> None:
    run = FedLSVI(1).learn("river-swim", 5, progress=False)
    record(run.policy, env, tmp_path / "swim.txt")
    assert "RiverSwim: step 21 of 20" in (tmp_path / "swim.txt").read_text()


def test_a_package_that_a_drawing_lacks_is_named(tmp_path: Path) -> None:
    class Undrawn(Corridor):
        def render(self) -> Any:
            raise gymnasium.error.DependencyNotInstalled("run pip install pygame")

    run = FedLSVI(1).learn(Undrawn, 2, horizon=4, features=walk_features, progress=False)
    with pytest.raises(InvalidInput, match=r"Undrawn' needs a package.*pygame"):
        record(run.policy, Undrawn, tmp_path / "walk.txt")
