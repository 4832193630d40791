"""In a comparison all algorithms pool the data of all steps, or none does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.algorithms import registry
from fedlsvi.algorithms.centralised import Centralised
from fedlsvi.cli import main
from fedlsvi.envs import RiverSwim
from fedlsvi.envs.gym.world import GymWorld
from fedlsvi.errors import InvalidInput, InvalidSetting
from fedlsvi.experiments.compare import Question
from fedlsvi.report import Comparison, write_report
from shell import refused as refused_in_shell

pytestmark = pytest.mark.usefixtures("here")

SWIM = ["compare", "--env", "river-swim", "--agents", "4", "--episodes", "200", "--seeds", "0:2",
        "--jobs", "1", "--out", "c"]  # fmt: skip


def levelled(names: str, env: Any = "river-swim", **table: Any) -> Question:
    return Question.parse({"env": env, "episodes": 20} | table, names.split(","), [0])


def pooled(question: Question) -> dict[str, Any]:
    return {name: own.get("stationary") for name, own in question.own.items()}


def test_who_sees_everything_loses_least(capsys: pytest.CaptureFixture[str]) -> None:
    """Pooling steps alone used to put Fed-LSVI before the learner that sees all trajectories."""
    names = ["--algorithms", "fed-lsvi,centralised,independent"]
    assert main([*SWIM, *names, "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in said["ranking"]] == ["centralised", "fed-lsvi", "independent"]
    assert said["model_class"] == {"one_model_for": "all steps", "cannot_pool": []}


def test_who_cannot_pool_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["--algorithms", "fed-lsvi,centralised,fed-ucbvi"]
    assert main([*SWIM, *names, "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["model_class"] == {"one_model_for": "each step", "cannot_pool": ["fed-ucbvi"]}
    kinds = {row["name"]: row["one_model_for"] for row in said["ranking"]}
    assert kinds == {"centralised": "each step", "fed-lsvi": "each step",
                     "fed-ucbvi": "each step (cannot pool)"}  # fmt: skip
    assert main([*SWIM, *names]) == 0
    assert main(["report", "c"]) == 0
    page = Path("c/report.html").read_text()
    for text in (capsys.readouterr().out, page):
        assert "Model class: one model for each step; fed-ucbvi cannot pool" in text
    for text in (page, Path("c/table.md").read_text()):
        assert "(cannot pool)" in text


def test_nobody_pools_unless_all_can() -> None:
    assert pooled(levelled("fed-lsvi,periodic,independent")) == dict.fromkeys(
        ("fed-lsvi", "periodic", "independent"), True
    )
    alone = levelled("fed-lsvi,fedq-hoeffding,fed-ucbvi,coop-lsvi,rare-switch")
    assert pooled(alone)["fed-lsvi"] is pooled(alone)["rare-switch"] is False
    assert alone.unable == ["fedq-hoeffding", "fed-ucbvi"]
    assert not any(pooled(levelled("fed-lsvi,periodic", preset="paper")).values())
    once = levelled("fed-lsvi,periodic", **{"fed-lsvi": {"preset": "paper"}})
    assert not any(pooled(once).values())
    apart = levelled("fed-lsvi,periodic", **{"periodic": {"stationary": False}})
    assert not any(pooled(apart).values())


def test_a_page_names_who_cannot_pool_on_a_table() -> None:
    others = [name for name in registry.names() if name not in ("fed-lsvi", "pevi")]
    unable = {name for name in others if levelled(f"fed-lsvi,{name}").unable}
    assert unable == {
        "fed-sarsa", "fed-ucbvi", "fed-ucrl-vtr", "fedq-advantage", "fedq-bernstein",
        "fedq-hoeffding", "lsvi-ucb-pp", "psrl", "q-avg", "q-ucb2", "ucbvi", "ucrl-vtr",
    }  # fmt: skip
    page = " ".join((Path(__file__).parents[2] / "docs" / "comparing.md").read_text().split())
    sentence = page.split("These cannot: ", 1)[1].split(". ", 1)[0]
    assert set(re.findall("`([^`]+)`", sentence)) == unable


def test_a_single_step_has_one_class() -> None:
    question = levelled("fed-lsvi,centralised", {"name": "river-swim", "horizon": 1})
    assert question.unable == []
    runs = [registry.make(name).learn(RiverSwim(horizon=1), 5, progress=False)
            for name in ("fed-lsvi", "centralised")]  # fmt: skip
    assert [row[2] for row in Comparison(runs).rows()] == ["each step"] * 2


def test_where_steps_differ_nobody_is_unable() -> None:
    question = levelled("fed-lsvi,centralised,fed-ucbvi", "random-linear")
    assert question.unable == []
    assert question.model.name == "each step"


def test_a_learner_that_can_is_compared_with_pooling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each algorithm is asked: nothing else says who can."""
    assert levelled("fed-lsvi,centralised").model.name == "all steps"
    monkeypatch.setattr(Centralised, "pools_in", (GymWorld,))
    assert levelled("fed-lsvi,centralised").model.name == "each step"


