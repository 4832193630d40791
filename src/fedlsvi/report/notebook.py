"""What a notebook shows of runs: short tables and a sketch, one piece of HTML without scripts.

Everything that comes from a user (names, notes) is escaped; the sketch is drawn here, so that
Matplotlib is not needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.protocol.records import returns_between
from fedlsvi.report.colours import look, places
from fedlsvi.report.html import number

if TYPE_CHECKING:
    from fedlsvi.report.several import Comparison
    from fedlsvi.run import Run

POINTS = 60
WIDTH, HEIGHT = 260, 90

CELL = 'style="text-align:left;padding:1px 12px 1px 0"'


def table(rows: Sequence[Sequence[str]], head: Sequence[str] = ()) -> str:
    """A table of texts, which are escaped."""
    lines = [f"<th {CELL}>{escape(cell)}</th>" for cell in head]
    found = [f"<tr>{''.join(lines)}</tr>"] if head else []
    for row in rows:
        found.append("<tr>" + "".join(f"<td {CELL}>{escape(cell)}</td>" for cell in row) + "</tr>")
    return f"<table>{''.join(found)}</table>"


def sketch(curves: dict[str, np.ndarray], numbers: Mapping[str, int]) -> str:
    """Curves of (n, 2) points in one small picture, named below it; `numbers` are their places in
    the palette."""
    curves = {name: points for name, points in curves.items() if len(points)}
    if not curves:
        return ""
    every = np.concatenate(list(curves.values()))
    low, high = every.min(axis=0), every.max(axis=0)
    span = np.where(high > low, high - low, 1.0)
    lines, names = [], []
    for name, points in curves.items():
        x, y = ((points - low) / span).T
        at = " ".join(
            f"{4 + (WIDTH - 8) * a:.1f},{HEIGHT - 4 - (HEIGHT - 8) * b:.1f}"
            for a, b in zip(x, y, strict=True)
        )
        colour = look(numbers[name])["color"]
        lines.append(
            f'<polyline points="{at}" fill="none" stroke="{colour}" stroke-width="2"></polyline>'
        )
        names.append(f'<span style="color:{colour}">{escape(name)}</span>')
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#ccc"></rect>'
        f"{''.join(lines)}</svg><div>{', '.join(names)}, {high[1]:,.4g} at most; "
        f"{low[0]:,.0f} to {plural(int(high[0]), 'episode')}</div>"
    )


def curve_of(run: Run) -> tuple[str, np.ndarray]:
    """What a run is measured by, over its episodes: (n, 2) points."""
    n = run.played
    if run.regret is not None:
        at = np.unique(np.linspace(0, n - 1, min(n, POINTS)).astype(int))
        return "regret", np.column_stack([at + 1.0, run.regret[at]])
    edges = np.unique(np.linspace(0, n, min(n, POINTS // 2) + 1).astype(int))
    means = returns_between(run.records, edges)
    if means is None:
        return "", np.empty((0, 2))
    return "return", np.column_stack([edges[1:].astype(float), means])


def traffic_rows(run: Run) -> list[tuple[str, str]]:
    """Rounds and scalars, and the raw data beside them."""
    rows = [("rounds", f"{run.rounds:,}"), ("scalars sent", f"{run.ledger.total:,}")]
    if run.scalars_raw is not None:
        rows.append(("sharing every trajectory", f"{run.scalars_raw:,}"))
    rows.append(("shortest round", plural(min(r.shortest for r in run.records), "episode")))
    return rows


def html_of_run(run: Run) -> str:
    """Outcome, sketch and traffic of one run."""
    p = run.parameters
    end = "" if run.ending == "finished" else f", {run.ending} of {p.episodes:,}"
    rows: list[tuple[str, str]] = [
        ("agents", f"{p.n_agents:,}"),
        ("episodes each", f"{run.played:,}{end}"),
        ("seed", str(run.seed)),
    ]
    if run.regret is not None:
        rows.append(("regret, all agents", number(float(run.regret[-1]))))
    elif (late := run.summary(values=False)["return"]) is not None:
        rows.append(("return, last tenth", number(late)))
    rows += traffic_rows(run)
    rows += [("note", text) for text in [*run.extended, *(a.sentence for a in run.advice)]]
    name, points = curve_of(run)
    title = f"<b>{escape(run.algorithm)}</b> on <b>{escape(run.environment_name)}</b>"
    return f"<div>{title}{table(rows)}{sketch({name: points}, {name: 0})}</div>"


def html_of_comparison(found: Comparison) -> str:
    """One row for each group of seeds, and their curves."""
    curves = {group.label: curve_of(group.first)[1] for group in found.groups}
    numbers = places({group.label: group.first.algorithm for group in found.groups})
    return f"<div>{table(found.rows(), found.HEAD)}{sketch(curves, numbers)}</div>"


def html_of_pairs(title: str, rows: Sequence[tuple[str, Any]]) -> str:
    """A title and two columns."""
    return f"<div><b>{escape(title)}</b>{table([(k, str(v)) for k, v in rows])}</div>"
