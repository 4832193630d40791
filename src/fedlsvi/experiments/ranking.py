"""What a comparison found: the ranking, its figures, its files."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedlsvi.experiments.compare import Question
from fedlsvi.experiments.drawing import Curve, Panel
from fedlsvi.experiments.runner import Outcome
from fedlsvi.experiments.statistics import Interval, bootstrap, median
from fedlsvi.experiments.verdicts import markdown
from fedlsvi.protocol.records import tenth
from fedlsvi.storage import files


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
    late_return: Interval | None = None

    def to_dict(self) -> dict[str, Any]:
        """A JSON form."""
        return {
            key: value.to_dict() if isinstance(value, Interval) else value
            for key, value in vars(self).items()
        }


def standings(found: dict[str, list[Outcome]]) -> list[Standing]:
    """Rows by median regret, the best first; by return where no regret is known, or by scalars."""
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
            _returns(runs),
        ))  # fmt: skip
    if by_return(rows):
        rows.sort(key=lambda row: row.scalars.mid)  # decides where returns are equal
        return sorted(rows, key=lambda row: -row.late_return.mid if row.late_return else 0.0)
    return sorted(rows, key=lambda row: row.regret.mid if row.regret else row.scalars.mid)


def by_return(rows: Sequence[Standing]) -> bool:
    """Whether returns are all that is known of how well they did."""
    return all(row.regret is None and row.late_return is not None for row in rows)


def _returns(runs: Sequence[Outcome]) -> Interval | None:
    known = [run.late_return for run in runs if run.late_return is not None]
    return median(known) if len(known) == len(runs) else None


def table(rows: Sequence[Standing]) -> tuple[list[str], list[list[str]]]:
    """The ranking in words and numbers."""
    earned = by_return(rows)
    measured = ["return, last tenth"] if earned else ["group regret", "of uniform's", "last tenth"]
    header = ["", "algorithm", *measured, "scalars sent", "rounds", "seconds"]
    body = []
    for place, row in enumerate(rows, 1):
        lost = [_cell(row.regret, ",.0f"), _cell(row.share, ".3f"), _cell(row.late, ".3f")]
        numbers = [_cell(row.late_return, ",.3f")] if earned else lost
        body.append([
            str(place), row.name, *numbers, row.scalars.text(),
            row.rounds.text(), f"{row.seconds.mid:.1f}",
        ])  # fmt: skip
    return header, body


def _cell(found: Interval | None, form: str) -> str:
    return "–" if found is None else found.text(form)


def panels(found: dict[str, list[Outcome]], order: Sequence[str]) -> dict[str, Panel]:
    """Group regret against episodes and against scalars sent, or returns against episodes, by the
    names that figures have in reports; none where neither is known."""
    known = set.intersection(*(set(run.curve) for runs in found.values() for run in runs))
    if "regret" in known:
        curves = _curves(found, order, "regret")
        return {
            "regret": Panel("Regret against episodes", "episode t (each agent)",
                            "group regret, median", curves, logx=False),
            "traffic": _traffic(found, curves),
        }  # fmt: skip
    if "return" not in known:
        return {}
    return {
        "returns": Panel("Return against episodes", "episode t (each agent)", "return, median",
                         _curves(found, order, "return"), logx=False, logy=False),
    }  # fmt: skip


def _curves(found: dict[str, list[Outcome]], order: Sequence[str], what: str) -> list[Curve]:
    made = []
    for number, name in enumerate(order):
        mid, low, high = bootstrap(np.array([run.curve[what] for run in found[name]]))
        t = np.array(found[name][0].curve["t"])
        made.append(Curve(name, t, mid, low, high, colour=number, marks=False))
    return made


def _traffic(found: dict[str, list[Outcome]], curves: Sequence[Curve]) -> Panel:
    """The same curves of regret, over what was sent until then."""
    made = []
    for curve in curves:
        sent = np.median([run.curve["scalars"] for run in found[curve.label]], axis=0)
        keep = sent > 0
        if keep.any():
            assert curve.low is not None
            assert curve.high is not None
            made.append(replace(curve, x=sent[keep], y=curve.y[keep], low=curve.low[keep],
                                high=curve.high[keep]))  # fmt: skip
    silent = any(run.curve["scalars"][-1] == 0 for runs in found.values() for run in runs)
    aside = " (silent ones are not drawn)" if silent else ""
    return Panel("Regret against communication", f"scalars sent, all agents{aside}",
                 "group regret, median", made)  # fmt: skip


def write(folder: Path, question: Question, found: dict[str, list[Outcome]]) -> list[Standing]:
    """Everything but the figure."""
    rows = standings(found)
    names = [row.name for row in rows]
    categories = list(found[names[0]][0].scalars_by_category)
    head = ["algorithm", "seed", "n_agents", "episodes", "regret", "late", "uniform",
            "late_return", "rounds", "scalars", *categories, "gamma", "beta", "lam",
            "seconds"]  # fmt: skip
    runs: list[list[Any]] = [head]
    curves: list[list[Any]] = [["algorithm", "seed", "t", "regret", "return", "scalars"]]
    for name in names:
        for run in found[name]:
            flat = vars(run) | run.scalars_by_category
            runs.append([flat[key] for key in head])
            empty = [""] * len(run.curve["t"])
            columns = [run.curve.get(key, empty) for key in ("t", "regret", "return", "scalars")]
            curves += [[name, run.seed, *point] for point in zip(*columns, strict=True)]
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
