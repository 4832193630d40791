"""What a budget of ours decided, where √t lies, who has which colour, and where a page goes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from expecting import refused
from fedlsvi import FedLSVI, load
from fedlsvi.algorithms import registry
from fedlsvi.cli import main
from fedlsvi.envs import RandomLinearMDP, RiverSwim
from fedlsvi.errors import StoreError
from fedlsvi.experiments import ranking
from fedlsvi.experiments.runner import outcome
from fedlsvi.live import chart
from fedlsvi.report import Comparison, figure, write_report
from fedlsvi.report.colours import COLOURS, DASHES, PLACES, look, place, places
from fedlsvi.report.figures import learns_early
from fedlsvi.report.groups import Group
from fedlsvi.report.plotting import Curve, Dots, against_scalars, make_figure
from fedlsvi.report.run_page import bounds, numbers
from fedlsvi.run import Run

ENV = RandomLinearMDP(6, 3, 4, horizon=3, seed=1)


def learn(name: str = "fed-lsvi", episodes: int = 60, seed: int = 0, **settings: Any) -> Run:
    return registry.make(name, n_agents=3, **settings).learn(ENV, episodes, seed, progress=False)


@pytest.fixture(scope="module")
def limited() -> Run:
    """A run that a budget of five rounds decided."""
    run = learn(episodes=400, rounds=5, cap=1.01)
    assert run.rounds == 5
    return run


def test_a_budget_is_not_a_theorem(limited: Run) -> None:
    p = limited.parameters
    proven = p.proven_rounds(400)
    assert proven > 5.0
    assert limited.bounds["theorem_3"].bound == proven
    assert limited.bounds["budget"].bound == p.most_rounds(400) == 5.0
    page = numbers(Group("", [limited])) + bounds(Group("", [limited]))
    assert f"rounds; the budget is 5; without it at most {proven:,.0f} are possible" in page
    assert "at most 5 are" not in page
    assert "rounds K ≤ the budget" in page


def test_a_floor_is_named_too() -> None:
    run = learn(episodes=100, min_round=10, gamma=5.0)
    assert run.bounds["budget"].claim == "rounds K ≤ T/min_round"
    assert "T/min_round is 10; without it" in numbers(Group("", [run]))
    assert "budget" not in learn(gamma=5.0).bounds


def test_public_rounds_have_a_budget_and_no_theorem() -> None:
    """No trigger ends a round of a private run."""
    privacy = {"epsilon": 4.0, "delta": 1e-5, "unit": "episode"}
    run = learn(episodes=200, privacy=privacy, aggregation="exact")
    assert "theorem_3" not in run.bounds
    assert run.bounds["budget"].bound == run.rounds
    figure("rounds", run)
    figure("scalars", run)


@pytest.mark.usefixtures("here")
def test_the_shell_names_the_budget(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["run", "--env", "random-linear", "--agents", "2", "--episodes", "100", "--set"]
    assert main([*line, "rounds=4", "--out", "a"]) == 0
    assert "the budget is 4; without it at most 100 are possible" in capsys.readouterr().out
    assert main([*line, "gamma=9", "--out", "b"]) == 0
    said = capsys.readouterr().out
    assert "are possible" in said
    assert "budget is" not in said


def test_the_budget_is_drawn_beside_the_theorem(limited: Run) -> None:
    axes = figure("rounds", limited).axes[0]
    drawn = {line.get_label(): np.asarray(line.get_ydata()) for line in axes.lines}
    assert set(drawn) == {"measured", "the budget, 5", "Theorem 3, or t"}
    assert drawn["Theorem 3, or t"][-1] == limited.bounds["theorem_3"].bound
    assert set(drawn["the budget, 5"]) == {5}


def test_the_page_leads_with_what_was_learned(limited: Run, tmp_path: Path) -> None:
    levels = limited.references()
    page = write_report([limited], tmp_path)[0].read_text(encoding="utf-8")
    first = page.index(f"<b>{levels['learned']:,.4g}</b>")
    assert f"optimal {levels['optimal']:,.4g}; uniform {levels['uniform']:,.4g}" in page
    assert first < page.index("cumulative regret, all agents")


@pytest.mark.parametrize("name", ["fed-lsvi", "independent"])
def test_no_run_lies_above_its_own_root(name: str) -> None:
    """c is the smallest for which c√t is nowhere below the run; through the last point, a run that
    stops losing would look worse than the theorem."""
    run = learn(name, 3000)
    assert run.regret is not None
    measured, root = figure("regret", run).axes[0].lines
    t, y, above = (np.asarray(v) for v in (*measured.get_data(), root.get_ydata()))
    np.testing.assert_allclose(above / np.sqrt(t), above[0])
    assert np.all(above >= y * (1.0 - 1e-12))
    assert np.any(np.isclose(above, y))
    assert above[-1] > 1.5 * y[-1]


def test_time_is_logarithmic_where_all_is_lost_early() -> None:
    t = np.arange(1.0, 1001.0)
    assert learns_early(t, np.minimum(t, 20.0))
    assert not learns_early(t, t)
    assert not learns_early(t, np.sqrt(t))
    slow, other = learn(episodes=1000, beta=50.0), learn("periodic", 1000, beta=50.0)
    early = replace(slow, regret=np.minimum(t, 20.0))
    for run, scale in ((early, "log"), (slow, "linear")):
        assert figure("regret", run).axes[0].get_xscale() == scale
        assert Comparison([run, other]).plot("regret").axes[0].get_xscale() == scale
        found = {"fed-lsvi": [outcome(run, [ENV], 1.0)], "periodic": [outcome(other, [ENV], 1.0)]}
        drawn = make_figure([ranking.panels(found, list(found))["regret"]])
        assert drawn.axes[0].get_xscale() == scale


def colours_of(made: Any) -> dict[str, Any]:
    return {line.get_label(): line.get_color() for line in made.axes[0].lines}


def test_an_algorithm_has_one_colour_everywhere() -> None:
    names = ["independent", "centralised", "fed-lsvi"]
    runs = {name: learn(name) for name in names}
    expected = {name: COLOURS[place(name)] for name in names}
    assert len(set(expected.values())) == 3
    for order in (names, names[::-1], sorted(names)):
        assert colours_of(Comparison([runs[name] for name in order]).plot("regret")) == expected
        found = {name: [outcome(runs[name], [ENV], 1.0)] for name in order}
        assert colours_of(make_figure([ranking.panels(found, order)["regret"]])) == expected
        html = Comparison([runs[name] for name in order])._repr_html_()
        for name, colour in expected.items():
            assert f'<span style="color:{colour}">{name}</span>' in html


def test_everybody_looks_different() -> None:
    assert set(PLACES) == set(registry.names())
    looks = {repr(look(place(name))) for name in PLACES}
    assert len(looks) == len(PLACES)
    assert repr(look(place("my-own"))) not in looks
    axes = make_figure([lambda axes: None]).axes[0]
    for number in range(len(PLACES) + 1):
        Curve("", np.zeros(2), np.zeros(2), colour=number, marks=False).draw(axes, 0)
    drawn = {f"{line.get_color()} {line.get_linestyle()}" for line in axes.lines}
    assert len(drawn) == len(PLACES) + 1
    assert len(chart.DASHES) == len(DASHES)
    settings = {f"fed-lsvi, γ = {i}": "fed-lsvi" for i in range(6)} | {"stale": "stale"}
    given = places(settings)
    assert len(set(given.values())) == 7
    assert place("fed-lsvi") in given.values()
    assert given["stale"] == place("stale")
    assert places(dict(reversed(settings.items()))) == given


def test_nothing_has_no_place_on_a_logarithmic_axis() -> None:
    silent = Dots("independent", 2, np.zeros(2), np.array([3.0, 4.0]))
    loud = Dots("fed-lsvi", 0, np.array([900_000.0, 1e6]), np.array([1.0, 2.0]))
    axes = make_figure([lambda axes: against_scalars(axes, [silent, loud])]).axes[0]
    axes.figure.canvas.draw()
    at = {text.get_text(): x for text, x in zip(axes.get_xticklabels(), axes.get_xticks(),
                                                strict=True)}  # fmt: skip
    crosses = np.asarray(axes.collections[0].get_offsets())[:, 0]
    assert set(crosses) == {at.pop("nothing")}
    (strip,) = axes.patches
    edge = strip.get_x() + strip.get_width()
    assert at
    assert crosses.max() < edge < min(at.values())
    assert edge < 900_000.0


def test_a_page_is_one_file(limited: Run, tmp_path: Path) -> None:
    for make in (limited, Comparison([limited, learn("periodic")])):
        page = make.report(tmp_path / "pages" / "page.html")
        assert page == tmp_path / "pages" / "page.html"
        assert list((tmp_path / "pages").iterdir()) == [page]
        assert page.read_text(encoding="utf-8").count("data:image/svg+xml") >= 3
    (tmp_path / "folder.html").mkdir()
    with refused(StoreError, "cannot-write", "folder.html"):
        limited.report(tmp_path / "folder.html")


@pytest.mark.usefixtures("here")
def test_the_shell_writes_one_page(capsys: pytest.CaptureFixture[str]) -> None:
    FedLSVI(2).learn(RiverSwim(horizon=4), 20, folder="r", progress=False)
    before = sorted(Path("r").iterdir())
    assert main(["report", "r", "--out", "page.html"]) == 0
    assert Path("page.html").is_file()
    assert sorted(Path("r").iterdir()) == before
    line = ["compare", "--env", "river-swim", "--agents", "2", "--episodes", "20", "--seeds", "0:1",
            "--jobs", "1", "--out", "c"]  # fmt: skip
    assert main(line) == 0
    assert main(["report", "c", "--out", "both.html"]) == 0
    assert "centralised" in Path("both.html").read_text(encoding="utf-8")
    assert load("r").report("again.html") == Path("again.html")
