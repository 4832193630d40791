"""Which rule loses least for the rounds it takes? Regret against rounds, from 5 rounds to 500.

`python -m studies.front FILE [FIGURE]`: run what is not in FILE yet, print the
table of front.md, and draw its figure. FILE keeps every run; use a new file when the code
has changed. Nothing is chosen here: the budgeted rule is the package's, and it is *on the front*
if no other rule has less than 1/1.1 of its regret with as few rounds. This limit, the problems and
all rules but one were fixed before the first run.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fedlsvi import FedLSVI, envs
from fedlsvi.algorithms import registry as algorithms
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.gym.convert import as_environment
from fedlsvi.experiments.runner import uniform
from fedlsvi.experiments.verdicts import markdown
from fedlsvi.features import LowRankFeatures
from fedlsvi.learner import Algorithm, unattended
from fedlsvi.report.plotting import Curve, Panel, make_figure, save

EPISODES = 1_000
ROUNDS = (5, 10, 20, 40, 80, 160, 320, 500)
"""K."""
INSTANCES = 3
"""Of each problem; of ICU-Sepsis one, which takes as long as all others."""
NEAR = 1.1
"""The budgeted rule is on the front where its regret is at most this times the least of any other
rule that takes no more rounds than it may."""
FIRST = 9_000
"""Instances are numbered from here, apart from those of other studies."""


def gym(name: str, horizon: int) -> FiniteMDP:
    """A Gymnasium environment whose table is known."""
    env = as_environment(name, horizon=horizon)
    assert isinstance(env, FiniteMDP)
    return env


PROBLEMS: dict[str, Callable[[int], FiniteMDP]] = {
    "random-linear": lambda i: envs.RandomLinearMDP(dim=8, horizon=5, seed=FIRST + i),
    "combination-lock": lambda i: envs.CombinationLock(horizon=6, n_actions=4, seed=FIRST + i),
    "hard-chain": lambda i: envs.HardChain(dim=4, horizon=5, seed=FIRST + i),
    "river-swim": lambda i: envs.RiverSwim(n_states=4 + i, horizon=15),
    "deep-sea": lambda i: envs.DeepSea(size=5 + i),
    "n-chain": lambda i: envs.NChain(n_states=5 + i),
    "garnet": lambda i: envs.Garnet(n_states=10, n_actions=3, horizon=6, seed=FIRST + i),
    "FrozenLake-v1": lambda i: gym("FrozenLake-v1", 40),
    "ICU-Sepsis-v2": lambda i: gym("Sepsis/ICU-Sepsis-v2", 20),
}

Make = Callable[..., Algorithm]


def fed(**given: Any) -> Make:
    """Fed-LSVI with these settings of the trigger."""
    return lambda agents, **own: FedLSVI(agents, policy="explore", **own, **given)


def period(rounds: int) -> Make:
    """A synchronisation after every T/K-th episode."""
    length = math.ceil(EPISODES / rounds)
    return lambda agents, **own: algorithms.make("periodic", n_agents=agents, period=length, **own)


CAPS = (2.0**16, 2.0**8, 2.0**4, 4.0, 2.0, 1.5, 1.25, 1.1, 1.03)
"""Thresholds of a determinant test alone."""

RULES: dict[str, dict[str, Make]] = {
    "budget K, eager": {str(K): fed(rounds=K, cap="agents") for K in ROUNDS},
    "budget K, paper's trigger": {str(K): fed(rounds=K, cap="off") for K in ROUNDS},
    "period T/K": {str(K): period(K) for K in ROUNDS},
    "paper's trigger, γ = T/K": {
        str(K): fed(gamma=EPISODES / K, cap="off", rounds="off") for K in ROUNDS
    },
    "determinant ≥ c": {
        f"{c:g}": fed(gamma=1e9, cap=c, rounds="off") for c in CAPS
    },
    "budget K, determinant ≥ 1 + 1/M": {
        str(K): fed(rounds=K, gamma=1e9, cap="agents") for K in ROUNDS
    },
    "the default": {"": fed()},
}  # fmt: skip
"""Rule → its parameter → how a learner is made. The first is what `rounds=K` does at the practical
preset; the fifth has no limit on the length of a round, and no budget. The sixth, the first without
the test of γ, was added when the others had been seen."""

BUDGET = next(iter(RULES))


@dataclass(frozen=True)
class Result:
    """One run: where, with what, and how it did."""

    problem: str
    instance: int
    rule: str
    parameter: str
    regret: float  # over that of the uniform policy
    rounds: int

    @property
    def key(self) -> tuple[str, int, str, str]:
        """What makes it another run."""
        return self.problem, self.instance, self.rule, self.parameter


@cache
def problem(name: str, i: int) -> tuple[FiniteMDP, int, dict[str, Any], Any]:
    """The world, the number of agents, the settings of the learner, and the features."""
    env = PROBLEMS[name](i)
    if name.startswith("ICU"):
        return env, 10, {"value_range": 1.0}, LowRankFeatures(16).bind(env)
    return env, 8, {"value_range": 1.0} if name.endswith("v1") else {}, None


def play(name: str, i: int, rule: str, parameter: str) -> Result:
    """One run of a rule."""
    env, agents, settings, phi = problem(name, i)
    learner = RULES[rule][parameter](agents, **settings)
    with unattended():
        run = learner.learn(env, EPISODES, FIRST + i, features=phi, progress=False, threads=1)
    whole = uniform([env], agents, EPISODES)
    assert run.regret is not None
    assert whole is not None
    return Result(name, i, rule, parameter, float(run.regret[-1] / whole), run.rounds)


def played(path: Path) -> list[Result]:
    """All results; what the file does not hold is played and added to it."""
    lines = path.read_text().splitlines() if path.exists() else []
    found = {r.key: r for r in (Result(**json.loads(line)) for line in lines)}
    with path.open("a") as file:
        for name in PROBLEMS:
            for i in range(1 if name.startswith("ICU") else INSTANCES):
                for rule, parameters in RULES.items():
                    for parameter in parameters:
                        if (name, i, rule, parameter) not in found:
                            made = play(name, i, rule, parameter)
                            file.write(json.dumps(asdict(made)) + "\n")
                            file.flush()
                            found[made.key] = made
    return list(found.values())


Dots = dict[str, list[tuple[float, float]]]


def medians(results: Iterable[Result]) -> dict[str, Dots]:
    """Problem → rule → (rounds, regret) of each parameter, medians over instances."""
    groups: dict[tuple[str, str, str], list[Result]] = {}
    for r in results:
        groups.setdefault((r.problem, r.rule, r.parameter), []).append(r)
    found: dict[str, Dots] = {name: {rule: [] for rule in RULES} for name in PROBLEMS}
    for (name, rule, _), runs in groups.items():
        point = np.median([r.rounds for r in runs]), np.median([r.regret for r in runs])
        found[name][rule].append((float(point[0]), float(point[1])))
    return found


def excess(dots: Mapping[str, list[tuple[float, float]]], K: int) -> tuple[float, str]:
    """The budgeted rule's least regret with at most K rounds over that of any other rule, and
    which rule that is."""
    least = {
        rule: min((regret for rounds, regret in row if rounds <= K), default=math.inf)
        for rule, row in dots.items()
    }
    own = least.pop(BUDGET)
    best = min(least, key=lambda rule: least[rule])
    return own / least[best], best


def rows(found: Mapping[str, Dots]) -> list[list[str]]:
    """Problem by problem: the budgeted rule's regret over the least of the others at every K."""
    made = []
    for name, dots in found.items():
        cells = []
        for K in ROUNDS:
            ratio, rule = excess(dots, K)
            cells.append(f"{ratio:.2f}" if ratio <= NEAR else f"**{ratio:.2f}** ({rule})")
        made.append([name, *cells])
    return made


