"""Several algorithms on one problem: same environment, same seeds, same counting.

Everything is checked before anything is played. The folder holds the question (`question.json`),
every run (`cells.jsonl`, `runs.csv`, `curves.csv`) and the answer (`summary.json`, `table.md`, the
figure); asked again, it plays only what is missing.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedlsvi.algorithms import registry as algorithms
from fedlsvi.errors import FolderExists, InvalidInput, UnknownName, refuse_unknown
from fedlsvi.experiments.cost import expected_seconds
from fedlsvi.experiments.drawing import Curve, Panel
from fedlsvi.experiments.runner import Cell, Outcome
from fedlsvi.experiments.statistics import Interval, bootstrap, median
from fedlsvi.experiments.verdicts import markdown
from fedlsvi.job import EPISODES, Job
from fedlsvi.plan import Plan
from fedlsvi.records import tenth
from fedlsvi.settings_file import Table
from fedlsvi.store import files

JOB_KEYS = ("episodes", "env", "features")


@dataclass(frozen=True)
class Question:
    """What is compared on what. `shared` are settings and the problem, `own` one algorithm's."""

    names: list[str]
    seeds: list[int]
    shared: Table
    own: dict[str, Table]

    @classmethod
    def parse(cls, table: Table, names: Sequence[str], seeds: Sequence[int]) -> Question:
        """Settings that not every algorithm has go to those that have them; `NAME.key` to one."""
        for name in names:
            algorithms.entry(name)
        if len(set(names)) < len(names) or not names:
            raise InvalidInput(f"--algorithms {','.join(names)} is empty or names one twice")
        own: dict[str, Table] = {name: {} for name in names}
        shared: Table = {"episodes": EPISODES}
        known = {name: algorithms.entry(name).parameters() for name in names}
        every = {key for parameters in known.values() for key in parameters}
        for key, value in table.items():
            if key in ("algorithm", "seed"):  # a settings file of `run` has them
                continue
            if key in known:
                own[key].update(_own(key, value, known[key]))
            elif key in JOB_KEYS:
                shared[key] = value
            elif key in every:
                for name in names:
                    if key in known[name]:
                        own[name].setdefault(key, value)
            else:
                raise UnknownName("setting", key, [*every, *JOB_KEYS, *names])
        return cls(list(names), list(seeds), shared, own)

    def table(self, name: str, seed: int) -> Table:
        """The job of one run."""
        return {"algorithm": name, "seed": seed} | self.own[name] | self.shared

    def cells(self) -> list[Cell]:
        """Every run, the problem's size taken into account in what it may cost."""
        sizes = [plan.parameters for plan in self.check().values()]
        H, d = sizes[0].horizon, max(p.dim for p in sizes)
        return [
            Cell(self.table(name, seed), {"algorithm": name},
                 expected_seconds(self.table(name, seed), H, d))
            for name in self.names for seed in self.seeds
        ]  # fmt: skip

    def check(self) -> dict[str, Plan]:
        """Refuse what cannot be played, before anything is; returns each algorithm's plan."""
        plans = {}
        for name in self.names:
            job = Job.parse(self.table(name, self.seeds[0]))
            for seed in (self.seeds[0], self.seeds[-1]):
                session = job.learner().prepare(
                    job.environments(), job.episodes, seed, features=job.feature_map(), threads=1
                )
                plans[name] = session.plan
                session.close()
        return plans

    def stamps(self) -> dict[str, files.Stamp]:
        """What is in the files that it names: with others in their place, it asks another thing."""
        entries = [self.shared.get(key) for key in ("env", "features")]
        flat = [e for entry in entries for e in (entry if isinstance(entry, list) else [entry])]
        named = [str(e["file"]) for e in flat if isinstance(e, dict) and "file" in e]
        return {name: files.stamp(Path(name).read_bytes()) for name in named}

    def to_dict(self) -> dict[str, Any]:
        """A JSON form."""
        return {
            "algorithms": self.names, "seeds": self.seeds, "shared": self.shared, "own": self.own,
        }  # fmt: skip


def _own(name: str, table: Any, known: Table) -> Table:
    """The settings of one algorithm alone; what makes a run comparable is everybody's."""
    if not isinstance(table, dict):
        raise InvalidInput(
            f"{name} is {table!r}, but it is an algorithm: write {name}.KEY=VALUE to set one of "
            "its settings"
        )
    for key in table:
        if key in ("algorithm", "seed", *JOB_KEYS):
            raise InvalidInput(
                f"{name}.{key} is set, but all algorithms are compared on the same problem and "
                "seeds: leave it out"
            )
    refuse_unknown(f"setting of algorithm '{name}'", table, known)
    return table


def claim_folder(folder: Path, question: Question, more: Mapping[str, Any] | None = None) -> bool:
    """Begin or continue; another question's folder is refused. Returns whether it continues."""
    path, asked = folder / "question.json", question.to_dict() | dict(more or {})
    asked |= {"files": question.stamps()}
    if path.exists():
        kept = {"files": asked["files"]} | files.read_json(path)  # earlier versions had no stamps
        if kept != json.loads(json.dumps(asked)):
            raise FolderExists(
                f"folder {folder} holds another question: choose another with --out, or repeat "
                "its arguments to continue it"
            )
        return True
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FolderExists(
            f"folder {folder} exists and was not made by this command: choose another"
        )
    files.make_folder(folder)
    files.write_json(path, asked)
    return False


