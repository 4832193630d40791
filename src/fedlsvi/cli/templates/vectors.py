"""The environment new-name, whose states are vectors.

`python new_name.py` checks it and learns. On the command line, with a folder for the results:

    fedlsvi --import new_name.py run --env new-name
"""

import numpy as np

from fedlsvi import FedLSVI
from fedlsvi.envs import ContinuousMDP, check_env, make, register
from fedlsvi.features import FourierFeatures


class NewName(ContinuousMDP):
    """A cart on [0, 1] that is pushed left or right and pays where it stands.

    Everything comes in batches of n rows, one for each episode that is played, and rows do not
    depend on each other. Draw no random numbers: `u` holds uniform ones in [0, 1).

    Args:
        push: How far a push goes.
        horizon: H, the steps of an episode.
    """

    name, n_actions, state_dim = "NewName", 2, 1
    draws_at_reset = draws_per_step = 1
    low, high = np.zeros(1), np.ones(1)  # bounds of states, if there are any

    def __init__(self, push: float = 0.3, horizon: int = 5) -> None:
        self.push, self.horizon = push, horizon
        self.record(push=push, horizon=horizon)  # what makes it again, for run folders

    def reset(self, u, agents):
        """First states (n, 1)."""
        return 0.5 * u

    def step(self, h, x, a, u):
        """Rewards (n,) in [0, 1] and next states (n, 1)."""
        moved = x + self.push * (2 * a[:, None] - 1) + 0.2 * (u - 0.5)
        return x[:, 0], np.clip(moved, 0.0, 1.0)

    def default_features(self):
        """Features where none are given."""
        return FourierFeatures(4).bind(self)


register("new-name", NewName, "a cart on a line")

if __name__ == "__main__":
    env = make("new-name")
    check_env(env)
    run = FedLSVI(n_agents=4, rounds=5, min_round=10).learn(env, episodes=1_000, seed=0)
    print(run.references())
