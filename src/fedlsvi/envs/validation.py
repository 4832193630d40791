"""Checks of the arrays that make an MDP: each error names field, place, value and the fix."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedlsvi.checks import integer, plural
from fedlsvi.errors import InvalidEnvironment

TOLERANCE = 1e-9
"""How far a sum, a norm or a bound may be off through rounding."""

STEPPED = ("h", "x", "a", "x'")
"""Names of the axes of arrays per step; steps are 1-based in messages."""


def place(index: Any, axes: tuple[str, ...]) -> str:
    """'h=2, x=0, a=1' for an index into an array with these axes."""
    return ", ".join(
        f"{axis}={int(i) + (axis == 'h')}" for axis, i in zip(axes, index, strict=False)
    )


def as_array(field: str, value: Any) -> np.ndarray:
    """A contiguous float64 copy of an array of numbers; or the array itself, where it is such a one
    and nobody can write into it."""
    if type(value) is np.ndarray and value.dtype == np.float64:
        has = value.flags
        if has.c_contiguous and has.owndata and not has.writeable:
            return value
    try:
        if np.iscomplexobj(value):
            raise TypeError  # NumPy would drop the imaginary part
        return np.array(value, dtype=np.float64, order="C")
    except (TypeError, ValueError, OverflowError):
        raise InvalidEnvironment(
            f"{field} must be an array of numbers, got {type(value).__name__} "
            "with ragged, complex or non-numeric entries: give a rectangular array of floats",
            code=f"bad-{field}",
        ) from None


def check_finite(field: str, array: np.ndarray, axes: tuple[str, ...]) -> None:
    """Refuse NaN and infinity."""
    bad = ~np.isfinite(array)
    if bad.any():
        index = tuple(np.argwhere(bad)[0])
        raise InvalidEnvironment(
            f"{field}[{place(index, axes)}] is {array[index]}: give a finite number",
            code=f"bad-{field}",
        )


def snapped(
    field: str, array: np.ndarray, axes: tuple[str, ...], upper: float, fix: str
) -> np.ndarray:
    """The array, clipped to [0, upper]; entries further out than rounding errors are refused. It
    is copied only where there is something to clip: rewards of all transitions are many."""
    check_finite(field, array, axes)
    bad = (array < -TOLERANCE) | (array > upper + TOLERANCE)
    if bad.any():
        index = tuple(np.argwhere(bad)[0])
        raise InvalidEnvironment(
            f"{field}[{place(index, axes)}] is {array[index]:.10g}{fix}",
            code="bad-" + field.strip("⟨⟩").removeprefix("phi, "),
        )
    inside = array.size == 0 or (array.min() >= 0.0 and array.max() <= upper)
    return array if inside else array.clip(0.0, upper)


def check_laws(field: str, array: np.ndarray, axes: tuple[str, ...]) -> None:
    """Refuse rows (last axis) that are not probability laws; good ones are left as they are."""
    check_finite(field, array, axes)
    if (array < 0.0).any():
        index = tuple(np.argwhere(array < 0.0)[0])
        raise InvalidEnvironment(
            f"{field}[{place(index, axes)}] is {array[index]:.10g}, a negative probability: "
            "make every entry at least 0",
            code=f"bad-{field}",
        )
    sums = array.sum(axis=-1)
    bad = np.abs(sums - 1.0) > TOLERANCE
    if bad.any():
        index = tuple(np.argwhere(bad)[0])
        raise InvalidEnvironment(
            f"{field}[{place(index, axes)}] sums to {sums[index]:.10g}, not 1: "
            "divide the row by its sum, in float64",
            code=f"bad-{field}",
        )


def count(field: str, value: Any, minimum: int = 1, most: int = 2**63 - 1) -> int:
    """An integer of at least `minimum` and at most `most`, by default what fits 64 bits."""
    return integer(field, value, minimum, most=most, error=InvalidEnvironment)


def fraction(field: str, value: Any, *, zero: bool = False) -> float:
    """A number in (0, 1], or in [0, 1] with `zero`."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidEnvironment(
            f"{field} must be a number, got {value!r}", code=f"bad-{field}"
        ) from None
    if not (number <= 1.0 and (number > 0.0 or (zero and number == 0.0))):
        raise InvalidEnvironment(
            f"{field} must lie in {'[0, 1]' if zero else '(0, 1]'}, got {value}",
            code=f"bad-{field}",
        )
    return number


def horizon_of(given: int | None, lengths: dict[str, int]) -> int:
    """H from `horizon=` and the leading axes of the arrays; a length of 1 means stationary."""
    horizon = None if given is None else count("horizon", given)
    source = "horizon"
    for field, length in lengths.items():
        if length == 1:
            continue
        if horizon is None:
            horizon, source = length, field
        elif length != horizon:
            raise InvalidEnvironment(
                f"{field} has {plural(length, 'step')}, but {source} says {horizon}: make them "
                "agree",
                code="bad-horizon",
            )
    if horizon is None:
        raise InvalidEnvironment(
            "horizon is required when transitions and rewards are stationary: give horizon=H",
            code="missing-horizon",
        )
    return horizon