@dataclass(frozen=True)
class Standing:
    """One algorithm's row."""

    name: str
    regret: Interval | None
    scalars: Interval
    rounds: Interval
    share: Interval | None  # of the uniform policy's regret
    late: Interval | None
    seconds: Interval

    def to_dict(self) -> dict[str, Any]:
        """A JSON form."""
        return {
            key: value.to_dict() if isinstance(value, Interval) else value
            for key, value in vars(self).items()
        }


def standings(found: dict[str, list[Outcome]]) -> list[Standing]:
    """Rows by median regret, the best first (by scalars where no regret is known)."""
    rows = []
    for name, runs in found.items():
        known = all(run.regret is not None for run in runs)
        shares = [(run.regret or 0.0) / run.uniform for run in runs if run.uniform]
        late = [
            run.episodes / tenth(run.episodes) * (run.late or 0.0) / run.uniform
            for run in runs if run.uniform
        ]  # fmt: skip
        rows.append(Standing(
            name,
            median([run.regret or 0.0 for run in runs]) if known else None,
            median([run.scalars for run in runs]),
            median([run.rounds for run in runs]),
            median(shares) if known and len(shares) == len(runs) else None,
            median(late) if known and len(late) == len(runs) else None,
            median([run.seconds for run in runs]),
        ))  # fmt: skip
    return sorted(rows, key=lambda row: row.regret.mid if row.regret else row.scalars.mid)


def table(rows: Sequence[Standing]) -> tuple[list[str], list[list[str]]]:
    """The ranking in words and numbers."""
    header = ["", "algorithm", "group regret", "of uniform's", "last tenth", "scalars sent",
              "rounds", "seconds"]  # fmt: skip
    body = [
        [
            str(place),
            row.name,
            "–" if row.regret is None else row.regret.text(),
            "–" if row.share is None else row.share.text(".3f"),
            "–" if row.late is None else row.late.text(".3f"),
            row.scalars.text(),
            row.rounds.text(),
            f"{row.seconds.mid:.1f}",
        ]
        for place, row in enumerate(rows, 1)
    ]
    return header, body


def panels(found: dict[str, list[Outcome]], order: Sequence[str]) -> list[Panel]:
    """Group regret against episodes, and against scalars sent."""
    left, right = [], []
    silent = any(run.curve["scalars"][-1] == 0 for runs in found.values() for run in runs)
    for number, name in enumerate(order):
        runs = found[name]
        if any("regret" not in run.curve for run in runs):
            raise InvalidInput("regret is not known on this problem: there is nothing to draw")
        t = np.array(runs[0].curve["t"])
        mid, low, high = bootstrap(np.array([run.curve["regret"] for run in runs]))
        left.append(Curve(name, t, mid, low, high, colour=number, marks=False))
        sent = np.median([run.curve["scalars"] for run in runs], axis=0)
        keep = sent > 0
        if keep.any():
            right.append(Curve(name, sent[keep], mid[keep], low[keep], high[keep],
                               colour=number, marks=False))  # fmt: skip
    aside = " (silent ones: left)" if silent else ""
    return [
        Panel("Regret against episodes", "episode t (each agent)", "group regret, median",
              left, logx=False),
        Panel("Regret against communication", f"scalars sent, all agents{aside}",
              "group regret, median", right),
    ]  # fmt: skip


def write(folder: Path, question: Question, found: dict[str, list[Outcome]]) -> list[Standing]:
    """Everything but the figure."""
    rows = standings(found)
    names = [row.name for row in rows]
    categories = list(found[names[0]][0].scalars_by_category)
    head = ["algorithm", "seed", "n_agents", "episodes", "regret", "late", "uniform", "rounds",
            "scalars", *categories, "gamma", "beta", "lam", "seconds"]  # fmt: skip
    runs: list[list[Any]] = [head]
    curves: list[list[Any]] = [["algorithm", "seed", "t", "regret", "scalars"]]
    for name in names:
        for run in found[name]:
            flat = vars(run) | run.scalars_by_category
            runs.append([flat[key] for key in head])
            n = len(run.curve["t"])
            regret = run.curve.get("regret", [""] * n)
            for t, lost, sent in zip(run.curve["t"], regret, run.curve["scalars"], strict=True):
                curves.append([name, run.seed, t, lost, sent])
    files.write(folder / "runs.csv", _csv(runs))
    files.write(folder / "curves.csv", _csv(curves))
    header, body = table(rows)
    files.write(folder / "table.md", markdown(header, body).encode() + b"\n")
    summary = question.to_dict() | {"ranking": [row.to_dict() for row in rows]}
    files.write_json(folder / "summary.json", summary)
    return rows


def _csv(rows: list[list[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()
