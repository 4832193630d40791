"""`privacy={…}` of a run: what may be spent, on whom, and what else has to be set for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedlsvi.checks import WORD, boolean, choice, integer, number, refuse_unknown
from fedlsvi.errors import InvalidSetting

UNITS = ("episode", "user")

PRIVATE_ROUNDS = 33
"""N where rounds= is left out; studies/private.py compared others."""

FIRST_SHARE = 200
"""The first round has at least one in so many of all episodes: shorter ones would be all noise."""


def check_privacy(table: Any, n_agents: int) -> dict[str, Any]:
    """The table with every key, checked.

    Args:
        table: What was given: epsilon, delta, and optionally unit, episodes_per_user, colluders,
            public_features.
        n_agents: M.
    """
    if not isinstance(table, Mapping):
        raise InvalidSetting(
            f"privacy must be a table, got {table!r}: write "
            'privacy={"epsilon": 1.0, "delta": 1e-6}',
            code="bad-privacy",
        )
    given = dict(table)
    names = ("epsilon", "delta", "unit", "episodes_per_user", "colluders", "public_features")
    refuse_unknown("key of privacy", given, names)
    for name in ("epsilon", "delta"):
        if name not in given:
            raise InvalidSetting(
                f"privacy has no {name}: give epsilon and delta", code=f"bad-{name}"
            )
    epsilon = number("epsilon", given["epsilon"], 0.0, "1 is strong, 10 is weak", strict=True)
    hint = "much smaller than 1 / the number of users"
    delta = number("delta", given["delta"], 0.0, hint, most=1.0, strict=True)
    unit = choice("unit", given.get("unit", "episode"), UNITS)
    if unit == "user" and "episodes_per_user" not in given:
        raise InvalidSetting(
            'unit="user" protects all episodes of a user, so it needs an upper bound on their '
            "number: give episodes_per_user",
            code="bad-episodes_per_user",
        )
    hint, many = 'more than 1 needs unit="user"', WORD - 1 if unit == "user" else 1
    each = given.get("episodes_per_user", 1)
    each = integer("episodes_per_user", each, 1, hint, most=many)
    public = boolean("public_features", given.get("public_features", False),
                     "True says that fitted features were made from public states")  # fmt: skip
    most = max(0, n_agents - 2)
    hint = "at least two sites must be honest, or the masks hide nothing"
    colluders = integer("colluders", given.get("colluders", min(1, most)), 0, hint, most=most)
    return {
        "epsilon": epsilon,
        "delta": delta,
        "unit": unit,
        "episodes_per_user": each,
        "colluders": colluders,
    } | ({"public_features": True} if public else {})


def check_users(privacy: Mapping[str, Any], n_agents: int, episodes: int) -> None:
    """Refuse a δ that would allow to publish one user's data outright."""
    users = max(1, n_agents * episodes // privacy["episodes_per_user"])
    if privacy["delta"] * users >= 1.0:
        raise InvalidSetting(
            f"delta is {privacy['delta']:g} with {users:,} units: a delta of 1/{users:,} or more "
            "would allow the data of one unit to be published unprotected; give a smaller delta",
            code="bad-delta",
        )
