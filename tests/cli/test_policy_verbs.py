"""`fedlsvi evaluate` and `fedlsvi record`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fedlsvi import FedLSVI
from fedlsvi.cli import main
from fedlsvi.envs.gym_play import evaluate_policy

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
    ("command", "sentence"),
    [
        (["evaluate", "nowhere", *LAKE], "holds neither a policy nor a run"),
        (["record", "POLICY", *LAKE, "--out", "film.avi"], "end it in .txt, .gif or .mp4"),
        (["evaluate", "POLICY", "--env", "FrozenLak-v1"], "FrozenLak"),
    ],
)
def test_wrong_requests_get_a_sentence(
    command: list[str],
    sentence: str,
    folders: tuple[Path, Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [str(folders[1]) if word == "POLICY" else word for word in command]
    assert main(given) == 2
    assert sentence in capsys.readouterr().err


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
