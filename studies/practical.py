"""Which β should the practical preset have?

`python -m studies.practical FILE`: run what is not in FILE yet, choose on the
tuning instances, and print the tables of practical.md, most of them from held-out instances.
FILE keeps every run, so the study can be stopped and resumed; `FILE 0` only prints.

Everything below down to `MANY` was fixed before the first run of the study. Cap and budget are the
preset's: they were chosen by an earlier version of this study (practical.md).
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from fedlsvi import FedLSVI, envs
from fedlsvi.core.statistics import Packing, packed_size
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.experiments.runner import uniform
from fedlsvi.features import OneHot

TUNE, TEST = range(0, 20), range(1000, 1020)
"""Instances of each family to choose on, and to report on."""

LONG, SHORT = 10_000, 1_000
"""Episodes per agent: whether a run sticks is seen in long ones, what it costs in both."""

AGENTS = (2, 4, 8, 16)
"""M of instances 0, 1, 2, 3, 4, …, in turn."""

STUCK = 0.1
"""A run sticks if in its last tenth it loses more than this share of the uniform policy's loss."""

RARELY, MANY = 0.02, 0.1
"""A default may stick on this share of the tuning runs, and on this share of any family. Of those
that keep to it, the one with the lowest regret is chosen; if none does, the one that sticks least.
"""


@dataclass(frozen=True)
class Candidate:
    """A default: c, and whether β_h is c times the value range that is left at step h, or c times
    the whole of it at every step."""

    c: float
    taper: bool

    def __str__(self) -> str:
        return f"{self.c:g}·{'v_h' if self.taper else 'v'}"


BEFORE = Candidate(0.2, taper=False)
"""What the preset was before this study."""

CANDIDATES = (
    BEFORE,
    Candidate(0.25, taper=True),
    Candidate(0.3, taper=True),
    Candidate(0.2, taper=True),
    Candidate(0.1, taper=False),
)


def _sizes(i: int) -> Callable[[int, int], int]:
    """Draws the sizes of instance i, from the least to the most."""
    rng = np.random.default_rng([17, i])
    return lambda least, most: int(rng.integers(least, most + 1))


def _random_linear(i: int) -> FiniteMDP:
    n = _sizes(i)
    return envs.RandomLinearMDP(
        n_states=20, n_actions=4, dim=n(4, 20), horizon=n(4, 10), seed=7000 + i
    )


def _combination_lock(i: int) -> FiniteMDP:
    n = _sizes(i)
    return envs.CombinationLock(horizon=n(6, 12), n_actions=n(4, 10), seed=7000 + i)


def _hard_chain(i: int) -> FiniteMDP:
    n = _sizes(i)
    return envs.HardChain(dim=n(3, 6), horizon=n(4, 8), seed=7000 + i)


def _river_swim(i: int) -> FiniteMDP:
    n = _sizes(i)
    return envs.RiverSwim(n_states=n(4, 8), horizon=n(16, 24))


def _garnet(i: int) -> FiniteMDP:
    n = _sizes(i)
    states, actions, branching, horizon = n(6, 15), n(2, 4), n(2, 4), n(5, 10)
    return envs.Garnet(states, actions, branching, horizon=horizon, seed=7000 + i)


FAMILIES: dict[str, Callable[[int], FiniteMDP]] = {
    "random-linear": _random_linear,
    "combination-lock": _combination_lock,
    "hard-chain": _hard_chain,
    "hard-chain, one-hot": _hard_chain,
    "river-swim": _river_swim,
    "deep-sea": lambda i: envs.DeepSea(size=_sizes(i)(6, 12)),
    "n-chain": lambda i: envs.NChain(n_states=_sizes(i)(5, 12)),
    "garnet": _garnet,
}
"""Instance → problem; its number decides all sizes and draws. The seven families, and hard chains
a second time with one-hot features, where noise is as large and nothing is shared between actions.
"""


@dataclass(frozen=True)
class Result:
    """One run: where, with what, and how it did."""

    family: str
    instance: int
    episodes: int
    candidate: str
    regret: float  # over that of the uniform policy
    late: float  # the same in the last tenth
    rounds: int
    raw: float  # scalars over those of the raw data
    shared: float  # scalars over those of the centralised learner

    @property
    def key(self) -> tuple[str, int, int, str]:
        """What makes it another run."""
        return self.family, self.instance, self.episodes, self.candidate


