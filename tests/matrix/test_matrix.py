"""Every feature beside every other: a covering array of all axes. A row runs and equals its
reference, or the one table of incompatibilities refuses it.

What a row is compared with, one step at a time, down to the literal code:

    over frames      the same in process, to the last bit
    silence          what the server has of each agent: every episode once
    secure sums      exact sums, to the last bit
    exact sums       sums of doubles, up to the rounding of fixed point
    privacy          the same without it on the same schedule of rounds, where the noise is zero
    own coefficients of features that are zero    none, up to rounding
    one trip, sums of doubles, all else    Algorithms 1 and 2 line by line; PEVI and evaluation so

Rows hold every three values that can be together, where CI is set every four. The secret of the
noise is fixed: two ways to run must add the same.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from agreement import assert_agrees, assert_close
from expecting import refused
from fedlsvi.core.private_release import PrivateRelease
from fedlsvi.errors import InvalidSetting
from fedlsvi.privacy import noise
from fedlsvi.protocol import one_trip, protected
from fedlsvi.remote import site_noise
from literal_evaluation import literal_value
from literal_pevi import pevi
from lossy import check_increments
from matrix.covering import AXES, Row, apart, covering, every_row, pairs
from matrix.lawful import combination, is_a_run, refusals
from matrix.runs import (
    BETA,
    LAM,
    H,
    M,
    evaluated,
    literal,
    literal_exploit,
    run,
    source,
    transports,
)
from repeats import repeats

RUNS = [row for row in every_row() if is_a_run(row)]
LAWFUL = [row for row in RUNS if not refusals(row)]
REFUSED = apart(RUNS, LAWFUL, lambda row: len(refusals(row)))


@pytest.fixture(autouse=True)
def one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every party draws its noise from the same secret, so that runs can be compared."""
    for module in (protected, site_noise):
        monkeypatch.setattr(module, "new_noise_key", lambda: bytes(range(32)))


ran = cache(run)
"""References are shared by rows."""


def simpler(row: Row) -> Row | None:
    """The row with which this one is compared; None where only the literal code is left."""
    if row.transport != "inprocess":
        return row._replace(transport="inprocess")
    if row.own:
        return row._replace(own=False)
    if row.private or row.aggregation == "float":
        return None
    return row._replace(aggregation="exact" if row.aggregation == "secure" else "float")


def results(row: Row) -> dict[str, Any]:
    """What must be the same however a run is carried out."""
    return results_of(row, ran(row))


def results_of(row: Row, mine: Any) -> dict[str, Any]:
    if row.head == "evaluation":
        return {"value": np.array([mine.value, mine.value + mine.unseen])}
    named = {"w": mine.w, "gram": mine.gram}
    if row.head == "exploit":
        named["policy_w"] = mine.policy_w
    if mine.regret is not None:
        named["regret"] = mine.regret
    return named | {"taus": np.array(mine.taus)}


@cache
def check(row: Row) -> None:
    """A row is its reference, and that is its own."""
    mine = results(row)
    assert all(np.isfinite(array).all() for array in mine.values())
    below = simpler(row)
    if row.transport == "silence":
        run = ran(row)
        transport = transports[id(run.plan)]
        assert any("taken back" in note for record in run.records for note in record.notes)
        check_increments(transport, run.plan)
        return
    if below is not None:
        rounded = row.transport == "inprocess" and row.aggregation == "exact"
        for name, array in results(below).items():
            if row.own and name == "regret" and row.transport == "frames":
                continue  # nobody there knows all policies
            if (row.own and not below.own) or rounded:
                assert_close(mine[name], array, f"{name} of {row}", 1e-6)
            elif row.head == "evaluation":  # sums of passes in frames are of another order
                assert_close(mine[name], array, f"{name} of {row}")
            else:
                assert mine[name].tobytes() == array.tobytes(), f"{name} of {row}"
        check(below)
    elif row.private:
        check_without_noise(row, mine)
    elif row.head == "evaluation":
        check_evaluation(row, mine["value"])
    elif row.head == "pevi":
        check_pevi(row)
    else:
        advice = ran(row).policies if row.source in ("table", "log-beside-players") else None
        expected = literal(row, advice)
        assert_agrees(ran(row), expected)
        if row.head == "exploit":
            assert_close(mine["policy_w"], literal_exploit(row, expected), "last pass", 1e-8)


def check_without_noise(row: Row, noisy: dict[str, Any]) -> None:
    """Where noise is zero, and nothing makes up for it, privacy is a schedule of rounds."""
    with pytest.MonkeyPatch.context() as patch:
        silence(patch)
        silent = results_of(row, run(row))
    plain = results_of(row, run(row._replace(private=False), on_schedule=True))
    for name, array in plain.items():
        assert_close(silent[name], array, f"{name} of {row}, without noise", 1e-4)
    key = "value" if row.head == "evaluation" else "w"
    assert not np.allclose(noisy[key], plain[key], rtol=0.0, atol=1e-3), "there was no noise"


def silence(patch: pytest.MonkeyPatch) -> None:
    """No noise, no larger eigenvalues for it, and no values without their mean."""
    zeros = lambda key, label, like, *_: np.zeros(like.size, np.int64)  # noqa: E731
    patch.setattr(noise, "discrete_gaussian", zeros)
    patch.setattr(noise, "randomly_rounded", zeros)
    patch.setattr(PrivateRelease, "gram_norm", lambda *_: 0.0)
    patch.setattr(one_trip, "constant_direction", lambda values: np.zeros(values.dim))


def check_evaluation(row: Row, value: np.ndarray) -> None:
    made, taught = source(row.source, row.masks, row.stationary), evaluated(row.masks)
    phi = lambda x, a: made.phi[x, a]  # noqa: E731
    about = (made.options["data"], taught.policy.table, phi, H, made.phi.shape[2], LAM)
    expected = [literal_value(*about, row.stationary, most=most) for most in (False, True)]
    assert_close(value, np.array(expected), f"value of {row}")


def check_pevi(row: Row) -> None:
    made = source(row.source, row.masks, row.stationary)
    phi, (_, n_actions, d) = lambda x, a: made.phi[x, a], made.phi.shape
    which = [made.allowed] * M if made.allowed else None
    w, gram, best = pevi(
        made.options["data"], phi, n_actions, H, d, LAM, BETA, 0.0, row.stationary, which
    )
    mine = ran(row)
    assert_close(mine.w, w, f"w of {row}")
    assert_close(mine.gram, gram, f"Λ of {row}")
    states = np.arange(len(made.phi))
    for h in range(1, H + 1):
        assert mine.policy.actions(h, states).tolist() == [best(h, x)[0] for x in states]


@pytest.mark.parametrize("row", covering(LAWFUL, repeats(3, 4)), ids=str)
def test_a_lawful_row_equals_its_reference(row: Row) -> None:
    check(row)


@pytest.mark.parametrize("row", sorted(set(REFUSED.values())), ids=str)
def test_what_never_goes_together_is_refused_by_the_table(row: Row) -> None:
    code = refusals(row)[0].error(combination(row)).code
    with refused(InvalidSetting, code):
        run(row)


def test_every_pair_is_covered_or_refused() -> None:
    chosen = {pair for row in covering(LAWFUL) for pair in pairs(row)}
    assert chosen == {pair for row in LAWFUL for pair in pairs(row)}
    assert chosen.isdisjoint(REFUSED)
    assert {pair for row in RUNS for pair in pairs(row)} == chosen | set(REFUSED)
    assert {value for row in RUNS for value in row._asdict().items()} == {
        (name, value) for name, values in AXES.items() for value in values
    }
