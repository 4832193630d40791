"""The paper's claims, measured: sweeps are played, analyses write pages with verdicts.

A claim is a folder of `studies` with a `sweep` (which runs) and an `analysis` (what they say). All
claims share one file of runs, so that a run which two of them need is made once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from fedlsvi.errors import StoreError, UnknownName
from fedlsvi.experiments.drawing import Panel
from fedlsvi.experiments.runner import Cell, Outcome
from fedlsvi.experiments.sweeping import Point, Size
from fedlsvi.experiments.verdicts import Finding, markdown
from fedlsvi.storage import files
from fedlsvi.storage.schema import parse_json

CLAIMS = (
    "theorem-1",
    "theorem-2",
    "theorem-3",
    "communication",
    "stale",
    "single-agent",
    "trigger",
    "centralised",
)

OVERHEAD = 1.3
"""Wall time over the sum of the runs' times divided by the processes, from experience."""


@dataclass(frozen=True)
class Study:
    """One claim."""

    name: str
    sweep: Callable[[Size], list[Cell]]
    analysis: Callable[[Sequence[Point]], Finding]


def study(name: str) -> Study:
    """The study of a claim."""
    if name not in CLAIMS:
        raise UnknownName("claim", name, CLAIMS)
    home = f"fedlsvi.experiments.studies.{name.replace('-', '_')}"
    return Study(
        name, import_module(f"{home}.sweep").cells, import_module(f"{home}.analysis").finding
    )


def studies(names: Sequence[str]) -> list[Study]:
    """Those that are named, or all of them."""
    return [study(name) for name in dict.fromkeys(names or CLAIMS)]


def hours(cells: Sequence[Cell], jobs: int) -> float:
    """What these runs may take, in hours."""
    spread = max(sum(c.expected for c in cells) / jobs, max((c.expected for c in cells), default=0))
    return OVERHEAD * spread / 3600.0


def distinct(cells: Sequence[Cell]) -> list[Cell]:
    """Every run once: arms of a study may share some."""
    return list({cell.key: cell for cell in cells}.values())


def points(cells: Sequence[Cell], outcomes: Mapping[str, Outcome]) -> list[Point]:
    """Each run under the labels of its study."""
    return [Point(cell.labels, outcomes[cell.key]) for cell in cells]


def page(name: str, found: Finding, command: str, cells: Sequence[Cell],
         outcomes: Mapping[str, Outcome]) -> str:  # fmt: skip
    """The markdown page of a claim."""
    runs = distinct(cells)
    spent = sum(outcomes[cell.key].seconds for cell in runs)
    lines = [
        f"# {found.title}",
        "",
        f"**Claim.** {found.claim}",
        "",
        f"**Verdict: {found.verdict}.**",
        "",
        markdown(["check", "measured", "verdict"], [
            [c.claim + ("" if c.counts else " (beside the claim)"), c.measured, c.verdict]
            for c in found.checks
        ]),
        "",
        f"![{found.title}]({name}.png)",
        "",
        found.setup,
        "",
        f"Made by `{command}`: {len(runs)} runs, {spent / 60.0:.1f} "
        "minutes of computing. Numbers are medians with 95 % bootstrap intervals over seeds.",
        "",
    ]  # fmt: skip
    lines += [line for note in found.notes for line in (note, "")]
    lines += ["## Numbers", "", markdown(found.header, found.rows), ""]
    return "\n".join(lines)


def write(
    out: Path,
    name: str,
    found: Finding,
    text: str,
    paint: Callable[[Sequence[Panel], Path], None],
    made: str,
) -> None:
    """Page and figure of one claim, and its entry in `verdicts.json`."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.md").write_text(text, encoding="utf-8")
    paint(found.panels, out / f"{name}.png")
    entries = known(out)
    entries[name] = {
        "title": found.title,
        "verdict": str(found.verdict),
        "made": made,
        "checks": [
            {"claim": c.claim, "measured": c.measured, "verdict": str(c.verdict),
             "counts": c.counts}
            for c in found.checks
        ],
    }  # fmt: skip
    ordered = {key: entries[key] for key in CLAIMS if key in entries}
    text = json.dumps(ordered, indent=1, ensure_ascii=False)
    files.write(out / "verdicts.json", text.encode() + b"\n")


def known(out: Path) -> dict[str, dict[str, object]]:
    """Verdicts of earlier calls in the same folder; what cannot be read counts as none."""
    try:
        path = files.inside(out, "verdicts.json")
        entries = parse_json(path, files.read(path))
    except StoreError:
        return {}
    if not isinstance(entries, dict):
        return {}
    return {
        name: entry
        for name, entry in entries.items()
        if name in CLAIMS and isinstance(entry, dict) and {"title", "verdict", "made"} <= set(entry)
    }


def index(out: Path) -> str:
    """README.md of the folder: one line per claim."""
    rows = [
        [f"[{entry['title']}]({name}.md)", f"**{entry['verdict']}**", f"`{entry['made']}`"]
        for name, entry in known(out).items()
    ]
    text = "\n".join([
        "# Results",
        "",
        "Each page has the claim, what was measured, a figure, the numbers, the command that made",
        "it and its size. Verdicts are written by the program from the data; *cannot be told*",
        "means that the interval of a measured quantity lies on both sides of its limit.",
        "The checks of trigger, communication and theorem-2 were changed after first results had",
        "been seen; docs/comparing.md says how, and what the verdicts would have been.",
        "",
        markdown(["claim", "verdict", "made by"], rows),
        "",
    ])  # fmt: skip
    files.write(out / "README.md", text.encode())
    return text
