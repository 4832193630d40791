"""A log in the place of an environment: it has sizes, and is read instead of played."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from fedlsvi.checks import choice, integer, refuse_large
from fedlsvi.envs.allowed import tabulated_mask
from fedlsvi.envs.base import Environment, no_features, plain, units
from fedlsvi.envs.continuous import checked_mask
from fedlsvi.envs.validation import mask_table
from fedlsvi.errors import InvalidEnvironment, warn
from fedlsvi.features.base import FeatureMap
from fedlsvi.features.tabular import OneHot
from fedlsvi.logs import RECORDS, SEEN
from fedlsvi.logs.action_names import agreed_names
from fedlsvi.logs.allowed import column_masks, seen_actions, visits
from fedlsvi.logs.order import ordered_survey
from fedlsvi.logs.rows import InvalidRecord
from fedlsvi.logs.seen_features import SeenByFeature
from fedlsvi.logs.sources import Columns, Source, as_source
from fedlsvi.logs.survey import AgentSurvey, Survey
from fedlsvi.logs.transitions import Agent, Limits, Transitions, read


class LoggedWorld(Environment):
    """One agent's log. It cannot be stepped: `transitions` reads what happened.

    Attributes:
        source: The log, which may hold other agents' rows too.
        key: The agent's number or name in the log; None where all rows are its own.
        log: What there is of this agent.
        action_names: What actions are called, in the order of their numbers; None where the log
            numbers them.
        n_states, state_dim: One of them.
        fingerprint: SHA-256 of the log's rows and of whose they are.
    """

    recorded = True
    knows_values = False
    """V* is nowhere in a log."""

    stationary = True
    """Nothing in a log says that steps differ: `stationary=True` is the learner's to say."""

    def __init__(
        self, source: Source, found: Survey, key: Agent, limits: Limits, like: Any = None,
        columns: Columns | None = None,
    ) -> None:  # fmt: skip
        assert limits.horizon is not None
        assert limits.n_actions is not None
        self.source, self.key, self.limits = source, key, limits
        self.name = source.name if key is None else f"{source.name}, agent {key}"
        self.log: AgentSurvey = found.agents[key]
        self.horizon, self.n_actions = limits.horizon, limits.n_actions
        self.reward_range = limits.reward_range
        names = source.action_names
        self.action_names = None if names is None else list(names)
        self.fingerprint = found.fingerprint if key is None else f"{found.fingerprint}.{key}"
        self._probe = found.probe
        self._seen: SeenByFeature | None = None
        self.finite = limits.n_states is not None
        if limits.n_states is not None:
            self.n_states = limits.n_states
        else:
            self.state_dim = int(found.state_dim or 0)
        if like is not None:
            self.low, self.high, self.after_end = like.low, like.high, like.after_end
            self.first_observation, self.first_action = like.first_observation, like.first_action
        # without a file no name makes it again, but another log can be read in the same way
        read = {
            "horizon": self.horizon, "n_actions": self.n_actions, "n_states": limits.n_states,
            "key": key, "reward_range": list(self.reward_range),
            "columns": plain(dict(columns)) if columns else None, "action_names": self.action_names,
        }  # fmt: skip
        made = source.spec()
        known = {name: value for name, value in read.items() if value is not None}
        self.record(None if made is None else RECORDS, **(made or {}), **known)

    def seen(self, at_least: int) -> Any:
        """The actions that the log has seen at least so often in the state: (S, A), or by feature
        where states are vectors."""
        if not self.finite:
            if self._seen is None or self._seen.at_least != at_least:
                self._seen = SeenByFeature(self.source, self.key, at_least)
            return self._seen
        counts = visits(self.source, self.key, self.n_states, self.n_actions)
        return seen_actions(counts, at_least)

    def bind_features(self, features: FeatureMap) -> None:
        """What was seen often may be a matter of features, which a learner chooses."""
        if self._seen is not None:
            self._seen.bind(features)

    def allow(self, allowed: Any, at_least: int, more: Any = None) -> None:
        """Take only some actions into account: see `logged_worlds`; `more` is another mask."""
        n_states = self.n_states if self.finite else None
        masks: list[Any] = [column_masks(self.source, self.key, n_states, self.n_actions), more]
        if isinstance(allowed, str):
            choice("allowed", allowed, (SEEN,), "or give a mask", error=InvalidEnvironment)
            masks.append(self.seen(at_least))
        else:
            masks.append(allowed)
        masks = [mask for mask in masks if mask is not None]
        if n_states is None:
            self.allowed = _joined(self, masks)
        elif masks:
            size = (n_states, self.n_actions, self.horizon)
            tables = [mask_table(tabulated_mask(mask, *size), *size) for mask in masks]
            self.allowed = mask_table(reduce(np.logical_and, tables), *size)
        if self.made_with is not None and self.made_as is not None and allowed is not None:
            if callable(allowed):  # no file can hold it
                self.made_as = None
            else:
                seen = {"at_least": at_least} if isinstance(allowed, str) else {}
                self.made_with |= {"allowed": plain(allowed), **seen}

    @property
    def mean_return(self) -> float:
        """What the behaviour earned per episode, in the log's own units."""
        low, high = self.reward_range
        steps = self.log.transitions / self.log.episodes
        return low * steps + (high - low) * self.log.earned / self.log.episodes

    def original_reward(self, reward: float) -> float:
        """A reward in [0, 1] in the log's own units."""
        low, high = self.reward_range
        return low + (high - low) * reward

    def default_features(self) -> FeatureMap:
        if self.finite:
            return OneHot().bind(self)
        raise no_features(f"{self.name} has states of dimension {self.state_dim}")

    def probe(self, n: int) -> np.ndarray:
        """The log's first states."""
        return np.resize(self._probe, (n, *self._probe.shape[1:]))