def play(family: str, instance: int, episodes: int, candidate: Candidate) -> Result:
    """One run of a candidate on an instance."""
    env, M, T = FAMILIES[family](instance), AGENTS[instance % len(AGENTS)], episodes
    phi = OneHot().bind(env) if family.endswith("one-hot") else env.default_features()
    H, d = env.horizon, phi.dim
    packing: Packing = "diagonal" if phi.one_hot else "packed"
    learner = FedLSVI(M, beta=candidate.c * H, taper=candidate.taper, diversity=0)
    with warnings.catch_warnings():  # that it sends more than short runs pay for
        warnings.simplefilter("ignore")
        run = learner.learn(env, T, instance, features=phi, progress=False, threads=1)
    whole, late = uniform([env], M, T), T // 10
    assert run.regret is not None
    assert whole is not None
    assert run.scalars_raw is not None
    # what the centralised learner sends: raw data up, and w and Λ down after every episode
    down = M * T * H * (packed_size(d, packing) + d)
    return Result(
        family=family, instance=instance, episodes=T, candidate=str(candidate),
        regret=float(run.regret[-1] / whole),
        late=float(10.0 * (run.regret[-1] - run.regret[-1 - late]) / whole),
        rounds=run.rounds, raw=run.ledger.total / run.scalars_raw,
        shared=run.ledger.total / (run.scalars_raw + down),
    )  # fmt: skip


Job = tuple[str, int, int, Candidate]


def jobs(instances: Iterable[int], candidates: Iterable[Candidate]) -> list[Job]:
    """All runs of these candidates on these instances."""
    numbers, found = list(instances), list(candidates)
    return [(f, i, T, c) for T in (LONG, SHORT) for c in found for f in FAMILIES for i in numbers]


