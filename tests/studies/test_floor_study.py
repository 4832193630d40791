"""The study of the floor: what one run says, and that its table can be made."""

from __future__ import annotations

import pytest

from fedlsvi import FedLSVI
from fedlsvi.experiments.runner import uniform
from studies import floor


def test_the_table_has_a_row_for_every_floor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(floor, "EPISODES", 60)
    monkeypatch.setattr(floor, "FLOORS", (1, 20))
    monkeypatch.setattr(floor, "FAMILIES", {"garnet": floor.FAMILIES["garnet"]})
    floor.main(1)
    rows = [[cell.strip() for cell in row.split("|")[1:-1]]
            for row in capsys.readouterr().out.splitlines()[2:]]  # fmt: skip
    assert [row[1] for row in rows] == ["none", "20"]
    env = floor.FAMILIES["garnet"](0)
    runs = [FedLSVI(8, min_round=n).learn(env, 60, 0, progress=False) for n in (1, 20)]
    whole = uniform([env], 8, 60)
    assert whole is not None
    regret = [float(run.regret[-1]) / whole for run in runs if run.regret is not None]
    assert [row[2] for row in rows] == [f"{value:.3f}" for value in regret]
    assert rows[1][3] == f"{(regret[1] - regret[0]) * 60 / 20:.1f}"
    assert [row[6] for row in rows] == [str(run.rounds) for run in runs]
    assert [int(row[7]) for row in rows] == [min(r.length for r in run.records) for run in runs]
