"""Figures and the page: they show what the run holds, and nothing from outside."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedlsvi import FedLSVI
from fedlsvi.algorithms import make
from fedlsvi.envs import RandomLinearMDP
from fedlsvi.errors import InvalidInput, UnknownName
from fedlsvi.report import compare_regret, figure, sections, write_report
from fedlsvi.report.groups import Group, grouped
from fedlsvi.report.panels import DRAW
from fedlsvi.report.statistics import band, interval
from fedlsvi.report.style import POINTS, thin
from fedlsvi.run import Run

KNOWN = [what for what in DRAW if what != "returns"]
"""The figures of runs that have regret."""


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    env = RandomLinearMDP(6, 3, 4, horizon=3, seed=1, initial="uniform")
    return [FedLSVI(n_agents=3).learn(env, 5000, seed=s, progress=False) for s in range(2)]


@pytest.fixture(scope="module")
def page(runs: list[Run], tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("report")
    written = write_report(runs[:1], out)
    assert written[0] == out / "report.html"
    return written[0].read_text(encoding="utf-8")


@pytest.mark.parametrize("what", [*KNOWN, "communication"])
def test_every_figure_is_drawn_for_one_run_and_for_several(
    runs: list[Run], what: str, tmp_path: Path
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


def test_regret_has_the_curve_and_a_root_through_its_end(runs: list[Run]) -> None:
    curve, root = runs[0].plot("regret").axes[0].lines[:2]
    assert runs[0].regret is not None
    assert curve.get_ydata()[-1] == runs[0].regret[-1]
    t, c = root.get_xdata(), root.get_ydata() / np.sqrt(root.get_xdata())
    assert t[-1] == 5000
    np.testing.assert_allclose(c, c[-1])
    assert root.get_ydata()[-1] == pytest.approx(runs[0].regret[-1])


def test_measured_rounds_stay_between_floor_and_theorem(runs: list[Run]) -> None:
    measured, theorem, floor = (
        line.get_ydata()[-1] for line in runs[0].plot("rounds").axes[0].lines
    )
    assert floor <= measured <= theorem


def test_the_same_run_gives_the_same_svg(runs: list[Run], tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        figure("logdet", runs[0], tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_no_global_state_of_matplotlib_is_touched(runs: list[Run]) -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    figure("regret", runs[0])
    assert dict(matplotlib.rcParams) == before


def test_unknown_figures_are_refused(runs: list[Run]) -> None:
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


def test_the_page_holds_the_numbers(page: str, runs: list[Run]) -> None:
    run = runs[0]
    for text in (
        f"{run.ledger.total:,}",
        f"{run.scalars_raw:,}",
        f"{int(run.bounds['theorem_3'].bound):,}"[:3],
        "name = &quot;random-linear&quot;",
        "The smallest upload summed up",
        "agent 2",
        "end of the run",
        "synchronise",
        f"{run.rounds} synchronisations",
    ):
        assert text in page, text
    assert page.count("<figure>") == len(KNOWN)


def test_the_page_is_read_from_top_to_bottom(page: str) -> None:
    headings = re.findall(r"<h[12]>(.*?)</h[12]>", page)
    assert headings == [
        "fed-lsvi on random-linear", "Regret", "Rounds and traffic against the bounds",
        "When and why the agents synchronised", "What left each agent",
        "Privacy: the smallest upload", "Where the time went", "Run it again",
    ]  # fmt: skip
    assert page.index('class="outcome"') < page.index("<h2>")


def test_every_round_is_listed_with_who_fired(page: str, runs: list[Run]) -> None:
    for record in runs[0].records[:-1]:
        (agent, step), *_ = record.triggers
        assert re.search(rf"<td>{record.first:,} – {record.last:,}</td>"
                         rf"<td class=\"n\">{record.length:,}</td>"
                         rf"<td>agent {agent} at h = {step}[ <]", page)  # fmt: skip


def test_scalars_of_the_rounds_add_up(runs: list[Run]) -> None:
    text = sections.synchronisations(runs[0])
    cells = re.findall(r'<td class="n">([\d,]+)</td><td class="n">[\d,.]+</td></tr>', text)
    sent = [int(cell.replace(",", "")) for cell in cells]
    assert len(sent) == len(runs[0].records)
    assert sum(sent) == runs[0].ledger.total - runs[0].ledger.scalars["init"]


def test_long_runs_are_cut_in_the_middle(runs: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sections, "SHOWN", 3)
    text = sections.synchronisations(runs[0])
    assert text.count("<tr>") == 1 + 3 + 1 + 3
    assert f"{len(runs[0].records) - 6:,} rounds: records.jsonl" in text


def test_what_was_out_of_the_ordinary_is_told(runs: list[Run]) -> None:
    assert sections.remarks(runs[0]) == ""
    odd = replace(runs[0].records[3], notes=["agent 1 was excluded: <late>"], overshoot=2)
    text = sections.remarks(replace(runs[0], records=[*runs[0].records[:3], odd]))
    assert "2 episodes beyond a signal were kept" in text
    assert "<td>4</td><td>agent 1 was excluded: &lt;late&gt;</td>" in text


def test_one_seed_that_breaks_a_bound_is_enough(runs: list[Run]) -> None:
    assert sections.bounds(Group("", runs)).count("holds, 2 seeds") == 3
    record = replace(runs[1].records[0], rounds=10**6)
    worse = replace(runs[1], records=[record, *runs[1].records[1:]])
    assert "broken, 2 seeds" in sections.bounds(Group("", [runs[0], worse]))


def test_signals_that_are_not_named_are_not_counted(runs: list[Run]) -> None:
    assert "named and counted" not in sections.why(runs[0])
    crowd = replace(runs[0].records[0], signals=len(runs[0].records[0].triggers) + 1)
    many = replace(runs[0], records=[crowd, *runs[0].records[1:]])
    assert "at most 32 signals are named and counted" in sections.why(many)


def test_what_left_each_agent_adds_up(runs: list[Run]) -> None:
    text = sections.agents(runs[0])
    rows = re.findall(r"<td>agent \d</td>" + r'<td class="n">([\d,]+)</td>' * 5, text)
    table = np.array([[int(cell.replace(",", "")) for cell in row] for row in rows])
    sent = runs[0].ledger.scalars
    assert table.shape == (3, 5)
    assert table[:, 0].sum() == sent["up_stats"]
    assert table[:, 2].sum() == 8 * (sent["up_stats"] + sent["up_raw"])
    assert table[:, 3].sum() == sent["signal"]
    assert table[:, 4].sum() == sent["init"] + sent["down_model"]


def test_a_run_without_regret_has_a_page_too(runs: list[Run], tmp_path: Path) -> None:
    blind = [replace(record, regret=None) for record in runs[0].records]
    run = replace(runs[0], regret=None, records=blind)
    write_report([run], tmp_path)
    assert not (tmp_path / "plots" / "regret.png").exists()
    assert "not known" in (tmp_path / "report.html").read_text(encoding="utf-8")
    with pytest.raises(InvalidInput, match="not known"):
        run.plot("regret")
    with pytest.raises(InvalidInput, match="not known"):
        run.plot("returns")


def returning(run: Run, taus: list[int], means: list[float]) -> Run:
    """A run whose rounds begin at these episodes and earned this much."""
    ends = zip(taus, taus[1:], means, strict=False)
    records = [replace(run.records[0], regret=None, first=a, last=b - 1, mean_return=mean)
               for a, b, mean in ends]  # fmt: skip
    return replace(run, regret=None, taus=taus, records=records)


def test_returns_in_windows(runs: list[Run]) -> None:
    """Worked by hand: rounds of 2 and 4 episodes that earned 1 and 4 each, in windows of three:
    (1 + 1 + 4)/3 = 2 and 4; two runs have their range as band."""
    one, other = returning(runs[0], [1, 3, 7], [1.0, 4.0]), returning(runs[1], [1, 7], [6.0])
    found = Group("", [one, other]).returns(np.array([0, 3, 6]))
    np.testing.assert_allclose(found, [[2.0, 4.0], [6.0, 6.0]])  # type: ignore[arg-type]
    mean, low, high = band(np.array([[2.0, 4.0], [6.0, 6.0]]))
    assert [mean.tolist(), low.tolist(), high.tolist()] == [[4.0, 5.0], [2.0, 4.0], [6.0, 6.0]]
    axes = figure("returns", [one, other], marks={"random": 1.5}).axes[0]
    assert axes.lines[0].get_ydata()[-1] == 5.0
    assert axes.lines[1].get_label() == "random: 1.5"


def test_bands_are_students(runs: list[Run]) -> None:
    curves = np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]])
    mean, low, high = band(curves)
    found = interval([1.0, 2.0, 3.0])
    assert (low[0], mean[0], high[0]) == pytest.approx((found["low"], 2.0, found["high"]))
    assert low[1] == high[1] == 5.0


def test_runs_are_grouped_by_what_sets_them_apart(runs: list[Run]) -> None:
    env = runs[0].plan.envs[0]  # type: ignore[union-attr]
    other = FedLSVI(n_agents=3, gamma=7.0).learn(env, 5000, seed=0, progress=False)
    one, two = grouped([runs[0], other, runs[1]])
    assert one.runs == runs[:2]
    assert one.label == f"fed-lsvi, γ = {runs[0].parameters.gamma:.4g}"
    assert two.label == "fed-lsvi, γ = 7"
    with pytest.raises(InvalidInput, match="seed 0 of fed-lsvi comes twice"):
        grouped([runs[0], runs[0]])
    elsewhere = replace(runs[1], environment=[{"name": "river-swim", "params": {}}])
    with pytest.raises(InvalidInput, match="different environments"):
        grouped([runs[0], elsewhere])
    with pytest.raises(InvalidInput, match="no run"):
        grouped([])


def test_a_comparison_ranks_and_says_what_left(runs: list[Run], tmp_path: Path) -> None:
    env = runs[0].plan.envs[0]  # type: ignore[union-attr]
    raw = make("coop-lsvi", n_agents=3).learn(env, 300, progress=False)
    alone = make("independent", n_agents=3).learn(env, 300, progress=False)
    written = write_report([alone, raw], tmp_path)
    text = written[0].read_text(encoding="utf-8")
    order = [(float(run.regret[-1]), run.algorithm) for run in (alone, raw)]  # type: ignore[index]
    (least, best), (most, worst) = sorted(order)
    assert least < most
    assert f"{best} lost least" in text
    assert text.index(f"<td>{best}</td>") < text.index(f"<td>{worst}</td>")
    assert text.count("<details>") == 2
    assert "nothing was sent by independent" in text
    figure("lengths", raw)  # its last record ends no round
    assert f"Trajectories left the agents: {raw.ledger.scalars['up_raw']:,} scalars" in text
    assert "Nothing was uploaded" in text
    names = {path.stem for path in written[1:]}
    assert names == {"regret", "price", "rounds", "scalars"}


def test_counts_so_far(runs: list[Run]) -> None:
    group, ends = Group("", runs[:1]), [record.last for record in runs[0].records]
    at = np.array(ends) - 1  # a round counts from its last episode on
    assert group.count("rounds", at)[0].tolist() == list(range(1, len(ends) + 1))
    assert group.count("scalars", at)[0][-1] == runs[0].ledger.total
    assert group.count("rounds", np.array([ends[4] - 2]))[0] == 4


def test_alone_beside_together(runs: list[Run], tmp_path: Path) -> None:
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
