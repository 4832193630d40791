"""Play into a run folder: records as they come, checkpoints as time passes.

settings.toml      everything to run it again        parameters.json   the numbers in force
versions.json      what it runs on, hashes           environment.safetensors, features.safetensors
records.jsonl      one line per round                regret.bin        float64, one per episode
history/           raw episodes (continuous states)  checkpoints/      the last two
ledger.json, summary.json                            written when it ends
noise.json         of a private run, until it ends
extended.json      another T, where it went on
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from shlex import quote
from time import perf_counter
from typing import TYPE_CHECKING, Any

from fedlsvi.checks import number
from fedlsvi.config import Settings
from fedlsvi.errors import FolderExists, InvalidInput, StoreError
from fedlsvi.learner import drive
from fedlsvi.protocol.plan import Plan
from fedlsvi.protocol.records import Interrupt, Observer, RoundRecord
from fedlsvi.protocol.session import Session
from fedlsvi.run import Run
from fedlsvi.storage import checkpoint, files
from fedlsvi.storage.checkpoint import (
    AGENT_POLICIES,
    CHECKPOINTS,
    DEPLOYED,
    HISTORY,
    RECORDS,
    REGRET,
    RESULT,
    Manifest,
    policy_table,
)
from fedlsvi.storage.files import AppendOnly, lock
from fedlsvi.storage.noise_key import forget_noise_key, keep_noise_key
from fedlsvi.storage.run_header import header_files

if TYPE_CHECKING:
    from fedlsvi.observers.progress import Progress

SEEDS = "seeds.json"
"""What a folder has instead of a run's files if it holds several runs, one per seed."""

CHECKPOINT_SECONDS = 5.0
"""Time between two checkpoints, where nobody says another."""

SHARE = 20.0
"""A checkpoint is followed by at least this many times its own duration without one."""


def record(
    session: Session,
    algorithm: str,
    settings: Settings,
    folder: str | PathLike[str],
    observers: Iterable[Observer] = (),
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    progress: Progress = False,
) -> Run:
    """Play a new session into a new folder; none is left where its first round is refused."""
    check_seconds(checkpoint_seconds)
    run = begin(folder, session.plan, algorithm, settings)
    try:
        play(RunWriter(run, session, checkpoint_seconds), observers, progress)
    except InvalidInput:
        if not session.records:
            shutil.rmtree(run, ignore_errors=True)
        raise
    result = Run.of(session, settings, str(run))
    finish(run, result)
    return result


def check_seconds(value: Any) -> None:
    """checkpoint_seconds must be a number of at least 0."""
    hint = "5 writes a checkpoint every five seconds, 0 after every round"
    number("checkpoint_seconds", value, 0.0, hint, error=InvalidInput)


def play(writer: RunWriter, observers: Iterable[Observer], progress: Progress) -> None:
    """Run a session to its end, keeping its folder up to date."""
    player = writer.session.player
    watching: list[Observer] = [writer, *observers]
    if progress is not False:
        from fedlsvi.observers.progress import bar

        watching += bar(player.parameters, progress, player.t)
    with writer.interrupt:
        drive(writer.session, watching, on_stop=writer.checkpoint)


def finish(folder: Path, run: Run, name: str | None = None) -> None:
    """Beside the last checkpoint: what people ask for most. `name`: of the run in sites' logs."""
    named = {} if name is None else {"run": name}
    files.write_json(folder / "ledger.json", run.ledger.to_dict() | named)
    files.write_json(folder / "summary.json", run.summary())
    for m, policy in enumerate(run.agent_policies):
        policy.save(folder / AGENT_POLICIES / str(m))
    if run.played == run.parameters.episodes:
        forget_noise_key(folder)


def begin(folder: str | PathLike[str], plan: Plan, algorithm: str, settings: Settings) -> Path:
    """Make a run folder, whole or not at all; it must not hold anything yet."""
    run = Path(folder)
    refuse_existing(run)
    place(run, header_files(plan, algorithm, settings), CHECKPOINTS)
    return run


def place(run: Path, contents: Mapping[str, bytes], *folders: str) -> None:
    """Make a folder with these in it, whole or not at all: of two at once, one is refused."""
    try:
        run.parent.mkdir(parents=True, exist_ok=True)
        temp = Path(tempfile.mkdtemp(prefix=f".{run.name}.", dir=run.parent))
    except OSError as error:
        raise files.cannot_make(run, error) from error
    try:
        temp.chmod(0o755)
        for name, data in contents.items():
            files.write(temp / name, data)
        for name in folders:
            (temp / name).mkdir()
        files.sync_folder(temp)
        os.rename(temp, run)  # onto nothing, or onto an empty folder
        files.sync_folder(run.parent)
    except (OSError, StoreError) as error:
        shutil.rmtree(temp, ignore_errors=True)
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError):
            raise
        refuse_existing(run)
        raise files.cannot_make(run, cause) from error


