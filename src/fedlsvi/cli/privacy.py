"""`fedlsvi privacy`: what protected a run and what its server saw; what a site has spent."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent
from typing import Any

import click

from fedlsvi.checks import plural
from fedlsvi.cli.command import command, format_option, refuse_parent
from fedlsvi.cli.text import as_json, columns

SETTINGS = "fedlsvi.toml"


@command()
@click.argument(
    "run", type=click.Path(), help="A run folder, one of several seeds, or the kit of a site."
)
@format_option
def privacy(run: str, form: str) -> int:
    """Show what protected a run, what its server saw and what it could not check; of a site's kit,
    the jobs that have used its data, and what private ones may spend together.

    \b
    Examples:
      fedlsvi privacy runs/river-swim
      fedlsvi privacy kits/site-1
    """
    from fedlsvi.remote.site import HOME
    from fedlsvi.report.protections import protections
    from fedlsvi.storage import load
    from fedlsvi.storage import seeds as family

    folder = Path(run)
    if (folder / HOME).is_dir() or (folder / "local" / SETTINGS).exists():
        return _account(folder, form)
    several = family.is_one(folder)
    if not several:
        refuse_parent(folder, "privacy")
    found = {str(one): protections(load(one)) for one in family.expand([folder])}
    if form == "json":
        tables = {name: dict(rows) for name, rows in found.items()}
        print(as_json(tables if several else tables[str(folder)]))
        return 0
    for name, rows in found.items():
        text = "\n".join(columns(rows, "<<"))
        print(f"{name}:\n{indent(text, '  ')}" if several else text)
    return 0


def _account(kit: Path, form: str) -> int:
    """The bookings of a site, and what they come to at the smallest δ among them."""
    from fedlsvi.remote.account import STATED, Account
    from fedlsvi.remote.site import HOME
    from fedlsvi.remote.site_settings import demands

    require, _ = demands(kit / "local" / SETTINGS)
    account = Account(kit / HOME) if (kit / HOME).is_dir() else None
    bookings = [] if account is None else account.bookings
    deltas = [booking.delta for booking in bookings if booking.epsilon is not None]
    delta = require.delta if require.delta is not None else min(deltas, default=None)
    plain, spent = [] if account is None else account.unbounded, 0.0
    if account is not None and delta is not None:
        spent = account.spent(delta, episodes=require.protected)
    if form == "json":
        table: dict[str, Any] = {"spent": spent, "delta": delta, "without_noise": len(plain),
                                 "total_epsilon": require.total_epsilon}  # fmt: skip
        print(as_json(table | {"bookings": [vars(booking) for booking in bookings]}))
        return 0
    rows = [["federation", "run", "protects", "ε", "δ"]]
    for b in bookings:
        who = (
            "an episode"
            if b.unit == "episode"
            else f"a user with {plural(b.episodes_per_user, 'episode')}"
        )
        who = "stated by a person" if b.run == STATED else who
        if b.epsilon is None:
            rows.append([b.federation, b.run, "nobody: no noise", "∞", "–"])
        else:
            rows.append([b.federation, b.run, who, f"{b.epsilon:g}", f"{b.delta:g}"])
    print("\n".join(columns(rows, "<<<>>")) if bookings else "no job has used these data")
    if plain:
        jobs = plural(len(plain), "job")
        print(f"{jobs} without noise: nothing bounds what {'it' if len(plain) == 1 else 'they'} "
              "may reveal, and total_epsilon refuses all further jobs")  # fmt: skip
    if len(bookings) > len(plain):
        limit = require.total_epsilon
        most = "no limit is set" if limit is None else f"{limit:g} is the limit"
        print(f"together ε = {spent:.4g} at δ = {delta:g}; {most} (total_epsilon in [require])")
    return 0
