"""Continue a run folder, and write down a run that is in memory."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from fedlsvi.algorithms import registry as algorithms
from fedlsvi.checks import integer
from fedlsvi.errors import FedLSVIError, InvalidInput, InvalidSetting, StoreError
from fedlsvi.learner import Execution
from fedlsvi.protocol.records import Observer
from fedlsvi.protocol.session import Session
from fedlsvi.run import Run
from fedlsvi.storage import checkpoint, extension, files
from fedlsvi.storage import run_reader as reading
from fedlsvi.storage.checkpoint import CHECKPOINTS, HISTORY, RECORDS, REGRET
from fedlsvi.storage.run_header import (
    VERSIONS,
    RunHeader,
    fingerprints,
    parse_header,
    read_header,
    versions,
)
from fedlsvi.storage.run_writer import (
    CHECKPOINT_SECONDS,
    RunWriter,
    begin,
    check_seconds,
    finish,
    play,
    refuse_existing,
)
from fedlsvi.storage.schema import suspect


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
    episodes: int | None = None,
    data: Any = None,
) -> Run:
    """Continue a run after a kill, a crash or Ctrl-C, to the same bits as without it.

    With `episodes` a run is extended, finished or not; see `Run.learn_more`.

    Args:
        folder: The run folder.
        env: The environments, needed only if the folder cannot make them (your own objects).
        features: The features, likewise.
        progress: A progress bar; None shows one in a terminal.
        observers: Called with the record of each round.
        threads: Threads that explore.
        transport: Needed if the agents ran elsewhere: as in `learn`, with the same journals.
        checkpoint_seconds: Time between two checkpoints; 0 is after every round.
        episodes: Total episodes per agent, including those already played; None leaves T unchanged.
        data: The logs that the run started with, needed only if the folder cannot read them.
    """
    check_seconds(checkpoint_seconds)
    opened = OpenedRun.at(folder)
    longer = episodes not in (None, opened.header.parameters.episodes)
    if opened.finished and not longer:
        return opened.result(env, features)
    header = opened.header
    if header.sites is not None:
        raise InvalidInput(
            f"the agents of the run in {header.run} are at the sites of a federation: "
            "the organiser continues it with `fedlsvi federate start PROJECT`",
            code="agents-at-sites",
        )
    _compare_versions(header)
    if longer:
        assert episodes is not None
        opened = opened.extended(episodes, env, features, data)
        header = opened.header
    session = _session(header, env, features, threads, opened.found, transport, data)
    opened.play(session, observers, checkpoint_seconds, progress)
    result = Run.of(session, header.job.learner().settings, str(header.run))
    result = replace(result, extended=header.extended)
    finish(header.run, result)
    return result


@dataclass(frozen=True)
class OpenedRun:
    """A run folder that is to be continued: its header, and its newest checkpoint if it has one."""

    header: RunHeader
    found: reading.Found | None

    @classmethod
    def at(cls, folder: str | PathLike[str]) -> OpenedRun:
        """The run in a folder."""
        header = read_header(folder)
        return cls(header, checkpoint.newest(header.run, reading.notice))

    @classmethod
    def of_sites(
        cls, run: Path, contents: Mapping[str, bytes], notify: Callable[[str], None]
    ) -> OpenedRun:
        """The run of a federation's server: begun with this header, or as far as it came.

        The folder is for its owner alone: each site's share can be told from the others' there.

        Args:
            run: The folder, which may not exist yet.
            contents: The files of the header (`run_header.header_files_at_sites`).
            notify: Called with a sentence if the newest checkpoint is damaged.

        Raises:
            InvalidSetting: The folder holds a run that was begun with other settings.
        """
        files.make_private(run)
        files.make_private(files.inside(run, CHECKPOINTS))
        found = checkpoint.newest(run, notify)
        if found is None:  # nothing was learned: whatever header is there may be replaced
            (run / VERSIONS).unlink(missing_ok=True)
            for name, data in contents.items():
                files.write(run / name, data)
        header = read_header(run)
        _refuse_another(header, parse_header(run, contents))
        return cls(header, found)

    @property
    def finished(self) -> bool:
        """Whether all episodes were played."""
        return self.found is not None and (
            self.found[0].plain["t"] == self.header.parameters.episodes
        )

    def extended(self, episodes: int, env: Any, features: Any, data: Any = None) -> OpenedRun:
        """The same folder, made ready to go on up to another T."""
        world, phi = reading.problem(self.header, env, features)
        integer("episodes", episodes, 1, "episodes per agent in all", error=InvalidInput)
        world, known = self.header.job.known_before(world, data)
        session = self.header.job.learner().prepare(
            world, episodes, self.header.job.seed, features=phi, **known
        )
        try:
            given = env is not None or features is not None
            _compare_problem(self.header, session, None, given)
            extension.prepare(self.header, self.found, session, episodes)
        finally:
            session.close()
        return OpenedRun.at(self.header.run)

    def restore(self, session: Session) -> None:
        """Put the session where it was at the checkpoint, if there is one."""
        if self.found is not None:
            _restore(self.header.run, session, self.found)

    def play(
        self,
        session: Session,
        observers: Iterable[Observer],
        checkpoint_seconds: float,
        progress: bool | None = False,
        patience: float = 0.0,
    ) -> None:
        """Run a restored session to its end, keeping the folder up to date."""
        manifest = None if self.found is None else self.found[0]
        writer = RunWriter(self.header.run, session, checkpoint_seconds, manifest, patience)
        play(writer, observers, progress)

    def result(self, env: Any = None, features: Any = None) -> Run:
        """The run at its newest checkpoint, and the files that a finished run has."""
        found = checkpoint.newest(self.header.run, reading.notice)
        assert found is not None
        run = reading.loaded(self.header, found, env, features)
        sites = self.header.sites
        finish(self.header.run, run, None if sites is None else sites["run"])
        return run


def _refuse_another(before: RunHeader, now: RunHeader) -> None:
    """A federation's folder is continued by the run that began it and by no other."""
    old, new = asdict(before.parameters), asdict(now.parameters)
    changed = [f"{key} {old[key]!r} and not {new[key]!r}" for key in old if old[key] != new[key]]
    agents = [[m for _, m in (one.sites or {"cuts": []})["cuts"]] for one in (before, now)]
    for what, there, here in (
        ("seed", before.job.seed, now.job.seed),
        ("agents at its sites", *agents),
        ("features", before.job.features, now.job.features),
        ("reward_range", list(before.reward_range), list(now.reward_range)),
    ):
        if there != here:
            changed.append(f"{what} {there} and not {here}")
    if changed:
        raise InvalidSetting(
            f"{before.run} holds a run that was started with {', '.join(changed)}: restore these "
            "values, or give the federation another name",
            code="another-run",
        )


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
             "counts": run.counts, "ending": run.ending}  # fmt: skip
    grams = run.gram_packed[: run.parameters.matrices]
    arrays = {"w": run.w, "gram": grams} | checkpoint.policy_table(run.exploring_policy.values)
    if run.policy_w is not None:
        arrays |= {"exploit.w": run.policy_w}
        arrays |= checkpoint.policy_table(run.policy.values, checkpoint.DEPLOYED)
    if run.fit is not None:
        arrays["fit"] = run.fit
    if (noise := run.exploring_policy.values.noise) is not None:
        arrays["noise"] = noise
    history = []
    if (memory := run.memory) is not None:
        if memory.t == run.played:
            arrays, plain = arrays | memory.arrays, plain | memory.plain
        else:
            before, more = memory.stored()
            arrays, plain = arrays | before, plain | more
        history = extension.segments(target, memory)
    checkpoint.save(target, 1, arrays, plain, appended, history)
    finish(target, run)


