"""`compare`, `tune` and `reproduce` on the shell: files, resuming, refusals."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from fedlsvi.algorithms.shared.settings import PRACTICAL
from fedlsvi.cli import main
from fedlsvi.experiments import compare, ranking, reproduce, runner, tune
from fedlsvi.experiments.sweeps import random_linear, run_spec
from fedlsvi.protocol.plan import Plan
from shell import refused

SMALL = ["--env", "random-linear", "--set", "env.dim=4", "--set", "env.horizon=3", "--agents", "2"]
COMPARE = ["compare", *SMALL, "--episodes", "60", "--seeds", "0:2", "--jobs", "1"]
THREE = ["--algorithms", "fed-lsvi,centralised,independent"]


pytestmark = pytest.mark.usefixtures("here")


def test_compare_writes_everything_and_continues(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main([*COMPARE, *THREE, "--out", "c", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["runs_made"] == 6
    names = {"question.json", "runs.jsonl", "runs.csv", "curves.csv", "summary.json", "table.md",
             "comparison.png", "comparison.svg"}  # fmt: skip
    assert {path.name for path in Path("c").iterdir()} == names
    regrets = [row["regret"]["median"] for row in found["ranking"]]
    assert regrets == sorted(regrets)
    with Path("c/runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6
    assert {row["scalars"] for row in rows if row["algorithm"] == "independent"} == {"0"}

    monkeypatch.setattr(runner, "play", lambda table: pytest.fail("played again"))
    assert main([*COMPARE, *THREE, "--out", "c", "--format", "json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["runs_made"] == 0
    assert again["ranking"] == found["ranking"]


def test_a_settings_file_of_run_will_do(capsys: pytest.CaptureFixture[str]) -> None:
    Path("sub").mkdir()
    P, r = np.full((2, 2, 2), 0.5), np.array([[0.0, 1.0], [0.5, 0.2]])
    np.savez("sub/mdp.npz", P=P, r=r, horizon=2)
    Path("sub/run.toml").write_text(
        'algorithm = "fed-lsvi"\nseed = 3\nepisodes = 20\n[env]\nname = "arrays"\n'
        'file = "mdp.npz"\n'
    )
    assert main(["compare", "sub/run.toml", "--seeds", "0,1", "--jobs", "1", "--out", "c",
                 "--format", "json"]) == 0  # fmt: skip
    assert len(json.loads(capsys.readouterr().out)["ranking"]) == 3


def test_settings_go_to_those_that_have_them(capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--set", "gamma=5", "--set", "centralised.beta=0.25", "--out", "c"]
    assert main([*COMPARE, *THREE, *more]) == 0
    capsys.readouterr()
    with Path("c/runs.csv").open() as file:
        rows = {row["algorithm"]: row for row in csv.DictReader(file)}
    assert float(rows["fed-lsvi"]["gamma"]) == 5.0
    assert float(rows["centralised"]["beta"]) == 0.25
    assert float(rows["fed-lsvi"]["beta"]) == float(rows["independent"]["beta"]) != 0.25


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([*COMPARE, "--algorithms", "fed-lsvi,centralized"], ["centralized", "'centralised'"]),
        ([*COMPARE, "--algorithms", "fed-lsvi,fed-lsvi"], ["fed-lsvi,fed-lsvi", "duplicates"]),
        ([*COMPARE, *THREE, "--set", "gama=3"], ["gama", "'gamma'"]),
        ([*COMPARE, *THREE, "--set", "fed-lsvi.gama=3"], ["gama", "'gamma'"]),
        ([*COMPARE, *THREE, "--set", "fed-lsvi=3"], ["fed-lsvi.KEY=VALUE"]),
        ([*COMPARE, *THREE, "--set", "fed-lsvi.algorithm=stale"], ["fed-lsvi.algorithm", "same"]),
        ([*COMPARE, *THREE, "--set", "fed-lsvi.seed=5"], ["fed-lsvi.seed", "same"]),
        ([*COMPARE, *THREE, "--set", "fed-lsvi.episodes=7"], ["fed-lsvi.episodes", "same"]),
        ([*COMPARE, *THREE, "--set", "env.dims=3"], ["dims", "'dim'"]),
        ([*COMPARE, *THREE, "--set", "gamma=0.5"], ["gamma", "0.5"]),
        ([*COMPARE, *THREE, "--jobs", "0"], ["--jobs", "0"]),
        ([*COMPARE, *THREE, "--seeds", "5:5"], ["--seeds"]),
        (["compare", *THREE], ["env is missing"]),
        (["compare", "--env", "continuous-linear", "--algorithms", "fed-lsvi,fed-ucbvi"],
         ["fed-ucbvi", "finite"]),
        (["tune", *SMALL, "--tune", "0:3", "--test", "2:4"], ["[2]", "--tune", "--test"]),
        (["tune", *SMALL, "--set", "beta=1", "--algorithms", "fed-lsvi"], ["beta", "tuned"]),
        (["tune", "--env", "continuous-linear", "--episodes", "5"], ["uniform", "finite"]),
        (["reproduce", "theorm-1"], ["theorm-1", "'theorem-1'"]),
    ],
)  # fmt: skip
def test_mistakes_get_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: list[str]
) -> None:
    sentence = refused(capsys, *arguments)
    for word in said:
        assert word in sentence


def test_a_folder_of_another_question_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    Path("c").mkdir()
    Path("c/mine.txt").write_text("mine")
    for out in ("c", "c/mine.txt"):
        assert f"folder {out} already exists" in refused(capsys, *COMPARE, *THREE, "--out", out)
    assert main([*COMPARE, "--algorithms", "fed-lsvi", "--out", "d"]) == 0
    capsys.readouterr()
    assert "folder d holds a different" in refused(capsys, *COMPARE, *THREE, "--out", "d")
    Path("d/question.json").write_text("{}")
    assert "d/question.json" in refused(capsys, *COMPARE, *THREE, "--out", "d")


def test_other_features_in_the_same_file_are_another_question(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What was played with the one table is not passed off as an answer for the other."""
    Path("run.toml").write_text(
        'episodes = 10\n[env]\nname = "river-swim"\n[features]\nname = "table"\nfile = "phi.npz"\n'
    )
    asked = ["compare", "run.toml", "--algorithms", "fed-lsvi", "--seeds", "0,1", "--jobs", "1",
             "--out", "c", "--format", "json"]  # fmt: skip
    one, other = np.full((6, 2, 1), 0.5), np.full((6, 2, 1), 0.25)
    np.savez("phi.npz", table=one)
    assert main(asked) == 0
    assert json.loads(capsys.readouterr().out)["runs_made"] == 2
    np.savez("phi.npz", table=other)
    assert "folder c holds a different" in refused(capsys, *asked)
    assert main(["report", "c"]) == 0  # it is played, whatever became of the file
    np.savez("phi.npz", table=one)
    assert main(asked) == 0


