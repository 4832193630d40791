"""What learning cost: every dot of these figures is seen whole, and its axis can be read."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlsvi.algorithms import make
from fedlsvi.envs import RandomMDP
from fedlsvi.report import write_report
from fedlsvi.report.comparison import comparable, comparison_figure, verdict
from fedlsvi.report.groups import grouped
from fedlsvi.run import Run

pytestmark = pytest.mark.usefixtures("sketched")


def losing(name: str, seed: int, regret: float) -> Run:
    """A run that has lost so much."""
    run = make(name, n_agents=2).learn(RandomMDP(3, 2, 2), 60, seed, progress=False)
    assert run.regret is not None
    return replace(run, regret=regret * run.regret / run.regret[-1])


def earning(name: str, seed: int, earned: float) -> Run:
    """A run of which only the returns are known: nothing, and in the last tenth so much each."""
    run = make(name, n_agents=2).learn(RandomMDP(3, 2, 2), 60, seed, progress=False)
    end = replace(run.records[-1], regret=None)
    records = [replace(end, first=1, last=54, mean_return=0.0),
               replace(end, first=55, last=60, mean_return=earned)]  # fmt: skip
    return replace(run, regret=None, records=records, taus=[1, 55, 61])


def dots(axes: Any) -> np.ndarray:
    """(dots, 2) of a figure."""
    return np.concatenate([np.asarray(points.get_offsets()) for points in axes.collections])


def assert_whole(axes: Any) -> None:
    """No dot is cut off by the axes, although it is as wide as it is."""
    axes.figure.canvas.draw()
    box, radius = axes.get_window_extent(), axes.figure.dpi / 72 * np.sqrt(44.0) / 2
    for x, y in axes.transData.transform(dots(axes)):
        assert box.x0 + radius < x < box.x1 - radius
        assert box.y0 + radius < y < box.y1 - radius


@pytest.mark.parametrize("regrets", [(5000.0, 5100.0), (0.3, 7.0), (40.0, 40.0)])
def test_no_dot_is_cut_off(regrets: tuple[float, float]) -> None:
    runs = [losing("fed-lsvi", 0, regrets[0]), losing("centralised", 0, regrets[1])]
    axes = comparison_figure("price", grouped(runs)).axes[0]
    assert_whole(axes)
    assert axes.get_ylim()[0] == 0.0


@pytest.mark.parametrize("earned", [(480.0, 500.0), (-110.0, -90.0), (3.0, 3.0)])
def test_returns_have_their_price(earned: tuple[float, float], tmp_path: Path) -> None:
    """A dot for each run: what its last tenth earned, against what it sent."""
    runs = [earning("fed-lsvi", 0, earned[0]), earning("periodic", 0, earned[1])]
    groups = grouped(runs)
    assert comparable(groups) == ["returns", "worth", "rounds", "scalars"]
    axes = comparison_figure("worth", groups).axes[0]
    sent = [run.ledger.total for run in runs]
    np.testing.assert_allclose(dots(axes), np.stack([sent, earned], axis=1))
    assert_whole(axes)
    page = write_report(runs, tmp_path)[0].read_text(encoding="utf-8")
    assert "Return of the last tenth of the episodes and what was sent" in page
    assert (tmp_path / "plots" / "worth.svg").exists()


def test_a_short_axis_of_scalars_can_be_read() -> None:
    """Numbers of one decade or two stand apart, and are not powers of ten times something."""
    for rival in ("periodic", "centralised"):
        runs = [losing("fed-lsvi", 0, 5.0), losing(rival, 0, 6.0)]
        axes = comparison_figure("price", grouped(runs)).axes[0]
        axes.figure.canvas.draw()
        assert not any(text.get_text() for text in axes.get_xticklabels(minor=True))
        low, high = axes.get_xlim()
        labels = [text for text in axes.get_xticklabels() if low <= text.get_position()[0] <= high]
        assert len(labels) >= 2
        assert all("10^" not in text.get_text() for text in labels)
        boxes = [text.get_window_extent() for text in labels]
        assert all(a.x1 < b.x0 for a, b in pairwise(boxes))


def test_before_anything_was_sent_all_are_crosses() -> None:
    """Compared after as many episodes as all have, which may be before the first message."""
    late, alone = losing("coop-lsvi", 0, 5.0), losing("independent", 0, 5.0)
    assert late.records[0].last > alone.records[0].last == 1
    assert alone.regret is not None
    alone = replace(alone, records=alone.records[:1], taus=[1, 2], regret=alone.regret[:1])
    assert len(dots(comparison_figure("price", grouped([late, alone])).axes[0])) == 2


def test_what_no_theorem_bounds_is_not_set_against_bounds(tmp_path: Path) -> None:
    """Nor does an algorithm without γ, β or λ have one."""
    pages = {}
    for name in ("fed-lsvi", "centralised", "fed-ucbvi"):
        run = losing(name, 0, 5.0)
        pages[name] = write_report([run], tmp_path / name)[0].read_text(encoding="utf-8")
    assert "Rounds and traffic against the bounds" in pages.pop("fed-lsvi")
    for page in pages.values():
        assert "<h2>Rounds and traffic</h2>" in page
        assert "How often the agents synchronised.<" in page
        for words in ("the bounds", "the most possible", "theorem", "γ = "):
            assert words not in page.split("Run it again")[0], words
    assert "β = 0.5 (tapered), λ = 0.001" in pages["centralised"]
    assert "β" not in pages["fed-ucbvi"]


def test_sharing_raw_trajectories_is_part_of_the_verdict() -> None:
    """The best of those that do not share is named too."""
    runs = [losing("centralised", 0, 4.0), losing("fed-lsvi", 0, 5.0), losing("periodic", 0, 6.0)]
    text = verdict(grouped(runs))
    assert text.startswith("centralised lost least (regret, all agents: 4), but sends raw")
    assert "private, fed-lsvi lost least (5)." in text
    assert "raw" not in verdict(grouped(runs[1:]))
