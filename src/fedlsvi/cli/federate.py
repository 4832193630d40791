"""`fedlsvi federate init | start | status | abort | stop | renew | demo` and `fedlsvi verify`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from fedlsvi.checks import plural
from fedlsvi.cli.command import Command, command, format_option, option
from fedlsvi.cli.text import as_json
from fedlsvi.errors import DamagedFile, InvalidInput

if TYPE_CHECKING:
    from fedlsvi.protocol.ledger import Ledger
    from fedlsvi.remote.audit import Place

NAMED = 8
"""Rounds, or notes about them, that are named one by one."""

WARN_DAYS = 30
"""`status` warns if certificates end in fewer days."""

project_argument = click.argument("folder", type=click.Path(), metavar="PROJECT",
                                  help="Folder written by `fedlsvi federate init`.")  # fmt: skip


@click.group()
def federate() -> None:
    """Run a federation of real sites on NVIDIA FLARE."""
    # FLARE's connections would log to the terminal what this command prints as sentences
    logging.getLogger().addHandler(logging.NullHandler())


action = partial(federate.command, cls=Command)


@action()
@click.argument("file", type=click.Path(), help="TOML: name, episodes, horizon, dim, [settings] …")
@option("--sites", required=True, metavar="A,B,…", help="Names of the sites.")
@option("--out", required=True, metavar="FOLDER", help="The project; must not exist.")
@option("--host", default="localhost", metavar="NAME", help="The server's host name.")
@option("--port", type=int, default=8002, metavar="N", help="The server's port.")
@format_option
def init(file: str, sites: str, out: str, host: str, port: int, form: str) -> int:
    """Write a project: kits, certificates, job and README."""
    from fedlsvi.remote.federation import Federation
    from fedlsvi.remote.flare import project
    from fedlsvi.storage.settings_file import read

    names = [name for name in sites.split(",") if name]
    if len(set(names)) < len(names):
        raise InvalidInput(
            f"--sites {sites!r} names a site twice: give every site its own name",
            code="duplicate-site",
        )
    where = project.init(out, Federation.of(read(file)), {name: {} for name in names}, host, port)
    return _print(form, {"folder": str(where), "sites": names}, [
        f"wrote the project {where}: read {where}/README.md",
        "1. each site edits kits/<site>/local/fedlsvi.toml",
        "2. the server, then each site, runs startup/start.sh of its kit",
        f"3. run: fedlsvi federate start {quote(str(where))}",
    ])  # fmt: skip


@action()
@project_argument
@option("--here", is_flag=True, help="Also start the server and all sites, on this machine.")
@option("--wait", type=float, default=0.0, metavar="S", help="Wait up to S seconds for the end.")
@format_option
def start(folder: str, here: bool, wait: float, form: str) -> int:
    """Submit the job, or submit it again after a crash."""
    from fedlsvi.remote.flare import project

    if here:
        project.launch(folder)
    number = project.start(folder)
    found: dict[str, Any] = {"job": number}
    if wait <= 0.0:
        watch = f"fedlsvi federate status {quote(folder)}"
        return _print(form, found, [f"submitted job {number}; watch it with: {watch}"])
    with _live() as show:
        ended = project.wait(folder, number, wait, show)
    found |= project.outcome(folder, number, ended)
    _print(form, found, [*_progress(found), _ended(number, ended, found["reason"])])
    return 0 if ended == project.COMPLETED else 1


@action()
@project_argument
@format_option
def status(folder: str, form: str) -> int:
    """Show rounds, episodes and who is connected."""
    from fedlsvi.remote.flare import project

    found = project.status(folder)
    connected, here = found["connected"], found["processes"]
    missing = [site for site in found["sites"] if site not in connected]
    lines = [*_progress(found), f"the server {found['server']}"]
    if found["server"] == "answers":
        lines.append(f"connected: {', '.join(connected) or 'nobody'}")
        lines += [f"not connected: {', '.join(missing)}"] if missing else []
    days = found.get("certificate_days")
    if days is not None and days < WARN_DAYS:
        when = f"end in {plural(days, 'day')}" if days >= 0 else "have ended"
        lines.append(
            f"the certificates {when}: no one can join after that. `fedlsvi federate renew` makes "
            "new ones"
        )
    if here:
        lines.append("running here: " + ", ".join(f"{n} ({pid})" for n, pid in here.items()))
    lines += [_ended(job["id"], job["status"], job.get("reason", "")) for job in found["jobs"]]
    return _print(form, found, lines)


@action()
@project_argument
@format_option
def abort(folder: str, form: str) -> int:
    """End the job; checkpoints and journals stay."""
    from fedlsvi.remote.flare import project

    ended = project.abort(folder)
    again = f"`fedlsvi federate start {quote(folder)}` continues from the last checkpoint"
    line = f"ended job {', '.join(ended)}; {again}" if ended else "no job is waiting or running"
    return _print(form, {"ended": ended}, [line])


@action()
@project_argument
@option("--out", required=True, metavar="FOLDER", help="The new project; must not exist.")
@format_option
def renew(folder: str, out: str, form: str) -> int:
    """Write the same project with new certificates.

    Parties whose kits are in PROJECT keep their runs, journals and settings.
    """
    from fedlsvi.remote.flare import project

    where, missing = project.renew(folder, out)
    copy = "copy fedlsvi/ and local/fedlsvi.toml from the old kit into the new one"
    lines = [f"wrote the project {where}, with new keys and certificates"]
    lines += [f"  {name}: its old kit is not here; {copy}" for name in missing]
    lines += [
        "1. every party stops its old kit and starts its new one",
        f"2. run: fedlsvi federate start {quote(str(where))}",
    ]
    return _print(form, {"folder": str(where), "missing": missing}, lines)


@action()
@project_argument
@format_option
def stop(folder: str, form: str) -> int:
    """Stop the server and the sites that `start --here` started."""
    from fedlsvi.remote.flare import project

    ended = project.stop(folder)
    nothing = (
        "nothing to stop: no process of `fedlsvi federate start --here` is running; to stop one "
        "started by startup/start.sh, use startup/stop_fl.sh"
    )
    return _print(form, {"stopped": ended}, [f"stopped: {', '.join(ended) or nothing}"])


@action()
@option("--out", metavar="FOLDER", help="Keep the project here; otherwise it is deleted.")
@option("--episodes", type=click.IntRange(min=1), default=300, metavar="T",
        help="Episodes per agent.")  # fmt: skip
@format_option
def demo(out: str | None, episodes: int, form: str) -> int:
    """Run a server and three sites as processes on this machine."""
    from fedlsvi.remote.flare.demo import demo as play

    if form == "text":
        print("starting a server and three sites on loopback; this takes about half a minute …")
    with _live() as show:
        found = play(out, episodes, show)
    lines = [f"three sites learned in {plural(found['rounds'], 'round')}, "
             f"{plural(found['episodes'], 'episode')} each"]  # fmt: skip
    for site, sent in found["sent"].items():
        scalars = sum(sent["scalars"].values())
        lines.append(f"  {site}: {plural(scalars, 'scalar')} left; its log and the ledger agree")
    return _print(form, found, lines)


@command()
@click.argument("log", type=click.Path(), help="The site's sent.jsonl.")
@option("--ledger", metavar="FILE", help="The server's ledger.json.")
@option("--agents", metavar="A:B", show_default="all", help="The site's agents in the ledger.")
@format_option
def verify(log: str, ledger: str | None, agents: str | None, form: str) -> int:
    """Check a site's log of what it sent.

    Checks that the log's chain of hashes is intact and, with --ledger, that its uploads are those
    that the server counted.
    """
    from fedlsvi.remote import audit

    counted = whose = run = None
    if ledger is not None:
        table, run = _ledger(Path(ledger))
        uploads = table.by_agent["up_stats"]
        whose = _agents(agents, len(uploads))
        counted = int(uploads[slice(*whose)].sum())
    elif agents is not None:
        raise InvalidInput(
            f"--agents {agents!r} needs --ledger: it selects agents in the ledger",
            code="needs-ledger",
        )
    sent = audit.verify(log, counted, whose, run)
    against = ""
    if counted is not None:
        against = "; its uploads match the server's ledger"
        if sent.uncounted:
            against = "; it contains every upload that the server counted"
    truncated = "the last line is truncated, as after a kill; that message was never sent"
    return _print(form, vars(sent), [
        f"chain of {plural(sent.messages, 'message')} intact{against}",
        *(f"  {kind:<12} {scalars:>14,} scalars" for kind, scalars in sent.scalars.items()),
        *(f"uploads of agents {a}:{b} of run {run}" for run, a, b in sent.origins),
        *_uncounted(sent.uncounted),
        *[truncated] * sent.unfinished,
    ])  # fmt: skip


def _ledger(path: Path) -> tuple[Ledger, str | None]:
    """The server's ledger and the run that it belongs to."""
    from fedlsvi.protocol.ledger import Ledger
    from fedlsvi.remote import audit
    from fedlsvi.storage import files
    from fedlsvi.storage.checkpoint import LEDGER

    try:
        table = files.read_json(path.resolve(), {**LEDGER, str: str})
        return Ledger.from_dict(table), audit.named(table.get("run"))
    except (DamagedFile, ValueError):
        raise InvalidInput(
            f"{path} is not a ledger: give the server's ledger.json", code="bad-ledger"
        ) from None


