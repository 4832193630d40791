"""What a comparison found: the ranking, its figures, its files and its page."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.errors import InvalidInput, StoreError
from fedlsvi.experiments.compare import ASKED, QUESTION, RESULTS, Question
from fedlsvi.experiments.runner import Outcome, ResultFile, RunSpec
from fedlsvi.experiments.verdicts import markdown
from fedlsvi.protocol.records import tenth
from fedlsvi.report import html, write_figures, write_page
from fedlsvi.report.colours import places
from fedlsvi.report.comparison import COMPARED, best_and_worst
from fedlsvi.report.figures import learns_early
from fedlsvi.report.intervals import Interval, bootstrap, median, over_seeds
from fedlsvi.report.model_class import MODEL, ModelClass
from fedlsvi.report.plotting import (
    Curve,
    Dots,
    Draw,
    Panel,
    against_scalars,
    close_around,
    from_zero,
    legend_above,
    make_figure,
)
from fedlsvi.report.rerun import command, missing
from fedlsvi.report.run_page import CATEGORIES
from fedlsvi.storage import files
from fedlsvi.storage.settings_file import dump

Found = dict[str, list[Outcome]]
"""The outcomes of each algorithm, one for each seed."""


@dataclass(frozen=True)
class Standing:
    """One algorithm's row."""

    name: str
    regret: Interval | None
    scalars: Interval
    rounds: Interval
    share: Interval | None  # regret divided by the uniform policy's
    late: Interval | None  # the same over the last tenth of the episodes
    seconds: Interval
    late_return: Interval | None = None

    def to_dict(self) -> dict[str, Any]:
        """A JSON form."""
        return {
            key: value.to_dict() if isinstance(value, Interval) else value
            for key, value in vars(self).items()
        }


def standings(found: Found) -> list[Standing]:
    """Rows by median regret, the best first; by return where no regret is known, or by scalars."""
    rows = []
    for name, runs in found.items():
        known = all(run.regret is not None for run in runs)
        shares = [(run.regret or 0.0) / run.uniform for run in runs if run.uniform]
        late = [
            run.episodes / tenth(run.episodes) * (run.late or 0.0) / run.uniform
            for run in runs
            if run.uniform
        ]
        row = Standing(
            name=name,
            regret=median([run.regret or 0.0 for run in runs]) if known else None,
            scalars=median([run.scalars for run in runs]),
            rounds=median([run.rounds for run in runs]),
            share=median(shares) if known and len(shares) == len(runs) else None,
            late=median(late) if known and len(late) == len(runs) else None,
            seconds=median([run.seconds for run in runs]),
            late_return=_returns(runs),
        )
        rows.append(row)
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


