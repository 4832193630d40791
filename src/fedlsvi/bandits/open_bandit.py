"""A bandit as a policy of Open Bandit Pipeline (`pip install "fedlsvi[obp]"`), whose simulators
and estimators can then be used: https://github.com/st-tech/zr-obp.

It is imported only where it is asked for:
`from fedlsvi.bandits.open_bandit import OpenBanditPolicy`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numpy as np
from obp.policy import BaseContextualPolicy

from fedlsvi.bandits.learner import FedLinUCB


@dataclass
class OpenBanditPolicy(BaseContextualPolicy):  # type: ignore[misc]
    """One of the learners of `fedlsvi.bandits`, with a regression for each action.

    Args:
        dim, n_actions, len_list, batch_size, random_state: As for every policy there; the learner's
            seed is `random_state`, where that is given.
        learner: Its settings; what it has learned is not taken over.
        site: Whose decision a context (d,) is: a function to the number of a site. The default
            spreads contexts over sites by a hash of their numbers.

    Attributes:
        learner_: The learner at work.
    """

    learner: FedLinUCB = field(default_factory=FedLinUCB)
    site: Callable[[np.ndarray], int] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.policy_name = type(self.learner).__name__
        self.initialize()

    def initialize(self) -> None:
        """Forget what was learned."""
        super().initialize()
        settings = self.learner.get_params() | {"arms": self.n_actions}
        if self.random_state is not None:
            settings["seed"] = self.random_state
        self.learner_ = type(self.learner)(**settings)
        self._rewarded: list[tuple[np.ndarray, int, float, int]] = []

    def select_action(self, context: np.ndarray) -> np.ndarray:
        """(len_list,) different actions for a context (1, dim), the learner's choice first."""
        m, allowed, chosen = self._site(context), np.ones(self.n_actions, bool), []
        for _ in range(self.len_list):
            decided = self.learner_.decide(context, m, allowed)
            self.learner_.forget(decided.tokens)
            chosen.append(int(decided.actions[0]))
            allowed[chosen[-1]] = False
        return np.array(chosen)

    def update_params(self, action: float, reward: float, context: np.ndarray) -> None:
        """Learn the reward of an action in a context (1, dim), with every `batch_size`-th one."""
        self.n_trial += 1
        self.action_counts[int(action)] += 1
        self._rewarded.append((context[0], int(action), float(reward), self._site(context)))
        if self.n_trial % self.batch_size == 0:
            X, actions, rewards, sites = map(np.array, zip(*self._rewarded, strict=True))
            self.learner_.partial_fit(X, actions, rewards, sites)
            self._rewarded.clear()

    def _site(self, context: np.ndarray) -> int:
        if self.site is not None:
            return self.site(context[0])
        numbers: Any = np.ascontiguousarray(context, np.float64)
        return crc32(numbers.tobytes()) % self.learner.n_sites
