"""Figures and the page: they show what the run holds, and nothing from outside."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.algorithms import make
from fedlsvi.envs import FiniteMDP, RandomLinearMDP
from fedlsvi.errors import InvalidInput, UnknownName
from fedlsvi.features import FourierFeatures
from fedlsvi.report import compare_regret, figure, rounds, run_page, write_report
from fedlsvi.report.comparison import judged, ranking, verdict
from fedlsvi.report.figures import DRAW
from fedlsvi.report.groups import Group, grouped
from fedlsvi.report.html import number
from fedlsvi.report.model_class import model_class
from fedlsvi.report.plotting import POINTS, thin
from fedlsvi.report.rerun import rerun
from fedlsvi.report.run_page import outcome, privacy, unfinished
from fedlsvi.run import Run
from fedlsvi.storage import load

pytestmark = pytest.mark.usefixtures("sketched")

KNOWN = [what for what in DRAW if what != "returns"]
"""The figures of runs that have regret."""


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    env = RandomLinearMDP(6, 3, 4, horizon=3, seed=1, initial="uniform")
    learner = FedLSVI(n_agents=3, cap="off", rounds="off")
    return [learner.learn(env, 5000, seed=s, progress=False) for s in range(2)]


@pytest.fixture(scope="module")
def page(runs: list[Run], tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("report")
    written = write_report(runs[:1], out)
    assert written[0] == out / "report.html"
    return written[0].read_text(encoding="utf-8")


def test_without_matplotlib_nothing_is_written(
    runs: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with refused(InvalidInput, "matplotlib-missing", "fedlsvi[plot]"):
        write_report(runs, tmp_path / "report")
    assert list(tmp_path.iterdir()) == []


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


@pytest.mark.parametrize("what", [*KNOWN, "communication"])
def test_no_tick_is_a_power_of_ten_times_something(runs: list[Run], what: str) -> None:
    """As 8×10⁻¹ where an axis is shorter than a decade: of a short run, and of a long one."""
    short = FedLSVI(n_agents=3).learn(runs[0].plan.envs[0], 3, progress=False)  # type: ignore[union-attr]
    for run in (short, runs[0]):
        made = run.plot(what)
        made.canvas.draw()
        for axes in made.axes:
            for axis in (axes.xaxis, axes.yaxis):
                ticks = axis.get_ticklabels(which="both")
                assert not [text.get_text() for text in ticks if "times" in text.get_text()]
                low, high = sorted(axis.get_view_interval())
                inside = [text for text in axis.get_ticklabels() if text.get_text() and
                          low <= text.get_position()[axis is axes.yaxis] <= high]  # fmt: skip
                assert len(inside) >= 2, (what, axis.get_label_text())


def test_regret_has_the_curve_and_a_root_that_touches_it(runs: list[Run]) -> None:
    curve, root = runs[0].plot("regret").axes[0].lines[:2]
    assert runs[0].regret is not None
    assert curve.get_ydata()[-1] == runs[0].regret[-1]
    t, c = root.get_xdata(), root.get_ydata() / np.sqrt(root.get_xdata())
    assert t[-1] == 5000
    np.testing.assert_allclose(c, c[-1])
    assert c[-1] == pytest.approx((runs[0].regret / np.sqrt(np.arange(1, 5001))).max())


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
    with refused(UnknownName, "unknown-figure", "regrett", "'regret'"):
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
        "The smallest upload covers a single episode",
        "agent 2",
        "end of the run",
        "synchronise",
        f"{run.rounds} synchronisations",
    ):
        assert text in page, text
    assert page.count("<figure>") == len(KNOWN) - 1  # "coverage" is of logs


def test_the_page_is_read_from_top_to_bottom(page: str) -> None:
    headings = re.findall(r"<h[12]>(.*?)</h[12]>", page)
    assert headings == [
        "fed-lsvi on random-linear", "Regret", "Rounds and traffic against the bounds",
        "What the policy goes by", "When and why the agents synchronised", "What left each agent",
        "Privacy: what uploads reveal", "Where the time went", "Run it again",
    ]  # fmt: skip
    assert page.index('class="outcome"') < page.index("<h2>")


def test_every_round_is_listed_with_who_fired(page: str, runs: list[Run]) -> None:
    for record in runs[0].records[:-1]:
        (agent, step), *_ = record.triggers
        row = (f"{record.first:,} – {record.last:,}", f"{record.length:,}",
               f"agent {agent} at h = {step}[ <]")  # fmt: skip
        assert re.search(".{0,60}".join(row), page)


def test_scalars_of_the_rounds_add_up(runs: list[Run]) -> None:
    text = rounds.synchronisations(runs[0])
    cells = re.findall(r'data-head="scalars"><span>([\d,]+)</span>', text)
    sent = [int(cell.replace(",", "")) for cell in cells]
    assert len(sent) == len(runs[0].records)
    assert sum(sent) == runs[0].ledger.total - runs[0].ledger.scalars["init"]


def test_long_runs_are_cut_in_the_middle(runs: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "SHOWN", 3)
    text = rounds.synchronisations(runs[0])
    assert text.count("<tr>") == 1 + 3 + 1 + 3
    assert f"{len(runs[0].records) - 6:,} rounds: records.jsonl" in text


def test_anomalies_are_listed(runs: list[Run]) -> None:
    assert rounds.remarks(runs[0]) == ""
    odd = replace(runs[0].records[3], notes=["agent 1 was excluded: <late>"], overshoot=2)
    text = rounds.remarks(replace(runs[0], records=[*runs[0].records[:3], odd]))
    assert "2 episodes beyond a signal were kept" in text
    assert "<td>4</td><td>agent 1 was excluded: &lt;late&gt;</td>" in text


def test_one_seed_that_breaks_a_bound_is_enough(runs: list[Run]) -> None:
    assert run_page.bounds(Group("", runs)).count("holds, 2 seeds") == 2
    assert "below, 2 seeds; no guarantee at this β" in run_page.bounds(Group("", runs))
    record = replace(runs[1].records[0], rounds=10**6)
    worse = replace(runs[1], records=[record, *runs[1].records[1:]])
    assert "broken, 2 seeds" in run_page.bounds(Group("", [runs[0], worse]))


def test_signals_that_are_not_named_are_not_counted(runs: list[Run]) -> None:
    assert "listed and counted" not in rounds.triggers(runs[0])
    crowd = replace(runs[0].records[0], signals=len(runs[0].records[0].triggers) + 1)
    many = replace(runs[0], records=[crowd, *runs[0].records[1:]])
    assert "At most 32 signals per round are listed and counted" in rounds.triggers(many)


def test_what_left_each_agent_adds_up(runs: list[Run]) -> None:
    text = run_page.agents(runs[0])
    cell = r'<td class="n" [^>]*><span>([\d,]+)</span></td>'
    rows = re.findall(r"<td>agent \d</td>" + cell * 5, text)
    table = np.array([[int(cell.replace(",", "")) for cell in row] for row in rows])
    sent = runs[0].ledger.scalars
    assert table.shape == (3, 5)
    assert table[:, 0].sum() == sent["up_stats"]
    assert table[:, 2].sum() == 8 * (sent["up_stats"] + sent["up_raw"])
    assert table[:, 3].sum() == sent["signal"]
    assert table[:, 4].sum() == sent["init"] + sent["down_model"]


def unmeasured(run: Run) -> Run:
    """The run as a server sees it that cannot evaluate: no regret, no returns."""
    blind = [replace(record, regret=None, mean_return=None) for record in run.records]
    return replace(run, regret=None, records=blind)


def test_a_run_without_regret_and_returns_has_a_page(runs: list[Run], tmp_path: Path) -> None:
    runs = [unmeasured(run) for run in runs]
    for given in (runs[:1], runs):
        page = write_report(given, tmp_path / str(len(given)))[0].read_text(encoding="utf-8")
        assert not (tmp_path / str(len(given)) / "plots" / "regret.png").exists()
        assert "<h2>Regret and return</h2>" in page
        assert page.count("not known here") >= 3
    with refused(InvalidInput, "regret-unknown"):
        runs[0].plot("regret")
    with refused(InvalidInput, "returns-unknown"):
        runs[0].plot("returns")
    other = replace(runs[0], algorithm="other")
    page = write_report([*runs, other], tmp_path / "compared")[0].read_text(encoding="utf-8")
    assert "not known for all of these runs" in page


def test_a_folder_of_a_server_without_an_environment_has_a_page(
    runs: list[Run], tmp_path: Path
) -> None:
    """Nothing there can make the environment."""
    unmeasured(runs[0]).save(str(tmp_path / "run"))
    server = replace(load(tmp_path / "run"), world=None, regret=None)
    server = replace(unmeasured(server), reward_range=None)
    page = write_report([server], tmp_path / "report")[0].read_text(encoding="utf-8")
    assert "only what reached the server" in page


def returning(run: Run, taus: list[int], means: list[float]) -> Run:
    """A run whose rounds begin at these episodes and earned this much."""
    ends = zip(taus, taus[1:], means, strict=False)
    records = [replace(run.records[0], regret=None, first=a, last=b - 1, mean_return=mean)
               for a, b, mean in ends]  # fmt: skip
    return replace(run, regret=None, taus=taus, records=records)


def test_returns_in_windows(runs: list[Run]) -> None:
    """Worked by hand: rounds of 2 and 4 episodes that earned 1 and 4 each, in windows of three:
    (1 + 1 + 4)/3 = 2 and 4; the median of two runs is their mean."""
    one, other = returning(runs[0], [1, 3, 7], [1.0, 4.0]), returning(runs[1], [1, 7], [6.0])
    found = Group("", [one, other]).returns(np.array([0, 3, 6]))
    np.testing.assert_allclose(found, [[2.0, 4.0], [6.0, 6.0]])  # type: ignore[arg-type]
    axes = figure("returns", [one, other], marks={"random": 1.5}).axes[0]
    assert axes.lines[0].get_ydata()[-1] == 5.0
    assert axes.lines[1].get_label() == "random: 1.5"


@pytest.mark.filterwarnings("error")
def test_returns_that_never_change_are_drawn(runs: list[Run]) -> None:
    axes = figure("returns", returning(runs[0], [1, 3, 7], [2.0, 2.0])).axes[0]
    assert axes.get_ylim() == (1.0, 3.0)


def test_runs_are_grouped_by_what_sets_them_apart(runs: list[Run]) -> None:
    env = runs[0].plan.envs[0]  # type: ignore[union-attr]
    other = FedLSVI(n_agents=3, gamma=7.0).learn(env, 5000, seed=0, progress=False)
    one, two = grouped([runs[0], other, runs[1]])
    assert one.runs == runs[:2]
    assert one.label == f"fed-lsvi, γ = {runs[0].parameters.gamma:.4g}"
    assert two.label == "fed-lsvi, γ = 7"
    with refused(InvalidInput, "duplicate-run", "seed 0 of fed-lsvi"):
        grouped([runs[0], runs[0]])
    elsewhere = FedLSVI(n_agents=3).learn(RandomLinearMDP(6, 3, 4, horizon=3, seed=2), 20, 1,
                                          progress=False)  # fmt: skip
    with refused(InvalidInput, "different-environments"):
        grouped([runs[0], elsewhere])
    with refused(InvalidInput, "no-runs"):
        grouped([])


def chain(reward: float, seed: int, episodes: int = 20) -> Run:
    """A run of two states that pay `reward` and nothing, in an MDP that has no name."""
    env = FiniteMDP(np.full((2, 2, 2), 0.5), np.diag([reward, 0.0]), horizon=2)
    return FedLSVI(n_agents=2).learn(env, episodes, seed, progress=False)


def test_arrays_tell_nameless_environments_apart(tmp_path: Path) -> None:
    """In memory or from a folder, and one of each."""
    played = [chain(0.5, 0), chain(0.5, 1), chain(0.25, 2)]
    for run in played:
        run.save(str(tmp_path / str(run.seed)))
    read = [load(tmp_path / str(run.seed)) for run in played]
    for one, same, other in (played, read, [played[0], read[1], read[2]]):
        assert len(grouped([one, same])) == 1
        with refused(InvalidInput, "different-environments"):
            grouped([one, other])


def until(run: Run, k: int) -> Run:
    """The run as it would have been, had it been interrupted after k rounds."""
    records = run.records[:k]
    assert run.regret is not None
    return replace(run, records=records, taus=run.taus[: k + 1], folder="runs/<here>",
                   regret=run.regret[: records[-1].last])  # fmt: skip


def test_a_seed_that_was_interrupted_is_left_out_and_named(runs: list[Run], tmp_path: Path) -> None:
    """Whichever comes first, the mean is over the one that got to the end."""
    short = until(runs[1], 5)
    whole = outcome(Group("", runs[:1]), {})
    for given in ([runs[0], short], [short, runs[0]]):
        (group,) = grouped(given)
        assert outcome(group, {}) == whole
        assert unfinished([group]) == (
            f"Seed 1 was interrupted after {short.played} of 5,000 episodes and is left out: "
            "fedlsvi resume 'runs/<here>' plays the rest."
        )
    text = write_report([short, runs[0]], tmp_path)[0].read_text(encoding="utf-8")
    assert "Seed 1 was interrupted after" in text
    assert "median of 2" not in text
    assert unfinished(grouped(runs)) == ""


def test_groups_are_compared_after_as_many_episodes_as_all_have(runs: list[Run]) -> None:
    """The longer one has lost more by its end and less by the other's."""
    assert runs[0].regret is not None
    short = until(replace(runs[1], algorithm="short"), 6)
    assert short.regret is not None
    n = short.played
    between = 0.5 * (runs[0].regret[n - 1] + runs[0].regret[-1])
    short = replace(short, regret=short.regret * (between / short.regret[-1]))
    assert short.regret is not None
    assert short.regret[-1] < runs[0].regret[-1]
    groups = grouped([short, runs[0]])
    assert judged(groups)[1] == [[short.regret[-1]], [runs[0].regret[n - 1]]]
    assert verdict(groups).startswith(f"After {n:,} episodes each, fed-lsvi lost least")
    table = ranking(groups, model_class(groups))
    assert f"After {n:,} episodes each, the length of the shortest run" in table
    sent = sum([r for r in runs[0].records if r.last <= n][-1].scalars.values())
    assert f"{sent:,}" in table
    assert f"{runs[0].ledger.total:,}" not in table
    assert f"short was interrupted after {n:,} of 5,000 episodes." in unfinished(groups)


