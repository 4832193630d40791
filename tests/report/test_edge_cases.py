"""Runs that are not as runs mostly are: short, silent, of other sizes, with numbers at the edge."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from expecting import refused
from fedlsvi.algorithms import make
from fedlsvi.envs import RandomMDP
from fedlsvi.errors import InvalidEnvironment, InvalidInput
from fedlsvi.learner import unattended
from fedlsvi.report import figure, rounds, write_report
from fedlsvi.report.comparison import comparable, comparison_figure
from fedlsvi.report.groups import Group, grouped
from fedlsvi.report.html import measured, number
from fedlsvi.run import Run
from fedlsvi.storage import load

pytestmark = pytest.mark.usefixtures("sketched")

ENV = RandomMDP(3, 2, 2)


def learned(name: str = "fed-lsvi", M: int = 2, T: int = 60, seed: int = 0) -> Run:
    with unattended():  # what it warns of is not of figures
        run: Run = make(name, n_agents=M).learn(ENV, T, seed, progress=False)
    return run


def test_numbers_at_the_edge() -> None:
    assert number(999.6) == "1,000"
    assert number(999.4) == "999"
    assert (number(math.inf), number(math.nan)) == ("∞", "–")
    assert measured([0.1, 0.1, 0.1]) == "0.1"
    assert measured([1.0, 2.0, 4.0]) == "2\n[1, 4]"
    assert measured([1.0, math.nan]) == measured([]) == "–"


@pytest.mark.filterwarnings("error")
def test_one_episode_is_drawn_as_a_point(tmp_path: Path) -> None:
    run = learned(T=1)
    for what in ("regret", "rounds", "scalars", "logdet"):
        assert figure(what, run).axes[0].lines[0].get_marker() == "o"
    assert figure("regret", learned()).axes[0].lines[0].get_marker() == "None"
    assert write_report([run, learned("coop-lsvi", T=1)], tmp_path)[0].exists()
    with refused(InvalidInput, "no-runs"):
        figure("regret", [])


@pytest.mark.filterwarnings("error")
def test_where_nothing_was_sent_there_is_no_price() -> None:
    runs = [learned(name) for name in ("independent", "low-switching")]
    assert comparable(grouped(runs)) == ["regret", "rounds"]
    said = [text.get_text() for text in figure("scalars", runs[0]).axes[0].texts]
    assert said == ["nothing was sent"]


def test_a_silent_seed_among_others_is_a_cross() -> None:
    """It has no place on a logarithmic axis, and is not left out."""
    run, quiet = learned("coop-lsvi"), learned("coop-lsvi", seed=1)
    nothing = dict.fromkeys(quiet.ledger.scalars, 0)
    quiet = replace(quiet, records=[replace(r, scalars=nothing) for r in quiet.records])
    groups = [Group("some", [run, quiet]), Group("all", [learned(seed=2)])]
    axes = comparison_figure("price", groups).axes[0]
    x = np.concatenate([points.get_offsets()[:, 0] for points in axes.collections])
    assert len(x) == 3
    assert (x > 0).all()
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["some", "all"]


def test_bands_are_drawn_whole() -> None:
    runs = [learned(T=200, seed=seed) for seed in range(3)]
    pair = [Group("", runs), Group("", [learned("coop-lsvi", T=200)])]
    for axes in (figure("regret", runs).axes[0], comparison_figure("regret", pair).axes[0]):
        band = axes.collections[0].get_paths()[0].vertices[:, 1]
        assert band.max() < axes.get_ylim()[1]


def test_bands_of_returns_are_drawn_whole() -> None:
    """From the least run to the largest."""
    runs = [learned(T=8, seed=seed) for seed in range(3)]
    earned = zip((1.0, 2.0, 9.0), runs, strict=True)
    runs = [
        replace(
            run, regret=None, records=[replace(r, regret=None, mean_return=v) for r in run.records]
        )
        for v, run in earned
    ]
    axes = figure("returns", runs).axes[0]
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert axes.get_ylim()[0] < band.min() == 1.0
    assert band.max() == 9.0 < axes.get_ylim()[1]


def test_sharing_everything_costs_each_size_its_own() -> None:
    runs = [learned(M=M, T=T) for M, T in ((1, 30), (4, 60))]
    axes = comparison_figure("scalars", grouped(runs)).axes[0]
    shared = {line.get_label(): line.get_ydata()[-1] for line in axes.lines
              if str(line.get_label()).startswith("every")}  # fmt: skip
    assert shared == {"every trajectory, M = 1": pytest.approx(2 * runs[0].scalars_raw),
                      "every trajectory, M = 4": pytest.approx(runs[1].scalars_raw)}  # fmt: skip


def test_all_who_fire_alone_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """They signal nobody; and a record may stand for many rounds."""
    run = learned("low-switching", M=2)
    both = [r for r in run.records if len([h for _, h in r.triggers if h]) == 2]
    assert both
    assert all(record.signals == 0 for record in both)
    assert rounds.synchronisations(run).count("and 1 more") == len(both)
    monkeypatch.setattr(rounds, "SHOWN", 3)
    thinned = make("independent").learn(ENV, 3000, 0, progress=False)
    left = thinned.rounds - sum(r.rounds for r in (*thinned.records[:3], *thinned.records[-3:]))
    assert f"{left:,} rounds: records.jsonl" in rounds.synchronisations(thinned)


def test_a_run_whose_environment_cannot_be_made_has_a_page(tmp_path: Path) -> None:
    def nowhere() -> NoReturn:
        raise InvalidEnvironment("it was given as an object")

    learned().save(str(tmp_path / "run"))
    lost = replace(load(tmp_path / "run"), reward_range=None, world=nowhere)
    page = write_report([lost], tmp_path / "report")[0].read_text(encoding="utf-8")
    assert "had lost" in page
