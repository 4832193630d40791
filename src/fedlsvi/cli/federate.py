"""`fedlsvi federate`: write, join, sign, start, watch, end and renew federations; `verify` logs."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shlex import quote
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from fedlsvi.checks import plural
from fedlsvi.cli import federation_upkeep
from fedlsvi.cli.command import Command, command, format_option, option
from fedlsvi.cli.federation_upkeep import project_argument
from fedlsvi.cli.text import tell
from fedlsvi.errors import DamagedFile, InvalidInput

if TYPE_CHECKING:
    from fedlsvi.protocol.ledger import Ledger
    from fedlsvi.remote.audit import Place

QUIET_SECONDS = 10.0
"""Between two lines of progress where there is no terminal."""

NAMED = 8
"""Rounds that are named one by one."""

HIDDEN = 'sums are secure (aggregation = "secure" in federation.toml): the server sees sums alone'


@click.group()
def federate() -> None:
    """Run a federation of real sites on NVIDIA FLARE."""
    # FLARE's connections would log to the terminal what this command prints as sentences
    logging.getLogger().addHandler(logging.NullHandler())


action = partial(federate.command, cls=Command)
for upkeep in federation_upkeep.COMMANDS:
    federate.add_command(upkeep)


@action()
@click.argument("file", type=click.Path(), help="TOML: name, episodes, horizon, dim, [settings] …")
@option("--sites", required=True, metavar="A,B,…", help="Names of the sites.")
@option("--out", required=True, metavar="FOLDER", help="The project; must not exist.")
@option("--host", default="localhost", metavar="NAME", help="The server's host name.")
@option("--port", type=int, default=8002, metavar="N", help="The server's port.")
@option("--requests", metavar="FILE,…", help="Requests of sites that made their keys (`join`).")
@format_option
def init(
    file: str, sites: str, out: str, host: str, port: int, requests: str | None, form: str
) -> int:
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
    federation = Federation.of(read(file))
    where = project.init(out, federation, {name: {} for name in names}, host, port)
    _, exposed = project.with_secure_sums(federation, len(names))
    for path in (requests or "").split(","):
        if path:
            _signed(where, path)
    return tell(form, {"folder": str(where), "sites": names, "secure": not exposed}, [
        f"wrote the project {where}: read {where}/README.md",
        exposed or HIDDEN,
        "1. each site edits kits/<site>/local/fedlsvi.toml",
        "2. the server, then each site, runs startup/start.sh of its kit",
        f"3. run: fedlsvi federate start {quote(str(where))}",
    ])  # fmt: skip


def _keys() -> Any:
    """Keys and certificates of sites, or what to install."""
    try:
        from fedlsvi.remote.flare import site_keys
    except ImportError as error:
        raise InvalidInput(
            f'keys need the package cryptography ({error}): pip install "fedlsvi[flare]"',
            code="missing-cryptography",
        ) from None
    return site_keys


def _signed(folder: str | Path, path: str) -> tuple[str, str]:
    signed: tuple[str, str] = _keys().sign(folder, path)
    return signed


@action()
@click.argument("folder", type=click.Path(), help="Where this site keeps its key.")
@option("--name", metavar="SITE", help="Make a key, and a request for the organiser.")
@option("--kit", metavar="KIT", help="Put the key into the kit that came back.")
@format_option
def join(folder: str, name: str | None, kit: str | None, form: str) -> int:
    """Take part with a key that nobody else has: first --name, later --kit.

    \b
    Example:
      fedlsvi federate join my-key --name north
      fedlsvi federate join my-key --kit kits/north
    """
    if (name is None) == (kit is None):
        raise InvalidInput("give either --name or --kit", code="bad-join")
    if name is not None:
        path, own = _keys().request(name, folder)
        return tell(form, {"request": str(path), "fingerprint": own}, [
            f"made a key in {folder}: never send it to anybody",
            f"send {path} to the organiser; then read them this fingerprint on the phone:",
            f"  {own}",
        ])  # fmt: skip
    own, authority = _keys().accept(folder, kit)
    return tell(form, {"fingerprint": own, "authority": authority}, [
        f"the key of {folder} is in {kit}",
        f"this site:     {own}",
        f"the authority: {authority}",
        "compare them with the organiser and the other sites, and list theirs under [peers] in "
        f"{Path(str(kit)) / 'local' / 'fedlsvi.toml'}",
    ])  # fmt: skip


@action()
@project_argument
@click.argument("requests", nargs=-1, type=click.Path(), help="Requests of sites, if any.")
@format_option
def sign(folder: str, requests: tuple[str, ...], form: str) -> int:
    """Sign keys that sites have made, and show the fingerprints of all sites."""
    for path in requests:
        _signed(folder, path)
    sites = _keys().fingerprints(folder)
    lines = []
    for name, (key, made_there) in sites.items():
        whose = "made at the site" if made_there else "made here: the organiser has it too"
        lines += [f"{name} ({whose})", f"  {key}"]
    table = {n: {"fingerprint": key, "made_at_site": there} for n, (key, there) in sites.items()}
    return tell(form, {"sites": table}, lines)


@action()
@project_argument
@option("--here", is_flag=True, help="Also start the server and all sites, on this machine.")
@option("--wait", type=float, default=0.0, metavar="S", help="Wait up to S seconds for the end.")
@format_option
def start(folder: str, here: bool, wait: float, form: str) -> int:
    """Submit the job, or submit it again after a crash."""
    from fedlsvi.cli.federation_status import ended as told
    from fedlsvi.cli.federation_status import progress
    from fedlsvi.remote.flare import project

    if here:
        project.launch(folder)
    number = project.start(folder)
    found: dict[str, Any] = {"job": number}
    if wait <= 0.0:
        watch = f"fedlsvi federate status {quote(folder)}"
        return tell(form, found, [f"submitted job {number}; watch it with: {watch}"])
    with _live() as show:
        ended = project.wait(folder, number, wait, show)
    found |= project.outcome(folder, number, ended)
    tell(form, found, [*progress(found), told(number, ended, found["reason"])])
    return 0 if ended == project.COMPLETED else 1


@action()
@project_argument
@option("--watch", is_flag=True, help="Keep showing it until the run ends.")
@option("--all", "every", is_flag=True, help="Show earlier jobs too.")
@option("--check", is_flag=True,
        help="Exit code 3 if a site is waited for or away, 1 if the run failed.")  # fmt: skip
@format_option
def status(folder: str, watch: bool, every: bool, check: bool, form: str) -> int:
    """Show rounds, sites and who is waited for."""
    from fedlsvi.cli import federation_status as shown
    from fedlsvi.remote.flare.glance import glance

    def look() -> dict[str, Any]:
        if not every and (found := glance(folder)) is not None:
            return found
        from fedlsvi.remote.flare import project

        return project.status(folder)

    if watch:
        return shown.watch(look, form)
    found = look()
    tell(form, shown.plain(shown.current(found, every)), shown.lines(found, every))
    return shown.exit_code(found) if check else 0


@action()
@click.argument("folders", nargs=-1, required=True, type=click.Path(), metavar="PLACE...",
                help="Projects, or kits of servers.")  # fmt: skip
@option("--metrics-port", type=click.IntRange(0, 65535), default=9464, metavar="N",
        help="Port of the page.")  # fmt: skip
@option("--metrics-address", default="127.0.0.1", metavar="ADDRESS",
        help="Where it listens; elsewhere than on loopback everybody can read it.")  # fmt: skip
def metrics(folders: tuple[str, ...], metrics_port: int, metrics_address: str) -> int:
    """Serve metrics of federations for Prometheus, until Ctrl-C.

    \b
    Example, on the server's machine:
      fedlsvi federate metrics kits/fl.example.org --metrics-port 9464
    """
    from threading import Event

    from fedlsvi.observers.prometheus import Exporter
    from fedlsvi.remote.metrics import fill
    from fedlsvi.remote.server_status import of_places

    places = [Path(folder) for folder in folders]
    of_places(places)  # refuses a folder that holds none
    exporter = Exporter(fill(lambda: of_places(places)), metrics_port, metrics_address)
    print(f"metrics at http://{metrics_address}:{exporter.port}/metrics", flush=True)
    try:
        Event().wait()
    finally:
        exporter.close()
    return 0


@action()
@project_argument
@format_option
def pause(folder: str, form: str) -> int:
    """Stop the run after the round under way; nothing is lost."""
    from fedlsvi.remote.flare import project

    asked = project.pause(folder)
    again = f"`fedlsvi federate start {quote(folder)}` continues after that round"
    line = f"job {', '.join(asked)} ends after the round under way; {again}"
    return tell(form, {"pausing": asked}, [line if asked else "no job is running"])


@action()
@project_argument
@format_option
def abort(folder: str, form: str) -> int:
    """End the job; checkpoints and journals stay."""
    from fedlsvi.remote.flare import project

    ended = project.abort(folder)
    again = f"`fedlsvi federate start {quote(folder)}` continues from the last checkpoint"
    line = f"ended job {', '.join(ended)}; {again}" if ended else "no job is waiting or running"
    return tell(form, {"ended": ended}, [line])


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
    return tell(form, {"folder": str(where), "missing": missing}, lines)


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
    return tell(form, {"stopped": ended}, [f"stopped: {', '.join(ended) or nothing}"])


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
    return tell(form, found, lines)


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
    return tell(form, vars(sent), [
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
def _live() -> Iterator[Callable[[dict[str, Any]], None]]:
    """Shows rounds, and who is waited for, while a job runs: on one line of a terminal, elsewhere
    on a new one from time to time."""
    live, shown = sys.stderr.isatty(), [-math.inf]

    def show(progress: dict[str, Any]) -> None:
        if progress["rounds"] is None or (not live and monotonic() - shown[0] < QUIET_SECONDS):
            return
        shown[0] = monotonic()
        line = f"round {progress['rounds']}, episode {progress['episodes']}/{progress['of']}"
        line += f"; {progress['waits']}" if progress["waits"] else ""
        begin, end = ("\r\033[K", "") if live else ("", "\n")
        print(f"{begin}{line}", end=end, file=sys.stderr, flush=True)

    yield show
    if live:
        print("\r\033[K", end="", file=sys.stderr, flush=True)


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