@pytest.mark.parametrize("preset", ["practical", "paper"])
@pytest.mark.parametrize("name", ["fed-lsvi", *PRACTICAL])
def test_the_default_scale_is_the_one_in_force(name: str, preset: str) -> None:
    """Given as a setting, it changes nothing."""
    # value-targeted regression needs features of (x, a, x')
    env = "random-linear-mixture" if name.endswith("ucrl-vtr") else "random-linear"
    shared = {"episodes": 30, "n_agents": 2, "preset": preset, "env": {"name": env}}
    question = compare.Question.parse(shared, [name], [0])
    scale = tune.Tuning(question, [0], [1]).scales[name]
    left_out = runner.play(question.table(name, 0))
    own = {scale.parameter: scale.default} | ({"taper": True} if scale.tapered else {})
    own |= {"bonus": "noise"} if scale.noisy else {}
    given = runner.play(question.table(name, 0) | own)
    assert given.regret == left_out.regret
    assert given.beta == left_out.beta


@pytest.mark.parametrize("episodes", [1, 5, 19, 20])
def test_the_last_tenth_of_a_uniform_player_is_the_uniforms(episodes: int) -> None:
    run = runner.play(run_spec("fed-lsvi", random_linear(0), episodes, 1, 0, {}).table)
    assert run.uniform is not None
    late = run.uniform * runner.tenth(episodes) / episodes
    same = type(run)(**vars(run) | {"regret": run.uniform, "late": late})
    row = ranking.standings({"uniform": [same]})[0]
    assert row.late is not None
    assert row.late.mid == pytest.approx(1.0)


