"""A custom continuous environment, of which nobody knows V*: `reset` and `step` suffice."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlsvi
import shell
from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi import registry as extensions
from fedlsvi.algorithms.registry import make as algorithm
from fedlsvi.cli import main
from fedlsvi.envs import ContinuousLinearMDP, ContinuousMDP, check_env
from fedlsvi.envs import registry as envs_registry
from fedlsvi.errors import InvalidEnvironment, InvalidFeatures
from fedlsvi.features import TileFeatures

SLIDE = '''
import numpy as np
from fedlsvi.envs import ContinuousMDP, register


class Slide(ContinuousMDP):
    """A point on [0, 1] that is paid for standing high."""

    name, n_actions, state_dim = "Slide", 2, 1
    reward_range = (-1.0, 3.0)

    def __init__(self, horizon=3):
        self.horizon = horizon
        self.record(horizon=horizon)

    def reset(self, u, agents):
        return 0.5 * u[:, :1]

    def step(self, h, x, a, u):
        push = 0.3 * (2.0 * a[:, None] - 1.0) + 0.2 * (u[:, :1] - 0.5)
        return x[:, 0], np.clip(x + push, 0.0, 1.0)
'''
scope: dict[str, Any] = {}
exec(SLIDE, scope)
Slide: Any = scope["Slide"]

TILES = TileFeatures(tilings=1, tiles=4)
PLAY = ["--env", "slide", "--features", "tiles", "--episodes", "30"]


@pytest.fixture
def registered(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The class in a file that --import names; forgotten after the test."""
    monkeypatch.setenv(extensions.VARIABLE, "")
    monkeypatch.setattr(envs_registry.REGISTRY, "rows", dict(envs_registry.REGISTRY.rows))
    monkeypatch.delitem(sys.modules, "slide", raising=False)
    extensions.load_extensions.cache_clear()
    Path("slide.py").write_text(SLIDE + 'register("slide", Slide, "a point on [0, 1]")\n')


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["--import", "slide.py", *arguments]) == 0, capsys.readouterr().err
    out = capsys.readouterr().out
    return json.loads(out) if "json" in arguments else out


@pytest.mark.usefixtures("registered")
def test_it_runs_resumes_and_is_reported_by_its_returns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    where = ["--agents", "2", "--out", "run", "--format", "json"]
    run = said(capsys, "run", *PLAY, *where)
    assert run["regret"] is None
    assert -3.0 < run["return"] < 9.0
    assert run["values"]["random"]["episodes"] == 50
    assert run["values"]["random"]["mean"] < run["values"]["learned"]["mean"] < 9.0
    for path in Path("run/checkpoints").iterdir():
        path.unlink()
    again = said(capsys, "resume", "run", "--format", "json")
    assert {**again, "seconds": 0} == {**run, "seconds": 0}
    assert "report.html" in said(capsys, "report", "run")
    found = said(capsys, "evaluate", "run", "--episodes", "20", "--format", "json")
    assert found["environment"] == "Slide"
    assert found["low"] < found["mean"] < found["high"]
    assert "Slide: the end" in Path(_recorded(capsys)).read_text()


def _recorded(capsys: pytest.CaptureFixture[str]) -> str:
    said(capsys, "record", "run", "--out", "episode.txt")
    return "episode.txt"


@pytest.mark.usefixtures("registered")
def test_comparisons_rank_it_by_return(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["--algorithms", "fed-lsvi,periodic", "--seeds", "0:2", "--jobs", "1", "--out", "c"]
    assert "return, last tenth" in said(capsys, "compare", *PLAY, *line)


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--env", "slide", "--out", "r"], "Slide has states of dimension 1"),
        ([*PLAY, "--algorithm", "fed-ucbvi"], "needs a finite state space"),
    ],
)
def test_what_cannot_be_played_gets_a_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sentence in shell.refused(capsys, "--import", "slide.py", "run", *arguments)


def test_mean_returns_are_those_of_the_episodes_however_the_work_is_cut() -> None:
    """Rewards 0 and 1 stand for −1 and 3: a return is 4·Σr − H."""
    session = FedLSVI(3).prepare(Slide(), 40, 5, features=TILES, cohorts=2)
    records = list(session.rounds())
    stores = [m for c in session.player.cohorts for m in c.experience.memory.stores]  # type: ignore[attr-defined]
    paid = np.stack([m.rewards[: m.steps].reshape(m.episodes, -1).T for m in stores])
    for record in records:
        earned = 4.0 * paid[:, :, record.first - 1 : record.last].sum(axis=1) - 3.0
        assert record.mean_return == pytest.approx(earned.mean())
        assert record.regret is None
    other = FedLSVI(3).learn(Slide(), 40, 5, features=TILES, block=1, progress=False)
    assert other.regret is None
    assert other.mean_returns.tolist() == [record.mean_return for record in records]  # type: ignore[union-attr]
    assert set(other.references(5)) == {"learned", "exploring", "random"}


def test_one_agent_whose_values_are_unknown_leaves_the_group_without_regret(
    tmp_path: Path,
) -> None:
    class Silent(ContinuousLinearMDP):
        optimal_values_at = ContinuousMDP.optimal_values_at

    worlds = [ContinuousLinearMDP(3, 2, 2), Silent(3, 2, 2)]
    run = FedLSVI(2).learn(worlds, 20, progress=False, folder=tmp_path / "run")
    assert run.regret is None
    assert run.mean_returns is not None
    assert fedlsvi.load(tmp_path / "run").regret is None
    for name in ("rare-switch", "independent", "centralised"):
        other = algorithm(name, n_agents=2).learn(worlds, 20, progress=False)
        assert other.regret is None
        assert other.mean_returns is not None


def test_what_is_left_out_is_not_asked_for() -> None:
    check_env(Slide())
    assert not Slide().knows_values
    assert ContinuousLinearMDP().knows_values
    with refused(InvalidFeatures, "missing-features"):
        FedLSVI(1).learn(Slide(), 5, progress=False)
    with refused(InvalidEnvironment, "unknown-values", "optimal_values_at"):
        Slide().optimal_values_at(np.zeros((1, 1)))


def test_references_in_a_simulator_that_knows_its_values() -> None:
    """Played and computed values of the same policy agree, and none is above the optimum."""
    env = ContinuousLinearMDP(dim=4, horizon=3)
    run = FedLSVI(2).learn(env, 200, progress=False)
    worth = run.worth(2_000)
    assert list(worth) == ["learned", "random", "exploring", "optimal"]
    x = np.linspace(0.0005, 0.9995, 1_000)[:, None]
    exact = env.policy_values_at(run.policy.actions, x).mean()
    learned, best = worth["learned"], worth["optimal"]
    assert learned.standard_error is not None
    assert best.standard_error is not None
    assert abs(learned.mean - exact) < 4 * learned.standard_error
    assert abs(best.mean - env.optimal_values_at(x).mean()) < 4 * best.standard_error
    assert best.mean >= learned.mean > worth["random"].mean
    assert run.worth(100)["learned"].episodes == 100