def transitions_of(worlds: Sequence[LoggedWorld]) -> Iterator[tuple[int, Transitions]]:
    """The transitions of these worlds, each log read once; the number is the world's place."""
    sources: dict[int, list[int]] = {}
    for i, world in enumerate(worlds):
        sources.setdefault(id(world.source), []).append(i)
    for places in sources.values():
        wanted = {worlds[i].key: i for i in places}
        first = worlds[places[0]]
        for key, seen in read(first.source.blocks(), first.limits):
            if key in wanted:
                yield wanted[key], seen


def logged_worlds(
    data: Any,
    *,
    like: Environment | None = None,
    horizon: int | None = None,
    n_states: int | None = None,
    n_actions: int | None = None,
    reward_range: Sequence[float] | None = None,
    columns: Columns | None = None,
    allowed: Any = None,
    at_least: int = 1,
    action_names: Sequence[str] | None = None,
) -> list[LoggedWorld]:
    """The logs of all agents, checked, with the same sizes.

    Args:
        data: A path, arrays by name, a data frame or a Minari data set, with an agent column or of
            one agent; or a list of these, one for each agent.
        like: An environment whose sizes and units the log has; what is given besides wins.
        horizon: H; None is the longest episode's.
        n_states: Number of states; None is the largest one in the log plus 1.
        n_actions: Number of actions, likewise.
        reward_range: The rewards that 0 and 1 stand for.
        columns: What the columns are called in the log.
        allowed: Actions that a policy may take: booleans (S, A) or (H, S, A); a function from
            (h, states) to booleans (n, A); or "seen", those that the agent's own log has seen at
            least `at_least` times in the state. They add to the environment's own mask and to the
            log's column of that name.
        at_least: See `allowed`.
        action_names: What actions are called in the logs, in the order of their numbers; None is
            the order of the categories, or that of the words in all logs.
    """
    integer("at_least", at_least, 1, "how often a log must have taken an action")
    for name, size in (("horizon", horizon), ("n_states", n_states), ("n_actions", n_actions)):
        if size is not None:
            integer(name, size, 1)
    limits = _limits(like, horizon, n_states, n_actions, reward_range)
    many = data if isinstance(data, list | tuple) else [data]
    if not many:
        raise InvalidRecord("data is an empty list: give one log per agent", code="no-records")
    sources = [as_source(one, columns) for one in many]
    names = agreed_names(sources, action_names, limits.n_actions, like)
    if names is not None:
        limits = replace(limits, n_actions=len(names))
        for source in sources:
            source.action_names = names
    sources, found = map(list, zip(*(ordered_survey(one, limits) for one in sources), strict=True))
    if limits.n_actions is None and (least := min(one.least_action for one in found)) > 0:
        most = max(one.n_actions for one in found) - 1
        warn(
            f"the actions in the logs are numbered from {least} to {most}, and actions are counted "
            f"from 0: there are {most + 1} of them, and those below {least} were never taken. "
            f"Subtract {least} from the column; if they exist, say that there are {most + 1} "
            f"(n_actions={most + 1}, on the shell --actions {most + 1})"
        )
    if len(many) > 1 and any(list(one.agents) != [None] for one in found):
        raise InvalidRecord(
            "data is a list, but one of its logs has an agent column: give one log with all "
            "agents, or one log per agent without that column",
            code="agents-twice",
        )
    shapes = {one.state_dim for one in found}
    if len(shapes) > 1:
        raise InvalidRecord(
            f"the logs have observations with different numbers of entries, {shapes}: use the "
            "same everywhere",
            code="bad-width",
        )
    if limits.n_states is not None and found[0].n_states is None:
        limits = replace(limits, n_states=None)
        if n_states is not None:
            raise InvalidRecord(
                f"n_states is {n_states}, but observations are not whole numbers: leave it out, or "
                "number the states",
                code="not-whole",
                row=1,
            )
    agreed = _complete(limits, found)
    low, high = agreed.reward_range
    assert agreed.horizon is not None
    if agreed.n_states is not None:  # one row with a large number is enough
        pairs = agreed.n_states * (agreed.n_actions or 1)
        what = f"a log with n_states = {agreed.n_states} and n_actions = {agreed.n_actions}"
        refuse_large(what, pairs, "number them from 0 without gaps")
    logs = [own for one in found for own in one.agents.values()]
    early = any(own.ended[: agreed.horizon - 1].any() for own in logs)
    if early and not low <= 0.0 <= high:
        raise InvalidEnvironment(
            f"reward_range is ({low:g}, {high:g}), but some episodes end early and then every "
            "step has reward 0: give a range that contains 0",
            code="bad-reward_range",
        )
    worlds = [
        LoggedWorld(source, one, key, agreed, like, columns)
        for source, one in zip(sources, found, strict=True)
        for key in one.agents
    ]
    for world in worlds:
        world.allow(allowed, at_least, None if like is None else like.allowed)
    return worlds


