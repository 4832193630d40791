"""What a player's methods must return, checked in every run: segments, models, parties.

Authors of algorithms read these messages; each says what to change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba import njit

from fedlsvi.checks import integer, is_integer
from fedlsvi.config import Parameters
from fedlsvi.errors import InvalidInput


@dataclass(frozen=True)
class Segment:
    """The episodes that one call of `advance` played. Each segment gives one record.

    Attributes:
        last: The last episode that was played.
        rounds: How many rounds ended.
        triggers: Who ended the last round, as (agent, step); step 0 is the end of the budget.
        signals: How many agents signalled.
    """

    last: int
    rounds: int = 1
    triggers: list[tuple[int, int]] = field(default_factory=list)
    signals: int = 0


def check_segment(name: str, segment: Any, t: int, p: Parameters) -> None:
    """Refuse what `advance` of algorithm `name` must not return after episode t."""
    if not isinstance(segment, Segment):
        raise InvalidInput(
            f"{name}: advance() returned {_shown(segment)}: it must return a Segment whose `last` "
            "is the last episode played",
            code="bad-segment",
        )
    where = f"in the Segment that advance() of {name} returned"
    integer("last", segment.last, t + 1, where, most=p.episodes, error=InvalidInput)
    integer("rounds", segment.rounds, 0, where, error=InvalidInput)
    integer("signals", segment.signals, 0, where, error=InvalidInput)
    given = segment.triggers
    for pair in given if isinstance(given, list) else [given]:
        if not _is_trigger(pair, p):
            raise InvalidInput(
                f"{name}: advance() returned the trigger {_shown(pair)}: triggers is a list of "
                f"(agent, step), agents 0 … {p.n_agents - 1}, steps 1 … {p.horizon} or 0 for the "
                "end of the budget",
                code="bad-triggers",
            )


def check_model(name: str, model: Any, w: np.ndarray, gram: np.ndarray) -> None:
    """Refuse a model that `report` must not return: other shapes than w and Λ, or not finite."""
    if not isinstance(model, tuple | list) or len(model) != 2:
        raise InvalidInput(
            f"{name}: report() must return (w, Λ), or None, got {_shown(model)}", code="bad-model"
        )
    for what, array, like in (("w", model[0], w), ("Λ", model[1], gram)):
        if not isinstance(array, np.ndarray) or array.shape != like.shape:
            raise InvalidInput(
                f"{name}: report() returned {what} as {_shown(array)}: it must be an array of "
                f"shape {like.shape}",
                code="bad-model-shape",
            )
        if array.dtype.kind not in "biuf" or not _finite(array.ravel()):
            raise InvalidInput(
                f"{name}: report() returned {what} with entries that are not finite numbers: "
                "return the model that the policy comes from",
                code="model-not-finite",
            )


def check_parties(name: str, parties: Any) -> None:
    """Refuse parties that cannot be saved and restored."""
    if not isinstance(parties, dict):
        raise InvalidInput(
            f"{name}: parties() returned {_shown(parties)}: it must return a dict of all objects "
            "with state, by name, or {} if there are none",
            code="bad-parties",
        )
    for key, party in parties.items():
        for method in ("state", "restore"):
            if not callable(getattr(party, method, None)):
                raise InvalidInput(
                    f"{name}: parties() names '{key}', a {type(party).__name__} without "
                    f"{method}(): define state(), which returns its arrays by name, and "
                    "restore(arrays), which puts them back",
                    code="party-without-state",
                )


def party_states(name: str, parties: dict[str, Any]) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """The arrays that each party adds to a checkpoint."""
    check_parties(name, parties)
    for key, party in parties.items():
        state = party.state()
        arrays = state.values() if isinstance(state, dict) else [None]
        if not all(isinstance(a, np.ndarray) and a.dtype.kind in "biuf" for a in arrays):
            raise InvalidInput(
                f"{name}: state() of party '{key}' must return a dict of numeric arrays; write a "
                "number x as np.array([x])",
                code="bad-party-state",
            )
        yield key, state


class Stateless:
    """A party that has nothing to save: what it knows comes from the others again."""

    def state(self) -> dict[str, np.ndarray]:
        """No arrays."""
        return {}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Nothing to put back."""


@njit(cache=True, nogil=True)
def _finite(numbers):  # type: ignore[no-untyped-def]
    """`np.isfinite(numbers).all()` at a tenth of the cost: rounds may be very short."""
    for x in numbers:  # noqa: SIM110
        if not np.isfinite(x):
            return False
    return True


def _is_trigger(pair: Any, p: Parameters) -> bool:
    """Whether a trigger names an agent and a step that exist."""
    try:
        m, h = pair
    except (TypeError, ValueError):
        return False
    return is_integer(m) and 0 <= m < p.n_agents and is_integer(h) and 0 <= h <= p.horizon


def _shown(value: Any) -> str:
    """A value, shortened."""
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    shown = repr(value)
    return shown if len(shown) <= 40 else f"{shown[:40]}…"
