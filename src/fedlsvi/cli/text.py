"""What the command prints: plain lines that a newcomer understands, or one JSON object."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from fedlsvi.algorithms import registry as algorithms
from fedlsvi.checks import plural
from fedlsvi.report.choices import in_force


def as_json(content: Any) -> str:
    """One JSON object, NaN and infinity excluded."""
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)


def aligned(rows: Sequence[Sequence[str]], indent: str = "  ") -> list[str]:
    """Columns of equal width; the second one is numbers and stands to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if i == 1 else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(indent + "  ".join(cells).rstrip())
    return lines


def columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Plain text, first two columns to the left."""
    every = [list(header), *rows]
    widths = [max(len(row[i]) for row in every) for i in range(len(header))]
    return [
        "  ".join(
            cell.ljust(w) if i < 2 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in every
    ]


def number(value: float | None) -> str:
    """12,345 or 12.3; a dash where there is nothing."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 or float(value).is_integer() else f"{value:,.2f}"


def heading(summary: Mapping[str, Any]) -> str:
    """Who learned what, for how long."""
    p, name = summary["parameters"], summary["algorithm"]
    numbers = [f"H = {p['horizon']}", f"d = {p['dim']}"]
    numbers += in_force(algorithms.entry(name).parameters(), p)
    return (
        f"{name} on {summary['environment']}: {plural(p['n_agents'], 'agent')}, "
        f"{plural(summary['episodes'], 'episode')} each ({', '.join(numbers)})"
    )


def single_lines(summary: Mapping[str, Any]) -> list[str]:
    """One run."""
    seconds = summary["seconds"]
    spent = ", ".join(f"{phase} {value:.2f}" for phase, value in seconds.items())
    rows = [
        _merit(summary),
        ("rounds", number(summary["rounds"]), _most(summary, "theorem_3")),
        *_switches(summary["counts"]),
        ("scalars sent", number(summary["scalars"]),
         "" if summary["scalars_raw"] is None else
         f"sharing every trajectory: {number(summary['scalars_raw'])}"),
        ("shortest round", number(summary["shortest_round"]), _least(summary)),
        ("seconds", f"{sum(seconds.values()):.2f}", spent),
    ]  # fmt: skip
    lines = [f"{heading(summary)}, seed {summary['seed']}", *aligned(rows)]
    if summary.get("folder"):
        lines += [_whereabouts(summary["folder"])]
    return lines


def _whereabouts(folder: str) -> str:
    """Where the result is, and the command that draws it, ready to be pasted."""
    return f"  folder: {folder}    plots: fedlsvi report {quote(folder)}"


def _switches(counts: Mapping[str, int]) -> list[tuple[str, str, str]]:
    """Where agents learn alone, how often their policies were renewed."""
    if "switches" not in counts:
        return []
    most = f"of all agents' policies; at most {number(counts['most_switches'])} of one agent's"
    return [("switches", number(counts["switches"]), most)]


def _merit(summary: Mapping[str, Any]) -> tuple[str, str, str]:
    """Regret, or what episodes earned where nobody knows it."""
    if summary["return"] is None and summary["regret"] is None:
        return "regret", "not known here", ""
    if summary["return"] is None:
        most = _most(summary, "theorem_1", "theorem_2")
        return "regret", number(summary["regret"]), most
    best = f"mean of the last tenth of the episodes; best round: {number(summary['best_return'])}"
    return "return", number(summary["return"]), best


def _least(summary: Mapping[str, Any]) -> str:
    """What the shortest round means for privacy."""
    least = summary["smallest_upload"]
    if least < summary["shortest_round"]:
        return f"episodes; where the others had ended, an upload held only {least:,}"
    unit = "episode" if least == 1 else "episodes"
    return f"{unit}; the fewer, the more an upload says about each"


def _most(summary: Mapping[str, Any], *theorems: str) -> str:
    """What the first of these theorems that applies allows."""
    for name in theorems:
        if name in summary["bounds"]:
            at = "" if name == "theorem_3" else " at this β"
            title = name.replace("_", " ").capitalize()
            return f"{title}{at}: at most {number(summary['bounds'][name]['bound'])}"
    return ""


def several_lines(
    summaries: Sequence[Mapping[str, Any]], together: Mapping[str, Any], out: Path | None
) -> list[str]:
    """Several runs: each, then mean and interval."""
    merit = "regret" if together["return"] is None else "return"
    columns = (merit, "rounds", "scalars")
    rows: list[tuple[str, ...]] = [("seed", *columns)]
    rows += [(str(s["seed"]), *(number(s[c]) for c in columns)) for s in summaries]
    for label in ("mean", "low", "high"):
        values = [together[c] and together[c][label] for c in columns]
        name = "mean" if label == "mean" else f"95 % {label}"
        rows.append((name, *(number(v) for v in values)))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [heading(summaries[0])]
    for row in rows:
        cells = [cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True)]
        lines.append("  " + "  ".join([row[0].ljust(widths[0]), *cells]))
    if out is not None:
        lines += [_whereabouts(str(out))]
    return lines
