"""What `compare`, `reproduce` and `report` do with files of runs, without Matplotlib, as JSON."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from fedlsvi.cli import main
from fedlsvi.experiments import ranking, reproduce, runner
from fedlsvi.experiments.runner import Outcome
from fedlsvi.experiments.sweeps import random_linear, run_spec
from fedlsvi.report.plotting import make_figure
from shell import refused

pytestmark = pytest.mark.usefixtures("here")

COMPARE = ["compare", "--env", "river-swim", "--agents", "2", "--episodes", "20", "--seeds", "0:2",
           "--jobs", "1", "--out", "c"]  # fmt: skip
TWO = ["--algorithms", "centralised,independent"]


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """As installed without the extra `plot`."""
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)


@pytest.mark.usefixtures("bare")
def test_the_ranking_is_printed_without_matplotlib(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMPARE, *TWO]) == 0
    out, err = capsys.readouterr()
    assert "group regret" in out
    assert "figure" not in out
    assert "fedlsvi[plot]" in err
    assert main([*COMPARE, *TWO, "--format", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["ranking"]) == 2


@pytest.mark.usefixtures("bare")
def test_pages_without_matplotlib_are_refused_before_anything(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "fedlsvi[plot]" in refused(capsys, "reproduce", "--quick", "trigger", "--jobs", "1")
    assert main(["run", "--env", "river-swim", "--episodes", "5", "--out", "r"]) == 0
    capsys.readouterr()
    assert "fedlsvi[plot]" in refused(capsys, "report", "r")


def test_the_plan_as_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    study = reproduce.study("trigger")
    one = run_spec("fed-lsvi", random_linear(0), 512, 8, 0, {})

    def twice(size: object) -> list[runner.RunSpec]:
        return [one, one]

    small = reproduce.Study(study.name, twice, study.finding)
    monkeypatch.setattr(reproduce, "studies", lambda names: [small])
    assert main(["reproduce", "--plan", "--jobs", "3", "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["jobs"] == 3
    assert said["plan"]["trigger"] == {"runs": 1, "hours": reproduce.hours([one], 3)}


def test_a_file_of_a_run_may_have_what_nobody_here_has(capsys: pytest.CaptureFixture[str]) -> None:
    run = ["run", "--env", "river-swim", "--episodes", "20", "--set", "gamma=5", "--out", "r"]
    assert main(run) == 0
    file = ["compare", "r/settings.toml", *COMPARE[3:]]
    assert main([*file, *TWO]) == 0
    capsys.readouterr()
    asked = json.loads(Path("c/question.json").read_text())
    assert not any("gamma" in own for own in asked["own"].values())
    Path("odd.toml").write_text("gama = 5\n" + Path("r/settings.toml").read_text())
    said = refused(capsys, "compare", "odd.toml", *COMPARE[3:-1], "d", *TWO)
    assert "unknown setting 'gama'" in said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("gamma=5", "gamma is set to 5"),
        ("algorithm=stale", "algorithm is set to stale"),
        ("seed=77", "seed is set to 77"),
    ],
)
def test_what_is_asked_for_must_count(
    change: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused(capsys, *COMPARE, *TWO, "--set", change)


TUNE = ["tune", "--env", "random-linear", "--episodes", "20", "--algorithms", "fed-lsvi"]


@pytest.mark.parametrize("option", ["--tune", "--test"])
@pytest.mark.parametrize("given", ["x", "3:3", "0:1000000"])
def test_the_option_that_is_wrong_is_named(
    option: str, given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, *TUNE, option, given)
    assert f"{option} '{given}'" in said
    assert "--seeds" not in said


@pytest.mark.parametrize("change", ["env.seed=3", 'env={name="random-linear",seed=3}'])
def test_a_seed_of_the_problem_is_not_ignored(
    change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Instances are seeds; a file of a run, which has one, may be tuned on."""
    said = refused(capsys, *TUNE, "--set", change)
    assert "env.seed is set to 3" in said
    Path("s.toml").write_text('[env]\nname = "random-linear"\nseed = 3\ndim = 4\nhorizon = 2\n')
    line = ["tune", "s.toml", *TUNE[3:], "--tune", "0:1", "--test", "5:6", "--jobs", "1"]
    assert main(line) == 0
    said = capsys.readouterr().out
    assert "7 scales or more on 1 problem, reported on 1 other; " in said


@pytest.mark.parametrize("line", [COMPARE[:-2], TUNE, ["reproduce", "--quick"], ["demo"]])
def test_nothing_is_kept_only_of_a_run(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, *line, "--out", "-").code == "bad-out"


def test_silent_ones_have_no_side(capsys: pytest.CaptureFixture[str]) -> None:
    """Figures may be beside each other or below."""
    assert main([*COMPARE, *TWO]) == 0
    assert main(["report", "c"]) == 0, capsys.readouterr().err
    found = {name: [Outcome(**json.loads(line)["outcome"])] for name, line in
             zip(TWO[1].split(","), Path("c/runs.jsonl").read_text().splitlines()[::2],
                 strict=True)}  # fmt: skip
    axes = make_figure([ranking.panels(found, list(found))["price"]]).axes[0]
    assert len(axes.collections) == 2  # a silent one is a cross, and not left out
    page = Path("c/report.html").read_text()
    assert "up_stats" not in page
    assert "2 agents, 20 episodes each, horizon 20, 12 features" in page
    assert "95 %" not in page


def test_the_price_is_paid_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    """A dot for each run after all its episodes, so that nobody gains by having played less."""
    specs = [run_spec("fed-lsvi", random_linear(0), 20, 2, seed, {}) for seed in (0, 1)]
    runs = [runner.play(spec.table) for spec in specs]
    axes = make_figure([ranking.panels({"a": runs}, ["a"])["price"]]).axes[0]
    dots = np.asarray(axes.collections[0].get_offsets())
    np.testing.assert_allclose(dots, [[run.scalars, run.regret] for run in runs])


def test_regret_that_is_zero_throughout_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    """One action: nobody can lose anything, and a logarithm has no place for that."""
    np.savez("one.npz", P=np.full((2, 1, 2), 0.5), r=np.array([[0.0], [1.0]]), horizon=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert main(["compare", "--env", "one.npz", *COMPARE[3:], *TWO]) == 0
    assert "figure: c/comparison.png" in capsys.readouterr().out


def test_algorithms_that_send_nothing_are_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    """No curve stands against scalars then."""
    assert main([*COMPARE, "--algorithms", "independent"]) == 0
    assert "figure: c/comparison.png" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("env", "title"),
    [
        ('env = "river-swim"', "2 algorithms on river-swim<"),
        ('[env]\nname = "river-swim"', "2 algorithms on river-swim<"),
        ('[[env]]\nname = "river-swim"\n' * 2, "2 algorithms on several environments<"),
    ],
)
def test_the_title_names_the_environment(
    env: str, title: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("s.toml").write_text(env + "\n")
    assert main(["compare", "s.toml", *COMPARE[3:], *TWO]) == 0
    assert main(["report", "c"]) == 0, capsys.readouterr().err
    assert title in Path("c/report.html").read_text()