def _session(
    header: RunHeader, env: Any, features: Any, threads: int | None, found: reading.Found | None,
    transport: Any = "inprocess", data: Any = None,
) -> Session:  # fmt: skip
    """The session as it was at the checkpoint, or at the very beginning."""
    world, phi = reading.problem(header, env, features)
    world, begins = header.job.known_before(world, data)
    p, plain = header.parameters, {} if found is None else found[0].plain
    # the numbers in force are those the run began with, whatever this version's presets are
    known = algorithms.entry(header.job.algorithm).parameters()
    numbers = (
        *("gamma", "beta", "taper", "bonus", "lam", "packing", "cap", "rounds"),
        *("stationary", "diversity"),
    )
    given = {key: getattr(p, key) for key in numbers if key in known}
    fixed = {key: value for key, value in given.items() if value is not None}  # no cap: as asked
    # γ that follows the episode is not a number; and a number would switch off a cap not named here
    if p.growth or (p.cap is not None and "cap" not in known):
        fixed.pop("gamma", None)
    where = Execution(transport, plain.get("cohorts") or None, threads).beside(header.run)
    session = header.job.learner(**fixed).prepare(
        world, p.episodes, header.job.seed, features=phi, execution=where, **begins
    )
    try:
        _compare_problem(header, session, found, env is not None or features is not None)
        if found is not None:
            _restore(header.run, session, found)
    except FedLSVIError:
        session.close()
        raise
    return session