def test_tune_reports_on_instances_that_took_no_part(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    checked, check = [], compare.Question.check

    def counting(question: compare.Question) -> dict[str, Plan]:
        checked.append(question)
        return check(question)

    monkeypatch.setattr(compare.Question, "check", counting)
    arguments = ["tune", *SMALL, "--episodes", "40", "--algorithms", "fed-lsvi,fed-ucbvi",
                 "--tune", "0:2", "--test", "100:102", "--jobs", "1", "--out", "t",
                 "--format", "json"]  # fmt: skip
    assert main(arguments) == 0
    assert len(checked) == 1  # problems are made once to look at their sizes
    found = json.loads(capsys.readouterr().out)
    by_name = {row["algorithm"]: row for row in found["tuned"]}
    assert by_name["fed-lsvi"]["parameter"] == "beta"
    assert by_name["fed-ucbvi"]["parameter"] == "c"
    entries = [json.loads(line) for line in Path("t/runs.jsonl").read_text().splitlines()]
    jobs = [entry["job"] for entry in entries]
    assert {job["env"]["seed"] for job in jobs} == {0, 1, 100, 101}
    for name, row in by_name.items():
        tuned = [j for j in jobs if j["algorithm"] == name and j["seed"] < 100]
        scales = {j[row["parameter"]] for j in tuned}
        assert len(tuned) == 2 * len(scales) >= 14  # seven scales or more, on two instances each
        at_the_end = row["value"] in (min(scales), max(scales))
        assert row["edge"] == at_the_end
        assert not at_the_end or row["factor"] in (tune.LEAST, tune.MOST)
        held = [
            entry["outcome"] for entry in entries
            if entry["job"]["seed"] >= 100 and entry["job"].get(row["parameter"]) == row["value"]
            and entry["job"]["algorithm"] == name
        ]  # fmt: skip
        assert len(held) == 2
        for key in ("scalars", "rounds"):
            assert row[key]["median"] == np.mean([outcome[key] for outcome in held])
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["runs_made"] == 0


def test_the_grid_widens_where_its_best_is_at_an_end() -> None:
    scores = {f: [abs(np.log2(f) + 9.0)] for f in tune.FACTORS}  # the best is 1/512
    seen = []
    while more := tune.wider(scores):
        seen += more
        scores |= {f: [abs(np.log2(f) + 9.0)] for f in more}
    assert seen == [2.0**-n for n in range(5, 11)]
    assert tune.choose(scores) == 2.0**-9
    assert tune.wider({1.0: [2.0], 2.0: [1.0], 4.0: [3.0]}) == []
    assert tune.wider({1.0: [2.0], 2.0: [1.0]}) == [4.0, 8.0]
    assert tune.wider({1.0: [2.0], 2.0: [3.0]}, highest=True) == [4.0, 8.0]


def test_the_grid_does_not_widen_for_ever() -> None:
    for most, best in ((tune.LEAST, min), (tune.MOST, max)):
        scores = {f: [abs(np.log(f / most))] for f in tune.FACTORS}
        while more := tune.wider(scores):
            scores |= {f: [abs(np.log(f / most))] for f in more}
        assert best(scores) == most


def test_reproduce_writes_a_page_with_a_verdict(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trigger's study at a tenth of its quick size."""
    study = reproduce.study("trigger")

    def tiny(size: object) -> list[runner.RunSpec]:
        return [
            run_spec("fed-lsvi", random_linear(i), 512, 8, i, {"γ": g}, gamma=g)
            for g in (1.0, 8.0, 64.0) for i in range(3)
        ]  # fmt: skip

    small = reproduce.Study(study.name, tiny, study.finding)
    monkeypatch.setattr(reproduce, "studies", lambda names: [small])
    arguments = ["reproduce", "--quick", "trigger", "--jobs", "1", "--out", "r", "--cells", "kept"]
    assert main([*arguments, "--plan"]) == 0
    assert "9 runs" in capsys.readouterr().out
    assert not Path("r").exists()
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert "minute" in err  # the time is said before
    assert "(9 new runs" in out
    page = Path("r/trigger.md").read_text()
    verdict = json.loads(Path("r/verdicts.json").read_text())["trigger"]["verdict"]
    assert f"**Verdict: {verdict}.**" in page
    assert "`fedlsvi reproduce --quick trigger`" in page
    assert Path("r/trigger.png").exists()
    with Path("r/trigger.csv").open(newline="") as numbers:
        header, *rows = csv.reader(numbers)
    assert [row[0].split(" ")[0] for row in rows] == ["1", "8", "64"]
    assert {len(row) for row in rows} == {len(header)}
    assert verdict in Path("r/README.md").read_text()
    assert main(arguments) == 0
    assert "(0 new runs" in capsys.readouterr().out
    assert Path("r/trigger.md").read_text() == page


def test_every_claim_has_a_sweep_of_both_sizes() -> None:
    for study in reproduce.studies([]):
        quick, full = study.sweep("quick"), study.sweep("full")
        assert 0 < len(quick) < len(full) + 100
        assert reproduce.hours(quick, 2) < 5.0 / 60.0
        assert reproduce.hours(full, 2) < 2.0


@pytest.mark.parametrize(
    ("hours", "said"),
    [
        (0.0, "less than a minute"),
        (0.004, "less than a minute"),
        (1 / 60, "about 1 minute"),
        (0.5, "about 30 minutes"),
        (1.24, "about 1.2 hours"),
    ],
)
def test_an_estimate_is_never_about_0_minutes(hours: float, said: str) -> None:
    from fedlsvi.cli.experiments import _duration

    assert _duration(hours) == said
