"""The page of `studies.benchmark`, made from its data alone."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.stats import rankdata, trim_mean

from fedlsvi.algorithms import registry as algorithms
from fedlsvi.experiments.verdicts import markdown
from fedlsvi.report.intervals import RESAMPLES, Interval, median

RESULTS = Path(__file__).parents[1] / "docs" / "results"
DATA, PAGE = RESULTS / "algorithms.csv", RESULTS / "algorithms.md"
HEAD = ["problem", "algorithm", "variant", "setting", "why", "factor", "seed", "regret", "share",
        "rounds", "scalars", "raw", "seconds"]  # fmt: skip
"""Columns of the data. `why` is why a cell is empty; `factor` multiplies the default constant;
`share` is regret divided by the uniform policy's; `raw` are scalars of raw transitions. A problem
that has not been played to its end is a row with nothing but its name."""

OURS = "fed-lsvi"
MEASURES = ("share", "rounds", "scalars", "raw", "seconds")
LARGE = ("Taxi-v4", "ICU-Sepsis-v2")
"""Where many cells are empty: no part of interquartile means."""

REWARDS = ("lsvi-ucb-pp", "ucrl-vtr", "fed-ucrl-vtr")
"""Algorithms to which rewards are known."""


@dataclass(frozen=True)
class Entry:
    """An algorithm on a problem, at one setting: (seeds,) of every measure."""

    algorithm: str
    variant: str
    factor: float
    found: dict[str, np.ndarray]

    def mid(self, measure: str) -> Interval:
        """Median and interval."""
        return median(self.found[measure])


@dataclass
class Data:
    """The file.

    Attributes:
        entries: By problem and setting.
        empty: (algorithm, variant, why) by problem.
        unfinished: Problems without results.
    """

    entries: dict[str, dict[str, list[Entry]]] = field(default_factory=dict)
    empty: dict[str, list[tuple[str, str, str]]] = field(default_factory=dict)
    unfinished: list[str] = field(default_factory=list)

    def ranked(self, problem: str, setting: str) -> dict[str, np.ndarray]:
        """Shares (seeds,) by algorithm, variants left out."""
        rows = self.entries[problem][setting]
        return {e.algorithm: e.found["share"] for e in rows if not e.variant}


def read(path: Path) -> Data:
    """What the file has, problems in its order."""
    data, groups = Data(), dict[tuple[str, ...], list[dict[str, str]]]()
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            key = tuple(row[name] for name in ("problem", "setting", "algorithm", "variant"))
            groups.setdefault(key, []).append(row)
    for (problem, setting, name, variant), rows in groups.items():
        if not name:
            data.unfinished.append(problem)
            continue
        if rows[0]["why"]:
            data.empty.setdefault(problem, []).append((name, variant, rows[0]["why"]))
            continue
        rows.sort(key=lambda row: int(row["seed"]))
        found = {m: np.array([float(row[m]) for row in rows]) for m in MEASURES}
        entry = Entry(name, variant, float(rows[0]["factor"]), found)
        data.entries.setdefault(problem, {}).setdefault(setting, []).append(entry)
    return data


def label(name: str, variant: str = "", raw: bool = False) -> str:
    """Its name, with marks that the page explains."""
    entry = algorithms.entry(name)
    marks = ("°" if not entry.guarantee else "") + ("†" if raw else "")
    marks += "‡" if name in REWARDS else ""
    return f"{name}{marks}" + (f", {variant}" if variant else "")


def _interval(mid: float, drawn: np.ndarray) -> Interval:
    return Interval(mid, *(float(q) for q in np.percentile(drawn, [2.5, 97.5])))


class Summary:
    """Aggregates over problems; seeds are drawn again within each problem, the same for all."""

    def __init__(self, data: Data, setting: str) -> None:
        rng = np.random.default_rng(0)
        self.shares = {problem: data.ranked(problem, setting) for problem in data.entries}
        self.draws = {
            problem: rng.integers(n, size=(RESAMPLES, n))
            for problem, row in self.shares.items()
            for n in [len(next(iter(row.values())))]
        }

    def problems(self, name: str) -> list[str]:
        """Where it plays."""
        return [problem for problem, row in self.shares.items() if name in row]

    def ranks(self) -> dict[str, Interval]:
        """Mean rank of the median over the problems that each plays."""
        at: dict[str, list[np.ndarray]] = {}
        for problem, row in self.shares.items():
            runs = np.stack(list(row.values()))  # (algorithms, seeds)
            drawn = np.median(runs[:, self.draws[problem]], axis=2)
            medians = np.concatenate([np.median(runs, axis=1)[:, None], drawn], axis=1)
            for name, ranks in zip(row, rankdata(medians, axis=0), strict=True):
                at.setdefault(name, []).append(ranks)
        means = {name: np.mean(ranks, axis=0) for name, ranks in at.items()}
        return {name: _interval(float(mean[0]), mean[1:]) for name, mean in means.items()}

    def middle(self, name: str) -> Interval | None:
        """The interquartile mean of all runs on the smaller problems, if it plays all of them."""
        where = [problem for problem in self.shares if problem not in LARGE]
        if not set(where) <= set(self.problems(name)):
            return None
        runs = [self.shares[problem][name] for problem in where]
        drawn = [self.shares[problem][name][self.draws[problem]] for problem in where]
        whole = float(trim_mean(np.concatenate(runs), 0.25))
        return _interval(whole, trim_mean(np.concatenate(drawn, axis=1), 0.25, axis=1))

    def better(self, name: str) -> Interval:
        """The probability that a run loses less than one of Fed-LSVI on the same problem, ties by
        half, averaged over problems."""
        chances = []
        for problem in self.problems(name):
            row, draws = self.shares[problem], self.draws[problem]
            chances.append([_wins(row[name], row[OURS])] + [
                _wins(row[name][i], row[OURS][i]) for i in draws
            ])  # fmt: skip
        mean = np.mean(chances, axis=0)
        return _interval(float(mean[0]), mean[1:])


def _wins(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.mean(np.sign(y[None, :] - x[:, None])) / 2.0 + 0.5)


def overview(data: Data) -> Iterator[list[str]]:
    """One row for each algorithm: first those that play all smaller problems."""
    tuned, default = Summary(data, "tuned"), Summary(data, "default")
    ranks, others = tuned.ranks(), default.ranks()
    middles = {name: (tuned.middle(name), default.middle(name)) for name in ranks}
    raw = {e.algorithm for row in data.entries.values() for e in row["tuned"]
           if e.found["raw"].any()}  # fmt: skip
    for name in sorted(ranks, key=lambda a: (middles[a][0] is None, ranks[a].mid)):
        yield [
            label(name, raw=name in raw), str(len(tuned.problems(name))), ranks[name].text(".1f"),
            others[name].text(".1f"), *("" if m is None else m.text(".3g") for m in middles[name]),
            "" if name == OURS else tuned.better(name).text(".2f"),
        ]  # fmt: skip


def winners(data: Data) -> Iterator[list[str]]:
    """Who loses least on each problem, who cannot be told from it, and where Fed-LSVI stands."""
    for problem, by in data.entries.items():
        ranked = sorted((e for e in by["tuned"] if not e.variant), key=lambda e: e.mid("share").mid)
        best, names = ranked[0].mid("share"), [e.algorithm for e in ranked]
        near = [e.algorithm for e in ranked[1:] if e.mid("share").low <= best.high]
        yield [
            problem, f"{names[0]}: {best.text('.3g')}", ", ".join(near) or "nobody",
            f"{names.index(OURS) + 1} of {len(names)}" if OURS in names else "",
        ]  # fmt: skip


def table(by: Mapping[str, Sequence[Entry]]) -> Iterator[list[str]]:
    """One row for each algorithm and variant, by tuned regret."""
    default = {(e.algorithm, e.variant): e for e in by["default"]}
    for e in sorted(by["tuned"], key=lambda e: e.mid("share").mid):
        sent = [f"{e.mid(m).mid:,.0f}" for m in ("rounds", "scalars")]
        yield [
            label(e.algorithm, e.variant, bool(e.found["raw"].any())), e.mid("share").text(".3g"),
            default[e.algorithm, e.variant].mid("share").text(".3g"), f"{e.factor:g}", *sent,
            f"{e.mid('seconds').mid:.2g}",
        ]  # fmt: skip


def page(data: Data) -> str:
    """All of it."""
    seeds = {len(e.found["share"]) for by in data.entries.values() for e in by["tuned"]}
    head = ["algorithm", "problems", "mean rank, tuned", "default",
            "regret ÷ uniform, interquartile mean, tuned", "default",
            "chance to lose less than fed-lsvi"]  # fmt: skip
    columns = ["algorithm", "regret ÷ uniform, tuned", "default", "constant × default", "rounds",
               "scalars", "seconds"]  # fmt: skip
    parts = [
        "# All algorithms, problem by problem",
        f"Regret divided by the uniform policy's, so 1 is no better than chance: medians of "
        f"{max(seeds, default=0)} seeds, which the tuning did not see, with 95 % bootstrap "
        "intervals. Each algorithm plays with its default constant and with the best of four "
        "multiples of it; rounds, scalars and seconds are those of the tuned runs. Sizes and rules "
        "are on the [page of the study](../../studies/benchmark.md). Made by `python -m "
        "studies.benchmark`.",
        "° no guarantee on regret; † agents send raw transitions; ‡ knows the rewards, and "
        "`lsvi-ucb-pp` is one agent that plays all episodes. *One-hot* and *low-rank* are rows "
        "with other features than the problem's own; low-rank features know the transitions. "
        "*One model for all steps* is how Fed-LSVI runs by default where no law depends on the "
        "step; such rows take no part in ranks.",
        *([f"Not played to the end yet: {', '.join(data.unfinished)}."] if data.unfinished else []),
        "## Over all problems",
        "Ranks are those of medians among the algorithms that can play a problem. Interquartile "
        f"means are over all problems but {' and '.join(LARGE)}, of algorithms that play all of "
        "them. Intervals are as in rliable: seeds are drawn again within each problem. A cell of "
        "a problem is empty where an algorithm cannot play it or its first run took too long.",
        markdown(head, list(overview(data))),
        "## Who wins",
        markdown(["problem", "least regret, tuned", "whose interval meets it", "fed-lsvi's place"],
                 list(winners(data))),
    ]  # fmt: skip
    for problem, by in data.entries.items():
        parts += [f"## {problem}", markdown(columns, list(table(by)))]
        why: dict[str, list[str]] = {}
        for name, variant, reason in data.empty.get(problem, ()):
            why.setdefault(reason, []).append(label(name, variant))
        parts += [f"Not here: {', '.join(names)}, because {reason}."
                  for reason, names in why.items()]  # fmt: skip
    return "\n\n".join([*parts, "[All numbers](algorithms.csv)"]) + "\n"
