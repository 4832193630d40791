"""Which λ and β should the practical preset have?

Run Fed-LSVI over a grid of (λ, β) on families of problems, tuning instances and held-out ones.

β is given in units of the value range H, so that one number serves all horizons. The score of a run
is its regret divided by that of the uniform policy on the same problem: 1 is no better than random.

`python -m studies.defaults [instances]`: sweep, choose, report.

Prints the chosen pair and the table of defaults.md. Two instances of each family take a few
minutes on two cores.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedlsvi import FedLSVI
from fedlsvi.core.theory import beta_theory
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.learner import unattended

LAMBDAS = (1.0, 0.1, 0.03, 0.01, 0.003, 0.001)
SCALES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
AGENTS = 8
EPISODES = 3_000


@dataclass(frozen=True)
class Score:
    """One run: where, with what, and how it did."""

    split: str  # "tune" or "test"
    family: str
    instance: int
    lam: float
    scale: float  # β/H; 0 stands for the theorem's β
    normalised: float  # regret / regret of the uniform policy
    late: float  # the same over the last tenth of the episodes

    def to_dict(self) -> dict[str, Any]:
        """A JSON form."""
        return asdict(self)


def families() -> dict[str, Callable[[int], FiniteMDP]]:
    """Problem families; the argument is the instance's number, which decides all its randomness."""
    from fedlsvi import envs

    simplex = [(20, 4, 5, 5), (20, 4, 8, 5), (30, 4, 12, 8), (50, 5, 20, 10)]

    def random_linear(i: int) -> FiniteMDP:
        S, A, d, H = simplex[i % len(simplex)]
        return envs.RandomLinearMDP(n_states=S, n_actions=A, dim=d, horizon=H, seed=100 + i)

    return {
        "random-linear": random_linear,
        "combination-lock": lambda i: envs.CombinationLock(horizon=8 + 2 * (i % 2), seed=i),
        "hard-chain": lambda i: envs.HardChain(dim=4 + i % 3, horizon=6, seed=i),
        "river-swim": lambda i: envs.RiverSwim(n_states=5 + i % 4, horizon=20),
        "deep-sea": lambda i: envs.DeepSea(size=8 + i % 4),
        "n-chain": lambda i: envs.NChain(n_states=8 + i % 4),
        "garnet": lambda i: envs.Garnet(
            n_states=12, n_actions=3, branching=3, horizon=8, seed=200 + i
        ),
    }


def uniform_regret(env: FiniteMDP, agents: int, episodes: int) -> float:
    """Expected group regret of drawing every action uniformly."""
    gap = env.optimal_values()[0] - env.uniform_values()[0]
    return episodes * sum(float(env.initial_law(m) @ gap) for m in range(agents))


def score(env: FiniteMDP, lam: float, scale: float, seed: int) -> tuple[float, float]:
    """Normalised regret over the whole run, and over its last tenth."""
    d, H = env.default_features().dim, env.horizon
    beta = scale * H if scale > 0.0 else beta_theory(d, H, AGENTS, EPISODES)
    paper: Any = {"cap": "off", "rounds": "off", "stationary": False, "policy": "explore",
                  "diversity": 0}  # fmt: skip
    learner = FedLSVI(AGENTS, lam=lam, beta=beta, **paper)
    with unattended():
        run = learner.learn(env, EPISODES, seed, progress=False)
    assert run.regret is not None
    whole = uniform_regret(env, AGENTS, EPISODES)
    tenth = EPISODES // 10
    return run.regret[-1] / whole, 10.0 * (run.regret[-1] - run.regret[-1 - tenth]) / whole


def sweep(split: str, instances: int, grid: list[tuple[float, float]]) -> Iterator[Score]:
    """All runs of one split. Instances of "tune" are numbered from 0, those of "test" from 50."""
    offset = 0 if split == "tune" else 50
    for family, make in families().items():
        for i in range(offset, offset + instances):
            env = make(i)
            for lam, scale in grid:
                normalised, late = score(env, lam, scale, seed=1000 + i)
                yield Score(split, family, i, lam, scale, normalised, late)


Pair = tuple[float, float]


def by_family(scores: Iterable[Score], field: str) -> dict[Pair, dict[str, float]]:
    """Mean score of each (λ, β/H) on each family."""
    cells: dict[Pair, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for s in scores:
        cells[s.lam, s.scale][s.family].append(getattr(s, field))
    return {
        pair: {family: float(np.mean(values)) for family, values in row.items()}
        for pair, row in cells.items()
    }


def ranking(scores: Iterable[Score]) -> list[tuple[float, Pair]]:
    """Pairs by their normalised regret, averaged over families with equal weight; best first."""
    table = by_family(scores, "normalised")
    return sorted((float(np.mean(list(row.values()))), pair) for pair, row in table.items())


def markdown(tune: list[Score], test: list[Score], shown: list[Pair]) -> str:
    """The table of defaults.md: mean on the tuning set, then family by family held out."""
    tuned = {pair: mean for mean, pair in ranking(tune)}
    held, late = by_family(test, "normalised"), by_family(test, "late")
    families = sorted(next(iter(held.values())))
    head = ["λ", "β/H", "tuning mean", "held-out mean", "last tenth", *families]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for pair in shown:
        lam, scale = pair
        row = held[pair]
        cells = [
            f"{lam:g}",
            f"{scale:g}" if scale > 0.0 else "theorem",
            f"{tuned[pair]:.3f}",
            f"{np.mean(list(row.values())):.3f}",
            f"{np.mean(list(late[pair].values())):.3f}",
            *(f"{row[family]:.3f}" for family in families),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(instances: int = 2) -> None:
    """Tune on every pair of the grid; test the best eight, the least and the largest β beside the
    best λ, and λ = 1 with two β and the theorem's."""
    grid = [(1.0, 0.0), *((lam, scale) for lam in LAMBDAS for scale in SCALES)]
    tune = list(sweep("tune", instances, grid))
    order = [pair for _, pair in ranking(tune)]
    extremes = [(order[0][0], scale) for scale in (min(SCALES), max(SCALES))]
    paper = [(1.0, 0.1), (1.0, 0.4), (1.0, 0.0)]
    shown = list(dict.fromkeys([*order[:8], *extremes, *paper]))
    test = list(sweep("test", instances, shown))
    print(f"chosen on the tuning instances: lam = {order[0][0]:g}, beta = {order[0][1]:g}·H\n")
    print(markdown(tune, test, shown))


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:2]))
