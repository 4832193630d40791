"""What the command prints: plain lines, or one JSON object."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from fedlsvi.checks import plural


def as_json(content: Any) -> str:
    """One JSON object, NaN and infinity excluded."""
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)


def columns(rows: Sequence[Sequence[str]], align: str, indent: str = "") -> list[str]:
    """Rows as lines with columns of equal width.

    Args:
        rows: As many cells in each.
        align: "<" or ">" for each column; the last one counts for all that follow.
        indent: What every line begins with.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    align = align.ljust(len(widths), align[-1])
    return [
        (indent + "  ".join(f"{c:{a}{w}}" for c, a, w in zip(row, align, widths, strict=True)))
        .rstrip()
        for row in rows
    ]  # fmt: skip


def number(value: float | None) -> str:
    """12,345 or 12.3; a dash where there is nothing."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 or float(value).is_integer() else f"{value:,.2f}"


def heading(summary: Mapping[str, Any]) -> str:
    """Who learned what, for how long."""
    from fedlsvi.algorithms import registry as algorithms
    from fedlsvi.report.choices import in_force

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
         f"sharing every trajectory: {number(summary['scalars_raw'])}"),
        ("shortest round", number(summary["shortest_round"]), _least(summary)),
        ("seconds", f"{sum(seconds.values()):.2f}", spent),
    ]  # fmt: skip
    lines = [f"{heading(summary)}, seed {summary['seed']}", *columns(rows, "<><", "  ")]
    if summary.get("folder"):
        lines += [_location(summary["folder"])]
    return lines


def _location(folder: str) -> str:
    """Where the result is, and the command that plots it."""
    return f"  folder: {folder}    plots: fedlsvi report {quote(folder)}"


def _switches(counts: Mapping[str, int]) -> list[tuple[str, str, str]]:
    """How often policies changed, where agents learn alone."""
    if "switches" not in counts:
        return []
    most = f"policy changes in all; at most {number(counts['most_switches'])} by one agent"
    return [("switches", number(counts["switches"]), most)]


def _merit(summary: Mapping[str, Any]) -> tuple[str, str, str]:
    """Regret, or the return where regret is not known."""
    if summary["return"] is None:
        most = _most(summary, "theorem_1", "theorem_2")
        return "regret", number(summary["regret"]), most
    best = f"mean of the last tenth of the episodes; best round: {number(summary['best_return'])}"
    return "return", number(summary["return"]), best


def _least(summary: Mapping[str, Any]) -> str:
    """What the shortest round means for privacy."""
    least, shortest = summary["smallest_upload"], summary["shortest_round"]
    unit = "episode" if shortest == 1 else "episodes"
    if least < shortest:
        return f"{unit}; the smallest upload covers {plural(least, 'episode')}"
    return f"{unit} (short rounds reveal more about each episode)"


def _most(summary: Mapping[str, Any], *theorems: str) -> str:
    """The bound of the first of these theorems that applies."""
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
    kinds = (merit, "rounds", "scalars")
    rows = [["seed", *kinds]]
    rows += [[str(s["seed"]), *(number(s[kind]) for kind in kinds)] for s in summaries]
    for label in ("mean", "low", "high"):
        values = [together[kind] and together[kind][label] for kind in kinds]
        rows.append(["mean" if label == "mean" else f"95 % {label}", *map(number, values)])
    lines = [heading(summaries[0]), *columns(rows, "<>", "  ")]
    return lines if out is None else [*lines, _location(str(out))]
