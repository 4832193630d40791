"""`fedlsvi evaluate` and `fedlsvi record`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import fedlsvi
from fedlsvi import FedLSVI
from fedlsvi.algorithms.fitted_q_evaluation import estimate_value
from fedlsvi.cli import main
from fedlsvi.envs import FiniteMDP, RiverSwim, logged_worlds, write_records
from fedlsvi.envs.gym.convert import as_environment
from fedlsvi.envs.gym.play import evaluate_policy
from fedlsvi.remote.site_settings import environment
from fedlsvi.storage import settings_file
from recorded import recorded
from shell import refused

LAKE = ["--env", "FrozenLake-v1"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run of a few episodes, and its policy by itself."""
    where = tmp_path_factory.mktemp("lake")
    run = FedLSVI(n_agents=2, value_range=1.0).learn(
        "FrozenLake-v1", episodes=60, horizon=20, progress=False, folder=where / "run"
    )
    run.policy.save(where / "policy")
    return where / "run", where / "policy"


def test_a_run_and_its_policy_earn_the_same(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    from fedlsvi.policy import Policy

    expected = evaluate_policy(Policy.load(folders[1]), "FrozenLake-v1", 40, 3).mean
    for folder in folders:
        command = ["evaluate", str(folder), *LAKE, "--episodes", "40", "--seed", "3"]
        assert main([*command, "--format", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["mean"] == expected
        assert found["low"] <= found["mean"] <= found["high"]
        assert found["episodes"] == 40


def test_an_episode_is_written(folders: tuple[Path, Path], tmp_path: Path) -> None:
    target = tmp_path / "episode.txt"
    assert main(["record", str(folders[1]), *LAKE, "--out", str(target)]) == 0
    assert "S" in target.read_text()


@pytest.mark.parametrize(
    ("command", "code", "named"),
    [
        (["evaluate", "nowhere", *LAKE], "no-policy", "nowhere"),
        (["record", "POLICY", *LAKE, "--out", "film.avi"], None, ".txt, .gif or .mp4"),
        (["evaluate", "POLICY", "--env", "FrozenLak-v1"], None, "FrozenLake"),
        (["evaluate", "POLICY", "--env", "Taxi-v4"], None, "500 states"),
        (["record", "POLICY", "--env", "river-swim", "--out", "swim.txt"], None, "6 states"),
        (["evaluate", "POLICY", *LAKE, "--seed", "-1"], None, "-1"),
        (["record", "POLICY", *LAKE, "--seed", "-1", "--out", "x.txt"], None, "-1"),
        (["record", "POLICY", "--out", "POLICY/policy.json/x.txt"], None, "policy.json/x.txt"),
        (["evaluate", "POLICY", "--set", "gamma=3"], "bad-assignment", "env.KEY=VALUE"),
        (["evaluate", "POLICY", "--set", "env.kwarg.x=3"], "unknown-parameter", "'kwargs'"),
        (["evaluate", "POLICY", "--set", "env.horizon=3"], "wrong-horizon", "20 steps"),
        (["evaluate", "POLICY", "--set", "env.kwargs=3"], "bad-kwargs", "3"),
        (["evaluate", "POLICY", "--set", "env.reward_range=5"], "learning-only", "reward_range"),
        (["evaluate", "POLICY", "--set", "env.kwargs.bogus=1"], None, "bogus"),
        (["record", "POLICY", "--set", "env.kwargs.bogus=1", "--out", "x.txt"], None, "bogus"),
    ],
)
def test_wrong_requests_get_a_sentence(
    command: list[str],
    code: str | None,
    named: str,
    here: Path,
    folders: tuple[Path, Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    message = refused(capsys, *(word.replace("POLICY", str(folders[1])) for word in command))
    assert code in (None, message.code)
    assert named in message


def test_without_gymnasium_the_command_says_what_to_install(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Environments of this package are played through Gymnasium too."""
    FedLSVI(1).learn(RiverSwim(4, 8), 20, progress=False).policy.save("swim")
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    for line in (["evaluate", "swim"], ["record", "swim", "--out", "swim.txt"]):
        assert "fedlsvi[gym]" in refused(capsys, *line)


def _evaluated(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["evaluate", *arguments, "--episodes", "9", "--format", "json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_policy_is_played_where_it_was_learned(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --env, with its parameters, which --env keeps where it names the same environment."""
    env = as_environment("FrozenLake-v1", horizon=20, kwargs={"is_slippery": False})
    run = FedLSVI(1, value_range=1.0).learn(env, 20, progress=False)
    run.save("run")
    run.policy.save("policy")
    assert fedlsvi.load("run").policy.environment == run.environment[0]
    for folder in ("run", "policy"):
        for named in ([], LAKE):
            found = _evaluated(capsys, folder, *named)
            assert found["environment"] == "FrozenLake-v1 (is_slippery = False)"
            assert found["low"] == found["high"]
        larger = ["--set", "env.kwargs.map_name=8x8"]  # the policy's own stays what it was
        assert main(["evaluate", folder, *larger]) == 2
        assert "has 64 states and 4 actions, but the policy was learned with 16" in (
            capsys.readouterr().err
        )
    slippery = _evaluated(capsys, "policy", "--set", "env.kwargs.is_slippery=true")
    assert slippery["environment"] == "FrozenLake-v1 (is_slippery = True)"


def test_our_own_environments_are_played_and_recorded(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = FedLSVI(1).learn(RiverSwim(4, 8), 20, progress=False)
    run.policy.save("swim")
    means = [
        _evaluated(capsys, "swim", *named)["mean"]
        for named in ([], ["--env", "river-swim"], ["--env", "fedlsvi/RiverSwim-v0"])
    ]
    assert means == [evaluate_policy(run.policy, RiverSwim(4, 8), 9).mean] * 3
    assert main(["record", "swim", "--env", "river-swim", "--out", "swim.txt"]) == 0
    assert "step 8 of 8" in Path("swim.txt").read_text()


def test_arrays_are_played_from_their_run_only(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env = FiniteMDP(np.full((2, 2, 2), 0.5), np.ones((2, 2)), horizon=3)
    run = FedLSVI(1).learn(env, 9, progress=False)
    run.save("run")
    fedlsvi.load("run").policy.save("policy")
    assert _evaluated(capsys, "run")["mean"] == 3.0
    assert refused(capsys, "evaluate", "policy").code == "no-environment"


def test_a_film_has_a_frame_for_every_step(
    folders: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ffmpeg = pytest.importorskip("imageio_ffmpeg", reason="no imageio-ffmpeg: fedlsvi[video]")
    text, film = tmp_path / "episode.txt", tmp_path / "films" / "episode.mp4"
    for target in (text, film):
        command = ["record", str(folders[1]), *LAKE, "--seed", "4", "--out", str(target)]
        assert main(command) == 0
    steps = text.read_text().count("step ")
    frames, seconds = ffmpeg.count_frames_and_secs(str(film))
    assert frames == steps > 1
    assert seconds == pytest.approx(steps / 4, abs=0.3)  # four frames a second


@pytest.mark.parametrize(("ending", "module"), [("mp4", "imageio_ffmpeg"), ("gif", "PIL.Image")])
def test_a_film_without_its_writer_is_refused_before_anything_is_played(
    ending: str,
    module: str,
    folders: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    target = tmp_path / "films" / f"episode.{ending}"
    assert main(["record", str(folders[1]), *LAKE, "--out", str(target)]) == 2
    said = capsys.readouterr().err
    assert f".{ending} needs" in said
    assert "pip install 'fedlsvi[" in said
    assert not target.parent.exists()


def test_a_run_in_a_black_box_is_played_where_env_says(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing makes the box again, but --env shows the same states and actions."""
    box = as_environment(lambda: gymnasium.make("FrozenLake-v1"), horizon=20, tables=False)
    run = FedLSVI(1, value_range=1.0).learn(box, 20, progress=False, folder="run")
    expected = evaluate_policy(run.policy, "FrozenLake-v1", 9).mean
    assert _evaluated(capsys, "run", *LAKE)["mean"] == expected
    assert main(["record", "run", *LAKE, "--out", "episode.txt"]) == 0
    capsys.readouterr()
    assert refused(capsys, "evaluate", "run").code == "no-environment"
    assert "number of states is 501 in Taxi-v4, but 17 in" in refused(
        capsys, "evaluate", "run", "--env", "Taxi-v4"
    )


def test_a_table_from_a_function_is_played_in_its_own_units(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def cliff() -> Any:
        return gymnasium.make("CliffWalking-v1")

    run = FedLSVI(1).learn(cliff, 5, horizon=20, progress=False, folder="run")
    assert _evaluated(capsys, "run")["mean"] == evaluate_policy(run.policy, cliff, 9).mean


def test_a_site_with_a_world_estimates_from_a_log_of_another_form(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its features are its environment's own, which no file holds, and its logs have columns of
    other names, which its settings translate."""
    table = {"entry": "canary:make", "horizon": 5, "dim": 8}
    env: Any = environment(table)
    run = FedLSVI(1, gamma=20.0).learn(env, 60, progress=False)
    run.policy.save("fedlsvi/trial/policy")
    (log,), _ = recorded([env], [30], 5, env.n_actions)
    assert log is not None
    worlds = logged_worlds(log, horizon=5, n_actions=env.n_actions)
    wanted = estimate_value(run.policy, worlds, run.plan.features, repeats=0)
    log["pay"] = log.pop("reward")
    write_records(log, "log.parquet")
    settings = {"env": table, "data": {"file": "../log.parquet", "columns": {"reward": "pay"}}}
    Path("local").mkdir()
    Path("local/fedlsvi.toml").write_text(settings_file.dump(settings))
    for kit in (".", "fedlsvi/trial"):
        command = ["evaluate", kit, "--data", "log.parquet", "--repeats", "0", "--format", "json"]
        assert main(command) == 0
        assert json.loads(capsys.readouterr().out)["value"] == pytest.approx(wanted.value)
