"""Limits of a private run, in which nothing counts for more than its noise assumes.

Noise is made for rewards in [0, 1], and where a user is protected for at most m episodes of each
user. Worlds that are stepped map and clip their rewards; those of continuous states are checked
here, before anything of a round is sent. Who played is known where a black box says so, as
`info["user"]` of its reset: then the episodes of each user are counted, over all agents of a site
and all rounds, and a site on which one of them has more than m sends nothing more. A world that
names nobody cannot be checked, and the bound is its owner's promise. A log that names patients was
checked when the run was made ready (`logs.patients`).

Names are kept as hashes, at the site, for as long as its journal is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.envs.gym.world import GymWorld
from fedlsvi.errors import InvalidEnvironment
from fedlsvi.experience.vector_round import VectorRound

TOLERANCE = 1e-9
"""How far rounding may take a reward out of [0, 1]."""


class Limits:
    """What is checked when a round has ended, before anything of it is sent.

    Args:
        agents: (m,) numbers of the agents.
        worlds: Where each of them plays.
        most: The most episodes of one user; None counts nobody.

    Attributes:
        users: (m, t) hashes of who played each episode so far; (m, 0) where nobody is named.
    """

    def __init__(self, agents: np.ndarray, worlds: Sequence[Any], most: int | None) -> None:
        self.most, self._agents, self._worlds = most, agents, worlds
        self.users = np.zeros((len(agents), 0), np.uint64)
        if most is not None:
            for world in worlds:
                if isinstance(world, GymWorld) and world.users is None:
                    world.users = {}

    def check(self, round_: Any, first: int, length: int) -> None:
        """The episodes after `first` have ended.

        Raises:
            InvalidEnvironment: A reward is outside [0, 1], or a user came too often.
        """
        if isinstance(round_, VectorRound):
            for _, _, played in round_.blocks:
                paid = played.rewards
                if not ((paid >= -TOLERANCE) & (paid <= 1.0 + TOLERANCE)).all():
                    raise InvalidEnvironment(
                        "a reward is outside [0, 1], the range that the noise of this run can "
                        "hide: nothing from this round is sent; scale the rewards of the "
                        "environment",
                        code="reward-out-of-range",
                    )
        if self.most is not None:
            self._count(first, length)

    def _count(self, first: int, length: int) -> None:
        """Who played the episodes after `first`."""
        found = np.zeros((len(self._agents), length), np.uint64)
        for i, (agent, world) in enumerate(zip(self._agents.tolist(), self._worlds, strict=True)):
            named = world.users or {}
            found[i] = [named.pop((agent, first + 1 + j), 0) for j in range(length)]
        if not found.any() and not self.users.size:
            return
        if not found.all() or self.users.shape[1] != first:
            raise InvalidEnvironment(
                'some episodes name their user in info["user"] of reset and others do not: name '
                "the user in all of them, or in none",
                code="user-unknown",
            )
        self.users = np.concatenate([self.users, found], axis=1)
        often = max(Counter(self.users.ravel().tolist()).values())
        if often > self.most:  # type: ignore[operator]
            raise InvalidEnvironment(
                f"a user has played {plural(often, 'episode')} here, but episodes_per_user is "
                f"{self.most}: nothing from this round is sent. Stop users from playing more "
                "often than that, or start a run with a larger episodes_per_user",
                code="user-too-often",
            )

    @property
    def names_users(self) -> bool:
        """Whether the worlds said who played, or the logs whose episodes they hold."""
        logs = [world.log for world in self._worlds if world.recorded]
        return self.users.size > 0 or (any(logs) and all(log.per_patient for log in logs))

    def state(self) -> dict[str, np.ndarray]:
        """Who played."""
        return {"users": self.users} if self.users.size else {}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Continue from `state`."""
        self.users = state.get("users", self.users[:, :0]).astype(np.uint64)
