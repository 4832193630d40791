"""The Gymnasium environment NewName-v0.

`python new_name.py` checks it and learns. On the command line, with a folder for the results:

    fedlsvi --import new_name.py run --env NewName-v0 --features fourier
"""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.utils.env_checker import check_env as check_with_gymnasium

from fedlsvi import FedLSVI
from fedlsvi.envs import check_env
from fedlsvi.features import FourierFeatures


class NewName(gymnasium.Env):
    """A cart on [0, 1] that is pushed left or right and pays where it stands.

    Args:
        push: How far a push goes.
    """

    observation_space = Box(0.0, 1.0, (1,), np.float64)
    action_space = Discrete(2)

    def __init__(self, push=0.3):
        self.push = push

    def reset(self, *, seed=None, options=None):
        """The first observation; all chance comes from `self.np_random`, so that seeds count."""
        super().reset(seed=seed)
        self.x = 0.5 * self.np_random.random(1)
        return self.x, {}

    def step(self, action):
        """Observation, reward, terminated, truncated, info."""
        reward = float(self.x[0])
        moved = self.x + self.push * (2 * action - 1) + 0.2 * (self.np_random.random(1) - 0.5)
        self.x = np.clip(moved, 0.0, 1.0)
        return self.x, reward, False, False, {}


gymnasium.register("NewName-v0", NewName, max_episode_steps=5)  # the horizon

if __name__ == "__main__":
    check_with_gymnasium(gymnasium.make("NewName-v0").unwrapped, skip_render_check=True)
    check_env("NewName-v0")
    run = FedLSVI(n_agents=4, rounds=10, min_round=10).learn(
        "NewName-v0", episodes=1_000, features=FourierFeatures(4), reward_range=(0, 1), seed=0
    )
    print(run.references())