@pytest.mark.parametrize("names", ["fed-lsvi,fedq-bernstein", "fed-lsvi,fed-ucbvi"])
def test_what_not_all_can_is_refused(names: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused_in_shell(capsys, *SWIM, "--algorithms", names, "--set", "stationary=true")
    assert said.code == "model-classes-differ"
    assert names.split(",")[1] in said
    mixed = {"fed-lsvi": {"stationary": True}, "periodic": {"stationary": False}}
    with refused(InvalidInput, "model-classes-differ", "periodic"):
        levelled("fed-lsvi,periodic", **mixed)


def test_tune_has_one_model_class_too(capsys: pytest.CaptureFixture[str]) -> None:
    tune = ["tune", *SWIM[1:7], "--algorithms", "fed-lsvi,fed-ucbvi", "--tune", "0:1",
            "--test", "5:6", "--jobs", "1", "--set", "episodes=20", "--format", "json"]  # fmt: skip
    assert main(tune) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["model_class"]["cannot_pool"] == ["fed-ucbvi"]
    assert main(tune[:-2]) == 0
    assert "one model for each step; fed-ucbvi" in capsys.readouterr().out


def learn(name: str, seed: int = 0, **settings: Any) -> Any:
    learner = registry.make(name, n_agents=2, **settings)
    return learner.learn(RiverSwim(horizon=8), 30, seed, progress=False)


def test_runs_of_two_classes_are_not_compared(tmp_path: Path) -> None:
    together, alone = learn("fed-lsvi"), learn("fed-ucbvi")
    with refused(InvalidInput, "model-classes-differ", "fed-ucbvi", "fed-lsvi"):
        Comparison([together, alone])
    with refused(InvalidInput, "model-classes-differ", "stationary=False"):
        write_report([together, alone], tmp_path / "page")
    assert not (tmp_path / "page").exists()
    fair = Comparison([learn("fed-lsvi", stationary=False), alone])
    assert [row[2] for row in fair.rows()] == ["each step", "each step (cannot pool)"]
    assert list(fair.to_pandas()["stationary"]) == [False, False]
    page = fair.report(tmp_path / "page").read_text()
    assert "Model class: one model for each step; fed-ucbvi cannot pool" in page


def test_settings_of_one_algorithm_may_differ_in_it() -> None:
    """And a third may be beside those that share its class; labels say who does not."""
    runs = [learn("fed-lsvi"), learn("fed-lsvi", stationary=False), learn("fed-ucbvi")]
    rows = Comparison(runs).rows()
    assert [row[2] for row in rows] == ["all steps", "each step", "each step (cannot pool)"]
    assert "stationary = True" in rows[0][0]


def test_an_agent_alone_pools_steps_as_fed_lsvi_does() -> None:
    """M = 1 and γ = 1 is LSVI-UCB, with one model for all steps too."""
    one = registry.make("independent", stationary=True).learn("river-swim", 40, 3, progress=False)
    same = FedLSVI(1, gamma=1.0, stationary=True).learn("river-swim", 40, 3, progress=False)
    assert one.parameters.stationary
    np.testing.assert_allclose(one.w, same.w, rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(one.regret, same.regret)


def test_who_cannot_pool_refuses_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Centralised, "pools_in", (GymWorld,))
    with refused(InvalidSetting, "bad-stationary", "fed-lsvi"):
        learn("centralised", stationary=True)
