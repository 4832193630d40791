"""What Gymnasium's interface demands of an environment; each refusal says what to change."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedlsvi.envs.base import units
from fedlsvi.errors import FedLSVIError, InvalidEnvironment

ANSWER = "return (observation, reward, terminated, truncated, info), as gymnasium.Env does"


def check_kind(env: Any) -> None:
    """Refuse objects that look like a Gymnasium environment but follow another interface."""
    name = type(env).__name__
    if hasattr(env, "num_envs") and hasattr(env, "single_action_space"):
        raise InvalidEnvironment(
            f"env is a {name}, a vector of {env.num_envs} environments: give the id or a function "
            "that makes one environment; fedlsvi makes the copies",
            code="vector-environment",
        )
    if any(cls.__module__.split(".")[0] == "gym" for cls in type(env).__mro__):
        raise InvalidEnvironment(
            f"env is a {name} of the old gym package: port it to Gymnasium, or wrap it with "
            "shimmy.GymV26CompatibilityV0, and give a function that makes it",
            code="old-gym",
        )
    if hasattr(env, "possible_agents") and callable(getattr(env, "action_space", None)):
        raise InvalidEnvironment(
            f"env is a {name}, a multi-agent environment (PettingZoo): write a gymnasium.Env that "
            "controls one of its agents, and give a function that makes it",
            code="multi-agent-environment",
        )


def check_spaces(name: str, env: Any) -> None:
    """Refuse actions that are not one choice out of finitely many."""
    for field in ("action_space", "observation_space"):
        if getattr(env, field, None) is None:
            raise InvalidEnvironment(
                f"{name} has no {field}: set observation_space and action_space, as gymnasium.Env "
                "requires",
                code="missing-space",
            )
    space = env.action_space
    if is_kind(space, "Discrete"):
        return
    kind = type(space).__name__
    why = {
        "Box": "give actions=5 for a grid of five points in each dimension, or one number for each "
        "dimension, actions=(5, 3)",
        "Dict": "control one actor with a wrapper, one environment per agent, and give a function "
        "that makes the wrapped environment",
    }.get(kind, "number the combinations of choices with a wrapper, and give a function that makes "
                "the wrapped environment")  # fmt: skip
    raise InvalidEnvironment(
        f"{name} has a {kind} action space, but Fed-LSVI needs a finite number of actions: {why}",
        code="bad-action-space",
    )


def check_calls(name: str, env: Any) -> None:
    """Refuse an environment whose `reset` and `step` differ from Gymnasium's; calls each once."""
    try:
        begun = env.reset(seed=1)
    except FedLSVIError:
        raise
    except Exception as error:
        raise InvalidEnvironment(
            f"{name} cannot be reset ({type(error).__name__}: {error}): reset must take seed= and "
            "options= and return (observation, info), as in gymnasium.Env",
            code="bad-reset",
        ) from error
    if not (isinstance(begun, tuple) and len(begun) == 2):
        raise InvalidEnvironment(
            f"{name} returned {reprlib.repr(begun)} from reset: return (observation, info), as in "
            "gymnasium.Env",
            code="bad-reset",
        )
    try:
        answer = env.step(permitted(env, begun[1]))
    except FedLSVIError:
        raise
    except Exception as error:  # a wrapper of Gymnasium's may be the first to notice
        raise InvalidEnvironment(
            f"{name} cannot be stepped ({type(error).__name__}: {error}): {ANSWER}", code="bad-step"
        ) from error
    check_answer(name, answer, "the first step")


def check_answer(name: str, answer: Any, where: str) -> None:
    """Refuse what `step` may not return; a reward must be one real number."""
    if not (isinstance(answer, tuple) and len(answer) == 5):
        raise InvalidEnvironment(
            f"{name} returned {reprlib.repr(answer)} from step in {where}: {ANSWER}",
            code="bad-step",
        )
    reward = answer[1]
    if np.asarray(reward).dtype.kind not in "biuf" or np.ndim(reward) != 0:
        raise InvalidEnvironment(
            f"{name} returned the reward {reprlib.repr(reward)} in {where}: a reward must be a "
            "number; convert it with a wrapper (gymnasium.wrappers.TransformReward)",
            code="bad-reward",
        )


def check_range(reward_range: Any) -> tuple[float, float]:
    """(low, high) with low ≤ 0 ≤ high: 0 is what is paid after the end of an episode."""
    low, high = units(reward_range)
    if not low <= 0.0 <= high:
        raise InvalidEnvironment(
            f"reward_range is ({low:g}, {high:g}): give (low, high) with 0 between them, because "
            "the reward after the end of an episode is 0",
            code="bad-reward_range",
        )
    return low, high


def stated_range(env: Any) -> tuple[float, float]:
    """The range that an environment states itself, with 0 in it; (0, 1) where it states none."""
    try:
        low, high = (float(value) for value in env.unwrapped.reward_range)
        return check_range((min(low, 0.0), max(high, 0.0)))  # in this order a NaN stays one
    except (AttributeError, TypeError, ValueError):
        return 0.0, 1.0


def time_limit(env: Any) -> int | None:
    """The decisions after which a `TimeLimit` around the environment truncates; None without."""
    limits, times = [], 1
    while env is not env.unwrapped:
        if is_kind(env, "Repeat"):
            times = env.times
        if is_kind(env, "TimeLimit"):
            limits.append(-(-int(env._max_episode_steps) // times))
        env = env.env
    return min(limits, default=None)


def repeats(env: Any, steps: int = 3) -> bool:
    """Whether two episodes with the same seed and actions begin alike."""
    seen = []
    for _ in range(2):
        state, info = env.reset(seed=1)
        trace = [state]
        for _ in range(steps):
            state, reward, terminated, truncated, info = env.step(permitted(env, info))
            trace += [state, reward]
            if terminated or truncated:
                break
        seen.append(trace)
    return len(seen[0]) == len(seen[1]) and all(
        _alike(a, b) for a, b in zip(seen[0], seen[1], strict=True)
    )


def permitted(env: Any, info: Any, k: int = 0) -> Any:
    """The k-th of the actions that an info allows, as the environment numbers it; any action where
    it says nothing."""
    n, first = int(env.action_space.n), env.action_space.start
    mask = np.asarray(info.get("action_mask", 1)) if isinstance(info, Mapping) else np.ones(n)
    allowed = np.flatnonzero(mask) if mask.shape == (n,) and mask.any() else np.arange(n)
    return first + allowed[k % len(allowed)]


def _alike(a: Any, b: Any) -> bool:
    """Whether two observations are equal, whatever their type. NaN equals NaN here: it is refused
    elsewhere, for what it is."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_alike(a[key], b[key]) for key in a)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(_alike(x, y) for x, y in zip(a, b, strict=True))
    floats = all(np.asarray(part).dtype.kind in "fc" for part in (a, b))
    return bool(np.array_equal(a, b, equal_nan=floats))


def is_kind(thing: Any, kind: str) -> bool:
    """Whether a space or wrapper is of a class of this name, without importing Gymnasium."""
    return any(cls.__name__ == kind for cls in type(thing).__mro__)
