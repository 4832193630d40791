"""What do rounds with public ends cost, compared with ends that the data decide?

8 agents, 1,000 and 10,000 episodes each, the practical preset. With `aggregation="exact"` an agent
ends a round when it has learned enough; with `"secure"`, and nothing else chosen, rounds end on the
schedule of the budget, so that a signal says nothing. Both add the same fixed-point sums.

Limit, fixed before the first run: at most 1.1 times the regret, in the median of 20 instances. That
a schedule has at most 320 rounds was chosen on four other instances of each family.

`python -m studies.ends [instances]` prints the table of ends.md; the instances are used for nothing
else.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass

from fedlsvi import FedLSVI
from fedlsvi.envs import Garnet, RandomLinearMDP, RiverSwim
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.errors import TrafficWarning
from fedlsvi.experiments.verdicts import below, markdown
from fedlsvi.groups import Aggregation
from fedlsvi.report.intervals import median

AGENTS, BUDGETS = 8, (1_000, 10_000)
LIMIT = 1.1
FIRST = 9_600
"""Instances are numbered from here, apart from those of other studies."""

FAMILIES: dict[str, Callable[[int], FiniteMDP]] = {
    "random-linear": lambda i: RandomLinearMDP(
        n_states=20, n_actions=4, dim=8, horizon=5, seed=FIRST + i
    ),
    "garnet": lambda i: Garnet(n_states=10, n_actions=3, horizon=5, seed=FIRST + i),
    "river-swim": lambda i: RiverSwim(n_states=4 + i % 5, horizon=10 + i // 5),
}


@dataclass(frozen=True)
class Reading:
    """One run: its regret, its rounds, and everything that it sent."""

    regret: float
    rounds: int
    scalars: int


def played(env: FiniteMDP, aggregation: Aggregation, episodes: int, seed: int) -> Reading:
    """One run whose ends follow from how sums are added."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrafficWarning)
        learner = FedLSVI(AGENTS, aggregation=aggregation, policy="explore")
        run = learner.learn(env, episodes, seed, progress=False, threads=1)
    assert run.regret is not None
    return Reading(float(run.regret[-1]), run.rounds, run.ledger.total)


def row_of(family: str, episodes: int, instances: int) -> list[str]:
    """A line of the table."""
    envs = [FAMILIES[family](i) for i in range(instances)]
    data = [played(env, "exact", episodes, i) for i, env in enumerate(envs)]
    public = [played(env, "secure", episodes, i) for i, env in enumerate(envs)]
    ratio = median([p.regret / d.regret for p, d in zip(public, data, strict=True)])
    more = median([p.scalars / d.scalars for p, d in zip(public, data, strict=True)])
    counts = (f"{median([float(r.rounds) for r in arm]).mid:.0f}" for arm in (data, public))
    said = ratio.text(".2f"), str(below(ratio, LIMIT)), *counts, f"{more.mid:.2f}"
    return [family, f"{episodes:,}", *said]


def main(instances: int = 20) -> None:
    """Print the table."""
    header = ["family", "episodes", "regret, public ÷ data", f"at most {LIMIT:g}",
              "rounds, data", "rounds, public", "scalars, public ÷ data"]  # fmt: skip
    rows = [row_of(family, T, instances) for family in FAMILIES for T in BUDGETS]
    print(markdown(header, rows))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
