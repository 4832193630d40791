"""Figures and the page: they show what the run holds, and nothing from outside."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import fedlsvi
from fedlsvi import FedLSVI
from fedlsvi.envs import RandomLinearMDP
from fedlsvi.errors import InvalidInput, UnknownName
from fedlsvi.report import compare_regret, figure, write_report
from fedlsvi.report.panels import DRAW, POINTS, thin
from fedlsvi.report.statistics import interval


@pytest.fixture(scope="module")
def runs() -> list[fedlsvi.Run]:
    env = RandomLinearMDP(6, 3, 4, horizon=3, seed=1, initial="uniform")
    return [FedLSVI(n_agents=3).learn(env, 5000, seed=s, progress=False) for s in range(2)]


@pytest.fixture(scope="module")
def page(runs: list[fedlsvi.Run], tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("report")
    written = write_report(runs[:1], out)
    assert written[0] == out / "report.html"
    return written[0].read_text(encoding="utf-8")


@pytest.mark.parametrize("what", [*DRAW, "communication"])
def test_every_figure_is_drawn_for_one_run_and_for_several(
    runs: list[fedlsvi.Run], what: str, tmp_path: Path
) -> None:
    made = runs[0].plot(what, str(tmp_path / "one.png"))
    assert (tmp_path / "one.png").stat().st_size > 5000
    figure(what, runs, tmp_path / "both.svg")
    for axes in made.axes:
        assert axes.get_xlabel()
        assert axes.get_ylabel()
        assert axes.get_title(loc="left")
        for line in axes.lines:
            assert len(line.get_xdata()) <= POINTS
            assert np.isfinite(np.asarray(line.get_ydata(), float)).all()


def test_regret_has_the_curve_and_a_root_through_its_end(runs: list[fedlsvi.Run]) -> None:
    curve, root = runs[0].plot("regret").axes[0].lines[:2]
    assert runs[0].regret is not None
    assert curve.get_ydata()[-1] == runs[0].regret[-1]
    t, c = root.get_xdata(), root.get_ydata() / np.sqrt(root.get_xdata())
    assert t[-1] == 5000
    np.testing.assert_allclose(c, c[-1])
    assert root.get_ydata()[-1] == pytest.approx(runs[0].regret[-1])


def test_measured_rounds_stay_between_floor_and_theorem(runs: list[fedlsvi.Run]) -> None:
    measured, theorem, floor = (
        line.get_ydata()[-1] for line in runs[0].plot("rounds").axes[0].lines
    )
    assert floor <= measured <= theorem


def test_the_same_run_gives_the_same_svg(runs: list[fedlsvi.Run], tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        figure("logdet", runs[0], tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_no_global_state_of_matplotlib_is_touched(runs: list[fedlsvi.Run]) -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    figure("regret", runs[0])
    assert dict(matplotlib.rcParams) == before


def test_unknown_figures_are_refused(runs: list[fedlsvi.Run]) -> None:
    with pytest.raises(UnknownName, match="did you mean 'regret'"):
        runs[0].plot("regrett")


def test_thinning_keeps_both_ends() -> None:
    for n in (1, 7, POINTS, 10 * POINTS + 3):
        for log in (False, True):
            at = thin(n, log)
            assert at[0] == 0
            assert at[-1] == n - 1
            assert len(at) <= POINTS
            assert (np.diff(at) > 0).all()


def test_the_page_stands_alone(page: str) -> None:
    assert not re.search(r"""(src|href)\s*=\s*["'](?!data:)""", page)
    assert "url(" not in page
    assert "<script" not in page
    assert 'name="viewport"' in page
    assert "http" not in re.sub(r"base64,[A-Za-z0-9+/=]+", "", page)


def test_the_page_holds_the_numbers(page: str, runs: list[fedlsvi.Run]) -> None:
    run = runs[0]
    for text in (
        f"{run.ledger.total:,}",
        f"{run.scalars_raw:,}",
        f"{int(run.bounds['theorem_3'].bound):,}"[:3],
        "name = &quot;random-linear&quot;",
        "The smallest upload summed up",
        "agent ",
        "end of the run",
        "synchronise",
    ):
        assert text in page, text
    assert page.count("<figure>") == len(DRAW)


def test_a_run_without_regret_has_a_page_too(runs: list[fedlsvi.Run], tmp_path: Path) -> None:
    from dataclasses import replace

    blind = [replace(record, regret=None) for record in runs[0].records]
    run = replace(runs[0], regret=None, records=blind)
    write_report([run], tmp_path)
    assert not (tmp_path / "plots" / "regret.png").exists()
    with pytest.raises(InvalidInput, match="not known"):
        run.plot("regret")


def test_alone_beside_together(runs: list[fedlsvi.Run], tmp_path: Path) -> None:
    written = write_report(runs[:1], tmp_path, alone=runs)
    assert tmp_path / "plots" / "alone.png" in written
    apart, together = compare_regret(runs[0], runs).axes[0].lines
    assert together.get_ydata()[-1] == runs[0].regret[-1]  # type: ignore[index]
    mean = np.mean([run.regret[-1] for run in runs])  # type: ignore[index]
    assert apart.get_ydata()[-1] == pytest.approx(3 * mean)


def test_interval() -> None:
    """Worked by hand: 1, 2, 3 has mean 2, deviation 1, and t = 4.3027 at two degrees of freedom."""
    found = interval([1.0, 2.0, 3.0])
    assert found["mean"] == 2.0
    assert found["high"] == pytest.approx(2.0 + 4.302652729911275 / np.sqrt(3.0))
    assert interval([5.0]) == {"mean": 5.0, "low": None, "high": None}