def transitions(P: Any) -> np.ndarray:
    """P as (1 or H, S, A, S), checked row by row."""
    array = as_array("P", P)
    if array.ndim not in (3, 4) or 0 in array.shape or array.shape[-3] != array.shape[-1]:
        raise InvalidEnvironment(
            f"P has shape {array.shape}: give (S, A, S), or (H, S, A, S) with one table per step",
            code="bad-P",
        )
    check_laws("P", array, STEPPED[4 - array.ndim :])
    return array if array.ndim == 4 else array[None]


def rewards(
    r: Any, n_states: int, n_actions: int, steps: set[int], P_is_stepped: bool
) -> np.ndarray:
    """r as (1 or H, S, A), or (1 or H, S, A, S) where it depends on the next state.

    `steps` holds the horizon where it is already known. With S = A = H the shapes (H, S, A) and
    (S, A, S) are the same: whoever gives P an axis of steps means one in r too, and otherwise a
    guess would be wrong half of the time.
    """
    array = as_array("r", r)
    pair, triple = (n_states, n_actions), (n_states, n_actions, n_states)
    per_pair = array.ndim == 2 and array.shape == pair
    per_step = array.ndim == 3 and array.shape[0] > 0 and array.shape[1:] == pair
    per_transition = array.shape == triple
    if per_step and per_transition and steps and not (steps & {array.shape[0]}):
        per_step = False
    if per_step and per_transition and n_states > 1 and not P_is_stepped:
        raise InvalidEnvironment(
            f"r of shape {array.shape} may be (H, S, A) or (S, A, S): "
            "give P as (H, S, A, S) for the first, or r as (1, S, A, S) for the second",
            code="ambiguous-r",
        )
    full = array.ndim == 4 and array.shape[0] > 0 and array.shape[1:] == triple
    if not (per_pair or per_step or per_transition or full):
        raise InvalidEnvironment(
            f"r has shape {array.shape}, but P has {plural(n_states, 'state')} and "
            f"{plural(n_actions, 'action')}: "
            f"give r as {pair}, {triple}, or either with a leading axis of H steps",
            code="bad-r",
        )
    axes = STEPPED[:3] if per_step else STEPPED[1:3] if per_pair else STEPPED[4 - array.ndim :]
    fix = ", outside [0, 1]: shift and scale the rewards into [0, 1]"
    array = snapped("r", array, axes, 1.0, fix)
    return array if per_step or full else array[None]


def initial_laws(initial: Any, n_states: int) -> np.ndarray:
    """The laws of the first state, (entries, S); agent m uses entry m mod entries."""
    if isinstance(initial, str):
        if initial != "uniform":
            raise InvalidEnvironment(
                f"initial is '{initial}': give a state or a distribution, or one of these per "
                "agent, or 'uniform'",
                code="bad-initial",
            )
        return np.full((1, n_states), 1.0 / n_states)
    try:
        given = np.asarray(initial)
    except ValueError:  # ragged
        given = as_array("initial", initial)
    if given.dtype.kind in "iu" and given.ndim <= 1 and given.size:
        states = np.atleast_1d(given)
        bad = (states < 0) | (states >= n_states)
        if bad.any():
            m = int(np.flatnonzero(bad)[0])
            raise InvalidEnvironment(
                f"initial[agent={m}] is state {states[m]}: give a state from 0 to {n_states - 1}",
                code="bad-initial",
            )
        point_masses: np.ndarray = np.eye(n_states)[states]
        return point_masses
    laws = as_array("initial", initial)
    if laws.ndim not in (1, 2) or laws.shape[-1] != n_states or 0 in laws.shape:
        raise InvalidEnvironment(
            f"initial has shape {laws.shape}: give a state, a distribution of length {n_states}, "
            f"a list of states, or distributions of shape (agents, {n_states})",
            code="bad-initial",
        )
    check_laws("initial", np.atleast_2d(laws), ("agent", "x"))
    return np.atleast_2d(laws)


def mask_table(value: Any, n_states: int, n_actions: int, horizon: int) -> np.ndarray:
    """Allowed actions as booleans (1 or H, S, A), of which every state has one."""
    table = np.asarray(value)
    shape = (n_states, n_actions)
    numbers = table.dtype.kind in "iuf" and bool(np.isin(table, (0, 1)).all())
    if table.shape not in (shape, (1, *shape), (horizon, *shape)) or not (
        table.dtype.kind == "b" or numbers
    ):
        raise InvalidEnvironment(
            f"allowed has shape {table.shape} and type {table.dtype}: give true and false, or 0 "
            f"and 1, of shape (S, A) = {shape} or (H, S, A) = {(horizon, *shape)}",
            code="bad-allowed",
        )
    mask = np.ascontiguousarray(table.reshape(-1, *shape), np.bool_)
    if not mask.any(axis=2).all():
        h, x = (int(i) for i in np.argwhere(~mask.any(axis=2))[0])
        step = f" at step {h + 1}" if len(mask) > 1 else ""
        raise InvalidEnvironment(
            f"allowed has no action for state {x}{step}: allow at least one, even where no action "
            "has an effect",
            code="no-action",
        )
    return mask
