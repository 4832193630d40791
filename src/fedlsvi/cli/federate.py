"""`fedlsvi federate init | start | status | stop | demo` and `fedlsvi verify`."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from fedlsvi.checks import plural
from fedlsvi.cli.text import as_json
from fedlsvi.errors import DamagedFile, InvalidInput
from fedlsvi.protocol.ledger import Ledger
from fedlsvi.remote import audit
from fedlsvi.remote.federation import Federation
from fedlsvi.remote.flare import demo, project
from fedlsvi.storage import files
from fedlsvi.storage.checkpoint import LEDGER
from fedlsvi.storage.settings_file import read

NAMED = 8
"""Rounds, or notes about them, that are named one by one."""


def do_federate(arguments: argparse.Namespace) -> int:
    """Hand over to the action."""
    # what FLARE's connections would log to the terminal is said in sentences of our own
    logging.getLogger().addHandler(logging.NullHandler())
    actions = {"init": _init, "start": _start, "status": _status, "stop": _stop, "demo": _demo}
    return actions[arguments.action](arguments)


def do_verify(arguments: argparse.Namespace) -> int:
    """Check the chain of a log, and its uploads against the server's ledger."""
    counted = agents = run = None
    if arguments.ledger is not None:
        ledger, run = _ledger(Path(arguments.ledger))
        uploads = ledger.by_agent["up_stats"]
        agents = _agents(arguments.agents, len(uploads))
        counted = int(uploads[slice(*agents)].sum())
    elif arguments.agents is not None:
        raise InvalidInput(f"--agents {arguments.agents!r} needs --ledger: they are agents in it")
    sent = audit.verify(arguments.log, counted, agents, run)
    against = ""
    if counted is not None:
        against = ", and its uploads are those of the server's ledger"
        if sent.uncounted:
            against = ", and every upload that the server counted is in it"
    _say(arguments, vars(sent), [
        f"the chain of {sent.messages:,} messages is whole{against}",
        *(f"  {kind:<12} {scalars:>14,} scalars" for kind, scalars in sent.scalars.items()),
        *(f"uploads of agents {a}:{b} of run {run}" for run, a, b in sent.origins),
        *_uncounted(sent.uncounted),
        *(["half a line at the end, as a kill leaves it, is of a message that did not leave"]
          * sent.unfinished),
    ])  # fmt: skip
    return 0


def _ledger(path: Path) -> tuple[Ledger, str | None]:
    """The server's ledger, and the run that it is of; an earlier fedlsvi did not write that."""
    try:
        table = files.read_json(path.resolve(), {**LEDGER, str: str})
        return Ledger.from_dict(table), audit.named(table.get("run"))
    except (DamagedFile, ValueError):
        raise InvalidInput(f"{path} is no ledger: give the ledger.json of the server") from None


def _uncounted(uploads: Sequence[audit.Place]) -> list[str]:
    """Which uploads left and were not counted, some rounds of them by name."""
    if not uploads:
        return []
    steps: dict[int, list[str]] = {}
    for place in uploads:
        steps.setdefault(place[0], []).append(str(place[1]))
    rounds = [f"round {k} (step {', '.join(of)})" for k, of in steps.items()]
    more = [f"{len(rounds) - NAMED} more rounds"] if len(rounds) > NAMED else []
    return [
        "uploads that left and were not counted, being late or replaced by another: "
        + ", ".join(rounds[:NAMED] + more)
    ]


def _init(arguments: argparse.Namespace) -> int:
    sites = [name for name in arguments.sites.split(",") if name]
    if len(set(sites)) < len(sites):
        raise InvalidInput(
            f"--sites {arguments.sites!r} names a site twice: give each its own name"
        )
    federation = Federation.of(read(arguments.file))
    where = project.init(
        arguments.out, federation, {site: {} for site in sites}, arguments.host, arguments.port
    )
    _say(arguments, {"folder": str(where), "sites": sites}, [
        f"wrote the project {where}: read {where}/README.md",
        "each site fills in kits/<site>/local/fedlsvi.toml; the server, then the sites, each start "
        "theirs by startup/start.sh in their kit",
        f"then: fedlsvi federate start {quote(str(where))}",
    ])  # fmt: skip
    return 0