def _compare_problem(
    header: RunHeader, session: Session, found: reading.Found | None, given: bool
) -> None:
    """Refuse agents elsewhere, another environment or other features than the run began with;
    `given` says that not all of it came from the folder."""
    plain, arrays = ({}, {}) if found is None else (found[0].plain, found[1])
    if plain and bool(plain.get("cohorts")) != bool(session.player.cohorts):
        where, how = "elsewhere", "give the transport it started with, such as "
        hint, shell_hint = f'{how}transport="ray"', f"{how}--transport ray"
        if plain.get("cohorts"):
            where, hint = "in this process", "leave the transport out"
            shell_hint = hint
        raise InvalidInput(
            f"the agents of the run in {header.run} were {where}",
            code="other-transport",
            hint=hint,
            shell_hint=shell_hint,
        )
    plan = session.plan
    reading.check_sizes(header, plan, arrays.get(checkpoint.POLICY))
    reading.check_units(header, plan.world)
    then, now = header.fingerprints, fingerprints(plan)
    if None not in (*then, *now) and then != now:  # a black box may have none
        raise StoreError(
            f"the environment is not the one that the run in {header.run} started with: resume "
            f"with fedlsvi {header.versions['fedlsvi']}, or give the same environment, env=...",
            code="other-environment",
        )
    if given:
        reading.check_features(header, plan)


def _restore(run: Path, session: Session, found: reading.Found) -> None:
    """Put the session where it was at the checkpoint."""
    manifest, arrays = found
    path = run / CHECKPOINTS / f"{manifest.stem}.json"
    reading.check_model(path, session.player.parameters, manifest.plain["ledger"], arrays)
    past = reading.records(run, manifest)
    reading.refuse_actions(path, arrays, session.player.plan)
    with suspect(path):
        for segment in manifest.history:
            part = files.read_arrays(files.inside(run, HISTORY, segment["name"]), segment["stamp"])
            reading.refuse_actions(path, part, session.player.plan)
            session.player.extend(segment["first"], part)
            again = session.player.history(segment["first"], segment["last"])
            if {k: a.shape for k, a in again.items()} != {k: a.shape for k, a in part.items()}:
                raise ValueError(f"{segment['name']} is of other episodes")
        if not manifest.history and session.player.history(0, 0):
            raise ValueError("the episodes so far are missing")
        session.restore(arrays, manifest.plain, reading.regret(run, manifest), past)


def _compare_versions(header: RunHeader) -> None:
    """Another library or CPU may round differently: say so, and go on."""
    now = versions()
    libraries = ("fedlsvi", "numpy", "scipy", "numba", "machine", "cpu")
    changed = [
        f"{name} {header.versions.get(name)} → {now[name]}"
        for name in libraries
        if header.versions.get(name) != now[name]
    ]
    if changed:
        reading.notice(
            f"the run started with other versions ({', '.join(changed)}): it continues, but its "
            "results may differ in the last bits"
        )


def _copy(run: Run, target: Path) -> None:
    """A loaded run is its folder."""
    if run.folder is None:
        raise StoreError(
            "this run was not loaded from a folder and has no plan, so it cannot be saved: save "
            "the run that `learn` returned",
            code="no-plan",
        )
    try:
        hidden = shutil.ignore_patterns(".*", "plots")
        shutil.copytree(run.folder, target, symlinks=True, ignore=hidden, dirs_exist_ok=True)
    except (OSError, shutil.Error) as error:
        shutil.rmtree(target, ignore_errors=True)
        raise StoreError(
            f"cannot copy {run.folder} to {target}: {error}", code="cannot-write"
        ) from error
