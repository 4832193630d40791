"""The environment new-name, whose states are numbered and whose laws are known.

`python new_name.py` checks it and learns. On the command line, with a folder for the results:

    fedlsvi --import new_name.py run --env new-name
"""

import numpy as np

from fedlsvi import FedLSVI
from fedlsvi.envs import FiniteMDP, check_env, make, register

RUN, REPAIR = 0, 1


class NewName(FiniteMDP):
    """A machine that wears. Running pays, and what is worn may break; repair makes it new.

    Args:
        wear: The probability that a step of running wears it by one.
        horizon: H, the steps of an episode.
    """

    def __init__(self, wear: float = 0.4, horizon: int = 10) -> None:
        S, A = 4, 2  # new, worn, badly worn, broken
        P = np.zeros((S, A, S))  # P[x, a, y]: how likely state y follows action a in state x
        r = np.zeros((S, A))  # r[x, a]: the mean reward, in [0, 1]
        for x in range(S):
            P[x, RUN, x] += 1.0 - wear
            P[x, RUN, min(x + 1, S - 1)] += wear
            P[x, REPAIR, 0] = 1.0
        r[:, RUN] = 1.0, 0.8, 0.4, 0.0
        super().__init__(P, r, horizon=horizon, initial=0, name="NewName")
        self.record(wear=wear, horizon=horizon)  # what makes it again, for run folders


register("new-name", NewName, "a machine that wears")

if __name__ == "__main__":
    env = make("new-name")
    check_env(env)
    run = FedLSVI(n_agents=4, rounds=40, min_round=10).learn(env, episodes=2_000, seed=0)
    print(run.references())