def _limits(
    like: Environment | None,
    horizon: int | None,
    n_states: int | None,
    n_actions: int | None,
    reward_range: Sequence[float] | None,
) -> Limits:
    """What is given, and of what is not, an environment's."""
    if like is not None:
        horizon = like.horizon if horizon is None else horizon
        n_states = like.n_states if n_states is None and like.finite else n_states
        n_actions = like.n_actions if n_actions is None else n_actions
        reward_range = like.reward_range if reward_range is None else reward_range
    rewards = (0.0, 1.0) if reward_range is None else reward_range
    return Limits(horizon, n_states, n_actions, units(rewards))


def _joined(world: LoggedWorld, masks: Sequence[Any]) -> Any:
    """The function that all masks of vectors make together; None where there is none."""
    for mask in masks:
        if not callable(mask):
            raise InvalidEnvironment(
                f"the states of {world.name} are vectors: give allowed=f with f(h, states "
                "(n, s)) → booleans (n, A)",
                code="bad-allowed",
            )
    if not masks:
        return None
    return lambda h, x: checked_mask(
        world, reduce(np.logical_and, [mask(h, x) for mask in masks]), h, x
    )


def _complete(limits: Limits, found: Sequence[Survey]) -> Limits:
    """Sizes that were left out: the smallest that hold all logs."""
    finite = found[0].n_states is not None
    return replace(
        limits,
        horizon=limits.horizon or max(one.longest for one in found),
        n_actions=limits.n_actions or max(one.n_actions for one in found),
        n_states=(limits.n_states or max(one.n_states or 0 for one in found)) if finite else None,
    )


def records(
    file: str | None = None,
    minari: str | None = None,
    columns: Columns | None = None,
    key: Agent = None,
    horizon: int | None = None,
    n_states: int | None = None,
    n_actions: int | None = None,
    reward_range: Sequence[float] | None = None,
    allowed: Any = None,
    at_least: int = 1,
    action_names: Sequence[str] | None = None,
) -> LoggedWorld:
    """One agent's log, as settings files and run folders name it.

    Args:
        file: A Parquet or CSV file.
        minari: The id of a Minari data set, in place of a file.
        columns: What the columns are called in the file.
        key: The agent's number or name in a log with an agent column.
        horizon, n_states, n_actions, reward_range, allowed, at_least, action_names: See
            `logged_worlds`.
    """
    if (file is None) == (minari is None):
        raise InvalidRecord(
            "give either file or minari to name a log, not both or neither", code="bad-data"
        )
    worlds = logged_worlds(
        file if file is not None else f"minari:{minari}", horizon=horizon, n_states=n_states,
        n_actions=n_actions, reward_range=reward_range, columns=columns, allowed=allowed,
        at_least=at_least, action_names=action_names,
    )  # fmt: skip
    for world in worlds:
        if world.key == key:
            return world
    there = [world.key for world in worlds]
    raise InvalidRecord(f"the log has no agent {key}; it has {there}", code="no-agent")