def test_lost_reward_is_in_the_units_of_the_environment(runs: list[Run]) -> None:
    """Rewards from −10 to 20 in [0, 1]: what is lost counts thirtyfold, regret as before."""
    scaled = replace(runs[0], plan=None, reward_range=(-10.0, 20.0))
    assert runs[0].regret is not None
    lost = 30.0 * runs[0].regret[-1]
    assert f"had lost {number(lost)} reward" in outcome(Group("", [scaled]), {})
    assert f"{number(lost / 5000 / 3)} per episode" in outcome(Group("", [scaled]), {})
    assert "1 is 30 in the environment&#x27;s own units" in run_page.units(scaled)
    assert "rewards mapped into [0, 1]" in run_page.numbers(Group("", [scaled]))
    assert run_page.units(runs[0]) == ""


def test_only_what_a_file_can_play_is_said_to_be_played_from_one(runs: list[Run]) -> None:
    assert "Save as settings.toml and run" in rerun(Group("", runs))
    assert "--seeds 0,1" in rerun(Group("", runs))
    assert "The arrays are next to settings.toml" in rerun(Group("", [chain(0.5, 0)]))
    own = FedLSVI().learn(lambda: gymnasium.make("CartPole-v1"), 2, horizon=3,
                          features=FourierFeatures(2), progress=False)  # fmt: skip
    text = rerun(Group("", [own]))
    assert (
        "Settings alone cannot repeat this run: the environment (GymWorld) was a Python object"
        in text
    )
    assert "Save as settings.toml" not in text