def table(rows: Sequence[Standing], model: ModelClass) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the ranking."""
    earned = by_return(rows)
    lost = ["group regret", "regret ÷ uniform", "last tenth ÷ uniform"]
    measured = ["return, last tenth"] if earned else lost
    header = ["", "algorithm", MODEL, *measured, "scalars sent", "rounds", "seconds"]
    body = []
    for place, row in enumerate(rows, 1):
        lost = [_cell(row.regret, ",.0f"), _cell(row.share, ".3f"), _cell(row.late, ".3f")]
        numbers = [_cell(row.late_return, ",.3f")] if earned else lost
        costs = [row.scalars.text(), row.rounds.text(), f"{row.seconds.mid:.1f}"]
        body.append([str(place), row.name, model.row(row.name), *numbers, *costs])
    return header, body


def _cell(found: Interval | None, form: str) -> str:
    return "–" if found is None else found.text(form)


def panels(found: Found, order: Sequence[str]) -> dict[str, Draw]:
    """What figures draw, by the names that they have in reports; empty where nothing is known.

    Regret or return against episodes, and against what was sent at the end: along a run, regret
    over scalars would reward having played less.
    """
    known = set.intersection(*(set(run.curve) for runs in found.values() for run in runs))
    episode = "episode t (each agent)"
    if "regret" in known:
        curves = _curves(found, order, "regret")
        early = any(learns_early(curve.x, curve.y) for curve in curves)
        regret = Panel("Regret", episode, "group regret, median", curves, logx=early)
        return {"regret": regret.draw, "price": partial(_price, found=found, order=order)}
    if "return" not in known:
        return {}
    curves = _curves(found, order, "return")
    returns = Panel("Return", episode, "return, median", curves, False, False)
    return {"returns": returns.draw, "worth": partial(_worth, found=found, order=order)}


def _curves(found: Found, order: Sequence[str], what: str) -> list[Curve]:
    made, numbers = [], places({name: name for name in order})
    for name in order:
        mid, low, high = bootstrap(np.array([run.curve[what] for run in found[name]]))
        t = np.array(found[name][0].curve["t"])
        made.append(Curve(name, t, mid, low, high, colour=numbers[name], marks=False))
    return made


def _price(axes: Any, found: Found, order: Sequence[str]) -> None:
    """Each run's regret at the end against what it sent; all have played the same episodes."""
    lost = _sent_for(axes, found, order, lambda run: run.regret)
    from_zero(axes, 1.08 * max(float(some.max()) for some in lost))
    axes.set(ylabel="group regret at the end", title="Regret and its price")
    legend_above(axes)


def _worth(axes: Any, found: Found, order: Sequence[str]) -> None:
    """What the last tenth of the episodes earned, where regret is not known."""
    close_around(axes, _sent_for(axes, found, order, lambda run: run.late_return))
    axes.set(ylabel="mean return, last tenth", title="Return and its price")
    legend_above(axes)


def _sent_for(
    axes: Any, found: Found, order: Sequence[str], figure: Callable[[Outcome], float | None]
) -> list[np.ndarray]:
    """Draw this figure of each run against what the run sent, and return the figures."""
    made = [
        np.array([[run.scalars, figure(run)] for run in found[name]], np.float64).T
        for name in order
    ]
    numbers = places({name: name for name in order})
    dots = [Dots(name, numbers[name], *pair) for name, pair in zip(order, made, strict=True)]
    against_scalars(axes, dots)
    return [values for _, values in made]


def write(folder: Path, question: Question, found: Found) -> list[Standing]:
    """Write everything but the figure; returns the ranking."""
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
    header, body = table(rows, question.model)
    files.write(folder / "table.md", markdown(header, body).encode() + b"\n")
    files.write_json(folder / "summary.json", question.to_dict() | as_json(rows, question.model))
    return rows


def as_json(rows: Sequence[Standing], model: ModelClass) -> dict[str, Any]:
    """The ranking and its model class in a JSON form."""
    ranked = [row.to_dict() | {"one_model_for": model.row(row.name)} for row in rows]
    return {"model_class": model.to_dict(), "ranking": ranked}