TIGHT = 20
SHOWN = (BUDGET, "budget K, determinant ≥ 1 + 1/M", "period T/K")
"""Rules whose numbers are printed, at K = 20 and at the largest K."""


def numbers(results: Iterable[Result]) -> tuple[list[str], list[list[str]]]:
    """Header and rows: median regret of these rules at some K, and the rounds that they took."""
    groups: dict[tuple[str, str, str], list[Result]] = {}
    for r in results:
        groups.setdefault((r.problem, r.rule, r.parameter), []).append(r)
    wanted = [(K, rule) for K in (TIGHT, ROUNDS[-1]) for rule in SHOWN]
    header, made = ["problem"], []
    header += [f"K = {K}: {rule.removeprefix('budget K, ')}" for K, rule in wanted]
    for name in PROBLEMS:
        cells = [name]
        for K, rule in wanted:
            runs = groups[name, rule, str(K)]
            regret, rounds = (
                np.median([getattr(r, k) for r in runs]) for k in ("regret", "rounds")
            )
            cells.append(f"{regret:.4f} ({rounds:.0f})")
        made.append(cells)
    return header, made


def draw(found: Mapping[str, Dots], path: str) -> None:
    """One panel for each problem."""
    panels = []
    for name, dots in found.items():
        curves = []
        for i, (rule, row) in enumerate(dots.items()):
            rounds, regret = np.array(sorted(row)).T
            curves.append(Curve(rule, rounds, regret, colour=i))
        panels.append(Panel(name, "rounds", "regret ÷ uniform", curves, legend=False))
    made = make_figure([p.draw for p in panels], size=(4.2, 3.2), columns=3, legend_below=True)
    save(made, path)


def main(path: str, figure: str | None = None) -> None:
    """Play, print the table, draw."""
    results = played(Path(path))
    found = medians(results)
    print(markdown(["problem", *(f"K ≤ {K}" for K in ROUNDS)], rows(found)))
    print("\nRegret ÷ uniform, and in brackets the rounds that were taken:\n")
    print(markdown(*numbers(results)))
    if figure is not None:
        draw(found, figure)


if __name__ == "__main__":
    main(*sys.argv[1:3])
