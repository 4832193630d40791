"""What a session's own methods give, checked in every run: stretches, models, parties, policies.

Whoever writes an algorithm meets these sentences; each says what to change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba import njit

from fedlsvi.config import Parameters
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.errors import InvalidInput


@dataclass(frozen=True)
class Stretch:
    """What `advance` played: episodes up to `last`, `rounds` rounds, and who ended the last one."""

    last: int
    rounds: int = 1
    triggers: list[tuple[int, int]] = field(default_factory=list)
    signals: int = 0


def check_stretch(name: str, done: Any, t: int, p: Parameters) -> None:
    """What `advance` gave after episode t."""
    if not isinstance(done, Stretch):
        raise InvalidInput(
            f"{name}: advance() returned {_shown(done)}: it must return a Stretch, whose last is "
            "the last episode that was played"
        )
    if not _whole(done.last, t + 1, p.episodes):
        raise InvalidInput(
            f"{name}: advance() returned Stretch(last={done.last!r}): last must be an integer from "
            f"{t + 1} to {p.episodes}, the last episode that was played"
        )
    for what, value in (("rounds", done.rounds), ("signals", done.signals)):
        if not _whole(value, 0):
            raise InvalidInput(
                f"{name}: advance() returned Stretch({what}={value!r}): {what} must be an integer "
                "of at least 0"
            )
    for pair in done.triggers if isinstance(done.triggers, list) else [done.triggers]:
        if not _fires(pair, p):
            raise InvalidInput(
                f"{name}: advance() returned the trigger {_shown(pair)}: triggers is a list of "
                f"(agent, step), agents 0 … {p.n_agents - 1}, steps 1 … {p.horizon} or 0 for the "
                "end of the budget"
            )


def check_model(name: str, model: Any, w: np.ndarray, gram: np.ndarray) -> None:
    """What `report` gave: a model of the shapes of w and Λ, and finite."""
    if not isinstance(model, tuple | list) or len(model) != 2:
        raise InvalidInput(f"{name}: report() must return (w, Λ), or None, got {_shown(model)}")
    for what, array, like in (("w", model[0], w), ("Λ", model[1], gram)):
        if not isinstance(array, np.ndarray) or array.shape != like.shape:
            raise InvalidInput(
                f"{name}: report() returned {what} as {_shown(array)}: it must be an array of "
                f"shape {like.shape}"
            )
        if array.dtype.kind not in "biuf" or not _finite(array.ravel()):
            raise InvalidInput(
                f"{name}: report() returned {what} with entries that are not finite numbers: "
                "return the model that the policy comes from"
            )


def check_parties(name: str, parties: Any) -> None:
    """What `parties` gave: everyone in it can be saved and put back."""
    if not isinstance(parties, dict):
        raise InvalidInput(
            f"{name}: parties() returned {_shown(parties)}: it must return a dict of whoever holds "
            "state, by name; {} where nobody does"
        )
    for key, party in parties.items():
        for method in ("state", "restore"):
            if not callable(getattr(party, method, None)):
                raise InvalidInput(
                    f"{name}: parties() names '{key}', a {type(party).__name__} without "
                    f"{method}(): state() returns its arrays by name, and restore(arrays) puts "
                    "them back"
                )


def states(name: str, parties: dict[str, Any]) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """What every party gives to a checkpoint."""
    check_parties(name, parties)
    for key, party in parties.items():
        state = party.state()
        arrays = state.values() if isinstance(state, dict) else [None]
        if not all(isinstance(a, np.ndarray) and a.dtype.kind in "biuf" for a in arrays):
            raise InvalidInput(
                f"{name}: state() of party '{key}' must return a dict of arrays of numbers; "
                "a number x is np.array([x])"
            )
        yield key, state


def fits(policy: Any, shape: tuple[int, ...]) -> bool:
    """Whether it is a table of integers of this shape."""
    return isinstance(policy, np.ndarray) and policy.shape == shape and policy.dtype.kind in "iu"


def unfit(policy: Any, env: FiniteMDP) -> str:
    """What is wrong with a table that is no policy of the environment."""
    if np.shape(policy) != (env.horizon, env.n_states):
        found = f"has shape {np.shape(policy)}"
    elif not fits(policy, np.shape(policy)):
        found = f"has entries of type {np.asarray(policy).dtype}"
    else:
        found = f"names actions from {np.min(policy)} to {np.max(policy)}"
    return (
        f"the policy {found}: it must be an integer array of shape (H, S) = "
        f"{(env.horizon, env.n_states)} with actions 0 … {env.n_actions - 1}"
    )


@njit(cache=True, nogil=True)
def _finite(numbers):  # type: ignore[no-untyped-def]
    """`np.isfinite(numbers).all()`, at a tenth of its price: rounds may be very short."""
    for x in numbers:  # noqa: SIM110
        if not np.isfinite(x):
            return False
    return True


def _fires(pair: Any, p: Parameters) -> bool:
    """Whether a trigger names an agent and a step that exist."""
    try:
        m, h = pair
    except (TypeError, ValueError):
        return False
    return _whole(m, 0, p.n_agents - 1) and _whole(h, 0, p.horizon)


def _whole(value: Any, least: int, most: float = np.inf) -> bool:
    whole = type(value) is int or isinstance(value, np.integer)
    return whole and least <= value <= most


def _shown(value: Any) -> str:
    """A value in a few words."""
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    shown = repr(value)
    return shown if len(shown) <= 40 else f"{shown[:40]}…"
