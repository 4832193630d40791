"""Which number an action has where logs have words for it: the same at every agent.

The order is that of `action_names`, of the categories of a data frame, or of all words that any of
the logs has. One log alone cannot tell whether others have words that it lacks, so a site of a
federation, and a log beside an environment that numbers its actions, need the names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedlsvi.checks import plural
from fedlsvi.logs.rows import InvalidRecord
from fedlsvi.logs.sources import ActionNames, Source

ON_SHELL = "give --actions NAME,NAME,…, all names in the order of their numbers"


def agreed_names(
    sources: Sequence[Source], given: Any, n_actions: int | None, like: Any = None
) -> list[str] | None:
    """The names of actions in the order of their numbers; None where logs number them.

    Args:
        sources: The logs.
        given: `action_names`.
        n_actions: How many there must be, where that is known.
        like: An environment that numbers the same actions.
    """
    if given is not None:
        return checked_names(given, n_actions)
    found = [source.names_in_log() for source in sources]
    named = [names for names in found if names is not None]
    if not named:
        return None
    if len(named) < len(found):
        raise InvalidRecord(
            "some logs number their actions and others have words for them: use one of the two",
            code="actions-mixed",
        )
    if like is not None:
        raise InvalidRecord(
            f"the logs have words for actions, {_some(named[0].names)}, which the environment "
            "numbers",
            code="actions-unnamed",
            hint="read them with logged_worlds(data, like=env, action_names=[…]), all names in the "
            "order of the environment's numbers",
            shell_hint=ON_SHELL,
        )
    names = _joined(named)
    if n_actions is not None and n_actions != len(names):
        raise InvalidRecord(
            f"n_actions is {n_actions}, but the logs have words for {len(names)}, {_some(names)}",
            code="actions-unnamed",
            hint="give action_names=[…], all names in the order of their numbers",
            shell_hint=ON_SHELL,
        )
    return list(names)


def _joined(named: Sequence[ActionNames]) -> tuple[str, ...]:
    """The order of the categories, which must be the same in all logs that have any; else that of
    the words in all logs."""
    orders = {one.names for one in named if one.ordered}
    if len(orders) > 1:
        first, second = sorted(orders)[:2]
        raise InvalidRecord(
            f"the logs have their actions in different categories, {_some(first)} and "
            f"{_some(second)}",
            code="actions-disagree",
            hint="give action_names=[…], all names in the order of their numbers",
            shell_hint=ON_SHELL,
        )
    if orders:
        return orders.pop()
    words = {name for one in named for name in one.names}
    return in_order(words)


def checked_names(given: Any, n_actions: int | None) -> list[str]:
    """`action_names`, one for each action.

    Args:
        given: What was given.
        n_actions: How many there must be, where that is known.
    """
    names = list(given) if isinstance(given, list | tuple) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise InvalidRecord(f"action_names is {given!r}: give a list of texts",
                            code="bad-action_names")  # fmt: skip
    if len(set(names)) < len(names):
        raise InvalidRecord(f"action_names has a name twice, {_some(names)}: give each once",
                            code="bad-action_names")  # fmt: skip
    if n_actions not in (None, len(names)):
        raise InvalidRecord(
            f"action_names has {plural(len(names), 'name')}, but n_actions is {n_actions}: make "
            "them agree",
            code="bad-action_names",
        )
    return names


def in_order(words: set[str]) -> tuple[str, ...]:
    """As words are sorted; where all are numbers that were written as words, as numbers."""
    numbered = all(word.isdecimal() for word in words)
    return tuple(sorted(words, key=int) if numbered else sorted(words))


def numbered(names: Sequence[str]) -> str:
    """0 = none, 1 = low, …"""
    return ", ".join(f"{a} = {name}" for a, name in enumerate(names))


def _some(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names[:5]) + ", …" * (len(names) > 5)