class Runs:
    """Results, as lines of a file that grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.found = {r.key: r for r in (Result(**json.loads(line)) for line in lines)}

    def get(self, wanted: list[Job], processes: int) -> list[Result]:
        """These results; what is not there is played."""
        todo = [job for job in wanted if (*job[:3], str(job[3])) not in self.found]
        with ProcessPoolExecutor(processes) as pool, self.path.open("a") as file:
            for made in pool.map(play, *zip(*todo, strict=True), chunksize=4) if todo else ():
                file.write(json.dumps(asdict(made)) + "\n")
                file.flush()
                self.found[made.key] = made
        return [self.found[*job[:3], str(job[3])] for job in wanted]


Cell = tuple[str, int]  # family, episodes


def cells(results: Iterable[Result]) -> dict[str, dict[Cell, list[Result]]]:
    """By candidate, then by family and length."""
    found: dict[str, dict[Cell, list[Result]]] = {}
    for r in results:
        found.setdefault(r.candidate, {}).setdefault((r.family, r.episodes), []).append(r)
    return found


def stuck(row: Mapping[Cell, list[Result]]) -> dict[str, float]:
    """The share of long runs that stick, family by family."""
    return {
        family: float(np.mean([r.late > STUCK for r in runs]))
        for (family, T), runs in row.items()
        if T == LONG
    }


def relative(table: Mapping[str, Mapping[Cell, list[Result]]]) -> dict[str, float]:
    """Mean regret of a cell over the least of any candidate there: geometric mean of the cells."""
    means = {
        name: np.array([np.mean([r.regret for r in row[cell]]) for cell in sorted(row)])
        for name, row in table.items()
    }
    least = np.min(list(means.values()), axis=0)
    return {name: float(np.exp(np.mean(np.log(row / least)))) for name, row in means.items()}


def choose(table: Mapping[str, Mapping[Cell, list[Result]]]) -> str:
    """The one that sticks rarely and has the lowest regret; else the one that sticks least."""
    cost = relative(table)
    shares = {name: stuck(row) for name, row in table.items()}
    mean = {name: float(np.mean(list(row.values()))) for name, row in shares.items()}
    fit = [n for n in table if mean[n] <= RARELY and max(shares[n].values()) <= MANY]
    if fit:
        return min(fit, key=lambda name: cost[name])
    return min(table, key=lambda name: (mean[name], cost[name]))


def overview(table: Mapping[str, Mapping[Cell, list[Result]]]) -> Iterator[str]:
    """One line per candidate: sticking, regret and traffic."""
    cost = relative(table)
    yield (
        "| β | sticks | worst family | regret ÷ best | regret ÷ uniform, long | "
        "short | rounds, long | short | scalars ÷ raw, long | short | ÷ centralised, long |"
    )
    yield "|" + "---|" * 11
    for name, row in table.items():
        shares = stuck(row)
        worst = max(shares, key=lambda family: shares[family])
        where = f"{shares[worst]:.0%} ({worst})" if shares[worst] else "none"
        cut = {T: [r for f in FAMILIES for r in row[f, T]] for T in (LONG, SHORT)}
        numbers = [
            f"{np.mean(list(shares.values())):.1%}", where, f"{cost[name]:.2f}",
            *(f"{np.mean([r.regret for r in cut[T]]):.4f}" for T in (LONG, SHORT)),
            *(f"{np.median([r.rounds for r in cut[T]]):.0f}" for T in (LONG, SHORT)),
            *(f"{np.median([r.raw for r in cut[T]]):.2g}" for T in (LONG, SHORT)),
            f"{np.median([r.shared for r in cut[LONG]]):.2%}",
        ]  # fmt: skip
        yield f"| {name} | {' | '.join(numbers)} |"


def by_family(table: Mapping[str, Mapping[Cell, list[Result]]]) -> Iterator[str]:
    """One line per family and candidate, long runs and short ones."""
    yield (
        "| family | β | sticks | regret ÷ uniform, long | short | rounds, long | "
        "short | scalars ÷ raw, long | short |"
    )
    yield "|" + "---|" * 9
    for family in FAMILIES:
        for name, row in table.items():
            both = [row[family, T] for T in (LONG, SHORT)]
            numbers = [
                f"{stuck(row)[family]:.0%}",
                *(f"{np.mean([r.regret for r in runs]):.4f}" for runs in both),
                *(f"{np.median([r.rounds for r in runs]):.0f}" for runs in both),
                *(f"{np.median([r.raw for r in runs]):.2g}" for runs in both),
            ]
            yield f"| {family} | {name} | {' | '.join(numbers)} |"


def so_far(results: Iterable[Result], episodes: int) -> Iterator[str]:
    """One line per family and candidate, from whatever was played with so many episodes."""
    table = cells(r for r in results if r.episodes == episodes)
    yield "| family | β | sticks | regret ÷ uniform | rounds | scalars ÷ raw | ÷ centralised |"
    yield "|" + "---|" * 7
    for family in FAMILIES:
        for name, row in table.items():
            if not (runs := row.get((family, episodes))):
                continue
            numbers = [
                f"{sum(r.late > STUCK for r in runs)} of {len(runs)}",
                f"{np.mean([r.regret for r in runs]):.4f}",
                f"{np.median([r.rounds for r in runs]):.0f}",
                f"{np.median([r.raw for r in runs]):.2g}",
                f"{np.median([r.shared for r in runs]):.2%}",
            ]
            yield f"| {family} | {name} | {' | '.join(numbers)} |"


def main(path: str, processes: int = 2) -> None:
    """Tune, choose, report on instances that took no part; with 0 processes, only say what the
    file holds."""
    runs = Runs(Path(path))
    if processes == 0:
        for title, which in (("tuning", TUNE), ("held out", TEST)):
            for T in (LONG, SHORT):
                found = [r for r in runs.found.values() if r.instance in which]
                print(f"{title}, {T:,} episodes:\n\n" + "\n".join(so_far(found, T)) + "\n")
        return
    tuned = cells(runs.get(jobs(TUNE, CANDIDATES), processes))
    print("On the tuning instances:\n")
    print("\n".join(overview(tuned)), flush=True)
    name = choose(tuned)
    chosen = next(c for c in CANDIDATES if str(c) == name)
    print(f"\nchosen: {name}\n", flush=True)
    held = cells(runs.get(jobs(TEST, (chosen, BEFORE)), processes))
    print("On the instances held out:\n")
    print("\n".join(overview(held)) + "\n")
    print("\n".join(by_family({str(c): held[str(c)] for c in (BEFORE, chosen)})))


if __name__ == "__main__":
    main(sys.argv[1], *(int(a) for a in sys.argv[2:3]))
