"""`fedlsvi privacy`: what protected a run, and what its server saw."""

from __future__ import annotations

import click

from fedlsvi.cli.command import command, format_option
from fedlsvi.cli.text import as_json, columns


@command()
@click.argument("run", type=click.Path(), help="A run folder.")
@format_option
def privacy(run: str, form: str) -> int:
    """Show what protected a run, what its server saw and what it could not check.

    \b
    Example:
      fedlsvi privacy runs/river-swim
    """
    from fedlsvi.report.protections import protections
    from fedlsvi.storage import load

    rows = protections(load(run))
    if form == "json":
        print(as_json(dict(rows)))
    else:
        print("\n".join(columns(rows, "<<")))
    return 0
