"""The table of settings that cannot be combined."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from fedlsvi import FedLSVI
from fedlsvi.errors import InvalidSetting
from fedlsvi.incompatible import TABLE, Combination, Incompatibility, refuse

EXAMPLES: dict[str, tuple[Any, ...]] = {
    "gamma": ("anytime", 2.0), "cap": (2.0,), "overshoot": ("keep",), "min_round": (2,),
    "rounds": (3,), "scalars": (100_000,), "policy": ("exploit",),
    "aggregation": ("float", "secure"), "exchange": ("one-trip",), "participation": (0.5,),
    "present": ([[0, 1, 9]],), "privacy": ({"epsilon": 1.0, "delta": 1e-6},),
    "own_features": (2,), "data": (True,), "by_mail": (True,), "warm_start": (True,),
    "allowed": ("same", "differ", "reported"),
    "state_space": ("continuous",), "absent": ("exclude", "carry"),
    "refused": ("exclude",), "suspicious": ("exclude",), "trigger": ("own",),
}  # fmt: skip
"""Values with which a setting may be in the way of another."""


@pytest.mark.parametrize("row", TABLE, ids=lambda row: " with ".join(row.settings))
def test_each_name_of_a_row_can_be_in_the_way(row: Incompatibility) -> None:
    """And nothing is refused where only one side of the row is set."""
    first, second = (names.split("|") for names in row.settings)
    refused = set()
    for a, b in product(first, second):
        for here, there in product(EXAMPLES[a], EXAMPLES[b]):
            run = Combination(**{a: here, b: there})
            if row.when(run):
                refused |= {a, b}
                assert row.error(run).code == row.codes.get(b, row.code)
    assert refused == {*first, *second}
    for name in first:
        if name != "privacy" or row.code != "privacy-needs-integers":  # that is with the default
            assert not any(row.when(Combination(**{name: value})) for value in EXAMPLES[name])


def test_there_are_at_most_twelve_rows() -> None:
    assert len(TABLE) <= 12


def test_nothing_is_refused_by_default() -> None:
    refuse(FedLSVI(4).settings)
    refuse(FedLSVI(4, preset="paper").settings)


def test_the_error_shows_what_was_given() -> None:
    with pytest.raises(InvalidSetting, match=r"aggregation=\"secure\" and participation=0\.5"):
        FedLSVI(4, aggregation="secure", participation=0.5)