def refuse_existing(run: Path) -> None:
    """A run is never written over another one, nor among files that are not its own."""
    if not files.exists(run):
        return
    if not run.is_dir():
        raise FolderExists(f"{run} is a file: choose a folder for a new run")
    if not files.is_empty(run):
        holds = any(files.exists(run / name) for name in ("versions.json", SEEDS))
        again = f"`fedlsvi resume {quote(str(run))}` continues it"
        hint = again if holds else "it contains other files"
        raise FolderExists(
            f"folder {run} already exists: {hint}; choose another folder for a new run"
        )


class RunWriter:
    """Observer that keeps a run folder up to date with its session.

    Checkpoints are at least `seconds` apart, and so far apart that they take at most 1/20 of the
    time; 0 writes one after every round.
    """

    def __init__(
        self,
        run: Path,
        session: Session,
        seconds: float,
        manifest: Manifest | None = None,
        patience: float = 0.0,
    ) -> None:
        """Take hold of the folder.

        Args:
            run: The folder.
            session: What is played; already restored where it goes on.
            seconds: Time between two checkpoints.
            manifest: The checkpoint that the session goes on from.
            patience: Seconds that a process which is ending may still hold the folder.
        """
        self.run, self.session, self.seconds = run, session, seconds
        self.interrupt = Interrupt()
        self._lock = lock(
            files.inside(run, ".lock"),
            f"folder {run} is in use: another process is playing this run",
            patience,
        )
        try:
            keep_noise_key(run, session.player)
        except BaseException:
            self._lock.release()
            raise
        self._kept = [] if manifest is None else [*checkpoint.older(run, manifest), manifest]
        self._number = 0 if manifest is None else manifest.number
        self._history = [] if manifest is None else list(manifest.history)
        self._t = session.player.t
        start = {} if manifest is None else manifest.appended
        if not (folder := files.inside(run, CHECKPOINTS)).exists():  # somebody made room
            files.make_folder(folder)
        checkpoint.prune(run, self._kept)
        self._records = AppendOnly(run / RECORDS, start.get(RECORDS))
        self._regret: AppendOnly | None = None
        if session.regret is not None:
            self._regret = AppendOnly(run / REGRET, start.get(REGRET))
        self._next = perf_counter() + seconds

    def __call__(self, record: RoundRecord) -> None:
        """A round has ended."""
        self._records.append(json.dumps(vars(record)).encode() + b"\n")
        done = record.last >= self.session.player.parameters.episodes
        if self.interrupt.asked and not done:
            self.session.ending = "interrupted"
        if done or self.interrupt.asked or perf_counter() >= self._next:
            self.checkpoint()
        if done:
            self.session.player.dismiss()
        if self.interrupt.asked and not done:
            raise KeyboardInterrupt(
                f"stopped after episode {record.last}; continue with "
                f"fedlsvi.resume({str(self.run)!r}), or "
                f"`fedlsvi resume {quote(str(self.run))}` on the shell"
            )

    def checkpoint(self) -> None:
        """Save the state between two rounds."""
        began = perf_counter()
        session, player = self.session, self.session.player
        t = player.t
        appended = {RECORDS: self._records.sync()}
        if self._regret is not None and session.regret is not None:
            self._regret.append(session.regret[self._t : t].astype("<f8").tobytes())
            appended[REGRET] = self._regret.sync()
        arrays, plain = player.state()
        arrays |= policy_table(player.values)
        arrays |= policy_table(player.deployed, DEPLOYED)
        plain = {**plain, "cohorts": len(player.cohorts), "ending": session.ending}
        if t < player.parameters.episodes:
            self._keep_history(t)
        elif session.before is not None:  # what a longer run goes on from
            before, more = session.before.stored()
            arrays = {k: arrays[k] for k in RESULT if k in arrays} | before
            plain |= more
            self._keep_history(session.before.t)
        elif player.cohorts or not player.goes_on:  # what is remembered is of no more use
            arrays, self._history = {k: arrays[k] for k in RESULT if k in arrays}, []
        self._number += 1
        manifest = checkpoint.save(self.run, self._number, arrays, plain, appended, self._history)
        self._t = t
        self._kept = [*self._kept, manifest][-checkpoint.KEPT :]
        checkpoint.prune(self.run, self._kept)
        ended = perf_counter()
        self._next = ended + (max(self.seconds, SHARE * (ended - began)) if self.seconds else 0.0)

    def _keep_history(self, t: int) -> None:
        """Seal the raw episodes since the last checkpoint in a segment of their own."""
        arrays = self.session.player.history(self._t, t) if t > self._t else {}
        if not arrays:
            return
        folder, name = files.inside(self.run, HISTORY), f"{self._t + 1:09d}-{t:09d}.safetensors"
        if not self._history and not folder.exists():
            files.make_folder(folder)
        stamp = files.write_arrays(folder / name, arrays)
        self._history.append({"name": name, "first": self._t, "last": t, "stamp": stamp})

    def close(self) -> None:
        """Let go of the files; checkpoints are taken between rounds only, never here."""
        self._records.close()
        if self._regret is not None:
            self._regret.close()
        self._lock.release()
