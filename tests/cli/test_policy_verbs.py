"""`fedlsvi evaluate` and `fedlsvi record`."""

from __future__ import annotations

import json
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
