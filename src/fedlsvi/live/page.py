"""The parts of the live page: HTML that is made again whenever something has changed."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING

from fedlsvi.checks import plural
from fedlsvi.live.chart import Line, chart
from fedlsvi.live.curves import Curve
from fedlsvi.report import html
from fedlsvi.report.colours import COLOURS, place
from fedlsvi.report.html import number

if TYPE_CHECKING:
    from fedlsvi.live.watcher import Event
    from fedlsvi.remote.server_status import RunStatus
    from fedlsvi.remote.site_status import SiteRun

PARTS = ("outcome", "federations", "site", "curves", "runs", "events")
"""The parts of the page, in their order; each is replaced on its own."""

CHARTS = 6
"""Problems that are drawn; further ones are in the table alone."""

WORDS = {"here": "answers", "awaited": "waited for", "away": "away", "excluded": "excluded"}


def shell(title: str) -> str:
    """The page without its parts, which `live.js` puts in."""
    sections = "".join(f'<section id="{part}"></section>' for part in PARTS)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title>"
        '<link rel="stylesheet" href="style.css"><link rel="icon" href="data:,">'
        '<script src="live.js" defer></script></head><body>'
        f'<header><h1>{escape(title)}</h1><p class="sub" id="connection">connecting …</p></header>'
        f'<main>{sections}</main><div id="said" class="hidden" role="status" aria-live="polite">'
        "</div><noscript><p>This page needs scripts, which come from this machine.</p></noscript>"
        "</body></html>\n"
    )


def style() -> str:
    """The report's style, and what this page has more."""
    own = files("fedlsvi.live").joinpath("live.css").read_text(encoding="utf-8")
    return files("fedlsvi.report").joinpath("style.css").read_text(encoding="utf-8") + own


def script() -> str:
    """What keeps the page up to date."""
    return files("fedlsvi.live").joinpath("live.js").read_text(encoding="utf-8")


def outcome(curves: Sequence[Curve], federations: Sequence[RunStatus], nothing: str) -> str:
    """How many run, and who is waited for, in a sentence."""
    said = []
    if curves:
        going = sum(curve.state == "running" for curve in curves)
        done = sum(curve.state == "finished" for curve in curves)
        said.append(f"{plural(len(curves), 'run')}: {going} going on, {done} finished")
    for status in federations:
        late = [site.name for site in status.sites if site.state != "here"]
        words = f"{status.name} {state_of(status)}"
        said.append(words + (f", without {', '.join(late)}" if late else ""))
    return html.paragraph("; ".join(said) or nothing, "outcome")


def state_of(status: RunStatus) -> str:
    """Where a federation's job is, in a few words."""
    if status.goes_on and not status.fresh:
        return "has died: its server writes nothing any more"
    if status.state == "failed":
        return f"has failed: {status.reason}"
    return {
        "starting": "is starting", "running": "is running", "pausing": "pauses after this round",
        "paused": "is paused", "complete": "is complete",
    }[status.state]  # fmt: skip


def federation(status: RunStatus) -> str:
    """A federation: how far it is, and its sites."""
    done = status.episode / status.episodes if status.episodes else 0.0
    up = sum(site.up for site in status.sites)
    down = sum(site.down for site in status.sites)
    cells = [
        (number(status.round), "rounds"),
        (f"{number(status.episode)}\n{done:.0%} of {number(status.episodes)}", "episodes each"),
        (size(up), "received from sites in this job"),
        (size(down), "sent to sites in this job"),
    ]
    if status.epsilon is not None:
        cells.append((f"{status.epsilon:.3g}", "ε spent"))
    head = ("site", "state", "last heard", "round", "received", "sent", "refused")
    rows = []
    for site in status.sites:
        state = WORDS[site.state]
        if site.why:
            since = "" if site.since is None else f" since {clock(site.since)}"
            state += f"{since}\n{site.why}"
        elif site.back is not None:
            state += f"\nagain since {clock(site.back)}"
        refused = sum(site.refused.values())
        rows.append((
            site.name, state, clock(site.heard), f"{site.round:,}", size(site.up), size(site.down),
            f"{refused:,}\n{site.refusal}" if refused else "0",
        ))  # fmt: skip
    table = html.table(head, rows, words=(0, 1, 2), stack=True)
    for site in status.sites:  # colour is never all that tells a state
        table = table.replace(
            f"{WORDS[site.state]}<", f'<b class="{site.state}">{WORDS[site.state]}</b><'
        ) if site.state != "here" else table  # fmt: skip
    notes = html.table(("note",), [(note,) for note in status.notes]) if status.notes else ""
    return (
        html.heading(status.name)
        + html.paragraph(f"The job {state_of(status)}.")
        + html.boxes(cells) + table + notes
    )  # fmt: skip


