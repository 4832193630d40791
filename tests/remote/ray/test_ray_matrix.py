"""Rows of the matrix on Ray: the same bits as in one process."""

from __future__ import annotations

from typing import Any

import pytest

from matrix.covering import Row, covering, every_row
from matrix.lawful import is_a_run, refusals
from matrix.runs import run
from repeats import only_ci

# actors draw their own noise, and an evaluation has no run
ROWS = [
    row for row in every_row()
    if is_a_run(row) and not refusals(row) and not row.private and row.head != "evaluation"
]  # fmt: skip
CHOSEN = [row for row in covering(ROWS) if row.transport == "frames"][:4]


def outcome(row: Row) -> tuple[Any, ...]:
    made = run(row)
    last = None if made.policy_w is None else made.policy_w.tobytes()
    return made.taus, made.w.tobytes(), made.gram.tobytes(), last


@only_ci
@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("row", CHOSEN, ids=str)
def test_a_row_on_ray(row: Row) -> None:
    here = outcome(row._replace(transport="inprocess"))
    assert outcome(row._replace(transport="ray")) == here
