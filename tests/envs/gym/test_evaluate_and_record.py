"""Playing and recording: as many steps as are asked for, in the environment's own units."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from worlds import Coin, Corridor, walk_features

from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.envs import FiniteMDP, RiverSwim, as_environment
from fedlsvi.envs.gym.play import evaluate_policy, record
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
    assert "step 20\nRiverSwim: the end" in (tmp_path / "swim.txt").read_text()


def test_a_package_that_a_drawing_lacks_is_named(tmp_path: Path) -> None:
    class Undrawn(Corridor):
        def render(self) -> Any:
            raise gymnasium.error.DependencyNotInstalled("run pip install pygame")

    run = FedLSVI(1).learn(Undrawn, 2, horizon=4, features=walk_features, progress=False)
    with refused(InvalidInput, "missing-package"):
        record(run.policy, Undrawn, tmp_path / "walk.txt")


class Drawn(Corridor):
    """Draws whatever it is told to."""

    metadata = {"render_modes": ["ansi", "rgb_array"]}  # noqa: RUF012 (Gymnasium's own form)

    def __init__(self, picture: Any = None, render_mode: str | None = None) -> None:
        super().__init__(render_mode=render_mode)
        self.picture = picture

    def render(self) -> Any:
        return self.picture


@pytest.fixture(scope="module")
def walk() -> Any:
    """A policy of four steps in the corridor."""
    return FedLSVI(1).learn(Corridor, 2, horizon=4, features=walk_features, progress=False).policy


@pytest.mark.parametrize("ending", ["txt", "gif", "mp4"])
def test_a_function_that_forgets_the_render_mode_is_told(
    walk: Any, tmp_path: Path, ending: str
) -> None:
    if ending == "mp4":
        pytest.importorskip("imageio_ffmpeg")
    target = tmp_path / f"walk.{ending}"
    with refused(InvalidInput, "cannot-render", "render_mode"):
        record(walk, lambda **options: Drawn(), target)
    assert not target.exists()


@pytest.mark.parametrize(
    ("picture", "ending", "sentence"),
    [
        (np.zeros((4, 4)), "gif", ("cannot-render", "(4, 4)", "64")),
        (np.zeros((4, 4, 3)), "gif", ("cannot-render", "64")),
        ([np.zeros((4, 4, 3), np.uint8)], "gif", ("cannot-render",)),
        (3, "txt", ("cannot-render", "render_mode", "'ansi'")),
    ],
)
def test_a_drawing_of_another_kind_is_named(
    walk: Any, tmp_path: Path, picture: Any, ending: str, sentence: tuple[str, ...]
) -> None:
    def make(render_mode: str | None = None) -> Any:
        return Drawn(picture, render_mode)

    with refused(InvalidInput, *sentence):
        record(walk, make, tmp_path / f"walk.{ending}")


@pytest.mark.parametrize(("depth", "kind"), [(3, np.uint8), (4, np.uint8), (3, np.int64)])
def test_pictures_may_have_opacity_and_any_integers(
    walk: Any, tmp_path: Path, depth: int, kind: Any
) -> None:
    def make(render_mode: str | None = None) -> Any:
        return Drawn(np.full((4, 4, depth), 7, kind), render_mode)

    record(walk, make, tmp_path / "walk.gif")
    assert (tmp_path / "walk.gif").read_bytes()[:3] == b"GIF"


@pytest.mark.parametrize("rate", [0, -1, 2.5, True, "4"])
def test_frames_per_second_are_a_number_of_them(walk: Any, tmp_path: Path, rate: Any) -> None:
    with refused(InvalidInput, "bad-frames_per_second", "frames_per_second"):
        record(walk, Corridor, tmp_path / "walk.txt", frames_per_second=rate)


def test_an_environment_without_a_render_mode_cannot_render(tmp_path: Path) -> None:
    gymnasium.register("Undrawn-v0", lambda: Coin())
    for env in ("Undrawn-v0", lambda: Coin()):
        run = FedLSVI(1).learn(env, 2, horizon=4, progress=False)
        with refused(InvalidInput, "cannot-render", "'ansi'"):
            record(run.policy, env, tmp_path / "coin.txt")


def test_a_policy_is_not_played_among_fewer_or_more_states() -> None:
    """A world has a state after the end beside those it shows; arrays have their states only."""

    def uniform(n: int) -> FiniteMDP:
        return FiniteMDP(np.full((n, 2, n), 1.0 / n), np.zeros((n, 2)), horizon=4)

    policy = FedLSVI(1).learn(uniform(4), 3, progress=False).policy
    assert evaluate_policy(policy, uniform(4), 3).mean == 0.0
    for n in (3, 5):
        with refused(InvalidInput, "wrong-environment", f"{n} states", "4 states"):
            evaluate_policy(policy, uniform(n), 3)
    stepped = FedLSVI(1).learn(Coin, 3, horizon=4, progress=False).policy  # three states
    with refused(InvalidInput, "wrong-environment"):
        evaluate_policy(stepped, uniform(4), 3)
    assert evaluate_policy(stepped, uniform(3), 3).mean == 0.0
