"""`fedlsvi run` and `fedlsvi resume`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar

from fedlsvi.cli.text import as_json, several_lines, single_lines
from fedlsvi.errors import FolderExists, InvalidInput
from fedlsvi.report.command import command
from fedlsvi.report.statistics import aggregate
from fedlsvi.run import Run
from fedlsvi.storage import check_seconds, resume
from fedlsvi.storage import seeds as family
from fedlsvi.storage.job import ARRAYS, Job
from fedlsvi.storage.run_writer import refuse_existing
from fedlsvi.storage.settings_file import Table, assign, read

T = TypeVar("T")

MOST_SEEDS = 100_000
"""Runs that one command may ask for."""


def do_run(arguments: argparse.Namespace) -> int:
    """Learn, once or for several seeds."""
    table = settings(arguments)
    base = Path(arguments.file).parent if arguments.file else Path()
    seeds = None if arguments.seeds is None else parse_seeds(arguments.seeds)
    check_seconds(arguments.checkpoint_seconds)
    if seeds is not None and arguments.seed is not None:
        raise InvalidInput("--seed and --seeds exclude each other: give one of them")
    job = Job.parse(table, base)
    learner, env, features = job.learner(), job.environments(), job.feature_map()

    def play(seed: Any, folder: Path | None) -> Run:
        return learner.learn(
            env, job.episodes, seed, features=features, threads=arguments.threads, folder=folder,
            checkpoint_seconds=arguments.checkpoint_seconds, cohorts=arguments.cohorts,
            transport=_transport(arguments, folder),
        )  # fmt: skip

    if seeds is None:

        def alone(out: Path | None) -> Run:
            return _guard(out, partial(play, job.seed, out), arguments)

        out, run = _placed(arguments.out, job, alone)
        return _report([run], out, arguments.format, False)
    _transport(arguments, None)  # everything is checked before anything is written
    for seed in {min(seeds), max(seeds)}:
        learner.prepare(
            env, job.episodes, seed, features=features, threads=arguments.threads,
            cohorts=arguments.cohorts,
        ).close()  # fmt: skip

    def several(out: Path | None) -> list[Run]:
        return _several(out, job, seeds, play, arguments)

    out, runs = _placed(arguments.out, job, several)
    return _report(runs, out, arguments.format, True)


def _several(
    out: Path | None, job: Job, seeds: list[int], play: Callable[[int, Path | None], Run],
    arguments: argparse.Namespace,
) -> list[Run]:  # fmt: skip
    """A run for each seed, in one folder; none is left where the first run is refused."""
    if out is None:
        return [_guard(out, partial(play, seed, None), arguments) for seed in seeds]
    family.begin(out, job, seeds)
    try:
        return [
            _guard(out, partial(play, seed, family.member(out, seed)), arguments) for seed in seeds
        ]
    except InvalidInput:
        family.forget(out)
        raise


def do_resume(arguments: argparse.Namespace) -> int:
    """Continue a run, or a family of runs."""
    from fedlsvi.remote.flare import project

    folder = Path(arguments.folder)
    if (where := project.to_resume(folder)) is not None:
        number = project.start(where)
        watch = f"watch it: fedlsvi federate status {quote(str(where))}"
        found = {"project": str(where), "job": number}
        text = f"job {number} is submitted again and continues at its last checkpoint; {watch}"
        print(as_json(found) if arguments.format == "json" else text)
        return 0
    check_seconds(arguments.checkpoint_seconds)
    if arguments.cohorts is not None and arguments.transport == "inprocess":
        raise InvalidInput(
            f"--cohorts {arguments.cohorts} needs --transport ray: in this process a run goes on "
            "with those it began with, leave it out"
        )

    def options(run: Path) -> dict[str, Any]:
        return {
            "threads": arguments.threads,
            "checkpoint_seconds": arguments.checkpoint_seconds,
            "transport": _transport(arguments, run),
        }

    if not family.is_one(folder):
        run = _guard(folder, lambda: resume(folder, **options(folder)), arguments)
        return _report([run], folder, arguments.format, False)
    job, seeds = family.read(folder)

    def play(seed: int) -> Run:
        member = family.member(folder, seed)
        if member.exists():
            return resume(member, **options(member))
        return job.learner().learn(
            job.environments(), job.episodes, seed, features=job.feature_map(), folder=member,
            **options(member),
        )  # fmt: skip

    runs = [_guard(folder, partial(play, seed), arguments) for seed in seeds]
    return _report(runs, folder, arguments.format, True)


def _transport(arguments: argparse.Namespace, folder: Path | None) -> Any:
    """Where the agents are to be; on Ray their journals stand beside the run folder."""
    if arguments.transport == "inprocess":
        if arguments.ray_address is not None:
            raise InvalidInput("--ray-address needs --transport ray")
        return "inprocess"
    from fedlsvi.remote.ray.on_ray import on_ray

    return partial(on_ray, cohorts=arguments.cohorts, address=arguments.ray_address, folder=folder)


def settings(arguments: argparse.Namespace) -> Table:
    """The settings file with what the command line says instead."""
    table: Table = read(arguments.file) if arguments.file else {}
    if arguments.env is not None:
        if Path(arguments.env).suffix in (".npz", ".safetensors"):
            table["env"] = {"name": ARRAYS, "file": str(Path(arguments.env).absolute())}
        else:
            _rename(table, "env", arguments.env)
    if arguments.features is not None:
        _rename(table, "features", arguments.features)
    for key, value in (
        ("algorithm", arguments.algorithm),
        ("n_agents", arguments.agents),
        ("episodes", arguments.episodes),
        ("seed", arguments.seed),
    ):
        if value is not None:
            table[key] = value
    for change in arguments.changes:
        assign(table, change)
    return table


def _rename(table: Table, key: str, name: str) -> None:
    """Parameters of a file stay only with the name they were written for."""
    entry = table.get(key)
    if not (isinstance(entry, dict) and entry.get("name") == name):
        table[key] = {"name": name}


def parse_seeds(text: str, option: str = "--seeds") -> list[int]:
    """0:10 is 0 … 9; 1,2,5 is just these."""
    seeds: Sequence[int]
    try:
        first, colon, last = text.partition(":")
        seeds = range(int(first), int(last)) if colon else [int(s) for s in text.split(",")]
    except ValueError:
        raise InvalidInput(f"{option} {text!r} is not a range: write 0:10, or 1,2,5") from None
    if seeds[MOST_SEEDS:]:
        raise InvalidInput(f"{option} {text!r} is too many runs: give at most {MOST_SEEDS:,}")
    if not seeds or len(set(seeds)) < len(seeds):
        raise InvalidInput(f"{option} {text!r} is empty or repeats itself: write 0:10, or 1,2,5")
    return list(seeds)


def _placed(out: str | None, job: Job, play: Callable[[Path | None], T]) -> tuple[Path | None, T]:
    """Play, and say where; without --out in the first free runs/NAME, runs/NAME-2, …"""
    if out is None:
        return in_free_folder(Path("runs") / str(job.env[0]["name"]), play)
    folder = None if out == "-" else Path(out)
    if folder is not None:
        refuse_existing(folder)
    return folder, play(folder)


def named_folder(out: str) -> Path:
    """The folder of --out where something has to be written; `-` is the word for none."""
    if out == "-":
        raise InvalidInput("--out - keeps nothing, which only `fedlsvi run` can do: give a folder")
    return Path(out)


def in_free_folder(wanted: Path, play: Callable[[Path], T]) -> tuple[Path, T]:
    """Play in the first free folder; where another command was faster to take it, in the next."""
    while True:
        folder = free_folder(wanted)
        try:
            return folder, play(folder)
        except FolderExists:
            if not folder.exists():  # it is about something else
                raise


def free_folder(wanted: Path) -> Path:
    """The folder, or the first of its name with a number behind it that is free."""
    for number in range(1, 10_000):
        folder = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        if not folder.exists():
            return folder
    raise FolderExists(f"folder {wanted} and 9,998 like it exist: choose another with --out")


def _guard(out: Path | None, play: Callable[[], Run], arguments: argparse.Namespace) -> Run:
    """Play; on Ctrl-C say exactly how to go on."""
    try:
        return play()
    except KeyboardInterrupt:
        if out is None:
            print("fedlsvi: nothing was kept, because of --out -", file=sys.stderr)
        elif out.exists():
            print(f"fedlsvi: continue with: {_again(out, arguments)}", file=sys.stderr)
        raise


def _again(out: Path, arguments: argparse.Namespace) -> str:
    """The command that continues a run: with the same modules, and its agents where they were."""
    words = ["resume", str(out)]
    if arguments.transport != "inprocess":
        words += ["--transport", arguments.transport]
        for option in ("ray_address", "cohorts"):
            if (value := getattr(arguments, option)) is not None:
                words += [f"--{option.replace('_', '-')}", str(value)]
    return command(*words)


def _report(runs: Sequence[Run], out: Path | None, form: str, several: bool) -> int:
    """Print what came out."""
    summaries = [run.summary() | {"folder": run.folder} for run in runs]
    if several:
        together = aggregate(summaries)
        if form == "json":
            print(as_json({"folder": None if out is None else str(out), **together,
                           "runs": summaries}))  # fmt: skip
        else:
            print("\n".join(several_lines(summaries, together, out)))
        return 0
    print(as_json(summaries[0]) if form == "json" else "\n".join(single_lines(summaries[0])))
    return 0
