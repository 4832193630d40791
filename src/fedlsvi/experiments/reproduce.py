"""The claims of the paper and three beside it: sweeps are played, analyses write their pages.

A claim is a module of `claims` with a `sweep` (which runs) and a `finding` (what they say). All
claims share one file of runs, so a run that two of them need is made once.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path

from fedlsvi.checks import plural
from fedlsvi.errors import StoreError, UnknownName
from fedlsvi.experiments.claims import CLAIMS
from fedlsvi.experiments.runner import Outcome, RunSpec
from fedlsvi.experiments.sweeps import Point, Size
from fedlsvi.experiments.verdicts import Finding, markdown
from fedlsvi.report.intervals import FEWEST, interval_name
from fedlsvi.report.plotting import paint
from fedlsvi.storage import files
from fedlsvi.storage.schema import parse_json

OVERHEAD = 1.3
"""Wall time over the sum of the runs' times divided by the processes, from experience."""


@dataclass(frozen=True)
class Study:
    """One claim."""

    name: str
    sweep: Callable[[Size], list[RunSpec]]
    finding: Callable[[Sequence[Point]], Finding]


def study(name: str) -> Study:
    """The study of a claim."""
    if name not in CLAIMS:
        raise UnknownName("claim", name, CLAIMS)
    module = import_module(f"fedlsvi.experiments.claims.{name.replace('-', '_')}")
    return Study(name, module.sweep, module.finding)


def studies(names: Sequence[str]) -> list[Study]:
    """Those that are named, or all of them."""
    return [study(name) for name in dict.fromkeys(names or CLAIMS)]


def hours(specs: Sequence[RunSpec], jobs: int) -> float:
    """What these runs may take, in hours."""
    spread = max(sum(c.expected for c in specs) / jobs, max((c.expected for c in specs), default=0))
    return OVERHEAD * spread / 3600.0


def distinct(specs: Sequence[RunSpec]) -> list[RunSpec]:
    """Every run once: arms of a study may share some."""
    return list({spec.key: spec for spec in specs}.values())


def points(specs: Sequence[RunSpec], outcomes: Mapping[str, Outcome]) -> list[Point]:
    """Each run under the labels of its study."""
    return [Point(spec.labels, outcomes[spec.key]) for spec in specs]


def page(
    name: str,
    found: Finding,
    command: str,
    specs: Sequence[RunSpec],
    outcomes: Mapping[str, Outcome],
) -> str:
    """The Markdown page of a claim.

    Args:
        name: Of the claim.
        found: What its study found.
        command: What made the page.
        specs: Its runs.
        outcomes: Of these runs, by key.
    """
    runs = distinct(specs)
    spent = sum(outcomes[spec.key].seconds for spec in runs)
    checks = [
        [c.claim + ("" if c.counts else " (informational)"), c.measured, c.verdict]
        for c in found.checks
    ]
    lines = [
        f"# {found.title}",
        f"**Claim.** {found.claim}",
        f"**Verdict: {with_scope(found)}.**",
        markdown(["check", "measured", "verdict"], checks),
        f"![{found.title}]({name}.png)",
        found.setup,
        f"Made by `{command}`: {plural(len(runs), 'run')}, {spent / 60.0:.1f} minutes of "
        f"computing. Numbers are medians of {seeds(specs)}.",
        *found.notes,
        f"[All numbers]({name}.csv)",
    ]
    return "\n\n".join(lines) + "\n"


def seeds(specs: Sequence[RunSpec]) -> str:
    """How many seeds a number comes from, and what its brackets are; some arms may have fewer."""
    arms: dict[str, set[int]] = {}
    for spec in specs:
        arm = {key: value for key, value in spec.labels.items() if key != "seed"}
        arms.setdefault(repr(sorted(arm.items())), set()).add(spec.labels["seed"])
    counts = {len(found) for found in arms.values()}
    n = max(counts)
    text = f"{plural(n, 'seed')}, with the {interval_name(n)} in brackets"
    if min(counts) == n:
        return text
    fewer = f"; some have {plural(min(counts), 'seed')}"
    return text + fewer + (f" and the {interval_name(2)}" if min(counts) < FEWEST <= n else "")


def with_scope(found: Finding) -> str:
    """The verdict, and what it is limited to."""
    return f"{found.verdict}{f' ({found.scope})' if found.scope else ''}"


def write(out: Path, name: str, found: Finding, text: str, made: str) -> None:
    """Write page, figure and table of one claim, and its entry in `verdicts.json`.

    Args:
        out: The folder of all pages.
        name: Of the claim.
        found: What its study found.
        text: The page.
        made: The command.
    """
    out.mkdir(parents=True, exist_ok=True)
    files.write(out / f"{name}.md", text.encode())
    paint(found.panels, out / f"{name}.png")
    files.write(out / f"{name}.csv", _table(found).encode())
    entries = known(out)
    checks = [asdict(check) | {"verdict": str(check.verdict)} for check in found.checks]
    entries[name] = {
        "title": found.title,
        "verdict": str(found.verdict),
        "scope": found.scope,
        "made": made,
        "checks": checks,
    }
    ordered = {key: entries[key] for key in CLAIMS if key in entries}
    text = json.dumps(ordered, indent=1, ensure_ascii=False)
    files.write(out / "verdicts.json", text.encode() + b"\n")


def _table(found: Finding) -> str:
    """The numbers behind a page, as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([found.header, *found.rows])
    return text.getvalue()


def known(out: Path) -> dict[str, dict[str, object]]:
    """Verdicts of earlier calls in the same folder; empty where they cannot be read."""
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
    """Write README.md of the folder, one line per claim; returns its text."""
    rows = []
    for name, entry in known(out).items():
        scope = f" ({entry['scope']})" if entry.get("scope") else ""
        title = f"[{entry['title']}]({name}.md)"
        rows.append([title, f"**{entry['verdict']}**{scope}"])
    text = f"""# Results

Each page has the claim, what was measured, a figure, and the command that made it; a CSV file has
the numbers. Verdicts are computed from the data; *inconclusive* means that the interval of a
measured quantity includes its limit. After the first results the checks of trigger, communication
and theorem-2 were changed, and centralised and single-agent got more seeds; studies/claims.md says
how, and what the verdicts would have been.

{markdown(["claim", "verdict"], rows)}
"""
    files.write(out / "README.md", text.encode())
    return text
