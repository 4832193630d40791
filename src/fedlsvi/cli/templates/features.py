"""The feature map new-name.

`python new_name.py` checks it and learns. On the command line, with a folder for the results:

    fedlsvi --import new_name.py run --env continuous-linear --features new-name
"""

import numpy as np

from fedlsvi import FedLSVI
from fedlsvi.envs import ContinuousLinearMDP
from fedlsvi.features import FeatureMap, check_features, register


class NewName(FeatureMap):
    """e_a ⊗ (1, x, …, x^degree)/√(degree + 1), for a state of one number in [0, 1].

    Args:
        degree: The largest power.
    """

    nonnegative = True  # likewise simplex, one_hot: only if always true

    def __init__(self, degree=2):
        self.degree = degree

    def bind(self, env):
        """The map for an environment: self stays as it is, for other environments."""
        bound = NewName(self.degree)
        bound.n_actions = env.n_actions
        bound.dim = env.n_actions * (self.degree + 1)
        return bound

    def __call__(self, states):
        """φ (n, A, d) of states (n, s), with norms of at most 1."""
        psi = states ** np.arange(self.degree + 1) / (self.degree + 1) ** 0.5
        phi = np.zeros((len(states), self.n_actions, self.n_actions, self.degree + 1))
        for a in range(self.n_actions):
            phi[:, a, a] = psi
        return phi.reshape(len(states), self.n_actions, self.dim)


register("new-name", NewName, "powers of a state in [0, 1]")

if __name__ == "__main__":
    env = ContinuousLinearMDP()
    check_features(NewName(), env)
    run = FedLSVI(n_agents=4, rounds=10, min_round=10).learn(
        env, episodes=1_000, features=NewName(), seed=0
    )
    print(run.references())
