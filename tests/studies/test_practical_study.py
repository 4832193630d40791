"""The study behind the practical β: its rule, on results made up for it, and one run of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from studies import practical
from studies.practical import FAMILIES, LONG, SHORT, Candidate, Result

CHEAP, SAFE = "0.1·v", "0.2·v"


def results(stuck: dict[str, int]) -> list[Result]:
    """20 instances of every family; so many long runs of "hard-chain" stick."""
    return [
        Result(family, i, T, name, 0.01 if name == CHEAP else 0.03,
               0.5 if family == "hard-chain" and T == LONG and i < often else 0.0, 50, 0.5, 0.02)
        for name, often in stuck.items()
        for family in FAMILIES
        for T in (LONG, SHORT)
        for i in range(20)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("cheap", "safe", "chosen"),
    [
        (0, 0, CHEAP),  # both stick rarely: the lower regret
        (2, 0, CHEAP),  # 10 % of a family, 1.25 % of all
        (3, 0, SAFE),  # more than 10 % of a family
        (9, 4, SAFE),  # neither keeps to the limits: the one that sticks least
        (4, 4, CHEAP),  # of these, the lower regret
    ],
)
def test_the_rule(cheap: int, safe: int, chosen: str) -> None:
    table = practical.cells(results({CHEAP: cheap, SAFE: safe}))
    assert practical.choose(table) == chosen
    assert practical.relative(table) == pytest.approx({CHEAP: 1.0, SAFE: 3.0})


def test_tables_of_what_is_there() -> None:
    made = results({CHEAP: 3, SAFE: 0})
    lines = list(practical.so_far(made[:-40], LONG))
    assert f"| hard-chain | {CHEAP} | 3 of 20 | 0.0100 | 50 | 0.5 | 2.00% |" in lines
    assert len(lines) == 2 + 2 * len(FAMILIES) - 1  # the last family of the last candidate is gone


def test_a_run_is_kept_and_not_played_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = ("n-chain", 0, 20, Candidate(0.25, taper=True))
    made = practical.play(*job)
    assert made.candidate == "0.25·v_h"
    assert 0.0 < made.regret < 2.0
    (tmp_path / "runs").write_text("")
    runs = practical.Runs(tmp_path / "runs")
    runs.found[made.key] = made
    monkeypatch.setattr(practical, "play", None)
    assert runs.get([job], 1) == [made]
