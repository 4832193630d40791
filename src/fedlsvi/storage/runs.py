"""Play into a run folder, continue one, and write down a finished run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

from fedlsvi.algorithms import registry as algorithms
from fedlsvi.checks import number
from fedlsvi.config import Settings
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.errors import FedLSVIError, InvalidInput, StoreError
from fedlsvi.learner import drive, placed
from fedlsvi.protocol.records import Observer
from fedlsvi.protocol.session import Session
from fedlsvi.run import Run
from fedlsvi.storage import checkpoint, files
from fedlsvi.storage import run_reader as reading
from fedlsvi.storage.checkpoint import HISTORY, RECORDS, REGRET
from fedlsvi.storage.describe import fingerprints
from fedlsvi.storage.run_header import Setup, read_setup, versions
from fedlsvi.storage.run_writer import Journal, begin, refuse_existing

CHECKPOINT_SECONDS = 5.0


def record(
    session: Session,
    algorithm: str,
    settings: Settings,
    folder: str | PathLike[str],
    observers: Iterable[Observer] = (),
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    progress: bool | None = False,
) -> Run:
    """Play a new session into a new folder; none is left where its first round is refused."""
    check_seconds(checkpoint_seconds)
    run = begin(folder, session.plan, algorithm, settings)
    try:
        return _play(Journal(run, session, checkpoint_seconds), settings, observers, progress)
    except InvalidInput:
        if not session.records:
            shutil.rmtree(run, ignore_errors=True)
        raise


def resume(
    folder: str | PathLike[str],
    *,
    env: Any = None,
    features: Any = None,
    progress: bool | None = None,
    observers: Iterable[Observer] = (),
    threads: int | None = None,
    transport: Any = "inprocess",
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Run:
    """Continue a run after a kill, a crash or Ctrl-C, to the bits it would have had without.

    env, features   only where they cannot be made from the folder: objects of your own
    transport       where the agents were elsewhere: as in `learn`, with the same journals
    """
    check_seconds(checkpoint_seconds)
    setup = read_setup(folder)
    found = checkpoint.newest(setup.run, reading.notice)
    if found is not None and found[0].plain["t"] == setup.parameters.episodes:
        run = reading.loaded(setup, found, env, features)
        _finish(setup.run, run)  # a kill may have come just before
        return run
    _compare_versions(setup)
    session = _session(setup, env, features, threads, found, transport)
    journal = Journal(setup.run, session, checkpoint_seconds, None if found is None else found[0])
    return _play(journal, setup.job.learner().settings, observers, progress)


def save_run(run: Run, folder: str | PathLike[str]) -> None:
    """Write a run that is in memory into a new folder."""
    target = Path(folder)
    refuse_existing(target)
    if run.plan is None:
        _copy(run, target)
        return
    begin(target, run.plan, run.algorithm, run.settings)
    lines = "".join(json.dumps(vars(r)) + "\n" for r in run.records)
    appended = {RECORDS: files.write(target / RECORDS, lines.encode())}
    if run.regret is not None:
        appended[REGRET] = files.write(target / REGRET, run.regret.astype("<f8").tobytes())
    plain = {"t": run.played, "k": run.rounds, "last": 0, "ledger": run.ledger.to_dict(),
             "counts": run.counts}  # fmt: skip
    arrays = {"w": run.w, "gram": run.gram_packed} | reading.policy_table(run.policy.values)
    checkpoint.save(target, 1, arrays, plain, appended, [])
    _finish(target, run)


def check_seconds(value: Any) -> None:
    """checkpoint_seconds must be a number of at least 0."""
    hint = "5 writes a checkpoint every five seconds, 0 after every round"
    number("checkpoint_seconds", value, 0.0, hint, error=InvalidInput)


def _play(
    journal: Journal,
    settings: Settings,
    observers: Iterable[Observer],
    progress: bool | None,
) -> Run:
    """Run a session to its end, keeping its folder up to date."""
    session = journal.session
    watching: list[Observer] = [journal, *observers]
    if progress is not False:
        from fedlsvi.observers.progress import bar

        watching += bar(session.player.parameters, progress, session.player.t)
    with journal.interrupt:
        drive(session, watching)
        run = Run.of(session, settings, str(journal.run))
        _finish(journal.run, run)
    return run


def _finish(folder: Path, run: Run) -> None:
    """Beside the last checkpoint: what people ask for most."""
    files.write_json(folder / "ledger.json", run.ledger.to_dict())
    files.write_json(folder / "summary.json", run.summary())


def _session(
    setup: Setup, env: Any, features: Any, threads: int | None, found: reading.Found | None,
    transport: Any = "inprocess",
) -> Session:  # fmt: skip
    """The session as it was at the checkpoint, or at the very beginning."""
    world, phi = reading.problem(setup, env, features)
    p, plain = setup.parameters, {} if found is None else found[0].plain
    # the numbers in force are those the run began with, whatever this version's presets are
    known = algorithms.entry(setup.job.algorithm).parameters()
    fixed = {key: getattr(p, key) for key in ("gamma", "beta", "lam", "packing") if key in known}
    session = setup.job.learner(**fixed).prepare(
        world, p.episodes, setup.job.seed, features=phi, threads=threads,
        cohorts=plain.get("cohorts", 1) or None,
        transport=placed(transport, setup.run),
    )  # fmt: skip
    try:
        _compare_problem(setup, session, found, env is not None or features is not None)
        if found is not None:
            _restore(setup.run, session, found)
    except FedLSVIError:
        session.close()
        raise
    return session


def _compare_problem(
    setup: Setup, session: Session, found: reading.Found | None, given: bool
) -> None:
    """Refuse agents elsewhere, another environment or other features than the run began with;
    `given` says that not all of it came from the folder."""
    plain, arrays = ({}, {}) if found is None else (found[0].plain, found[1])
    if plain and bool(plain.get("cohorts")) != bool(session.player.cohorts):
        where, how = "elsewhere", "give the transport that it began with, such as --transport ray"
        if plain["cohorts"]:
            where, how = "in this process", "leave the transport out"
        raise InvalidInput(f"the agents of the run in {setup.run} were {where}: {how}")
    plan = session.plan
    reading.check_sizes(setup, plan, arrays.get(reading.POLICY))
    reading.check_units(setup, plan.envs[0])
    then, now = setup.fingerprints, fingerprints(plan)
    # no finite environment is without one; others were, in folders of earlier versions
    told = isinstance(plan.envs[0], FiniteMDP) or None not in (*then, *now)
    if told and then != now:
        raise StoreError(
            f"the environment is not the one that the run in {setup.run} began with: resume with "
            f"fedlsvi {setup.versions['fedlsvi']}, or give the same environment, env=..."
        )
    if given:
        reading.check_features(setup, plan)


def _restore(run: Path, session: Session, found: reading.Found) -> None:
    """Put the session where it was at the checkpoint."""
    manifest, arrays = found
    for segment in manifest.history:
        path = run / HISTORY / segment["name"]
        session.player.extend(segment["first"], files.read_arrays(path, segment["stamp"]))
    past = reading.records(run, manifest)
    session.restore(arrays, manifest.plain, reading.regret(run, manifest), past)


def _compare_versions(setup: Setup) -> None:
    """Another library may round differently: say so, and go on."""
    now = versions()
    libraries = ("fedlsvi", "numpy", "scipy", "numba", "machine")
    changed = [
        f"{name} {setup.versions.get(name)} → {now[name]}"
        for name in libraries
        if setup.versions.get(name) != now[name]
    ]
    if changed:
        reading.notice(
            f"the run began with other versions ({', '.join(changed)}): "
            "it continues, but its last bits may differ"
        )


def _copy(run: Run, target: Path) -> None:
    """A loaded run is its folder."""
    if run.folder is None:
        raise StoreError("this run came from no folder and has no plan, so it cannot be saved")
    try:
        shutil.copytree(run.folder, target, ignore=shutil.ignore_patterns(".*", "plots"),
                        dirs_exist_ok=True)  # fmt: skip
    except (OSError, shutil.Error) as error:
        shutil.rmtree(target, ignore_errors=True)
        raise StoreError(f"cannot copy {run.folder} to {target}: {error}") from error
