"""How much should the other algorithms explore? The practical constant of each.

`python -m studies.comparators FILE [PROCESSES [NAME …]]`: run what is not in
FILE yet, choose on the tuning instances, and print the tables of comparators.md, the second
from held-out instances. FILE keeps every run, so the study can be stopped and resumed; use a new
file when the code has changed. Searches do not need each other's runs, so each NAME may have a FILE
and a process of its own; files can be joined by `cat`, to print all tables.

The rule is that of `fedlsvi tune`: the lowest mean regret, relative to the uniform policy. A grid
in steps of four grows while its best is at an end, and is then refined to steps of two. Learning
rates are chosen after the exploration, in the same way. Periods are not chosen: they decide what is
sent. Everything down to `SEARCHES` was fixed before the first run, except as comparators.md says
for LSVI-UCB++.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from fedlsvi.envs import registry as environments
from fedlsvi.experiments.runner import Outcome, ResultFile, RunSpec, run_all
from fedlsvi.experiments.tune import choose, score
from fedlsvi.experiments.verdicts import markdown
from fedlsvi.storage.settings_file import Table
from studies.practical import STUCK

AGENTS, EPISODES = 5, 1_000

LEAST, MOST = 2.0**-14, 4.0
"""No constant beyond these is tried."""


def _sizes(i: int) -> Callable[[int, int], int]:
    """Draws the sizes of instance i, from the least to the most."""
    rng = np.random.default_rng([23, i])
    return lambda least, most: int(rng.integers(least, most + 1))


def _table(name: str, **bounds: tuple[int, int]) -> Callable[[int], Table]:
    """A family: the sizes of an instance are drawn between bounds, in the order given here."""
    seeded = "seed" in environments.entry(name).parameters()

    def instance(i: int) -> Table:
        n = _sizes(i)
        drawn = {key: n(least, most) for key, (least, most) in bounds.items()}
        return {"name": name} | drawn | ({"seed": 8000 + i} if seeded else {})

    return instance


FAMILIES: dict[str, Callable[[int], Table]] = {
    "random-linear": _table("random-linear", dim=(4, 12), horizon=(4, 8)),
    "combination-lock": _table("combination-lock", horizon=(5, 8), n_actions=(4, 8)),
    "hard-chain": _table("hard-chain", dim=(3, 5), horizon=(4, 7)),
    "river-swim": _table("river-swim", n_states=(4, 7), horizon=(12, 20)),
    "deep-sea": _table("deep-sea", size=(5, 9)),
    "n-chain": _table("n-chain", n_states=(4, 8)),
    "garnet": _table("garnet", n_states=(6, 12), n_actions=(2, 4), horizon=(4, 8)),
    "random-mdp": _table("random-mdp"),
}
"""Instance → problem: the seven families, and the random MDPs that federated Q-learning is
published with."""

MIXTURES: dict[str, Callable[[int], Table]] = {
    "random-linear-mixture": _table(
        "random-linear-mixture", n_states=(6, 20), n_actions=(2, 5), dim=(3, 10), horizon=(4, 8)
    )
}
"""For algorithms that need the kernels of a mixture."""


@dataclass(frozen=True)
class Search:
    """An algorithm's scale.

    Attributes:
        parameter: Its name.
        per_range: Whether it counts value ranges.
        before: What it was.
        grid: To begin with.
        tune: Instances of each family to choose on.
        test: Others to report on.
        most: No larger value is tried.
        after: The search whose choice comes first, for another parameter of the same algorithm.
        mixtures: Whether it is chosen on `MIXTURES`.
    """

    parameter: str
    per_range: bool
    before: float
    grid: tuple[float, ...]
    tune: range = range(3)
    test: range = range(1000, 1003)
    most: float = MOST
    after: str = ""
    mixtures: bool = False

    @property
    def families(self) -> Mapping[str, Callable[[int], Table]]:
        """Where it is chosen."""
        return MIXTURES if self.mixtures else FAMILIES


_MIXTURES = Search(
    "c", False, 0.05, (0.2, 0.05, 0.0125), range(24), range(1000, 1024), mixtures=True
)
"""One family, with as many instances as the others have in eight."""

SEARCHES = {
    "fed-ucbvi": Search("c", False, 1.0, (1.0, 2.0**-2, 2.0**-4)),
    "fedq-hoeffding": Search("c", False, 1.0, (2.0**-4, 2.0**-6, 2.0**-8)),
    "fedq-bernstein": Search("c", False, 1.0, (2.0**-4, 2.0**-6, 2.0**-8)),
    "fedq-advantage": Search("c", False, 1.0, (1.0, 2.0**-2, 2.0**-4)),
    "lsvi-ucb-pp": Search(
        "c", False, 0.1, (0.1, 0.1 / 2, 0.1 / 4, 0.1 / 8, 0.1 / 16), range(20), range(2000, 2020)
    ),
    "coopts-phe": Search("sigma", True, 0.1, (0.1, 0.1 / 4, 0.1 / 16)),
    "coopts-lmc": Search("sigma", True, 0.1, (0.1, 0.1 / 4, 0.1 / 16)),
    "ucbvi": Search("c", False, 1.0, (1.0, 2.0**-2, 2.0**-4)),
    "q-ucb2": Search("c", False, 1.0, (2.0**-4, 2.0**-6, 2.0**-8)),
    "psrl": Search("prior", False, 1.0, (1.0, 2.0**-2, 2.0**-4)),
    "q-avg": Search("epsilon", False, 0.02, (2.0**-2, 2.0**-4, 2.0**-6), most=1.0),
    "q-avg-rate": Search("rate", False, 0.2, (0.8, 0.2, 0.05), most=1.0, after="q-avg"),
    "fed-sarsa": Search("temperature", False, 0.05, (2.0**-2, 2.0**-4, 2.0**-6)),
    "fed-sarsa-rate": Search("rate", False, 0.1, (0.4, 0.1, 0.025), most=1.0, after="fed-sarsa"),
    "ucrl-vtr": _MIXTURES,
    "fed-ucrl-vtr": _MIXTURES,
}
"""What is chosen: exploration, or a rate. LSVI-UCB's relatives are not here: they share Fed-LSVI's
β and its study, so that algorithms are compared and not presets."""

BESIDE = ("fed-lsvi", "centralised")
"""Reported on the same instances, at their default bonus and with a model for every step, which is
what the others have."""


def job(name: str, problem: Table, i: int, **own: Any) -> Table:
    """The settings of a run on instance i."""
    size: Table = {"n_agents": AGENTS, "episodes": EPISODES}
    return {"algorithm": name, "seed": i, "env": problem} | size | own


def beside(name: str) -> list[RunSpec]:
    """Runs of an algorithm that is not chosen for, on the instances held out."""
    instances = next(iter(SEARCHES.values())).test
    own = {"stationary": False}
    tables = [job(name, make(i), i, **own) for make in FAMILIES.values() for i in instances]
    return [RunSpec(table, {"constant": 0.0}) for table in tables]


def specs(
    name: str, constants: Iterable[float], instances: Iterable[int], own: Mapping[str, Any]
) -> list[RunSpec]:
    """Runs of a search with these constants on these instances of every family, and with what
    another search has chosen."""
    search, found, numbers = SEARCHES[name], [], list(instances)
    algorithm = search.after or name
    for constant in constants:
        for make in search.families.values():
            for i in numbers:
                problem = make(i)
                drawn = {key: value for key, value in problem.items() if key != "name"}
                horizon = environments.make(problem["name"], **drawn).horizon
                value = constant * horizon if search.per_range else constant
                table = job(algorithm, problem, i, **own, **{search.parameter: value})
                found.append(RunSpec(table, {"constant": constant}))
    return found


class Study:
    """Plays what is missing and keeps it."""

    def __init__(self, results: ResultFile, jobs: int) -> None:
        self.results, self.jobs = results, jobs

    def play(self, wanted: list[RunSpec]) -> dict[float, list[Outcome]]:
        """Outcomes by constant."""
        run_all(wanted, self.results, self.jobs)
        found: dict[float, list[Outcome]] = {}
        for spec in wanted:
            found.setdefault(spec.labels["constant"], []).append(self.results.outcomes[spec.key])
        return found

    def before(self, name: str) -> Table:
        """What the search that comes first has chosen."""
        first = SEARCHES[name].after
        return {SEARCHES[first].parameter: choose(self.search(first))} if first else {}

    def search(self, name: str) -> dict[float, list[float]]:
        """Scores by constant: the grid, widened and refined around its best."""
        search, own = SEARCHES[name], self.before(name)

        def more(constants: Iterable[float]) -> None:
            played = self.play(specs(name, constants, search.tune, own))
            scores.update({c: [score(o) for o in outs] for c, outs in played.items()})

        scores: dict[float, list[float]] = {}
        more(search.grid)
        while (further := beyond(scores, search.most)) is not None:
            more([further])
        best = choose(scores)
        more([c for c in (best / 2, best * 2) if LEAST <= c <= search.most])
        return dict(sorted(scores.items()))


def beyond(scores: Mapping[float, list[float]], most: float = MOST) -> float | None:
    """The next constant to try, if the best so far is at an end of the grid."""
    best = choose(scores)
    step = {min(scores): 0.25, max(scores): 4.0}.get(best)
    if step is None or not LEAST <= best * step <= most:
        return None
    return best * step


def shown(constant: float) -> str:
    """1, 1/64, or a decimal number where it is not a power of two."""
    ratio = Fraction(constant)
    return str(ratio) if ratio.numerator == 1 and ratio.denominator <= 2**14 else f"{constant:g}"


def tuned(means: Mapping[str, Mapping[float, float]]) -> Iterator[list[str]]:
    """One row per algorithm: the mean score at each constant that was tried."""
    for name, row in means.items():
        search, best = SEARCHES[name], min(row, key=lambda c: row[c])
        cells = [
            f"**{shown(c)}: {v:.4f}**" if c == best
            else f"{shown(c)}: {v:.4f}"
            for c, v in row.items()
        ]  # fmt: skip
        symbol = {"sigma": "σ/v"}.get(search.parameter, search.parameter)
        yield [name, symbol, ", ".join(cells)]


def held_out(name: str, best: float, found: Mapping[float, list[Outcome]]) -> list[str]:
    """Mean score and the share of runs that stick, chosen and before."""
    search = SEARCHES[name]
    cells = [name, shown(best), shown(search.before)]
    pair = [measured(found[c]) for c in (best, search.before)]
    return cells + [numbers[k] for k in range(2) for numbers in pair]


def measured(runs: list[Outcome]) -> tuple[str, str]:
    """Mean score, and how many of the runs stick."""
    return (
        f"{np.mean([score(o) for o in runs]):.4f}",
        f"{sum(_sticks(o) for o in runs)} of {len(runs)}",
    )


def _sticks(outcome: Outcome) -> bool:
    assert outcome.late is not None
    assert outcome.uniform is not None
    return 10.0 * outcome.late > STUCK * outcome.uniform


def main(path: str, jobs: int = 1, names: Iterable[str] = ()) -> None:
    """Choose the constants of these algorithms, or of all, and report on other instances."""
    results = ResultFile(Path(path))
    study, means, rows = Study(results, jobs), {}, []
    for name in names or SEARCHES:
        scores, test = study.search(name), SEARCHES[name].test
        means[name] = {c: float(np.mean(found)) for c, found in scores.items()}
        best = choose(scores)
        print(f"{name}: {best:g}", file=sys.stderr, flush=True)
        both = list(dict.fromkeys((best, SEARCHES[name].before)))
        played = study.play(specs(name, both, test, study.before(name)))
        rows.append(held_out(name, best, played))
    for name in () if names else BESIDE:
        regret, sticks = measured(study.play(beside(name))[0.0])
        rows.append([name, "the default bonus", "", regret, "", sticks, ""])
    results.close()
    print("Mean regret ÷ uniform on the tuning instances:\n")
    print(markdown(["algorithm", "scale", "regret ÷ uniform at each constant"], list(tuned(means))))
    print("\nOn the instances held out:\n")
    head = ["algorithm", "chosen", "before", "regret ÷ uniform, chosen", "before",
            "sticks, chosen", "before"]  # fmt: skip
    print(markdown(head, rows))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1, sys.argv[3:])
