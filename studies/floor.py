"""What does a floor under every upload cost in regret?

8 agents, 2,000 episodes each, the practical preset, without a floor and with `min_round` from 5 to
200. Nothing is learned before the first upload, so n of T episodes are lost at once; a round that
ends later than the trigger wants costs more. Regret is relative to the uniform policy, so n
episodes of uniform play would add n/T.

Limit, fixed before the first run: a floor of n adds at most 2n/T, in the median of 10 instances.

`python -m studies.floor [instances]` prints the table of floor.md; the
instances are used for nothing else.
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
from fedlsvi.experiments.runner import uniform
from fedlsvi.experiments.verdicts import below, markdown
from fedlsvi.report.intervals import median

AGENTS, EPISODES = 8, 2_000
FLOORS = (1, 5, 20, 50, 100, 200)
"""1 is no floor."""
LIMIT = 2.0
"""In units of n/T."""
FIRST = 9_200
"""Instances are numbered from here, apart from those of other studies."""

FAMILIES: dict[str, Callable[[int], FiniteMDP]] = {
    "random-linear": lambda i: RandomLinearMDP(
        n_states=20, n_actions=4, dim=8, horizon=5, seed=FIRST + i
    ),
    "garnet": lambda i: Garnet(n_states=10, n_actions=3, horizon=5, seed=FIRST + i),
    "river-swim": lambda i: RiverSwim(n_states=4 + i % 5, horizon=12 + i // 5),
}


@dataclass(frozen=True)
class Reading:
    """One run.

    Attributes:
        regret: Over that of the uniform policy.
        late: The same, of the last tenth of the episodes.
        rounds: K.
        smallest: Episodes in the shortest round.
        scalars: Everything that was sent.
    """

    regret: float
    late: float
    rounds: int
    smallest: int
    scalars: int


def played(env: FiniteMDP, floor: int, seed: int) -> Reading:
    """One run with `min_round=floor`."""
    with warnings.catch_warnings():  # what is sent is part of the table
        warnings.simplefilter("ignore", TrafficWarning)
        run = FedLSVI(AGENTS, min_round=floor).learn(env, EPISODES, seed, progress=False, threads=1)
    whole, tenth = uniform([env], AGENTS, EPISODES), EPISODES // 10
    assert run.regret is not None
    assert whole is not None
    late = float(run.regret[-1] - run.regret[-1 - tenth]) / (whole * tenth / EPISODES)
    smallest = min(record.length for record in run.records)
    return Reading(float(run.regret[-1] / whole), late, run.rounds, smallest, run.ledger.total)


def rows_of(family: str, instances: int) -> list[list[str]]:
    """The table's rows of one family: one for each floor."""
    base: list[Reading] = []
    rows = []
    for floor in FLOORS:
        arm = [played(FAMILIES[family](i), floor, i) for i in range(instances)]
        base = base or arm
        pairs = list(zip(arm, base, strict=True))
        added = median([(a.regret - b.regret) * EPISODES / floor for a, b in pairs])
        sent = median([a.scalars / b.scalars for a, b in pairs])
        rows.append([
            family if arm is base else "",
            "none" if arm is base else str(floor),
            median([a.regret for a in arm]).text(".3f"),
            "" if arm is base else added.text(".1f"),
            "" if arm is base else str(below(added, LIMIT)),
            f"{median([a.late for a in arm]).mid:.4f}",
            f"{median([float(a.rounds) for a in arm]).mid:.0f}",
            str(min(a.smallest for a in arm)),
            f"{sent.mid:.2f}",
        ])  # fmt: skip
    return rows


def main(instances: int = 10) -> None:
    """Print the table."""
    header = ["family", "floor n", "regret", "added, in n/T", f"at most {LIMIT:g}", "last tenth",
              "rounds", "shortest", "scalars"]  # fmt: skip
    print(markdown(header, [line for family in FAMILIES for line in rows_of(family, instances)]))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