def _uncounted(uploads: Sequence[Place]) -> list[str]:
    """Uploads that left but were not counted, by round."""
    if not uploads:
        return []
    steps: dict[int, list[str]] = {}
    for place in uploads:
        steps.setdefault(place[0], []).append(str(place[1]))
    rounds = [f"round {k} (step {', '.join(of)})" for k, of in steps.items()]
    more = [plural(len(rounds) - NAMED, "more round")] if len(rounds) > NAMED else []
    return [
        "uploads that were sent but not counted, because they were late or replaced: "
        + ", ".join(rounds[:NAMED] + more)
    ]


@contextmanager
def _live() -> Iterator[Callable[[dict[str, Any]], None] | None]:
    """Shows rounds while a job runs, on a terminal."""
    if not sys.stderr.isatty():
        yield None
        return

    def show(progress: dict[str, Any]) -> None:
        if progress["rounds"] is not None:
            line = f"round {progress['rounds']}, episode {progress['episodes']}/{progress['of']}"
            print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)

    yield show
    print("\r\033[K", end="", file=sys.stderr, flush=True)


def _progress(found: dict[str, Any]) -> list[str]:
    """How far the run is, and its latest notes."""
    if found["rounds"] is None:
        known = "no rounds on this machine; they are in the server's kit"
        return [f"{found['name']}: {known}"]
    done = f"{plural(found['rounds'], 'round')}, episode {found['episodes']:,} of {found['of']:,}"
    notes, earlier = found["notes"][-NAMED:], len(found["notes"][:-NAMED])
    return [
        f"{found['name']}: {done}",
        *([f"  {plural(earlier, 'earlier note')}: see records.jsonl in the server's kit"]
          * (earlier > 0)),
        *(f"  {note}" for note in notes),
    ]  # fmt: skip


def _ended(number: str, state: str, reason: str) -> str:
    return f"job {number}: {state}" + (f": {reason}" if reason else "")


def _agents(text: str | None, size: int) -> tuple[int, int]:
    """The range of a site's agents; by default all agents in the ledger."""
    first, _, last = (f"0:{size}" if text is None else text).partition(":")
    if first.isdecimal() and last.isdecimal() and int(first) < int(last) <= size:
        return int(first), int(last)
    raise InvalidInput(
        f"--agents {text!r} is not a valid range of the ledger's {plural(size, 'agent')}: write "
        f"A:B, e.g. 0:{size}",
        code="bad-agents",
    )


def _print(form: str, found: dict[str, Any], lines: list[str]) -> int:
    print(as_json(found) if form == "json" else "\n".join(lines))
    return 0