def _start(arguments: argparse.Namespace) -> int:
    if arguments.here:
        project.launch(arguments.folder)
    number = project.start(arguments.folder)
    found: dict[str, Any] = {"job": number}
    watch = f"fedlsvi federate status {quote(arguments.folder)}"
    lines = [f"job {number} is submitted; watch it: {watch}"]
    well = True
    if arguments.wait > 0.0:
        ended = project.wait(arguments.folder, number, arguments.wait)
        found |= project.outcome(arguments.folder, number, ended)
        well = ended == project.COMPLETED
        lines = [*_progress(found), _ended(number, ended, found["reason"])]
    _say(arguments, found, lines)
    return 0 if well else 1


def _status(arguments: argparse.Namespace) -> int:
    found = project.status(arguments.folder)
    connected, here = found["connected"], found["processes"]
    missing = [site for site in found["sites"] if site not in connected]
    lines = [*_progress(found), f"the server {found['server']}"]
    if found["server"] == "answers":
        lines.append(f"connected: {', '.join(connected) or 'nobody'}")
        lines += [f"not connected: {', '.join(missing)}"] if missing else []
    if here:
        lines.append("running here: " + ", ".join(f"{n} ({pid})" for n, pid in here.items()))
    lines += [_ended(job["id"], job["status"], job.get("reason", "")) for job in found["jobs"]]
    _say(arguments, found, lines)
    return 0


def _progress(found: dict[str, Any]) -> list[str]:
    """How far the run is, and the last of what was out of the ordinary."""
    if found["rounds"] is None:
        known = "no round is known here; its rounds are in the server's kit, on its machine"
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


def _stop(arguments: argparse.Namespace) -> int:
    ended = project.stop(arguments.folder)
    nothing = (
        "nothing: no party that `fedlsvi federate start --here` started runs here; one that its "
        "startup/start.sh started is ended by its startup/stop_fl.sh"
    )
    _say(arguments, {"stopped": ended}, [f"stopped: {', '.join(ended) or nothing}"])
    return 0


def _demo(arguments: argparse.Namespace) -> int:
    def told(progress: dict[str, Any]) -> None:
        if sys.stderr.isatty() and progress["rounds"] is not None:
            line = f"round {progress['rounds']}, episode {progress['episodes']}/{progress['of']}"
            print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)

    if arguments.episodes < 1:
        raise InvalidInput(f"--episodes must be at least 1, got {arguments.episodes}: try 300")
    if arguments.format == "text":
        print("starting a server and three sites on loopback; this takes about half a minute …")
    found = demo.demo(arguments.out, arguments.episodes, told)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    lines = [f"three sites learned in {found['rounds']} rounds, {found['episodes']} episodes each"]
    for site, sent in found["sent"].items():
        scalars = sum(sent["scalars"].values())
        lines.append(f"  {site}: {scalars:,} scalars left; its log and the ledger agree")
    _say(arguments, found, lines)
    return 0


def _agents(text: str | None, size: int) -> tuple[int, int]:
    """The agents of a site, which follow each other; all of the ledger's where none are named."""
    first, _, last = (f"0:{size}" if text is None else text).partition(":")
    if first.isdecimal() and last.isdecimal() and int(first) < int(last) <= size:
        return int(first), int(last)
    raise InvalidInput(
        f"--agents {text!r} is no range of the ledger's {size} agents: write A:B, such as 0:{size}"
    )


def _say(arguments: argparse.Namespace, found: dict[str, Any], lines: list[str]) -> None:
    print(as_json(found) if arguments.format == "json" else "\n".join(lines))