def _csv(rows: list[list[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def write_comparison(folder: Path, out: Path) -> list[Path]:
    """Write the page of a folder that `fedlsvi compare` made; nothing is played.

    Args:
        folder: The folder.
        out: Where report.html and plots/ go; or a page, NAME.html.

    Returns:
        The paths of the files, the page first.

    Raises:
        StoreError: Not all of its runs are finished.
    """
    question, found = _read(folder)
    rows = standings(found)
    order = [row.name for row in rows]
    draws = panels(found, order)
    svgs, written = write_figures(
        out, {name: partial(make_figure, [draw]) for name, draw in draws.items()}
    )
    first = found[order[0]][0]
    sizes = [plural(first.n_agents, "agent"), f"{plural(first.episodes, 'episode')} each"]
    sizes += [f"horizon {first.horizon}", plural(first.dim, "feature")]
    sizes.append(over_seeds(len(question.seeds)))
    kinds = list(first.scalars_by_category)
    sent = [
        [name, *(f"{found[name][0].scalars_by_category[kind]:,}" for kind in kinds)]
        for name in order
    ]
    header, body = table(rows, question.model)
    parts = [
        html.paragraph(", ".join(sizes), "sub"),
        html.paragraph(_verdict(rows, found), "outcome"),
        html.heading("Ranking"),
        html.table(header[1:], [_page_row(row) for row in body], stack=True),
        html.paragraph(question.model.sentence(), "note"),
        html.heading("Return" if "returns" in svgs else "Regret"),
        html.images(svgs, COMPARED),
        html.heading(f"Scalars sent, seed {question.seeds[0]}"),
        html.table(["algorithm", *(CATEGORIES[k] for k in kinds)], sent, stack=True),
        html.heading("Run it again"),
        html.code(_rerun(question)),
    ]  # fmt: skip
    title = f"{plural(len(rows), 'algorithm')} on {_environment(question.shared['env'])}"
    return [write_page(out, html.document(title, parts)), *written]


def _read(folder: Path) -> tuple[Question, Found]:
    asked = files.read_json(files.inside(folder, QUESTION), ASKED)
    if "test" in asked:
        raise InvalidInput(
            f"{folder} was written by `fedlsvi tune`: read its table.md", code="is-a-tuning"
        )
    question = Question.from_dict(asked)
    outcomes = ResultFile.read(folder / RESULTS)
    found = {}
    for name in question.names:
        wanted = [RunSpec(question.table(name, seed)).key for seed in question.seeds]
        if not all(key in outcomes for key in wanted):
            raise StoreError(
                f"not all runs in {folder} are finished: repeat `fedlsvi compare`",
                code="comparison-unfinished",
            )
        found[name] = [outcomes[key] for key in wanted]
    return question, found


def _verdict(rows: Sequence[Standing], found: Found) -> str:
    merits = [row.late_return if by_return(rows) else row.regret for row in rows]
    raw = [any(_raw(run) for run in found[row.name]) for row in rows]
    if None in merits:
        return f"Regret is not known here; {rows[0].name} sent the fewest scalars."
    named = [(row.name, merit.mid, shares) for row, merit, shares in
             zip(rows, merits, raw, strict=True) if merit is not None]  # fmt: skip
    name = "return, last tenth" if by_return(rows) else "group regret"
    return best_and_worst(named, name, not by_return(rows))


def _page_row(row: Sequence[str]) -> list[str]:
    place, name, kind, *numbers = row
    return [f"{place}. {name}", kind.replace(" (", "\n("), *map(_two_lines, numbers)]


def _two_lines(cell: str) -> str:
    """'12 [10, 15]' with its interval on a second line, or without it where it has no width."""
    mid, bracket, ends = cell.partition(" [")
    return cell if not bracket else mid if ends == f"{mid}, {mid}]" else f"{mid}\n[{ends}"


def _raw(run: Outcome) -> int:
    sent = run.scalars_by_category
    return sent.get("up_raw", 0) + sent.get("down_raw", 0)


def _environment(entry: Any) -> str:
    """Its name in settings: a name, a table with one, or a list of these."""
    if isinstance(entry, dict):
        return str(entry.get("id") or entry["name"])
    return entry if isinstance(entry, str) else "several environments"


def _rerun(question: Question) -> str:
    """The settings, with the command as a comment above them."""
    names, seeds = ",".join(question.names), ",".join(map(str, question.seeds))
    unknown = missing(question.names, question.shared["env"], question.shared.get("features"))
    words = ("compare", "settings.toml", "--algorithms", names, "--seeds", seeds)
    where = f"\n# MODULE is your module or .py file that registers {', '.join(unknown)}"
    own = {name: table for name, table in question.own.items() if table}
    line = command(*words, missing=bool(unknown))
    return f"# {line}{where if unknown else ''}\n{dump(question.shared | own)}"
