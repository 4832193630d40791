"""Bad input: one sentence with field, value and fix, exit code 2, and nothing is written."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlsvi.cli import main
from shell import refused

P = np.full((2, 2, 2), 0.5)
R = np.array([[0.0, 1.0], [0.5, 0.2]])
PHI = np.full((2, 2, 3), 0.4)


RIVER = ["run", "--env", "river-swim", "--episodes", "40"]


pytestmark = pytest.mark.usefixtures("here")


def arrays(**instead: Any) -> str:
    content: dict[str, Any] = {"P": P, "r": R, "horizon": 3, "phi": PHI} | instead
    np.savez("mdp.npz", **content)
    return "mdp.npz"


def changed(array: np.ndarray, at: tuple[int, ...], value: float) -> np.ndarray:
    copy = array.copy()
    copy[at] = value
    return copy


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("gamma=0.5", ["gamma", "0.5", "auto"]),
        ("gamma=nan", ["gamma", "nan"]),
        ("lam=0", ["lam", "0", "above"]),
        ("lam=-1", ["lam", "-1"]),
        ("beta=-0.1", ["beta", "-0.1", "theory"]),
        ("beta=inf", ["beta", "inf"]),
        ("beta=threory", ["beta", "threory"]),
        ("episodes=0", ["episodes", "0"]),
        ("episodes=1.5", ["episodes", "1.5", "integer"]),
        ("n_agents=0", ["n_agents", "0"]),
        ("xi=1.5", ["xi", "1.5"]),
        ("preset=papr", ["preset", "papr", "paper"]),
        ("seed=-3", ["seed", "-3"]),
        ("env.n_states=0", ["n_states", "0"]),
        ("env.horizon=two", ["horizon", "two"]),
        ("gama=3", ["gama", "did you mean 'gamma'"]),
        ("env.horizn=3", ["horizn", "did you mean 'horizon'"]),
        ("env.name=river-swin", ["river-swin", "did you mean 'river-swim'"]),
        ("algorithm=fedlsvi", ["fedlsvi", "did you mean 'fed-lsvi'"]),
        ("features.name=onehot", ["onehot", "did you mean 'one-hot'"]),
        ("features.name=hat", ["hat", "[0, 1]"]),
        ("packing=diagonal", ["packing", "one-hot"]),
        ("gamma", ["gamma", "key=value"]),
        ("env=[]", ["env", "empty list"]),
    ],
)
def test_settings(capsys: pytest.CaptureFixture[str], change: str, said: list[str]) -> None:
    line = ["run", "--env", "random-linear", "--episodes", "20", "--out", "run", "--set", change]
    message = refused(capsys, *line)
    assert all(word in message for word in said), message


@pytest.mark.parametrize(
    ("instead", "said"),
    [
        ({"r": changed(R, (1, 0), 1.2)}, ["r[x=1, a=0]", "1.2", "[0, 1]"]),
        ({"r": changed(R, (0, 0), np.nan)}, ["r[x=0, a=0]", "nan"]),
        ({"P": changed(P, (1, 1, 0), 0.6)}, ["P[x=1, a=1]", "1.1", "divide"]),
        ({"P": changed(P, (0, 1, 0), np.nan)}, ["P[x=0, a=1, x'=0]", "nan"]),
        ({"phi": 2.0 * PHI}, ["x=0, a=0", "norm", "scale"]),
        ({"phi": changed(PHI, (0, 0, 0), np.inf)}, ["inf"]),
        ({"r": np.ones((3, 2))}, ["r has shape (3, 2)", "2 states"]),
        ({"phi": np.ones((3, 2, 1))}, ["(3, 2, 1)", "2 states"]),
        ({"P": np.ones((2, 3))}, ["P has shape (2, 3)"]),
        ({"horizon": 0}, ["horizon", "0"]),
        ({"initial": np.array([0.3, 0.3])}, ["initial", "0.6"]),
    ],
)  # fmt: skip
def test_arrays(capsys: pytest.CaptureFixture[str], instead: Any, said: list[str]) -> None:
    message = refused(capsys, "run", "--env", arrays(**instead), "--episodes", "9", "--out", "run")
    assert all(word in message for word in said), message


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["rnu"], "'run'"),
        (["run"], "env is missing"),
        (["run", "--env"], "--env"),
        (["run", "--agents", "many", "--env", "river-swim"], "many"),
        (["run", "none.toml"], "none.toml"),
        (["run", "--env", "none.npz"], "none.npz"),
        (["run", "--env", "river-swim", "--seeds", "3:1"], "3:1"),
        (["run", "--env", "river-swim", "--seeds", "a:b"], "a:b"),
        (["run", "--env", "river-swim", "--seeds", "0:2:3"], "0:2:3"),
        (["run", "--env", "river-swim", "--seeds", "0:99999999999"], "100,000"),
        (["run", "--env", "river-swim", "--seeds", "0:2", "--seed", "1"], "--seeds"),
        ([*RIVER, "--seeds", "2,-1,3"], "got -1"),
        (["resume", "nothing"], "nothing"),
        (["report", "nothing"], "nothing"),
        (["list", "enviroments"], "enviroments"),
        (["demo", "--episodes", "0"], "episodes"),
        (["bench", "--quick"], "--quick"),
    ],
)
def test_command_lines(capsys: pytest.CaptureFixture[str], line: list[str], said: str) -> None:
    assert said in refused(capsys, *line)


OPTIONS = [
    (["--threads", "0"], "threads"),
    (["--checkpoint-seconds", "-1"], "checkpoint_seconds"),
    (["--cohorts", "99"], "cohorts"),
    (["--ray-address", "auto"], "--transport ray"),
]


@pytest.mark.parametrize("seeds", [[], ["--seeds", "0:2"]], ids=["one", "several"])
@pytest.mark.parametrize(("options", "said"), OPTIONS)
def test_options(
    capsys: pytest.CaptureFixture[str], seeds: list[str], options: list[str], said: str
) -> None:
    assert said in refused(capsys, *RIVER, "--out", "o", *seeds, *options)


def test_a_family_takes_the_options_that_a_run_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RIVER, "--seeds", "0:1", "--out", "o"]) == 0
    capsys.readouterr()
    for folder in ("o", "o/seed-0"):
        for options, said in OPTIONS:
            assert said in refused(capsys, "resume", folder, *options)


@pytest.mark.parametrize("seeds", [[], ["--seeds", "0:2"]], ids=["one", "several"])
def test_a_black_box_with_a_wrong_reward_range_leaves_no_folder(
    capsys: pytest.CaptureFixture[str], seeds: list[str]
) -> None:
    pytest.importorskip("gymnasium")
    line = ["run", "--env", "CartPole-v1", "--features", "fourier", "--set", "env.horizon=4",
            "--episodes", "4", "--out", "o", *seeds]  # fmt: skip
    message = refused(capsys, *line, "--set", "env.reward_range=[0, 0.5]")
    assert "reward_range" in message
    assert main([*line, "--set", "env.reward_range=[0, 1]"]) == 0


def test_folders_that_exist_and_damaged_checkpoints(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = [*RIVER, "--out", "run"]
    assert main(line) == 0
    capsys.readouterr()
    assert "already exists" in refused(capsys, *line)
    assert "already exists" in refused(capsys, *line, "--seeds", "0:2")
    for more in ([], ["--seeds", "0:2"]):
        message = refused(capsys, *RIVER, "--out", "run/settings.toml/x", *more)
        assert "run/settings.toml/x (a part of its path is a file): choose another" in message
    for path in (here / "run" / "checkpoints").glob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:-3])
    for verb in ("resume", "report"):
        assert "start over with `fedlsvi run run/settings.toml`" in refused(capsys, verb, "run")
    (here / "run" / "settings.toml").write_text("")
    assert "start over in another folder" in refused(capsys, "resume", "run")
    shutil.rmtree(here / "run")


def test_a_family_that_exists_or_is_damaged(capsys: pytest.CaptureFixture[str]) -> None:
    line = [*RIVER, "--seeds", "0:1", "--out", "o"]
    assert main(line) == 0
    capsys.readouterr()
    assert "`fedlsvi resume o` continues it" in refused(capsys, *line)
    Path("o/seeds.json").write_text("{}")
    assert "start over in another folder" in refused(capsys, "resume", "o")


@pytest.mark.parametrize("name", ["junk.npz", "junk.safetensors"])
def test_a_file_that_holds_no_arrays(capsys: pytest.CaptureFixture[str], name: str) -> None:
    Path(name).write_text("junk")
    message = refused(capsys, "run", "--env", name)
    assert "cannot be read as arrays of numbers" in message
    assert "allow_pickle" not in message


@pytest.mark.parametrize("verb", ["run", "resume", "report", "evaluate"])
def test_a_path_that_the_system_refuses(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    line = [*RIVER, "--out"] if verb == "run" else [verb]
    assert "File name too long" in refused(capsys, *line, "x" * 300)


@pytest.mark.parametrize("more", [[], ["--seeds", "0:2"]])
@pytest.mark.parametrize("seconds", ["-1", "nan"])
def test_seconds_are_checked_where_nothing_is_kept(
    seconds: str, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    line = [*RIVER, *more, "--out", "-", f"--checkpoint-seconds={seconds}"]
    assert refused(capsys, *line).code == "bad-checkpoint_seconds"


def test_a_file_in_the_place_of_a_folder(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "afile").touch()
    said = "afile is a file: choose a folder for a new run"
    assert said in refused(capsys, *RIVER, "--out", "afile")
    assert said in refused(capsys, *RIVER, "--out", "afile", "--seeds", "0:2")


@pytest.mark.parametrize(
    ("line", "code", "typed"),
    [
        (["--env", "MountainCar-v0"], "missing-features", "--features fourier"),
        (["--env", "river-swim", "--set", "gamma=0"], "bad-gamma", "--set gamma=auto"),
        (["--env", "CartPole-v1", "--features", "fourier", "--set", "env.horizon=4",
          "--set", "env.reward_range=(-1, 0)"], "reward-out-of-range", "--set env.reward_range=["),
    ],
)  # fmt: skip
def test_hints_can_be_typed(
    line: list[str], code: str, typed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The library's hints are in Python; the command gives its own for the same code."""
    message = refused(capsys, "run", "--episodes", "4", *line)
    assert message.code == code
    assert typed in message
    assert "features=" not in message


def test_a_warning_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also one of the environment, before the run begins."""
    monkeypatch.chdir(tmp_path)
    slippery = ["--set", "env.kwargs.is_slippery=true", "--set", "env.horizon=20"]
    play = ["--agents", "2", "--episodes", "3", "--out", "-"]
    assert main(["run", "--env", "CliffWalking-v1", *slippery, *play]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "several rewards" in line]
    assert len(said) == 1
    assert said[0].startswith("fedlsvi: warning: in the table of CliffWalking-v1")
