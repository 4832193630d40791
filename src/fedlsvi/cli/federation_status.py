"""What `fedlsvi federate status` shows: how far a run is, its sites, its jobs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fedlsvi.checks import plural
from fedlsvi.cli.text import columns

if TYPE_CHECKING:
    from fedlsvi.remote.server_status import RunStatus, SiteStatus

NAMED = 8
"""Notes that are shown one by one."""

WARN_DAYS = 30
"""`status` warns if certificates end in fewer days."""

EVERY = 1.0
"""Seconds between two looks of `--watch`."""

HEAD = ["site", "state", "last heard", "round", "received", "sent", "refused"]


def progress(found: dict[str, Any]) -> list[str]:
    """How far the run is, and its latest notes."""
    if found["rounds"] is None:
        known = "no rounds on this machine; they are in the server's kit"
        return [f"{found['name']}: {known}", *([found["waits"]] if found["waits"] else [])]
    done = f"{plural(found['rounds'], 'round')}, episode {found['episodes']:,} of {found['of']:,}"
    live = found.get("live")
    if live is not None and live.state == "paused" and not any(j["alive"] for j in found["jobs"]):
        done += ", paused: `fedlsvi federate start` continues"
    notes, earlier = found["notes"][-NAMED:], len(found["notes"][:-NAMED])
    return [
        f"{found['name']}: {done}{_speed(live)}",
        *([f"  {plural(earlier, 'earlier note')}: see records.jsonl in the server's kit"]
          * (earlier > 0)),
        *(f"  {note}" for note in notes),
        *([found["waits"]] if found["waits"] else []),
    ]  # fmt: skip


def ended(number: str, state: str, reason: str) -> str:
    """What became of a job."""
    return f"job {number}: {state}" + (f": {reason}" if reason else "")


def lines(found: dict[str, Any], every: bool = False) -> list[str]:
    """All that is known, for people.

    Args:
        found: As `project.status` returns it.
        every: Whether earlier jobs are shown too.
    """
    connected, here = found["connected"], found["processes"]
    missing = [site for site in found["sites"] if site not in connected]
    said = progress(found)
    live = found["live"]
    if live is not None and live.sites and live.goes_on:
        said += columns([HEAD, *map(row, live.sites)], "<<<>>><")
    said.append(f"the server {found['server']}")
    if found["server"] == "answers":
        said.append(f"connected: {', '.join(connected) or 'nobody'}")
        said += [f"not connected: {', '.join(missing)}"] if missing else []
    days = found.get("certificate_days")
    if days is not None and days < WARN_DAYS:
        when = f"end in {plural(days, 'day')}" if days >= 0 else "have ended"
        said.append(
            f"the certificates {when}: no one can join after that. `fedlsvi federate renew` makes "
            "new ones"
        )
    if here:
        said.append("running here: " + ", ".join(f"{n} ({pid})" for n, pid in here.items()))
    shown = current(found, every)["jobs"]
    return said + [ended(job["id"], job["status"], job.get("reason", "")) for job in shown]


def current(found: dict[str, Any], every: bool) -> dict[str, Any]:
    """The same without earlier jobs, unless these are asked for."""
    return found if every else {**found, "jobs": found["jobs"][-1:]}


def plain(found: dict[str, Any]) -> dict[str, Any]:
    """The same as plain values, for JSON."""
    live = found["live"]
    return {**found, "live": None if live is None else asdict(live)}


def row(site: SiteStatus) -> list[str]:
    """A site's line in the table."""
    state = site.state if site.since is None else f"{site.state} since {_clock(site.since)}"
    refused = ", ".join(f"{n} {code}" for code, n in site.refused.items())
    return [
        site.name, state, ago(site.heard), str(site.round), size(site.up), size(site.down),
        refused or "–",
    ]  # fmt: skip


def size(count: float) -> str:
    """12.3 MB."""
    unit, units = "B", iter(("kB", "MB", "GB", "TB"))
    while count >= 999.5 and (larger := next(units, "")):
        unit, count = larger, count / 1000
    return f"{count:.3g} {unit}"


def exit_code(found: dict[str, Any]) -> int:
    """For scripts: 0 where the run goes on or is complete, 3 where somebody is waited for or away,
    1 where it has failed or nobody answers."""
    live, jobs = found["live"], found["jobs"]
    if live is not None and live.goes_on and (live.fresh or (jobs and jobs[-1]["alive"])):
        return 3 if any(site.state != "here" for site in live.sites) else 0
    if live is not None and live.state in ("complete", "paused"):
        return 0
    done = found["server"] == "answers" and bool(jobs)
    return 0 if done and jobs[-1]["status"] == "FINISHED:COMPLETED" else 1


def watch(look: Callable[[], dict[str, Any]], form: str, every: float = EVERY) -> int:
    """Show the status until the run has ended: a table on a terminal that is painted again, lines
    where something has changed elsewhere, an object a line for programs.

    Args:
        look: Returns the status.
        form: "text" or "json".
        every: Seconds between two looks.

    Returns:
        The exit code, as `exit_code`.
    """
    with _painter(form) as paint:
        while True:
            found = look()
            paint(found)
            live = found["live"]
            alive = live is not None and live.goes_on and live.fresh
            if not alive and not any(job["alive"] for job in found["jobs"][-1:]):
                return exit_code(found)
            time.sleep(every)


@contextmanager
def _painter(form: str) -> Iterator[Callable[[dict[str, Any]], None]]:
    from rich.console import Console
    from rich.live import Live

    if form == "json":
        yield lambda found: print(json.dumps(plain(current(found, False))), flush=True)
        return
    console, before = Console(), list[str]()
    if not console.is_terminal:

        def tell(found: dict[str, Any]) -> None:
            now = progress(found)
            print("\n".join(line for line in now if line not in before), end="", flush=True)
            print("" if now == before else "\n", end="", flush=True)
            before[:] = now

        yield tell
        return
    with Live(console=console, auto_refresh=False) as live:
        yield lambda found: live.update(_table(found), refresh=True)


def _table(found: dict[str, Any]) -> Any:
    """The status as a terminal paints it."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    live, made = found["live"], Table(box=None, pad_edge=False)
    for name in HEAD:
        made.add_column(name, justify="right" if name in ("round", "received", "sent") else "left")
    for site in live.sites if live is not None else ():
        style = {"here": "", "awaited": "yellow", "away": "yellow", "excluded": "red"}[site.state]
        made.add_row(*row(site), style=style)
        if site.why:
            made.add_row("", Text(site.why, style="dim"))
    top = [Text(line) for line in progress(found) if line != found["waits"]]
    below = [
        Text(ended(job["id"], job["status"], job.get("reason", ""))) for job in found["jobs"][-1:]
    ]
    return Group(*top, *([made] if live is not None and live.sites else []), *below)


def _speed(live: RunStatus | None) -> str:
    """How many rounds a minute, and when the last one ended."""
    if live is None or not live.goes_on or live.ended is None or not live.rounds:
        return ""
    minutes = max(live.ended - live.began, 1e-3) / 60.0
    each_minute = f"{live.rounds / minutes:.3g}"
    return f", {each_minute} a minute, the last one {ago(live.ended)}"


def ago(at: float | None) -> str:
    """How long ago that was."""
    if at is None:
        return "not yet"
    seconds = max(0.0, time.time() - at)
    if seconds < 120:
        return f"{seconds:.0f} s ago"
    return f"{seconds / 60:.0f} min ago" if seconds < 7200 else f"{seconds / 3600:.0f} h ago"


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S UTC")
