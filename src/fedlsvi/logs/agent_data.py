"""The data of each agent: who plays, and which log each of them brings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedlsvi.checks import plural
from fedlsvi.envs.allowed import restrict
from fedlsvi.envs.base import Environment
from fedlsvi.envs.gym.convert import as_environment
from fedlsvi.logs import SEEN

if TYPE_CHECKING:
    from fedlsvi.logs.sources import Columns
    from fedlsvi.logs.world import LoggedWorld

    Logs = tuple[LoggedWorld | None, ...]
"""One log for each agent, or None for one that has none; empty where nobody has."""


def worlds_and_logs(
    env: Any,
    data: Any,
    n_agents: int,
    columns: Columns | None = None,
    allowed: Any = None,
    at_least: int = 1,
    **given: Any,
) -> tuple[Any, Logs]:
    """The environments, one for all agents or a list, and the logs.

    Args:
        env: As `learn` takes it. In a list, None stands for an agent that has a log and nothing to
            play in; so does a log itself, in the place of an environment.
        data: A log with an agent column, or a list with a log or None for each agent; None where
            the logs are among the environments, or nowhere.
        n_agents: M.
        columns: What the columns are called in the logs.
        allowed: As in `as_environment`; or "seen": an agent plays only actions that its own log has
            seen at least `at_least` times in the state. One without a log plays any.
        at_least: See `allowed`.
        **given: What `as_environment` takes besides.
    """
    seen = isinstance(allowed, str) and allowed == SEEN
    places = list(env) if isinstance(env, list | tuple) else None
    among = sum(_is_log(one) for one in places or ())
    if data is None and not seen and among in (0, len(places or ())):  # all play, or nobody does
        return as_environment(env, allowed=allowed, **given), ()
    from fedlsvi.logs.rows import InvalidRecord

    if seen and data is None:
        raise InvalidRecord(
            f'allowed is "{SEEN}", but there is no log to count actions in: give data=',
            code="no-records",
        )
    given["allowed"] = None if seen else allowed
    if places is None:
        world = as_environment(env, **given)
        places = list(world) if isinstance(world, list | tuple) else [world] * n_agents
    elif raw := _others(places):
        places = _filled(places, as_environment(raw, **given))
    if len(places) != n_agents:
        raise InvalidRecord(
            f"env is a list of {len(places)}, but n_agents is {n_agents}: give one per agent, and "
            "None for an agent that has only a log",
            code="wrong-number-of-environments",
        )
    playing = _others(places)
    if not playing:
        raise InvalidRecord(
            "no agent has an environment to play in: to learn from logs alone, use pevi",
            code="needs-world",
        )
    logs = _logs(data, places, playing[0], n_agents, columns)
    for m, (one, log) in enumerate(zip(places, logs, strict=True)):
        if one is None and log is None:
            raise InvalidRecord(
                f"agent {m} has neither an environment nor a log: give one of them",
                code="nothing-to-learn-from",
            )
    if seen:
        places = [
            one if one is None or log is None else restrict(one, log.seen(at_least))
            for one, log in zip(places, logs, strict=True)
        ]
        for log in logs:
            if log is not None:
                log.allow(SEEN, at_least, log.allowed)
    worlds: list[Any] = [log if one is None else one for one, log in zip(places, logs, strict=True)]
    shared = all(one is worlds[0] for one in worlds)
    return worlds[0] if shared else worlds, logs


def _is_log(one: Any) -> bool:
    return isinstance(one, Environment) and one.recorded


def _other(one: Any) -> bool:
    return one is not None and not _is_log(one)


def _others(places: Sequence[Any]) -> list[Any]:
    """Those that are neither missing nor logs."""
    return [one for one in places if _other(one)]


def _filled(places: Sequence[Any], made: Sequence[Any]) -> list[Any]:
    """The places with what was made of `_others`, in order."""
    found = iter(made)
    return [next(found) if _other(one) else one for one in places]


def _logs(
    data: Any, places: Sequence[Any], like: Environment, n_agents: int, columns: Columns | None
) -> Logs:
    """The log of each agent; what stands in the place of an environment is one already."""
    from fedlsvi.logs.rows import InvalidRecord
    from fedlsvi.logs.world import logged_worlds

    own: list[LoggedWorld | None] = [one if _is_log(one) else None for one in places]
    if data is None:
        return tuple(own)
    many = list(data) if isinstance(data, list | tuple) else [data]
    read = _others(many)
    made: Sequence[Any] = ()
    if read:
        made = logged_worlds(read if len(read) > 1 else read[0], like=like, columns=columns)
    one_table = len(many) == 1 and len(read) == 1  # with an agent column, or of one agent
    many = list(made) if one_table else _filled(many, made)
    if len(many) != n_agents:
        raise InvalidRecord(
            f"there are logs for {plural(len(many), 'agent')}, but n_agents is {n_agents}: give "
            "one per agent, and None for an agent without a log",
            code="wrong-number-of-logs",
        )
    for m, (log, before) in enumerate(zip(many, own, strict=True)):
        if log is not None and before is not None and log is not before:
            raise InvalidRecord(
                f"agent {m} has one log in env and another in data: give only one",
                code="two-logs",
            )
        own[m] = before if log is None else log
    return tuple(own)
