"""`fedlsvi site`: what the engineer at a site of a federation can look at."""

from __future__ import annotations

import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedlsvi.checks import plural
from fedlsvi.cli.command import Command, format_option
from fedlsvi.cli.text import as_json
from fedlsvi.errors import InvalidInput

if TYPE_CHECKING:
    from fedlsvi.remote.site_status import SiteRun


@click.group()
def site() -> None:
    """Look at a site of a federation, from its own kit."""


@partial(site.command, cls=Command)()
@click.argument("kit", type=click.Path(), help="The site's startup kit.")
@format_option
def status(kit: str, form: str) -> int:
    """Show the job, what left, the privacy spent and requests that were refused."""
    from fedlsvi.remote import site_status
    from fedlsvi.remote.site import kit_of

    folder = kit_of(Path(kit))
    if folder is None:
        raise InvalidInput(
            f"{kit} is not the kit of a site: give the folder with local/fedlsvi.toml",
            code="no-kit",
        )
    found = site_status.status(folder)
    if form == "json":
        print(as_json({**found, "runs": [asdict(run) for run in found["runs"]]}))
    else:
        print("\n".join(_lines(found)))
    return 0


def _lines(found: dict[str, Any]) -> list[str]:
    lines = [f"site {found['site']}: {plural(found['agents'], 'agent')}"]
    for run in found["runs"]:
        lines += _run(run)
    if not found["runs"]:
        lines.append("it has not taken part in a job yet")
    spent = found["epsilon"]
    if spent["delta"] is not None:
        most = "no limit is set" if spent["limit"] is None else f"{spent['limit']:g} is the limit"
        lines.append(
            f"privacy: ε = {spent['spent']:.4g} at δ = {spent['delta']:g} over "
            f"{plural(spent['jobs'] - spent['without_noise'], 'job')}; {most}"
        )
    else:
        lines.append("privacy: no private job has used these data")
    if spent["without_noise"]:
        lines.append(f"{plural(spent['without_noise'], 'job')} used them without noise")
    return lines


def _run(run: SiteRun) -> list[str]:
    from fedlsvi.cli.federation_status import ago, size

    lines = [f"{run.name}: no request yet"]
    if run.request is not None:
        asked = run.request
        lines = [
            f"{run.name}: round {asked.round}, last request {ago(asked.at)} ({asked.kind}), "
            f"job {asked.job}"
        ]
    count = sum(run.messages.values())
    lines.append(f"  left: {plural(count, 'message')}, {size(run.bytes)}; scalars by kind:")
    lines += [f"    {kind:<12} {n:>12,}" for kind, n in run.scalars.items()]
    if not run.log_intact:
        lines.append("  the log of what left is damaged: `fedlsvi verify` says where")
    for said in run.refused:
        when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(_seconds(said["last"])))
        lines.append(f"  {when} UTC, {plural(said['times'], 'time')}: {said['sentence']}")
    return lines


def _seconds(text: str) -> float:
    from datetime import datetime

    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0