def site_part(runs: Sequence[SiteRun], epsilon: dict[str, float | None]) -> str:
    """A site's own view: what left it, and what was refused."""
    parts = [html.heading("What left this site")]
    rows = [
        (run.name, "–" if run.request is None else f"{run.request.round:,}",
         "–" if run.request is None else f"{clock(run.request.at)}\n{run.request.kind}",
         f"{sum(run.messages.values()):,}", size(run.bytes), f"{sum(run.scalars.values()):,}")
        for run in runs
    ]  # fmt: skip
    head = ("federation", "round", "last request", "messages", "bytes", "scalars")
    parts.append(html.table(head, rows, words=(0, 2), stack=True))
    if epsilon["delta"] is not None:
        limit = (
            "no limit is set" if epsilon["limit"] is None else f"the limit is {epsilon['limit']}"
        )
        parts.append(html.paragraph(
            f"ε = {epsilon['spent']:.4g} at δ = {epsilon['delta']:g} over all jobs; {limit}."
        ))  # fmt: skip
    refused = [
        (said["last"][:19].replace("T", " "), f"{said['times']:,}", said["sentence"])
        for run in runs for said in run.refused
    ]  # fmt: skip
    parts.append(html.heading("Refused requests and errors", 3))
    parts.append(
        html.table(("last, UTC", "times", "what"), refused, words=(0, 2), stack=True)
        if refused else html.paragraph("None.")
    )  # fmt: skip
    return "".join(parts)


def runs_part(curves: Sequence[Curve], unreadable: Mapping[str, int] = MappingProxyType({})) -> str:
    """A line for each run, and in which files there are lines that no run has written."""
    odd = "".join(
        html.paragraph(f"{plural(lines, 'line')} of {name} cannot be read and left out here.")
        for name, lines in unreadable.items()
    )
    if not curves:
        return odd
    head = ("run", "algorithm", "state", "episodes", "rounds", "regret or return", "scalars",
            "who fired last", "time left")  # fmt: skip
    rows = []
    for curve in curves:
        done = curve.t[-1] if curve.t else 0
        share = f"\n{done / curve.planned:.0%} of {curve.planned:,}" if curve.planned else ""
        rows.append((
            curve.name, curve.algorithm, curve.state, f"{done:,}{share}",
            f"{curve.rounds[-1]:,}" if curve.rounds else "0",
            f"{number(curve.y[-1])}\n{curve.unit}" if curve.y else "–",
            f"{curve.scalars[-1]:,}" if curve.scalars else "0",
            curve.fired or "–", duration(curve.left),
        ))  # fmt: skip
    return html.heading("Runs") + odd + html.table(head, rows, words=(0, 1, 2, 7), stack=True)


def curves_part(curves: Sequence[Curve]) -> str:
    """Runs of one problem over each other: regret or return, rounds and traffic."""
    problems: dict[tuple[str, str], list[Curve]] = {}
    for curve in curves:
        if curve.t:
            problems.setdefault((curve.environment, curve.unit), []).append(curve)
    parts = []
    for (environment, unit), inside in list(problems.items())[:CHARTS]:
        parts.append(html.heading(f"{environment}: {unit or 'rounds and traffic'}"))
        parts.append(legend(inside))
        named = "regret of all agents" if unit == "regret" else "mean return"
        drawn = [
            chart(f"{environment}: {text}", [
                Line(curve.name, place(curve.algorithm), curve.t, values)
                for curve, values in lines if values
            ], "episodes", text)
            for text, lines in (
                (named, [(c, c.y) for c in inside]),
                ("rounds", [(c, c.rounds) for c in inside if c.each]),
                ("scalars sent, both ways", [(c, c.scalars) for c in inside if c.each]),
            )
        ]  # fmt: skip
        parts.append(f'<div class="figures">{"".join(drawn)}</div>')
    return "".join(parts)


def legend(curves: Sequence[Curve]) -> str:
    """A button for each algorithm, which hides and shows its runs."""
    names: dict[str, list[str]] = {}
    for curve in curves:
        names.setdefault(curve.algorithm, []).append(curve.name)
    buttons = []
    for algorithm, runs in names.items():
        colour = COLOURS[place(algorithm) % len(COLOURS)]
        buttons.append(
            f'<button type="button" aria-pressed="true" data-runs="{escape(json.dumps(runs))}">'
            f'<svg viewBox="0 0 24 6" aria-hidden="true"><path d="M0 3H24" stroke="{colour}" '
            f'stroke-width="4"/></svg>{escape(algorithm)} ({len(runs)})</button>'
        )
    return f'<div class="legend" role="group" aria-label="Shown">{"".join(buttons)}</div>'


def events_part(events: Sequence[Event]) -> str:
    """What has happened since the page was opened, the last first."""
    if not events:
        return ""
    rows = [(clock(event.at), event.what) for event in reversed(events)]
    return html.heading("What has happened") + html.table(("UTC", "what"), rows, words=(0, 1))


def size(count: float) -> str:
    """12.3 MB."""
    for power, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= power:
            return f"{count / power:.3g} {unit}"
    return f"{count:.0f} B"


def clock(at: float | None) -> str:
    """A time of the day; with its date where that is another day."""
    if at is None:
        return "not yet"
    then = datetime.fromtimestamp(at, UTC)
    same = time.strftime("%Y-%m-%d", time.gmtime()) == then.strftime("%Y-%m-%d")
    return then.strftime("%H:%M:%S" if same else "%Y-%m-%d %H:%M:%S")


def duration(seconds: float | None) -> str:
    """3 min."""
    if seconds is None:
        return "–"
    for length, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
