"""What travels when a cohort is taken back, by hand: H = 2, d = P = 3, two rounds missed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedlsvi.protocol.membership import Membership
from fedlsvi.protocol.messages import Layout, Model, Reply, Request, Start, Stop, Upload
from fedlsvi.remote.absentees import Absentees

H, D = 2, 3
STEP = 2 * D
"""Scalars of w and Λ, or of Λ^loc and b, at one step."""


def away() -> Absentees:
    """Cohort 1, agent 1, is lost in round 1; rounds 1 and 2 end with episodes 4 and 7."""
    carried = Absentees(Layout(2, H, D, "diagonal"), Membership(2, [(0, 1), (1, 1)]))
    carried.follow(Start(np.zeros((H, D)), np.ones((H, D)), 4.0, 1.0, 20), 0, 0)
    carried.lose(1, 1, 0, 0)
    for k, t in ((1, 4), (2, 7)):
        for h in range(H, 0, -1):
            carried.follow(Model(h, np.full(D, float(k)), np.full(D, float(t))), k, t)
    carried.due(0.0, 30.0)
    carried.answering.add(1)
    return carried


def answer(message: Request, k: int) -> tuple[bool, Reply]:
    match message:
        case Stop():
            return True, Upload(H, np.full((1, D), float(k)), np.zeros((1, D)))
        case Model(h=h) if h > 1:
            return True, Upload(h - 1, np.full((1, D), float(k)), np.zeros((1, D)))
    return True, None


def test_a_return_counts_the_start_each_stop_each_model_and_each_upload() -> None:
    carried = away()
    assert carried.take_back(1, answer) == {
        "init": H * STEP + 3, "signal": 2, "down_model": 2 * H * STEP, "up_stats": 2 * H * STEP,
    }  # fmt: skip
    assert owed(carried) == [3.0, 3.0]
    assert not carried.membership.away


def owed(carried: Absentees) -> list[float]:
    """The first entry of what each step lacks of cohort 1."""
    return [float(carried.owed[1][h].gram[0, 0]) for h in range(1, H + 1)]


@pytest.mark.parametrize("after", range(6))
def test_a_return_that_breaks_off_counts_nothing(after: int) -> None:
    """However far it came; the next one counts all."""
    carried, heard = away(), []

    def breaks_off(message: Request, k: int) -> tuple[bool, Reply]:
        heard.append(message)
        return answer(message, k) if len(heard) <= after else (False, None)

    assert not carried.take_back(1, breaks_off)
    assert list(carried.membership.away) == [1]
    carried.answering.add(1)
    assert carried.take_back(1, answer)["up_stats"] == 2 * H * STEP


def test_what_the_ledger_has_is_not_counted_again() -> None:
    """Its upload of step 2 in round 1 was accepted before it was lost."""
    carried: Any = away()
    carried.upto[1][:] = carried.counted[1][:] = [0, 4]
    travelled = carried.take_back(1, answer)
    assert travelled["up_stats"] == (2 * H - 1) * STEP
    assert owed(carried) == [1.0 + 2.0, 2.0]


def test_who_is_lost_before_its_debt_was_accepted_sends_it_uncounted() -> None:
    """It came back once, and the ledger has the uploads of both rounds; Λ has none of them."""
    carried = away()
    carried.take_back(1, answer)
    carried.lose(1, 3, 7, 7)
    carried.due(99.0, 30.0)
    carried.answering.add(1)
    assert carried.take_back(1, answer)["up_stats"] == 0
    assert owed(carried) == [3.0, 3.0]
