"""Which actions a log allows: those of its column `allowed`, or those that it has seen often.

Both are tables (S, A) of one agent's log. A state that the log does not know allows everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.logs.rows import InvalidRecord, Rows
from fedlsvi.logs.sources import Source
from fedlsvi.logs.transitions import Agent


def seen_actions(counts: np.ndarray, at_least: int) -> np.ndarray:
    """The actions that were taken often enough in a state, bool (S, A).

    Where none was, those that were taken most often are allowed; in a state that was never seen,
    all of them: a mask must allow something, and nothing is known there.

    Args:
        counts: (S, A) how often each action was taken in each state, at any step.
        at_least: How often is often enough.
    """
    mask: np.ndarray = counts >= at_least
    rare = ~mask.any(axis=1)
    mask[rare] = counts[rare] == counts[rare].max(axis=1, keepdims=True)
    return mask


def visits(source: Source, key: Agent, n_states: int, n_actions: int) -> np.ndarray:
    """(S, A) how often an agent's log has each action in each state."""
    counts = np.zeros(n_states * n_actions, np.int64)
    for rows, chosen in _own_rows(source, key):
        pair = rows.state[chosen] * n_actions + rows.action[chosen]
        counts += np.bincount(pair, minlength=len(counts))
    return counts.reshape(n_states, n_actions)


def column_masks(
    source: Source, key: Agent, n_states: int | None, n_actions: int
) -> np.ndarray | None:
    """The masks (S, A) of an agent's log by its column `allowed`; None where it has none."""
    table, known = np.ones((n_states or 1, n_actions), bool), np.zeros(n_states or 1, bool)
    for rows, chosen in _own_rows(source, key):
        if rows.allowed is None:
            return None
        if n_states is None:
            raise InvalidRecord(
                "the column 'allowed' works only where states are numbered: leave it out, and "
                "give a function allowed(h, states)",
                code="needs-finite-states",
            )
        _check_rows(rows, n_actions)
        at, state, masks = np.flatnonzero(chosen), rows.state[chosen], rows.allowed[chosen]
        # the first row of a state says what is allowed there, and all others the same
        new, place = np.unique(state, return_index=True)
        fresh = ~known[new]
        table[new[fresh]], known[new[fresh]] = masks[place[fresh]], True
        apart = (table[state] != masks).any(axis=1)
        if apart.any():
            bad = int(np.flatnonzero(apart)[0])
            raise InvalidRecord(
                f"state {state[bad]} allows different actions here than in an earlier row: "
                "include in the observation what the mask depends on",
                code="mask-not-of-state",
                row=int(rows.numbers[at[bad]]),
            )
    return table


def _check_rows(rows: Rows, n_actions: int) -> None:
    """Masks have an entry for each action, and what was done was allowed."""
    assert rows.allowed is not None
    if rows.allowed.shape[1] != n_actions:
        raise InvalidRecord(
            f"allowed has {rows.allowed.shape[1]} entries, but there are "
            f"{plural(n_actions, 'action')}: give one entry per action",
            code="bad-width",
            row=int(rows.numbers[0]),
        )
    taken = rows.allowed[np.arange(len(rows)), rows.action]
    if not taken.all():
        bad = int(np.flatnonzero(~taken)[0])
        raise InvalidRecord(
            f"action {rows.action[bad]} was taken but is not allowed: correct the row, or leave "
            "the episode out",
            code="action-not-allowed",
            row=int(rows.numbers[bad]),
        )


def _own_rows(source: Source, key: Agent) -> Iterator[tuple[Rows, Any]]:
    """The blocks of a log, each with which of its rows are the agent's."""
    for rows in source.blocks():
        if len(rows):
            every = np.ones(len(rows), bool)
            yield rows, every if key is None or rows.agent is None else rows.agent == key
