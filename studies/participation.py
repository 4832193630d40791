"""What does it cost if agents are absent in some rounds?

A share p of 20 agents takes part in a round. T grows as 1/p, so that all of them together play the
same number of episodes, and regret is read after 90 % of these. As a control, 20p agents that are
always present play with the same trigger, so that no response is stale. All have γ = T/(20d) and
the cap 1 + 1/20, without a budget.

Limit, fixed before the first run: at most 1.25 times the regret of 20 agents that are always
present.

`python -m studies.participation [instances [family …]]` prints the table of
participation.md; the instances of each family are used for nothing else.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedlsvi import FedLSVI
from fedlsvi.envs import Garnet, RandomLinearMDP, RiverSwim
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.errors import TrafficWarning
from fedlsvi.experiments.verdicts import below, markdown
from fedlsvi.report.intervals import median
from fedlsvi.run import Run

AGENTS = 20
SHARES = (0.1, 0.25, 0.5, 1.0)
EPISODES = 1_000
"""T where everybody is always there."""
SHARE_READ = 0.9
"""Share of the 20 · 1,000 episodes at which regret is read: draws may leave some unplayed."""
LIMIT = 1.25
FIRST = 7_000
"""Instances are numbered from here, apart from those of other studies."""

FAMILIES: dict[str, Callable[[int], FiniteMDP]] = {
    "random-linear": lambda i: RandomLinearMDP(
        n_states=20, n_actions=4, dim=8, horizon=5, seed=FIRST + i
    ),
    "garnet": lambda i: Garnet(n_states=10, n_actions=3, horizon=5, seed=FIRST + i),
    "river-swim": lambda i: RiverSwim(n_states=5 + i % 3, horizon=10),
}


@dataclass(frozen=True)
class Reading:
    """A run up to the episode at which enough has been played by all agents together."""

    regret: float
    rounds: int
    scalars: int


def reading(run: Run, enough: float) -> Reading:
    """What a run had lost and sent when its agents had played so many episodes."""
    assert run.regret is not None
    clock = np.arange(1, run.played + 1)
    at = int(np.searchsorted(run.agent_episodes_until(clock), enough))
    rounds = [record for record in run.records if record.first <= at + 1]
    scalars = sum(rounds[-1].scalars.values())
    return Reading(float(run.regret[at]), len(rounds), scalars)


def played(env: FiniteMDP, agents: int, share: float, seed: int) -> Reading:
    """One run in which agents · T · (their share) is the number of episodes to be played."""
    episodes = round(AGENTS * EPISODES / (agents * share))
    gamma = max(episodes / (AGENTS * env.default_features().dim), 1.0)
    learner = FedLSVI(
        agents, participation=share, gamma=gamma, cap=1.0 + 1.0 / AGENTS, rounds="off"
    )
    run = learner.learn(env, episodes, seed, progress=False)
    return reading(run, SHARE_READ * AGENTS * EPISODES)


def rows_of(family: str, instances: int) -> list[list[str]]:
    """The table's rows of one family: one for each share, with the control below it."""
    make = FAMILIES[family]
    base = [played(make(i), AGENTS, 1.0, i) for i in range(instances)]
    rows = []
    for share in SHARES[:-1]:
        few = round(AGENTS * share)
        arms = {
            f"{share:g} of 20": [played(make(i), AGENTS, share, i) for i in range(instances)],
            f"{few}, always there": [played(make(i), few, 1.0, i) for i in range(instances)],
        }
        rows += [row(family, label, arm, base) for label, arm in arms.items()]
    return [*rows, row(family, "20, always there", base, base)]


def row(family: str, label: str, arm: Sequence[Reading], base: Sequence[Reading]) -> list[str]:
    """Regret and scalars in units of the 20 agents', rounds, and what the limit says."""
    regret = median([a.regret / b.regret for a, b in zip(arm, base, strict=True)])
    sent = median([a.scalars / b.scalars for a, b in zip(arm, base, strict=True)])
    rounds = median([float(a.rounds) for a in arm])
    verdict = "" if arm is base else str(below(regret, LIMIT))
    return [family, label, regret.text(".2f"), rounds.text(), sent.text(".2f"), verdict]


def main(instances: int = 6, families: Sequence[str] = ()) -> None:
    """Print the table of these families, or of all."""
    header = ["family", "agents", "regret", "rounds", "scalars", f"regret at most {LIMIT}"]
    chosen = families or tuple(FAMILIES)
    warnings.simplefilter("ignore", TrafficWarning)  # what is sent is part of the table
    print(markdown(header, [line for family in chosen for line in rows_of(family, instances)]))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 6, sys.argv[2:])
