"""Which rows of the matrix are runs at all, and which the one table refuses."""

from __future__ import annotations

from typing import Any

from fedlsvi.incompatible import TABLE, Combination, Incompatibility
from matrix.covering import Row
from matrix.runs import AWAY, GAMMA, OWN, PRIVACY

OFFLINE = ("pevi", "evaluation")
SPACES = {"continuous": "continuous", "vectors": "stepped"}


def is_a_run(row: Row) -> bool:
    """Whether the values speak of one thing: a log alone is read by the two offline heads and by
    nothing else, and these neither play nor wait for anybody, so what says how agents play has no
    meaning there. The evaluation of a policy goes step by step, and knows no other setting."""
    if row.head not in OFFLINE:
        return row.source != "log"
    plays = row.diversity or row.away or row.transport == "silence"
    odd = row.head == "evaluation" and (row.exchange == "one-trip" or row.own)
    return row.source == "log" and not plays and not odd


def refusals(row: Row) -> list[Incompatibility]:
    """The rows of the table that refuse this one; the first is the one that is named."""
    here = combination(row)
    return [entry for entry in TABLE if entry.when(here)]


def combination(row: Row) -> Combination:
    """What a row combines, as the table sees it."""
    return Combination(**_given(row))


def _given(row: Row) -> dict[str, Any]:
    given: dict[str, Any] = {"aggregation": row.aggregation, "own_features": OWN * row.own}
    if row.private:
        given["privacy"] = PRIVACY
    if row.head in OFFLINE:
        return given | {"exchange": row.exchange, "allowed": "same" if row.masks else "all"}
    boxed = row.source in ("numbered", "vectors")
    return given | {
        "absent": "carry" if row.transport == "silence" else "fail",
        "gamma": "auto" if row.private else GAMMA,
        "policy": "exploit" if row.head == "exploit" else "explore",
        "exchange": row.exchange,
        "participation": AWAY["participation"] if row.away else 1.0,
        "data": row.source == "log-beside-players",
        "allowed": ("reported" if boxed else "same") if row.masks else "all",
        "state_space": SPACES.get(row.source, "finite"),
    }
