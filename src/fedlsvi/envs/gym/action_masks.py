"""Gymnasium's masks: `info["action_mask"]`, with A entries of 0 and 1, beside each observation.

Some environments can be asked as well: Taxi has `action_mask(state)`, others `actions(state)`,
which lists the allowed ones, and ICU-Sepsis has a list of admissible actions. Where the table of an
environment is known, so are then the masks of all its states.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedlsvi.envs.gym.world import GymWorld, Where
from fedlsvi.errors import InvalidEnvironment

KEY = "action_mask"


def take_masks(
    world: GymWorld, states: np.ndarray, infos: list[Any], h: int, where: Where
) -> np.ndarray:
    """The states with their masks: vectors carry them, and of numbered states the world keeps them.

    Args:
        world: Where the states were seen; `masked`.
        states: (n,) or (n, s).
        infos: The infos that came with them.
        h: The step at which actions are asked for.
        where: Names a row in messages.
    """
    masks = _together(infos, (len(states), world.n_actions))
    if masks is None:  # row by row, to say which one is wrong
        masks = np.empty((len(states), world.n_actions), bool)
        for k, info in enumerate(infos):
            masks[k] = _mask(world, info, lambda k=k: where(k, h))
    if not world.finite:
        return np.concatenate([states, masks], axis=1)
    apart = world.known[states] & (world.allowed[0, states] != masks).any(axis=1)
    if apart.any():
        k = int(np.flatnonzero(apart)[0])
        raise InvalidEnvironment(
            f"{world.name} allows different actions in {where(k, h)} than it did earlier for the "
            "same observation: include in the observation what the mask depends on",
            code="mask-not-of-state",
        )
    world.allowed[0, states], world.known[states] = masks, True
    return states


def _together(infos: list[Any], shape: tuple[int, int]) -> np.ndarray | None:
    """The masks of all infos at once; None where one of them needs a closer look."""
    found = [info.get(KEY) if isinstance(info, Mapping) else None for info in infos]
    try:
        masks = np.array(found)
    except ValueError:  # of different lengths
        return None
    if masks.shape != shape or masks.dtype.kind not in "bui":
        return None
    allowed = masks == 1
    good = (allowed | (masks == 0)).all() and allowed.any(axis=1).all()
    return allowed if good else None


def _mask(world: GymWorld, info: Any, where: Any) -> np.ndarray:
    found = info.get(KEY) if isinstance(info, Mapping) else None
    mask = None if found is None else np.asarray(found)
    allowed: np.ndarray = np.asarray(mask == 1)
    if mask is None or mask.shape != (world.n_actions,) or not (allowed | (mask == 0)).all():
        shown = "no action_mask" if mask is None else f"the action_mask {found!r}"
        raise InvalidEnvironment(
            f"{world.name} returned {shown} in {where()}: put an array of {world.n_actions} "
            'entries 0 or 1 into info["action_mask"] at every reset and step, or leave '
            'allowed="env" out',
            code="bad-action-mask",
        )
    if not allowed.any():
        raise InvalidEnvironment(
            f"{world.name} allows no action in {where()}: allow at least one, or report the "
            "episode as terminated",
            code="no-action",
        )
    return allowed


def tells_masks(env: Any) -> bool:
    """Whether the infos of an environment hold masks."""
    answer = env.reset(seed=0)
    return isinstance(answer[1], Mapping) and KEY in answer[1]


def known_masks(env: Any, size: int) -> np.ndarray | None:
    """The masks of all states of an environment that can be asked for them, (size, A); states
    behind the environment's own, such as the one after the end, allow everything."""
    inner, space = env.unwrapped, env.observation_space
    n_actions, first = int(env.action_space.n), int(env.action_space.start)
    table = np.ones((size, n_actions), bool)
    states = range(int(space.start), int(space.start) + int(space.n))
    listed = getattr(inner, "dynamics", None)
    if isinstance(listed, Mapping) and "admissible_actions" in listed:
        for x, allowed in enumerate(listed["admissible_actions"]):
            if len(allowed):
                table[x] = np.isin(np.arange(n_actions), allowed)
        return table
    if callable(ask := getattr(inner, "action_mask", None)):
        for x, state in enumerate(states):
            table[x] = np.asarray(ask(state), bool)
        return table
    if callable(ask := getattr(inner, "actions", None)):
        for x, state in enumerate(states):
            table[x] = np.isin(np.arange(first, first + n_actions), list(ask(state)))
        return table
    return None
