"""A block of a log's rows, with every column turned into numbers and checked for what is not one.

A log has the columns episode, step, observation, action, reward and terminated, and may have
next_observation, agent, patient, probability (that the behaviour chose this action) and allowed
(which actions it might have chosen, in A columns or one of lists). What is said in words becomes
numbers here (`labels`). Rows are counted from 1 in every message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedlsvi.logs.invalid_record import InvalidRecord as InvalidRecord
from fedlsvi.logs.labels import (
    EpisodeIds,
    flags,
    is_labelled,
    is_missing,
    is_text,
    labels,
    missing,
    moments,
    named_actions,
)

NEEDED = ("episode", "step", "observation", "action", "reward", "terminated")
KNOWN = (*NEEDED, "next_observation", "agent", "patient", "probability", "allowed")
"""Columns of a log. An observation may be several columns, observation_0, observation_1, …"""


@dataclass(frozen=True)
class Rows:
    """n rows of a log.

    Attributes:
        first: Number of the first row, from 1.
        episode: (n,) numbers of the episodes.
        step: (n,) steps within the episode, from 0 or 1.
        state: (n,) numbers of states, or (n, s) vectors.
        action: (n,) numbers of actions.
        reward: (n,) in the log's own units.
        terminated: (n,) whether the episode ended with this step.
        following: The next observations, as `state`; None where the log has none.
        agent: (n,) whose rows they are; None where all are one agent's.
        patient: (n,) who the episode is of; None where nobody says.
        probability: (n,) that the behaviour chose this action; None where it is not known.
        allowed: (n, A) the actions that it might have chosen; None where nobody says.
        row: (n,) the rows' numbers, where they are not first, first + 1, …
        dated: Whether `step` is a time, in microseconds, which only orders the rows.
        ids: What the log calls its episodes, by their numbers; None where it numbers them.
    """

    first: int
    episode: np.ndarray
    step: np.ndarray
    state: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    following: np.ndarray | None = None
    agent: np.ndarray | None = None
    patient: np.ndarray | None = None
    probability: np.ndarray | None = None
    allowed: np.ndarray | None = None
    row: np.ndarray | None = None
    dated: bool = False
    ids: list[Any] | None = None

    @property
    def numbers(self) -> np.ndarray:
        """(n,) the rows of the log, from 1."""
        return self.first + np.arange(len(self)) if self.row is None else self.row

    def called(self, i: int) -> Any:
        """What the log calls the episode of the i-th of these rows."""
        number = int(self.episode[i])
        return number if self.ids is None else self.ids[number]

    def __len__(self) -> int:
        return len(self.step)


def rows_of(
    columns: Mapping[str, Any],
    first: int,
    ids: EpisodeIds | None = None,
    action_names: Sequence[str] | None = None,
) -> Rows:
    """Rows from arrays by name; observations are given as one array, (n,) or (n, s).

    Args:
        columns: The arrays.
        first: Number of the first row.
        ids: The episodes of the blocks before this one, where they are not numbered.
        action_names: What the actions are called, in the order of their numbers.
    """
    lost = [name for name in NEEDED if name not in columns]
    if lost:
        raise InvalidRecord(
            f"the log has no column '{lost[0]}'",
            code="missing-column",
            hint=f"a log needs the columns {', '.join(NEEDED)}; if yours have other names, give "
            f"columns={{'{lost[0]}': 'NAME'}}",
            shell_hint=f"a log needs the columns {', '.join(NEEDED)}; if yours have other names, "
            f"give --column {lost[0]}=NAME",
        )
    read: dict[str, Callable[[str, Any, int], np.ndarray]] = {
        "episode": integers, "step": integers, "observation": states, "action": integers,
        "reward": numbers, "terminated": booleans, "next_observation": states, "agent": agents,
        "patient": agents, "probability": probabilities, "allowed": masks,
    }  # fmt: skip
    rest, worded = dict(columns), dict[str, Any]()
    for name in ("episode", "step", "action"):
        if is_labelled(column := np.asarray(columns[name])) and column.ndim == 1:
            worded[name] = column
            del rest[name]
    own = {"observation": "state", "next_observation": "following"}
    made = {own.get(name, name): read[name](name, rest[name], first) for name in rest}
    if "step" in worded:
        made["step"] = moments("step", worded["step"], first)
    if "action" in worded:
        made["action"] = _actions(worded["action"], action_names, first)
    n = len(made["step"])
    for name, column in made.items():
        if len(column) != n:
            raise InvalidRecord(
                f"column '{name}' has {len(column):,} rows, but 'step' has {n:,}: all columns "
                "must have the same length",
                code="ragged-columns",
            )
    if "episode" in worded:
        ids = EpisodeIds() if ids is None else ids
        made["episode"] = ids.numbers(worded["episode"], made.get("agent"), first)
    following = made.get("following")
    if following is not None and following.shape != made["state"].shape:
        raise InvalidRecord(
            f"next_observation has shape {following.shape}, but observation has "
            f"{made['state'].shape}: make them agree",
            code="bad-width",
            row=first,
        )
    names = ids.names if ids is not None and "episode" in worded else None
    return Rows(first, **made, dated="step" in worded, ids=names)


def _actions(column: np.ndarray, names: Sequence[str] | None, first: int) -> np.ndarray:
    """The numbers of actions that are named."""
    if names is not None:
        return named_actions(column, names, first)
    raise InvalidRecord(
        f"action is {column.flat[0]!r}, but nothing says in which order actions are numbered",
        code="actions-unnamed",
        row=first,
        hint="give action_names=[…], all names in order",
        shell_hint="give --actions NAME,NAME,…, all names in order",
    )


def agents(name: str, column: Any, first: int) -> np.ndarray:
    """Agents or patients, whose rows they are: whole numbers, or texts."""
    array = np.asarray(column)
    if not is_labelled(array) or array.ndim != 1:
        return integers(name, array, first)
    return np.array([str(value) for value in labels(name, array, first)])


def numbers(name: str, column: Any, first: int) -> np.ndarray:
    """A column of finite numbers, float (n, …)."""
    array = _array(name, column, first)
    if name == "reward" and array.ndim == 1 and is_text(array):
        array = flags(name, array, first)
    if array.dtype.kind not in "biuf":
        for i, value in enumerate(array):
            if array.ndim == 1 and is_missing(value):
                raise missing(name, first + i)
            if not isinstance(value, int | float | np.number):
                raise InvalidRecord(
                    f"{name} is {value!r}: give a number", code="not-a-number", row=first + i
                )
    array = array.astype(np.float64)
    finite = np.isfinite(array)
    if not finite.all():
        bad = int(np.argwhere(~finite)[0][0])
        value = array[bad] if array.ndim == 1 else array[bad][~finite[bad]][0]
        raise InvalidRecord(
            f"{name} is {value}: give a finite number, or leave the episode out",
            code="not-finite",
            row=first + bad,
        )
    return array


def integers(name: str, column: Any, first: int) -> np.ndarray:
    """A column of whole numbers, int64 (n,)."""
    array = np.asarray(column)
    if array.dtype.kind not in "iu":
        array = numbers(name, column, first)
        wrong = array != np.floor(array)
        if wrong.any():
            bad = int(np.flatnonzero(wrong)[0])
            raise InvalidRecord(
                f"{name} is {array[bad]:g}: give a whole number", code="not-whole", row=first + bad
            )
    if array.ndim != 1:
        raise InvalidRecord(
            f"{name} has shape {array.shape}: give one number per row", code="bad-width", row=first
        )
    return array.astype(np.int64)


def states(name: str, column: Any, first: int) -> np.ndarray:
    """Observations: int64 (n,) where they are whole numbers, else float (n, s)."""
    array = _array(name, column, first)
    if array.dtype.kind in "iu" and array.ndim == 1:
        return array.astype(np.int64)
    array = numbers(name, array, first)
    return np.ascontiguousarray(array.reshape(len(array), -1))


def booleans(name: str, column: Any, first: int) -> np.ndarray:
    """A column of true and false, bool (n,); 0 and 1, yes and no will do."""
    array = np.asarray(column)
    if array.dtype.kind == "b":
        return array
    array = flags(name, array, first) if is_text(array) else numbers(name, array, first)
    wrong = (array != 0.0) & (array != 1.0)
    if wrong.any():
        bad = int(np.flatnonzero(wrong)[0])
        raise InvalidRecord(
            f"{name} is {array[bad]:g}: give true or false", code="not-boolean", row=first + bad
        )
    found: np.ndarray = array == 1.0
    return found


def probabilities(name: str, column: Any, first: int) -> np.ndarray:
    """A column of numbers in (0, 1]: an action that was taken had a chance."""
    array = numbers(name, column, first)
    wrong = (array <= 0.0) | (array > 1.0)
    if wrong.any():
        bad = int(np.flatnonzero(wrong)[0])
        raise InvalidRecord(
            f"{name} is {array[bad]:g}: give the probability with which the action was chosen, "
            "above 0 and at most 1",
            code="bad-probability",
            row=first + bad,
        )
    return array


def masks(name: str, column: Any, first: int) -> np.ndarray:
    """Allowed actions, bool (n, A), one of which at least is allowed in each row."""
    array = _array(name, column, first)
    array = numbers(name, array, first) if array.dtype.kind != "b" else array
    if array.ndim != 2:
        raise InvalidRecord(
            f"{name} has shape {array.shape}: give one column per action, {name}_0, {name}_1, "
            "…, or a column of lists",
            code="bad-width",
            row=first,
        )
    wrong = ((array != 0) & (array != 1)).any(axis=1)
    if wrong.any():
        bad = int(np.flatnonzero(wrong)[0])
        raise InvalidRecord(
            f"{name} is {array[bad].tolist()}: give 0 and 1", code="not-boolean", row=first + bad
        )
    found = array.astype(bool)
    if not found.any(axis=1).all():
        bad = int(np.flatnonzero(~found.any(axis=1))[0])
        raise InvalidRecord(
            f"{name} allows no action: allow at least the one that was taken",
            code="no-action",
            row=first + bad,
        )
    return found


def _array(name: str, column: Any, first: int) -> np.ndarray:
    """The column as an array; a list of vectors becomes (n, s)."""
    try:
        array = np.asarray(column)
    except ValueError:
        array = np.empty(0)
    first_value = array.ravel()[0] if array.dtype == object and array.size else None
    ragged = isinstance(first_value, list | np.ndarray)
    if ragged or (array.size == 0 and len(column) > 0):
        widths = [np.size(value) for value in column]
        bad = next((i for i, width in enumerate(widths) if width != widths[0]), None)
        if bad is not None:
            raise InvalidRecord(
                f"{name} has {widths[bad]} numbers, but the previous row has {widths[bad - 1]}: "
                "give the same number in all rows",
                code="bad-width",
                row=first + bad,
            )
        try:
            array = np.array([np.asarray(value, np.float64) for value in column])
        except (TypeError, ValueError):  # lists of lists, of words, or with gaps
            raise InvalidRecord(
                f"{name} has a list with entries that are not numbers: give lists of numbers, all "
                "of the same length",
                code="not-a-number",
                row=first,
            ) from None
    return array
