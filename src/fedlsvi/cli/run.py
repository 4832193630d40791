"""`fedlsvi run` and `fedlsvi resume`."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from fedlsvi.cli.command import (
    Name,
    Problem,
    bundle,
    command,
    format_option,
    new_folder,
    option,
    parse_seeds,
    problem_options,
    quiet_option,
)
from fedlsvi.cli.text import as_json, several_lines, single_lines
from fedlsvi.errors import InvalidInput

if TYPE_CHECKING:
    from fedlsvi.observers import Prometheus
    from fedlsvi.run import Run
    from fedlsvi.storage.settings_file import Job


@dataclass(frozen=True)
class Engine:
    """How a run is played; nothing here changes its result."""

    transport: str
    ray_address: str | None
    cohorts: int | None
    threads: int | None
    checkpoint_seconds: float
    metrics_port: int | None
    metrics_address: str
    log: str | None
    log_level: str
    quiet: bool

    def options(self, folder: Path | None) -> dict[str, Any]:
        """Keyword arguments of `learn` and `resume` for a run in this folder."""
        from fedlsvi.storage import check_seconds

        check_seconds(self.checkpoint_seconds)
        return {
            "threads": self.threads,
            "checkpoint_seconds": self.checkpoint_seconds,
            "progress": False if self.quiet else None,
            "transport": self._transport(folder),
            "observers": self._observers(folder),
        }

    def _observers(self, folder: Path | None) -> list[Any]:
        """What shows the run to others while it goes on."""
        from fedlsvi.observers.logged import log_round

        watching: list[Any] = [] if self.log is None else [log_round]
        if self.metrics_port is not None and folder is not None:
            watching.append(_exporter(self.metrics_port, self.metrics_address).of(folder.name))
        return watching

    @contextmanager
    def recorded(self, what: str) -> Iterator[None]:
        """The log of --log is written while this goes on."""
        from fedlsvi import json_log

        if self.log is None:
            yield
            return
        path = Path(self.log)
        try:
            handler = json_log.write_to(path, json_log.LEVELS[self.log_level])
        except OSError as error:
            raise InvalidInput(
                f"--log {path} cannot be written ({error.strerror}): choose another file",
                code="bad-log",
            ) from None
        with json_log.of_run(handler, what):
            yield

    def _transport(self, folder: Path | None) -> Any:
        """Where the agents are."""
        if self.transport == "inprocess":
            if self.ray_address is not None:
                raise InvalidInput("--ray-address needs --transport ray", code="needs-ray")
            return "inprocess"
        from fedlsvi.remote.ray.transport import on_ray

        return partial(on_ray, cohorts=self.cohorts, address=self.ray_address, folder=folder)

    def resume_command(self, folder: Path) -> str:
        """The command that continues a run, with the same modules and agents in the same place."""
        from fedlsvi.report.rerun import command

        words = ["resume", str(folder)]
        if self.transport != "inprocess":
            words += ["--transport", self.transport]
            words += [] if self.ray_address is None else ["--ray-address", self.ray_address]
            words += [] if self.cohorts is None else ["--cohorts", str(self.cohorts)]
        return command(*words)


@cache
def _exporter(port: int, address: str) -> Prometheus:
    """One page for all runs of a command."""
    from fedlsvi.observers import Prometheus

    return Prometheus(port, address)


_engine = partial(option, section="Execution (never changes the result)")
engine_options = bundle(
    "engine", Engine,
    _engine("--transport", type=click.Choice(["inprocess", "ray"]), default="inprocess",
            help="Where the agents run."),
    _engine("--ray-address", metavar="ADDRESS", help="Ray cluster to join, e.g. auto."),
    _engine("--cohorts", type=click.IntRange(min=1), metavar="N",
            help="Number of groups of agents; on Ray, one process each."),
    _engine("--threads", type=click.IntRange(min=1), metavar="N", help="Number of threads."),
    _engine("--checkpoint-seconds", type=float, default=5.0, metavar="S",
            help="Time between checkpoints; 0 writes one after every round."),
    _engine("--metrics-port", type=click.IntRange(0, 65535), metavar="N",
            help="Serve metrics for Prometheus at this port while it runs."),
    _engine("--metrics-address", default="127.0.0.1", metavar="ADDRESS",
            help="Where they are served; elsewhere than on loopback everybody can read them."),
    _engine("--log", metavar="FILE", help="Append a log of the run to FILE, as JSON lines."),
    _engine("--log-level", type=click.Choice(["debug", "info", "warning", "error"]),
            default="info", help="Least important records of that log."),
    quiet_option,
)  # fmt: skip


@command(epilog="`fedlsvi list settings` shows what --set can change; docs/cli.md has more.")
@problem_options("Any setting, e.g. gamma=50, or env.horizon=7 for the environment. Repeatable.")
@option("--algorithm", type=Name("algorithms"), metavar="NAME", show_default="fed-lsvi",
        section="Problem", help="Algorithm: a name from `fedlsvi list algorithms`.")  # fmt: skip
@option("--seed", type=int, metavar="N", show_default="0", section="Problem",
        help="Seed of the run.")  # fmt: skip
@option("--seeds", metavar="A:B", section="Problem",
        help="Several runs: 0:10 is seeds 0 to 9; or 1,2,5.")  # fmt: skip
@option("--data", multiple=True, metavar="RECORDS", section="Warm start",
        help="Logs to learn from first: one Parquet or CSV file or minari:ID with an agent "
             "column, or one per agent. Repeatable.")  # fmt: skip
@option("--warm-start", metavar="RUN", section="Warm start",
        help="Folder of a run; start from its model.")  # fmt: skip
@option("--warm-weight", type=float, metavar="W", show_default="1", section="Warm start",
        help="Weight of each episode of that run.")  # fmt: skip
@option("--out", metavar="FOLDER", show_default="runs/NAME", section="Output",
        help="Run folder; - to discard.")  # fmt: skip
@format_option
@engine_options
def run(
    problem: Problem, algorithm: str | None, seed: int | None, seeds: str | None,
    data: tuple[str, ...], warm_start: str | None, warm_weight: float | None, out: str | None,
    form: str, engine: Engine,
) -> int:  # fmt: skip
    """Learn a policy and write a run folder.

    \b
    Examples:
      fedlsvi run --env river-swim --agents 8 --episodes 20000
      fedlsvi run --env FrozenLake-v1 --agents 4 --set env.horizon=50 --set value_range=1
      fedlsvi run settings.toml --set gamma=50 --seeds 0:10 --out runs/ten
      fedlsvi run --env river-swim --data records.parquet
    """
    from fedlsvi.storage.run_writer import refuse_existing
    from fedlsvi.storage.settings_file import Job, for_learn

    table = problem.table(algorithm=algorithm, seed=seed)
    _begin_with(table, data, warm_start, warm_weight)
    chosen = None if seeds is None else parse_seeds(seeds)
    if chosen is not None and seed is not None:
        raise InvalidInput("give either --seed or --seeds, not both", code="seed-and-seeds")
    job = Job.parse(table, problem.base)
    learner, features = job.learner(), job.feature_map()
    env, known = job.known_before(job.environments())
    shared: dict[str, Any] = {
        "features": features,
        "threads": engine.threads,
        "cohorts": engine.cohorts,
    }
    engine.options(None)  # check everything before anything is written
    for one in {min(chosen), max(chosen)} if chosen else ():
        learner.prepare(env, job.episodes, one, **shared, **known).close()

    def play(seed: Any, folder: Path | None) -> Run:
        options = shared | engine.options(folder) | for_learn(known)
        return learner.learn(env, job.episodes, seed, folder=folder, **options)

    where: AbstractContextManager[Path | None]
    if out is None:
        where = new_folder(Path("runs") / str(job.env[0]["name"]))
    else:
        where = nullcontext(None if out == "-" else Path(out))
        if out != "-":
            refuse_existing(Path(out))
    with spoken(engine.quiet), engine.recorded("this run"), where as folder:
        if chosen is None:
            runs = [_resumable(folder, engine, lambda: play(job.seed, folder))]
        else:
            runs = _several(folder, job, chosen, engine, play)
    return _print(runs, folder, form, chosen is not None)


def _begin_with(
    table: dict[str, Any], data: tuple[str, ...], warm_start: str | None, weight: float | None
) -> None:
    """Put what the run begins with into its settings, with paths from here."""
    if data:
        table["data"] = [
            one if one.startswith("minari:") else str(Path(one).absolute()) for one in data
        ]
    if warm_start is not None:
        table["warm_start"] = {"run": str(Path(warm_start).absolute())}
    if weight is not None:
        named = table.get("warm_start")
        if named is None:
            raise InvalidInput("--warm-weight needs --warm-start RUN", code="needs-warm-start")
        table["warm_start"] = ({"run": named} if isinstance(named, str) else named) | {
            "weight": weight
        }


def finish_run(
    play: Callable[[Path | None], Run], engine: Engine, out: str | None, name: str, form: str
) -> int:
    """Play one run into the folder of --out, by default runs/NAME, and print it."""
    from fedlsvi.storage.run_writer import refuse_existing

    where: AbstractContextManager[Path | None]
    if out is None:
        where = new_folder(Path("runs") / name)
    else:
        where = nullcontext(None if out == "-" else Path(out))
        if out != "-":
            refuse_existing(Path(out))
    with engine.recorded("this run"), where as folder:
        run = _resumable(folder, engine, lambda: play(folder))
    return _print([run], folder, form, False)


@contextmanager
def spoken(quiet: bool) -> Iterator[None]:
    """What a run warns of and says of its traffic, as lines on standard error, each once; nothing
    if `quiet`."""
    import logging

    from fedlsvi.errors import FedLSVIWarning
    from fedlsvi.observers.traffic import log

    said: set[str] = set()

    def say(record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text[:30] not in said:
            said.add(text[:30])
            print(f"fedlsvi: {text}", file=sys.stderr)

    handler = logging.Handler(logging.INFO)
    handler.emit = say  # type: ignore[method-assign]
    with warnings.catch_warnings():
        level = log.level
        if quiet:
            warnings.simplefilter("ignore", FedLSVIWarning)
        else:
            log.addHandler(handler)
            log.setLevel(logging.INFO)
        try:
            yield
        finally:
            log.removeHandler(handler)
            log.setLevel(level)


def _several(
    folder: Path | None, job: Job, seeds: list[int], engine: Engine,
    play: Callable[[int, Path | None], Run],
) -> list[Run]:  # fmt: skip
    """One run per seed in one folder; none is left if the first run is refused."""
    from fedlsvi.storage import seeds as family

    if folder is None:
        runs: list[Run] = []
        for seed in seeds:
            runs.append(_resumable(None, engine, partial(play, seed, None)))
            if runs[-1].ending == "interrupted":
                break
        return runs
    family.begin(folder, job, seeds)
    members = {seed: family.member(folder, seed) for seed in seeds}
    try:
        return [_resumable(folder, engine, partial(play, *item)) for item in members.items()]
    except InvalidInput:
        family.forget(folder)
        raise


@command()
@click.argument("folder", type=click.Path(), help="Run folder, or folder of `run --seeds`.")
@option("--episodes", type=int, metavar="T", show_default="unchanged", section="Problem",
        help="Total episodes per agent; extends the run, finished or not.")  # fmt: skip
@format_option
@engine_options
def resume(folder: str, episodes: int | None, form: str, engine: Engine) -> int:
    """Continue an interrupted run to the same result, or a finished one for longer.

    \b
    Examples:
      fedlsvi resume runs/river-swim
      fedlsvi resume runs/river-swim --episodes 40000
    """
    from fedlsvi.remote.flare import project
    from fedlsvi.storage import resume as continue_run
    from fedlsvi.storage import seeds as family
    from fedlsvi.storage.settings_file import for_learn

    where = Path(folder)
    if (federation := project.to_resume(where)) is not None:
        if episodes is not None:
            raise InvalidInput(
                f"--episodes cannot change {where}: the sites of this federation agreed on the "
                "number of episodes. Start a new federation",
                code="agents-at-sites",
            )
        number = project.start(federation)
        watch = f"fedlsvi federate status {quote(str(federation))}"
        text = f"job {number} continues from its last checkpoint; watch it with: {watch}"
        found = {"project": str(federation), "job": number}
        print(as_json(found) if form == "json" else text)
        return 0
    if engine.cohorts is not None and engine.transport == "inprocess":
        raise InvalidInput(
            f"--cohorts {engine.cohorts} needs --transport ray: in-process runs keep the cohorts "
            "they started with",
            code="needs-ray",
        )
    if not family.is_one(where):
        with spoken(engine.quiet), engine.recorded("this run"):
            run = _resumable(
                where,
                engine,
                lambda: continue_run(where, episodes=episodes, **engine.options(where)),
            )
        return _print([run], where, form, False)
    if episodes is not None:
        family.lengthen(where, episodes)
    job, seeds = family.read(where)

    def play(seed: int) -> Run:
        member = family.member(where, seed)
        if member.exists():
            return continue_run(member, episodes=episodes, **engine.options(member))
        env, known = job.known_before(job.environments())
        return job.learner().learn(
            env, job.episodes, seed, features=job.feature_map(), folder=member,
            **engine.options(member), **for_learn(known),
        )  # fmt: skip

    with spoken(engine.quiet), engine.recorded("this run"):
        runs = [_resumable(where, engine, partial(play, seed)) for seed in seeds]
    return _print(runs, where, form, True)


def _resumable(folder: Path | None, engine: Engine, play: Callable[[], Run]) -> Run:
    """Play; on Ctrl-C print the command that continues the run."""
    try:
        return play()
    except KeyboardInterrupt:
        if folder is None:
            print("fedlsvi: nothing was kept, because of --out -", file=sys.stderr)
        elif folder.is_dir() and any(folder.iterdir()):
            print(f"fedlsvi: continue with: {engine.resume_command(folder)}", file=sys.stderr)
        raise


def _print(runs: Sequence[Run], folder: Path | None, form: str, several: bool) -> int:
    """Print the outcome of one run, or of several with what they have in common."""
    code = 130 if runs[-1].ending == "interrupted" else 0
    summaries = [run.summary(not several) | {"folder": run.folder} for run in runs]
    if not several:
        (one,) = summaries
        print(as_json(one) if form == "json" else "\n".join(single_lines(one)))
        return code
    from fedlsvi.report.intervals import aggregate

    together = aggregate(summaries)
    if form == "json":
        where = None if folder is None else str(folder)
        print(as_json({"folder": where, **together, "runs": summaries}))
    else:
        print("\n".join(several_lines(summaries, together, folder)))
    return code
