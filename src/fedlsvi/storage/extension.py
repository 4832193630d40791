"""Continuing a run folder: `resume(folder, episodes=T)` with a T other than the original one.

extended.json   T and the numbers in force from here on, in place of those of the header; and a
                sentence on what differs from a run that had this T from the start

The last checkpoint of a finished run also holds the state before its last round, which T cut short.
That state becomes the newest checkpoint first and T is changed after it, so that a kill in between
leaves a folder that leads to the old T or to the new one.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlsvi.config import what_differs
from fedlsvi.continuation import refuse_longer
from fedlsvi.errors import ContinuationWarning, InvalidInput, warn
from fedlsvi.protocol.snapshot import BEFORE, PREFIX, Snapshot
from fedlsvi.storage import checkpoint, files
from fedlsvi.storage import run_reader as reading
from fedlsvi.storage.checkpoint import HISTORY, RECORDS, REGRET
from fedlsvi.storage.run_header import EXTENDED, RunHeader

if TYPE_CHECKING:
    from fedlsvi.protocol.session import Session


def segments(run: Path, memory: Snapshot) -> list[dict[str, Any]]:
    """The raw episodes of a snapshot, written as one segment of a folder."""
    if not memory.history or memory.t == 0:
        return []
    folder, name = files.inside(run, HISTORY), f"{1:09d}-{memory.t:09d}.safetensors"
    files.make_folder(folder)
    stamp = files.write_arrays(folder / name, memory.history)
    return [{"name": name, "first": 0, "last": memory.t, "stamp": stamp}]


def prepare(header: RunHeader, found: reading.Found | None, longer: Session, episodes: int) -> None:
    """Make a folder ready to go on up to another T.

    Args:
        header: Of the folder.
        found: Its newest checkpoint.
        longer: The session of a run with that T, to know the numbers in force then.
        episodes: That T.

    Raises:
        InvalidInput: The run cannot go on, or has played as many already.
    """
    differs, t = None, 0
    if found is not None:
        run = reading.loaded(header, found)
        manifest, arrays = found
        finished = run.played == header.parameters.episodes
        whole = any(name not in checkpoint.RESULT for name in arrays) or manifest.history
        here = "transport" not in manifest.plain or manifest.plain.get("cohorts")
        refuse_longer(
            run, episodes, bool(longer.player.goes_on and here and (whole or not finished))
        )
        t = manifest.plain.get(BEFORE, manifest.plain)["t"] if finished else run.played
        differs = what_differs(header.parameters, longer.plan.parameters, t)
    guard = files.lock(
        files.inside(header.run, ".lock"),
        f"folder {header.run} is in use: another process is playing this run",
    )
    try:
        if found is not None and BEFORE in found[0].plain:
            _go_back(header.run, found)
        content = {
            "format": files.FORMAT,
            "episodes": episodes,
            "parameters": asdict(longer.plan.parameters),
            "differs": [*header.extended, *([differs] if differs else [])],
        }
        files.write_json(header.run / EXTENDED, content)
    finally:
        guard.release()
    if differs is not None:
        warn(differs, ContinuationWarning)


def _go_back(run: Path, found: reading.Found) -> None:
    """Make the state before the last round the newest checkpoint."""
    manifest, arrays = found
    own = {k.removeprefix(PREFIX): a for k, a in arrays.items() if k.startswith(PREFIX)}
    plain = manifest.plain[BEFORE]
    t = plain["t"]
    lines = files.read_prefix(files.inside(run, RECORDS), manifest.appended[RECORDS])
    past = [r for r in reading.records(run, manifest) if r.last <= t]
    if [r.last for r in past[-1:]] != [t][: len(past)]:
        raise InvalidInput(
            f"the checkpoint of {run} holds the state after episode {t}, but no round ended "
            "there: start a new run",
            code="cannot-continue",
        )
    whole = b"".join(lines.splitlines(keepends=True)[: len(past)])
    appended = {RECORDS: files.stamp(whole)}
    if REGRET in manifest.appended:
        data = files.read_prefix(files.inside(run, REGRET), manifest.appended[REGRET])
        appended[REGRET] = files.stamp(data[: 8 * t])
    new = checkpoint.save(
        run, manifest.number + 1, own, plain, appended, manifest.history if t else []
    )
    checkpoint.prune(run, [new])
