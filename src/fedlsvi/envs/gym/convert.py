"""Gymnasium in: an id, an `EnvSpec` or a factory becomes an environment of this package.

An environment that knows its own transition table (toy text, ICU-Sepsis) becomes a finite MDP with
exact values; any other one is stepped as a black box (`GymWorld`). Either way rewards are mapped
from reward_range = (low, high) into [0, 1], and an episode that ends early stays in an absorbing
state that pays the image of 0, so that

    return in the environment's own units = low·H + (high − low)·value.

Gymnasium is an extra and is imported when it is first needed.
"""

from __future__ import annotations

import pickle
import reprlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fedlsvi.checks import choice, integer
from fedlsvi.envs.allowed import restrict
from fedlsvi.envs.base import Environment, comes_back, plain
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.gym.action_masks import known_masks, tells_masks
from fedlsvi.envs.gym.contract import (
    check_calls,
    check_kind,
    check_range,
    check_spaces,
    stated_range,
)
from fedlsvi.envs.gym.ids import (
    IDS,
    POOL,
    find_spec,
    ids_like,
    is_registered,
    looks_like_id,
    make_copy,
)
from fedlsvi.envs.gym.observed import observed_range
from fedlsvi.envs.gym.tables import Tables, read_tables
from fedlsvi.envs.gym.world import GymWorld, Maker
from fedlsvi.errors import FedLSVIError, InvalidEnvironment, UnknownName

REGISTERED = "gymnasium"
"""Name of the registry's row."""


MASKS = ("env", "all")
"""Whose masks hold, where none are given."""

TOLD = np.empty((0, 0), bool)
"""In place of masks: infos tell them."""

CLIP = "clip"
"""The reward range that random play shows; what lies outside is clipped."""


class GymMDP(FiniteMDP):
    """A Gymnasium environment that knows its own table, as a finite MDP."""

    maker: Maker | None = None
    """How copies of the environment itself are made, to play a policy in them."""
    step_range: tuple[float, float]
    """The range of rewards as it was asked for."""

    def __init__(
        self,
        tables: Tables,
        horizon: int,
        reward_range: tuple[float, float],
        name: str,
        clip: bool = False,
        allowed: np.ndarray | None = None,
    ) -> None:
        low, high = reward_range
        seen = tables.reward_range
        if not clip and (seen[0] < low or seen[1] > high):
            raise InvalidEnvironment(
                f"reward_range is ({low:g}, {high:g}), but the rewards of {name} go from "
                f"{seen[0]:g} to {seen[1]:g}: leave it out, widen it, or give clip_rewards=True",
                code="reward-out-of-range",
            )
        shifted = tables.rewards - low  # may be large: the rest is done in place
        shifted /= high - low
        np.clip(shifted, 0.0, 1.0, out=shifted)
        if shifted.ndim == 3:
            shifted.shape = (1, *shifted.shape)  # never mistaken for rewards per step
        for array in (tables.P, shifted):  # so they are not copied again
            array.setflags(write=False)
        super().__init__(
            tables.P, shifted, horizon=horizon, initial=tables.initial, name=name, allowed=allowed
        )
        self.reward_range = (low, high)
        self.first_observation, self.first_action = tables.first_observation, tables.first_action

    def __getstate__(self) -> dict[str, Any]:
        """Without its maker where that cannot be pickled: the table is the environment."""
        state = dict(self.__dict__)
        try:
            pickle.dumps(self.maker)
        except (pickle.PicklingError, AttributeError, TypeError):
            del state["maker"]
        return state


