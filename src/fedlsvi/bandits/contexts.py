"""What callers of a bandit give, checked: contexts, rewards, sites, masks and labels of arms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedlsvi.checks import integer, is_integer
from fedlsvi.core.statistics import read_only
from fedlsvi.errors import InvalidInput


def names_of(X: Any) -> np.ndarray | None:
    """The columns of a data frame whose names are words; None elsewhere."""
    columns = getattr(X, "columns", None)
    if columns is None or not all(isinstance(name, str) for name in columns):
        return None
    return np.array(list(columns), object)


def refuse_names(learner: Any, names: np.ndarray | None) -> None:
    """Refuse a data frame whose columns are not those that were learned from."""
    seen = getattr(learner, "feature_names_in_", None)
    if names is not None and seen is not None and list(names) != list(seen):
        raise InvalidInput(
            "The feature names should match those that were passed during fit: "
            f"got {', '.join(names)}, expected {', '.join(seen)}",
            code="bad-contexts",
        )


def checked_contexts(X: Any, least: int = 0) -> np.ndarray:
    """Contexts (n, d) or (n, K, d) in doubles."""
    if hasattr(X, "toarray"):
        raise _bad("X is a sparse matrix: give X.toarray()")
    try:
        given = np.asarray(X)
        if given.dtype.kind == "c":
            raise _bad("Complex data not supported: X must be real")
        rows = np.ascontiguousarray(given, np.float64)
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise _bad(f"X must be numbers: {error}") from None
    if rows.ndim not in (2, 3):
        raise _bad(
            f"Expected 2D array, got {rows.ndim}D array instead: X is (n, d), or (n, K, d) with a "
            "row for each arm. Reshape your data with X.reshape(1, -1) if it is one context"
        )
    if len(rows) < least:
        raise _bad(f"X has 0 sample(s) (shape={rows.shape}) while a minimum of 1 is required.")
    if rows.shape[-1] == 0:
        raise _bad(f"X has 0 feature(s) (shape={rows.shape}) while a minimum of 1 is required.")
    if not np.isfinite(rows).all():
        raise _bad("X contains NaN or infinity: replace it by a finite number")
    return rows


def checked_rewards(reward: Any, n: int) -> np.ndarray:
    """(n,) rewards in doubles."""
    if reward is None:
        return np.ones(n)
    rewards = np.asarray(reward, np.float64)
    if rewards.shape != (n,) or not np.isfinite(rewards).all():
        raise InvalidInput(
            f"reward has shape {rewards.shape}: give {n} finite numbers, one for each row of X",
            code="bad-reward",
        )
    return np.ascontiguousarray(rewards)


def checked_sites(site: Any, n: int, n_sites: int) -> np.ndarray:
    """(n,) numbers of sites."""
    if is_integer(site):
        where = integer("site", site, 0, "sites are numbered from 0", most=n_sites - 1,
                        error=InvalidInput)  # fmt: skip
        return np.full(n, where)
    sites = np.asarray(site)
    whole = sites.dtype.kind in "iu" and sites.shape == (n,)
    if not whole or (n and not (sites.min() >= 0 and sites.max() < n_sites)):
        raise InvalidInput(
            f"site must be a number from 0 to {n_sites - 1}, or one for each of {n} rows",
            code="bad-site",
        )
    return sites.astype(np.int64)


def checked_mask(allowed: Any, shape: tuple[int, ...]) -> np.ndarray:
    """(n, K) which arms may be taken."""
    if allowed is None:
        return np.ones(shape, bool)
    mask = np.asarray(allowed)
    if mask.dtype != bool or mask.shape not in (shape, shape[1:]):
        raise InvalidInput(
            f"allowed must be booleans of shape {shape[1:]} or {shape}, got {mask.dtype} of shape "
            f"{mask.shape}",
            code="bad-allowed",
        )
    mask = np.broadcast_to(mask, shape)
    if not mask.any(axis=1).all():
        raise InvalidInput("allowed leaves no arm in some row: allow one", code="bad-allowed")
    return mask


class Arms:
    """Labels of arms, in the order in which they came.

    Args:
        given: How many, their labels, or None.
    """

    def __init__(self, given: Any) -> None:
        if is_integer(given):
            given = range(integer("arms", given, 1))
        self._labels: list[Any] = []
        self._index()
        for label in () if given is None else given:
            self.append(label)

    def __len__(self) -> int:
        return len(self._labels)

    def __contains__(self, label: Any) -> bool:
        return plain(label) in self._places

    @property
    def labels(self) -> np.ndarray:
        """(K,) as an array to read: of numbers, of words, or of objects."""
        return self._array

    def _as_array(self) -> np.ndarray:
        kinds = {type(label) for label in self._labels}
        if kinds <= {int} or kinds <= {str} or kinds <= {float}:
            return np.array(self._labels) if kinds else np.empty(0, np.int64)
        array = np.empty(len(self._labels), object)
        array[:] = self._labels
        return array

    def append(self, label: Any) -> None:
        """A new arm."""
        label = plain(label)
        if label in self._places:
            raise InvalidInput(f"two arms are called {label!r}", code="bad-arm")
        self._labels.append(label)
        self._index()

    def remove(self, label: Any) -> None:
        """An arm that goes."""
        self._labels.pop(self.position(label))
        self._index()

    def _index(self) -> None:
        self._places = {label: i for i, label in enumerate(self._labels)}
        self._array = read_only(self._as_array())

    def position(self, label: Any) -> int:
        """Where an arm is in the order."""
        try:
            return self._places[plain(label)]
        except (KeyError, TypeError):
            known = ", ".join(map(repr, self._labels[:10]))
            raise InvalidInput(
                f"there is no arm {label!r}: give one of {known}, or call add_arm first",
                code="bad-arm",
            ) from None

    def positions(
        self, action: Any, n: int, add: Callable[[Any], None] | None = None
    ) -> np.ndarray:
        """(n,) places of actions; `add` makes arms of labels that are new."""
        if action is None:
            raise InvalidInput(
                "This estimator requires y to be passed, but the target y is None: give the arm "
                "that was taken in each row",
                code="bad-action",
            )
        actions = np.asarray(action)
        if actions.shape == (n, 1):
            actions = actions[:, 0]
        if actions.shape != (n,):
            raise InvalidInput(
                f"action has shape {actions.shape}: give the arm that was taken in each of {n} "
                "rows",
                code="bad-action",
            )
        if actions.dtype.kind == "f" and not np.isfinite(actions).all():
            raise InvalidInput("action contains NaN or infinity: give labels", code="bad-action")
        labels, places = np.unique(actions, return_inverse=True)
        for label in labels:
            if add is not None and label not in self:
                add(label)
        found = np.array([self.position(label) for label in labels], np.int64)
        return found[places]


def plain(label: Any) -> Any:
    """A label of NumPy as one of Python."""
    return label.item() if isinstance(label, np.generic) else label


def _bad(message: str) -> InvalidInput:
    return InvalidInput(message, code="bad-contexts")