def test_ended_episodes_are_not_in_the_smallest_upload(runs: list[Run]) -> None:
    """Exact where it was counted; where it was not, the page says so."""
    assert "ended" not in privacy(Group("", runs)).lower()
    blind = replace(runs[0], regret=None)
    assert "was not recorded" in privacy(Group("", [blind]))
    counted = [replace(record, fewest=record.length) for record in runs[0].records[5:]]
    text = privacy(Group("", [replace(blind, records=counted)]))
    assert "ended" not in text.lower()
    counted[3] = replace(counted[3], fewest=1)
    text = privacy(Group("", [replace(blind, records=counted)]))
    shortest = min(record.length for record in counted)
    assert f"covers a single episode (1 of {len(counted)} rounds)" in text
    assert f"The shortest round had {shortest} episodes" in text


def test_thousands_of_times_are_written_out(runs: list[Run]) -> None:
    dear = replace(runs[0], raw_scalars_per_step=10**6)
    text = outcome(Group("", [dear]), {})
    assert f"{dear.scalars_raw / dear.ledger.total:,.0f} times fewer" in text


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
    assert "Nothing was sent by independent" in text
    if best == "coop-lsvi":
        assert "but sends raw trajectories" in text
    figure("lengths", raw)  # its last record ends no round
    assert f"Raw trajectories left the agents: {raw.ledger.scalars['up_raw']:,} scalars" in text
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