class Options(NamedTuple):
    """How to read a Gymnasium environment; see `as_environment`."""

    horizon: int | None
    reward_range: Sequence[float] | str | None
    kwargs: dict[str, Any]
    tables: bool
    repeat: int = 1
    clip_rewards: bool = False
    allowed: Any = None
    actions: int | Sequence[int] | None = None

    def decisions(self, steps: int | None) -> int | None:
        """H where none is given: a time limit in steps, in decisions of `repeat` steps each."""
        return None if steps is None else -(-steps // self.repeat)


def gymnasium(
    id: str = "FrozenLake-v1",
    horizon: int | None = None,
    reward_range: Sequence[float] | str | None = None,
    kwargs: dict[str, Any] | None = None,
    tables: bool = True,
    repeat: int = 1,
    clip_rewards: bool = False,
    allowed: str | None = None,
    actions: int | Sequence[int] | None = None,
) -> Environment:
    """The environment of a Gymnasium id.

    Args:
        id: The id; "package:Name-v0" imports the package first.
        horizon: H, in decisions; the spec's max_episode_steps, divided by `repeat`, if left out.
        reward_range: (low, high) of the rewards of a step; read off the table where there is one,
            else (0, 1). "clip" takes what some random episodes pay, and clips.
        kwargs: Arguments for `gymnasium.make`.
        tables: False steps the environment even where it knows its own table.
        repeat: Steps for which an action is held; their rewards add up.
        clip_rewards: Clip a reward outside the range, and count it, instead of refusing it.
        allowed: "env" takes only the actions that the environment itself allows; None or "all"
            takes any.
        actions: How many points of each dimension of a Box of actions may be chosen: a number, or
            one for each dimension.
    """
    options = dict(kwargs or {})
    asked = Options(horizon, reward_range, options, tables, repeat, clip_rewards, allowed, actions)
    given = _checked(asked)
    env = _from_spec(find_spec(id), given)
    if id.startswith(f"{POOL}:") and given.repeat == 1 and given.actions is None:
        from fedlsvi.envs.gym.envpool_ids import PooledCopies

        assert isinstance(env, GymWorld)  # no table of a pool is known
        env.copies = PooledCopies
    if comes_back(options):  # else no file can hold them: the environment has no record
        made: dict[str, Any] = {"horizon": env.horizon, "reward_range": list(env.step_range)}
        if given.repeat > 1:
            made["repeat"] = given.repeat
        if given.clip_rewards:
            made["clip_rewards"] = True
        if given.allowed is not None:
            made["allowed"] = given.allowed
        if given.actions is not None:
            made["actions"] = plain(given.actions)
        env.record(REGISTERED, id=id, **made, kwargs=plain(options), tables=tables)
    return env


def _checked(given: Options) -> Options:
    """The options, with what "clip" stands for written out."""
    if type(given.clip_rewards) is not bool:
        raise InvalidEnvironment(
            f"clip_rewards is {given.clip_rewards!r}: give True or False", code="bad-clip_rewards"
        )
    hint = "1 chooses an action at every step"
    times = integer("repeat", given.repeat, 1, hint, error=InvalidEnvironment)
    clipped = given.clip_rewards or given.reward_range == CLIP
    allowed = given.allowed
    if isinstance(allowed, str):
        allowed = choice("allowed", allowed, MASKS, error=InvalidEnvironment)
        allowed = None if allowed == "all" else allowed
    if given.actions is not None:
        from fedlsvi.envs.gym.actions import checked_actions

        given = given._replace(actions=checked_actions(given.actions))
    return given._replace(repeat=times, clip_rewards=clipped, allowed=allowed)


def _from_spec(spec: Any, given: Options) -> GymMDP | GymWorld:
    H = given.decisions(spec.max_episode_steps) if given.horizon is None else given.horizon
    return _wrap(partial(make_copy, spec, given.kwargs), spec.id, H, given)


def as_environment(
    env: Any,
    *,
    horizon: int | None = None,
    reward_range: Sequence[float] | str | None = None,
    kwargs: dict[str, Any] | None = None,
    tables: bool = True,
    repeat: int = 1,
    clip_rewards: bool = False,
    allowed: Any = None,
    actions: int | Sequence[int] | None = None,
) -> Any:
    """Turn whatever `learn` takes as `env` into an environment.

    Args:
        env: An environment of this package, its registered name, a Gymnasium id ("package:Name-v0"
            imports the package first), an `EnvSpec`, a function that makes a Gymnasium environment,
            or a list with one of these per agent.
        horizon: H, for Gymnasium environments.
        reward_range: (low, high) of the rewards, for Gymnasium environments; or "clip".
        kwargs: Arguments for `gymnasium.make` or for the function.
        tables: False steps the environment even where it knows its own table.
        repeat: Steps for which an action is held, for Gymnasium environments.
        clip_rewards: Clip rewards outside the range and count them, likewise.
        allowed: "env" takes only the actions that a Gymnasium environment itself allows, "all" any.
            For environments of this package a mask, as in `fedlsvi.envs.restrict`: it is added to
            their own.
        actions: Points of each dimension of a Box of actions, for Gymnasium environments: a number,
            or one for each dimension. `MultiDiscrete` actions are numbered without it.

    Returns:
        An `Environment`; a list of them where a list was given.
    """
    asked = Options(
        horizon, reward_range, dict(kwargs or {}), tables, repeat, clip_rewards, allowed, actions
    )
    given = _checked(asked)
    if given.allowed is not None and not isinstance(given.allowed, str):
        made = as_environment(env, **given._replace(allowed=None)._asdict() | {"kwargs": kwargs})
        many = made if isinstance(made, list) else [made]
        masked = {id(one): restrict(one, given.allowed) for one in many}
        return [masked[id(one)] for one in made] if many is made else masked[id(made)]
    if isinstance(env, Sequence) and not isinstance(env, str):
        return _for_agents(env, given)
    if isinstance(env, Environment):
        sizes = {"horizon": horizon, "reward_range": reward_range, "kwargs": kwargs}
        _refuse_options(env, **sizes, **_extra(given))
        return env
    if isinstance(env, str):
        return _by_name(env, given)
    ready = not isinstance(env, type)  # a class is a function that makes its instances
    if ready and hasattr(env, "entry_point") and hasattr(env, "id"):  # an EnvSpec
        if not is_registered(env):
            return _from_spec(env, given)
        H = given.decisions(env.max_episode_steps) if horizon is None else horizon
        kept = given._replace(horizon=H, kwargs=dict(env.kwargs) | given.kwargs)
        return gymnasium(env.id, *kept)
    if ready and hasattr(env, "unwrapped") and hasattr(env, "step"):
        check_kind(env)
        if getattr(env, "spec", None) is None:
            raise InvalidEnvironment(
                f"env is a single {type(env.unwrapped).__name__}, but every agent needs its own "
                "copies: give a function that makes one, env=lambda: ...",
                code="single-environment",
            )
        return as_environment(env.spec, **given._asdict())
    if callable(env):
        return _from_factory(env, given)
    raise InvalidEnvironment(
        f"env is {reprlib.repr(env)}: give an environment of fedlsvi.envs, a Gymnasium id or "
        "EnvSpec, a function that makes an environment, or a list with one of these per agent",
        code="bad-env",
    )


def _extra(given: Options) -> dict[str, Any]:
    """What else was asked of a Gymnasium environment; None where it was not."""
    return {"repeat": None if given.repeat == 1 else given.repeat,
            "clip_rewards": given.clip_rewards or None, "allowed": given.allowed,
            "actions": given.actions}  # fmt: skip


def _for_agents(env: Sequence[Any], given: Options) -> list[Any]:
    """One environment for each agent. All learn one model, so that a reward has to be the same
    number for all: where none is given, they share the smallest range that holds all of theirs."""
    made: list[tuple[Any, Any]] = []
    asked = given._asdict() | {"kwargs": given.kwargs or None}  # what is made already takes none
    for one in env:  # agents that name the same thing share it
        same = [e for o, e in made if o is one or (isinstance(one, str) and o == one)]
        made.append((one, same[0] if same else as_environment(one, **asked)))
    envs = [e for _, e in made]
    ours = given.reward_range in (None, CLIP) and all(
        isinstance(e, GymMDP | GymWorld) and e is not one for one, e in made
    )
    if ours and len({e.reward_range for e in envs}) > 1:
        low, high = zip(*(e.step_range for e in envs), strict=True)
        return _for_agents(env, given._replace(reward_range=(min(low), max(high))))
    return envs


def _by_name(name: str, given: Options) -> Environment:
    from fedlsvi.envs import registry

    name = IDS.get(name, name)  # one of ours, by its Gymnasium id: no need to go through Gymnasium
    if name in registry.names():
        sizes: dict[str, Any] = {"horizon": given.horizon, "reward_range": given.reward_range}
        sizes |= _extra(given)
        row = registry.entry(name)
        known = set(sizes) if row.takes_anything() else row.parameters().keys() & sizes
        taken = {key: sizes.pop(key) for key in known if sizes[key] is not None}
        env = registry.make(name, **{**given.kwargs, **taken})
        _refuse_options(env, **sizes)
        return env
    if not looks_like_id(name):
        raise UnknownName("environment", name, [*registry.names(), *ids_like(name)])
    return gymnasium(name, *given)


def _refuse_options(env: Environment, **given: Any) -> None:
    for key, value in given.items():
        if value is not None and not (key == "horizon" and value == env.horizon):
            raise InvalidEnvironment(
                f"{key}= applies to Gymnasium environments, but {env.name} comes from this "
                f"package and has horizon {env.horizon}: pass {key} to its constructor",
                code="not-gymnasium",
            )


def _from_factory(make: Callable[..., Any], given: Options) -> Environment:
    try:
        first = make(**given.kwargs)
    except FedLSVIError:
        raise
    except Exception as error:
        raise InvalidEnvironment(
            f"the function env raised {type(error).__name__}: {error}. It is called without "
            "arguments, or with those in kwargs=",
            code="factory-raised",
        ) from error
    check_kind(first)
    if isinstance(first, Environment):
        sizes = {"horizon": given.horizon, "reward_range": given.reward_range}
        _refuse_options(first, **sizes, **_extra(given))
        return first
    from fedlsvi.envs.gym.actions import numbered

    if not (hasattr(first, "unwrapped") and hasattr(first, "step")):
        raise InvalidEnvironment(
            f"env() returned {reprlib.repr(first)}: give a function that makes a Gymnasium "
            "environment",
            code="bad-env",
        )
    spec = getattr(first, "spec", None)
    limit = given.decisions(getattr(spec, "max_episode_steps", None))
    H = limit if given.horizon is None else given.horizon
    name = type(first.unwrapped).__name__ if spec is None else spec.id
    check_spaces(name, numbered(first, name, given.actions))
    first.close()
    return _wrap(partial(_make_again, make, given.kwargs), name, H, given)


def _make_again(
    make: Callable[..., Any], options: dict[str, Any], horizon: int, **more: Any
) -> Any:
    """A copy of what a function makes; it has its own time limit, if any."""
    return make(**{**options, **more})


def _wrap(make: Maker, name: str, H: int | None, given: Options) -> GymMDP | GymWorld:
    """A finite MDP where the environment knows its table, else a world to step."""
    if H is None:
        raise InvalidEnvironment(
            f"{name} has no max_episode_steps, so its horizon is not known",
            code="missing-horizon",
            hint="give horizon=H",
        )
    horizon, times = integer("horizon", H, 1, error=InvalidEnvironment), given.repeat
    ranged = given.reward_range not in (None, CLIP)
    asked = check_range(given.reward_range) if ranged else None
    if times > 1 and given.allowed is not None:
        raise InvalidEnvironment(
            f'repeat is {times} and allowed is "env", but an action may become forbidden while it '
            "is repeated: leave one of them out",
            code="held-action",
        )
    from fedlsvi.envs.gym.actions import make_numbered

    make = partial(make_numbered, make, name, given.actions)
    if times > 1:
        from fedlsvi.envs.gym.repeat import make_repeated

        make = partial(make_repeated, make, times)
    probe = make(horizon)
    try:
        check_spaces(name, probe)
        check_calls(name, probe)
        found = read_tables(probe, name) if given.tables and times == 1 else None
        mask = _own_masks(name, probe, found) if given.allowed is not None else None
        if mask is TOLD:
            found = None
        if found is not None:
            low, high = asked or found.reward_range
            high += float(low == high)  # nothing is ever paid
            env = GymMDP(found, horizon, (low, high), name, given.clip_rewards, mask)
            env.step_range = (low, high)
            env.maker, env.after_end = make, env.n_states > int(probe.observation_space.n)
            return env
        step = asked or stated_range(probe)
        if given.reward_range == CLIP:
            low, high = observed_range(name, probe, horizon, mask is not None)
            step = low / times, high / times
        pay = (times * step[0], times * step[1])
        world = GymWorld(make, probe, name, horizon, pay, given.clip_rewards, mask is not None)
        world.step_range = step
        return world
    finally:
        probe.close()


def _own_masks(name: str, probe: Any, tables: Tables | None) -> np.ndarray:
    """The masks (S, A) of an environment with a table that can be asked for them, else `TOLD`."""
    if tables is not None:
        found = known_masks(probe, len(tables.P))
        if found is not None:
            return found
    if not tells_masks(probe):
        raise InvalidEnvironment(
            f'allowed is "env", but {name} does not say which actions it allows: return '
            'info["action_mask"] from reset, define action_mask(state) or actions(state), or '
            "leave allowed out",
            code="no-masks",
        )
    return TOLD
