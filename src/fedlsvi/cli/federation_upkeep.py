"""What keeps a federation going: `fedlsvi federate backup`, `restore`, `account`, `prune`,
`revoke` and `remove-site`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from fedlsvi.checks import plural
from fedlsvi.cli.command import command, format_option, option
from fedlsvi.cli.text import tell

project_argument = click.argument("folder", type=click.Path(), metavar="PROJECT",
                                  help="Folder written by `fedlsvi federate init`.")  # fmt: skip
place_argument = click.argument("place", type=click.Path(), metavar="PLACE",
                                help="A project whose kits are here, or one kit.")  # fmt: skip


@command()
@place_argument
@option("--out", required=True, metavar="FOLDER", help="The backup; must not exist.")
@format_option
def backup(place: str, out: str, form: str) -> int:
    """Copy runs and journals of the kits here, while no job runs.

    Keys and the secrets of masks and noise are never copied.
    """
    from fedlsvi.cli.federation_status import size
    from fedlsvi.remote import backup as backups

    made = backups.save(place, out)
    lines = [f"wrote {made.folder}: {plural(len(made.kits), 'kit')}, {size(made.bytes)}"]
    for kit, runs in made.kits.items():
        after = [f"{run} after episode {episodes[-1]:,}" for run, episodes in runs.items()]
        lines.append(f"  {kit}: {', '.join(after) or 'no run yet'}")
    misfits = made.misfits()
    found = {"folder": str(made.folder), "bytes": made.bytes, "kits": made.kits,
             "misfits": misfits}  # fmt: skip
    return tell(form, found, [*lines, *(f"warning: {sentence}" for sentence in misfits)])


@command()
@click.argument("folder", type=click.Path(), metavar="BACKUP",
                help="Folder written by `fedlsvi federate backup`.")  # fmt: skip
@place_argument
@format_option
def restore(folder: str, place: str, form: str) -> int:
    """Put runs back as they were in a backup.

    What says what has left a site stays as it is, so that no noise and no mask serves twice.
    """
    from fedlsvi.remote import backup as backups

    at, done = backups.read(folder), backups.restore(folder, place)
    lines = [f"{kit}: restored {', '.join(runs) or 'nothing'}" for kit, runs in done.runs.items()]
    lines += [f"  what was there is now {path}" for path in done.aside]
    lines += [f"{kit} is not here: run the same command there" for kit in done.missing]
    lines += [
        f"warning: {kit} does not know what has left it (fedlsvi/.secrets is missing): it will "
        "refuse a run with secure sums, privacy or min_round. Begin such a run again under another "
        "name"
        for kit in done.without_secrets
    ]
    lines += [
        f"warning: the account of {kit} may lack what was booked after {at.made} UTC: under "
        "total_epsilon it refuses private jobs until you state what is missing: fedlsvi federate "
        "account KIT --spent EPSILON --delta DELTA"
        for kit in done.without_account
    ]
    return tell(form, {**asdict(done), "aside": [str(path) for path in done.aside]}, lines)


@command()
@click.argument("kit", type=click.Path(), metavar="KIT", help="The kit of a site.")
@option("--spent", type=float, default=0.0, metavar="EPSILON",
        help="What is spent but not booked; 0 if you know of nothing.")  # fmt: skip
@option("--delta", type=float, required=True, metavar="DELTA", help="δ of that ε.")
@format_option
def account(kit: str, spent: float, delta: float, form: str) -> int:
    """State what a site's data have spent, where its account was lost with a disk.

    \b
    Example:
      fedlsvi federate account kits/north --spent 7 --delta 1e-6
    """
    from fedlsvi.remote import lost_bookings
    from fedlsvi.remote.backup import kits_of
    from fedlsvi.remote.site import HOME

    ((name, folder),) = kits_of(kit).items()
    stated = lost_bookings.state(folder / HOME, spent, delta)
    in_all = stated.spent(delta)
    return tell(form, {"kit": name, "spent": in_all, "delta": delta}, [
        f"booked ε = {spent:g} for what was lost; together these data have spent {in_all:.4g} at "
        f"δ = {delta:g}"
    ])  # fmt: skip


@command()
@place_argument
@option("--keep", type=click.IntRange(min=1), default=1, metavar="N",
        help="FLARE's folders of the last N jobs stay.")  # fmt: skip
@option("--dry-run", is_flag=True, help="Only show what would be removed.")
@format_option
def prune(place: str, keep: int, dry_run: bool, form: str) -> int:
    """Remove what nothing needs: folders of earlier jobs, journals put aside, replaced runs.

    Logs of what left, records and accounts stay.
    """
    from fedlsvi.cli.federation_status import size
    from fedlsvi.remote.backup import kits_of, still
    from fedlsvi.remote.flare.leftovers import leftovers, remove

    gone = []
    for kit in kits_of(place).values():
        with still(kit):
            found = leftovers(kit, keep)
            gone += found if dry_run else remove(found)
    freed = sum(leftover.bytes for leftover in gone)
    verb = "would remove" if dry_run else "removed"
    lines = [f"{verb} {leftover.path} ({leftover.what}, {size(leftover.bytes)})"
             for leftover in gone]  # fmt: skip
    table = [{**asdict(leftover), "path": str(leftover.path)} for leftover in gone]
    lines.append(f"{verb} {size(freed)} in all" if gone else "nothing to remove")
    return tell(form, {"removed": table, "bytes": freed, "dry_run": dry_run}, lines)


@command()
@project_argument
@click.argument("name", metavar="PARTY", help="A site, or the server's host.")
@format_option
def revoke(folder: str, name: str, form: str) -> int:
    """Refuse a party's certificate from the next job on, as after a theft of its key."""
    from fedlsvi.remote.flare import revocation

    path = revocation.revoke(folder, name)
    return tell(form, {"list": str(path), "party": name}, [
        f"the certificate of {name} is on {path}; the next job tells all parties",
        f"1. stop the job, if one runs: fedlsvi federate abort {Path(folder)}",
        f"2. {name} makes a new key (`fedlsvi federate join`), and you sign it (`sign`)",
        f"3. run: fedlsvi federate start {Path(folder)}",
    ])  # fmt: skip


@command("remove-site")
@project_argument
@click.argument("name", metavar="SITE", help="The site that leaves.")
@option("--offline", is_flag=True, help="No job runs and no server answers: only note it.")
@option("--wait", type=float, default=60.0, metavar="S",
        help="How long the round under way may take; then the job is aborted.")  # fmt: skip
@format_option
def remove_site(folder: str, name: str, offline: bool, wait: float, form: str) -> int:
    """Go on without a site for good, after the round under way.

    All that it contributed is taken out again. Not possible with secure sums, where nobody knows
    what that is.
    """
    from fedlsvi.remote.flare import project

    done = project.remove_site(folder, name, wait, ask=not offline)
    how = "aborted" if done.aborted else "paused after its round"
    lines = [f"job {number} was {how}" for number in done.ended]
    lines.append(f"{name} is removed: what it contributed is taken out in the next round")
    lines.append(
        f"job {done.job} goes on without it"
        if done.job
        else f"no job was running: `fedlsvi federate start {folder}` goes on without it"
    )
    lines.append(f"{name} stops its kit; `fedlsvi federate revoke {folder} {name}` locks it out")
    return tell(form, {"site": name, **asdict(done)}, lines)


COMMANDS = (backup, restore, account, prune, revoke, remove_site)