def test_a_figure_is_a_picture_in_a_notebook(runs: list[Run]) -> None:
    """Also where pyplot was never imported: IPython asks the object itself."""
    assert runs[0].plot("regret")._repr_png_().startswith(b"\x89PNG")


def test_representations_are_short(runs: list[Run]) -> None:
    for shown in (runs[0], runs[0].ledger, runs[0].policy):
        assert len(repr(shown)) < 300
    assert f"{runs[0].rounds:,} rounds" in repr(runs[0])


def test_rounds_are_bounded_by_episodes_too() -> None:
    """A short run cannot have as many rounds as Theorem 3 allows."""
    env = RandomLinearMDP(6, 3, 4, horizon=3, seed=1)
    assert FedLSVI(n_agents=3).learn(env, 30, progress=False).bounds["theorem_3"].bound == 30.0


@pytest.mark.parametrize(("preset", "applies"), [("paper", True), ("practical", False)])
def test_a_theorem_says_where_it_guarantees_nothing(preset: str, applies: bool) -> None:
    env = RandomLinearMDP(6, 3, 4, horizon=3, seed=1)
    run = FedLSVI(n_agents=3, preset=preset).learn(env, 30, progress=False)  # type: ignore[arg-type]
    assert run.bounds["theorem_1"].applies is applies
    assert run.bounds["theorem_3"].applies
    assert ("no guarantee" in run_page.bounds(Group("", [run]))) is not applies


def test_a_table_is_called_what_it_was_named(tmp_path: Path) -> None:
    table = FiniteMDP(np.full((2, 2, 2), 0.5), np.eye(2), horizon=2, name="Sepsis, fluids only")
    run = FedLSVI(n_agents=2).learn(table, 20, progress=False)
    run.save(str(tmp_path / "run"))
    for one in (run, load(tmp_path / "run")):
        page = write_report([one], tmp_path / "report")[0].read_text(encoding="utf-8")
        assert "<h1>fed-lsvi on Sepsis, fluids only</h1>" in page
    assert chain(0.5, 0).environment_name == "arrays"
