"""The algorithm new-name.

`python new_name.py` checks it and learns. On the command line, with a folder for the results:

    fedlsvi --import new_name.py compare --env river-swim --algorithms new-name,fed-lsvi
"""

from dataclasses import dataclass

import numpy as np

from fedlsvi.algorithms import (
    Comparator,
    Explorer,
    LinearSettings,
    LSVISums,
    Play,
    Segment,
    check_algorithm,
    packed_size,
    register,
)
from fedlsvi.checks import number


@dataclass(frozen=True)
class NewNameSettings(LinearSettings):
    """Settings in addition to those of every linear algorithm.

    Attributes:
        growth: The factor by which episodes grow between two synchronisations.
    """

    growth: float = 2.0

    def __post_init__(self):
        super().__post_init__()
        number("growth", self.growth, 1.0, "growth=2 doubles", strict=True)


class NewNamePlay(Play):
    """All agents follow one policy; sometimes the server gets all episodes and replans."""

    algorithm = "new-name"

    def __init__(self, plan, settings, keep_models):
        super().__init__(plan, settings, keep_models)
        everyone = np.arange(plan.parameters.n_agents)
        self.agents = Explorer(plan, everyone)  # play episodes in compiled loops
        self.meter = self.regret_meter.group(everyone)  # measures their exact regret
        self.sums = LSVISums(plan)  # the server's sums and policy
        self.sums.backward_pass()
        self.values = self.sums.values  # the policy that the run reports

    def advance(self):
        """Play until the next record is due."""
        first, left = self.t + 1, self.episodes - self.t
        n = min(left, max(1, int((self.settings.growth - 1) * self.t)))
        seen = self.agents.play(first, n, self.values.policy)
        self.meter.record(first, n, self.values.policy)
        self.sums.add(self.channel.gather("up_raw", *seen))  # counts states, actions, rewards
        self.sums.backward_pass()
        self.channel.broadcast("down_model", *self.sums.model())
        return Segment(last=self.t + n)

    def report(self):
        """The model that the run reports."""
        return self.sums.w, self.sums.gram

    def parties(self):
        """Everyone with state that checkpoints must hold."""
        return {"server": self.sums}

    def resumed(self):
        """After a restart, recompute what follows from that state."""
        self.sums.backward_pass()


class NewName(Comparator):
    """Pooled LSVI-UCB that synchronises each time the number of episodes doubles."""

    name = "new-name"
    settings_type = NewNameSettings
    play_type = NewNamePlay


def scalars(run):
    """The formula for what is sent: three numbers per step up, K models down."""
    p = run.parameters
    model = p.horizon * (packed_size(p.dim, p.packing) + p.dim)
    raw = 3 * p.n_agents * p.episodes * p.horizon
    return {"up_raw": raw, "down_model": run.rounds * p.n_agents * model}


register("new-name", NewName, "pool all trajectories each time episodes double", scalars)

if __name__ == "__main__":
    check_algorithm("new-name")
    run = NewName(n_agents=4).learn("river-swim", episodes=1_000, seed=0)
    print(run.references())
