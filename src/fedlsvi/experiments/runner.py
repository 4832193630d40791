"""Many runs, in parallel and resumable: specifications go in, outcomes come out.

A specification is a job as in a settings file. Its key is a hash of that, so a run that two studies
need is played once. Outcomes are lines of an append-only file; a truncated last line is cut off,
and a run that is there is never played again. Processes share nothing; each run has one thread.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import process_time
from typing import Any, Protocol

import numpy as np

from fedlsvi import __version__
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.errors import DamagedFile, FedLSVIError, InvalidInput
from fedlsvi.experiments.processes import pool, pool_errors
from fedlsvi.learner import unattended
from fedlsvi.protocol.records import late_return, returns_between, tenth
from fedlsvi.run import Run
from fedlsvi.storage import files
from fedlsvi.storage.schema import Shape, check_shape, parse_json, shape_of
from fedlsvi.storage.settings_file import Job, Table, for_learn

OnResult = Callable[["RunSpec", "Outcome"], "Iterable[RunSpec] | None"]
"""Called with each outcome; may return runs that it makes possible, which are played next."""


class Workers(Protocol):
    """What plays runs: a pool of processes, or the tasks of a cluster."""

    def submit(self, function: Callable[[Table], Outcome | str], table: Table, /) -> Future[Any]:
        """Call a function elsewhere."""
        ...


Cluster = tuple[Workers, int]
"""Workers, and how many runs they play at once."""


@dataclass(frozen=True)
class RunSpec:
    """One run to be made.

    Attributes:
        table: Its settings.
        labels: What a study calls it; not part of the run.
        expected: Seconds that it may take; long runs start first.
    """

    table: Table
    labels: dict[str, Any] = field(default_factory=dict, compare=False)
    expected: float = field(default=1.0, compare=False)

    @property
    def key(self) -> str:
        """Hash of what decides the run: its settings and this version of the software."""
        text = json.dumps([__version__, self.table], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:24]


@dataclass(frozen=True)
class Outcome:
    """What is kept of a run."""

    algorithm: str
    seed: int
    n_agents: int
    episodes: int
    horizon: int
    dim: int
    gamma: float
    beta: float
    lam: float
    rounds: int
    scalars: int
    scalars_by_category: dict[str, int]
    regret: float | None
    late: float | None  # regret of the last `tenth` of the episodes
    uniform: float | None  # regret of the uniform policy on the same problem
    bounds: dict[str, float]  # right-hand sides of the theorems, Fed-LSVI's only
    raw_per_step: int  # ρ
    seconds: float  # of processor time: what else the machine does is not in it
    curve: dict[str, list[float]]  # t, scalars and regret or return, as far as known; thinned
    late_return: float | None = None  # mean over the last `tenth`, where regret is not known


ENTRY: Shape = {"key": str, "outcome": shape_of(Outcome), str: Any}
"""A line of a file of outcomes."""


def outcome(run: Run, envs: Sequence[Any], seconds: float) -> Outcome:
    """The numbers of a finished run."""
    p, T = run.parameters, run.parameters.episodes
    regret, late = None, None
    t = np.unique(np.concatenate([np.linspace(1, T, 80), np.geomspace(1, T, 60)]).round())
    t = t.astype(np.int64)
    ends = np.array([record.last for record in run.records])
    sent = np.array([0, *(sum(record.scalars.values()) for record in run.records)])
    curve = {"t": t.tolist(), "scalars": sent[np.searchsorted(ends, t, "right")].tolist()}
    if run.regret is not None:
        regret = float(run.regret[-1])
        late = regret - float(run.regret[T - 1 - tenth(T)]) if T > 1 else regret
        curve["regret"] = _short(run.regret[t - 1])
    earned = returns_between(run.records, np.array([0, *t]))  # since the point before
    if earned is not None:
        curve["return"] = _short(earned)
    return Outcome(
        algorithm=run.algorithm, seed=run.seed, n_agents=p.n_agents, episodes=T,
        horizon=p.horizon, dim=p.dim, gamma=p.gamma, beta=p.beta, lam=p.lam,
        rounds=run.rounds, scalars=run.ledger.total, scalars_by_category=run.ledger.scalars,
        regret=regret, late=late, uniform=uniform(envs, p.n_agents, T),
        bounds={name: float(b.bound) for name, b in run.bounds.items() if np.isfinite(b.bound)},
        raw_per_step=run.raw_scalars_per_step, seconds=seconds, curve=curve,
        late_return=late_return(run.records, T),
    )  # fmt: skip


def _short(values: np.ndarray) -> list[float]:
    return [float(f"{v:.7g}") for v in values]


def uniform(envs: Sequence[Any], agents: int, episodes: int) -> float | None:
    """Σ_{m,t} of V*₁ − V₁ of the uniform policy; None where values are not tables."""
    if not all(isinstance(env, FiniteMDP) for env in envs):
        return None
    gaps = [env.optimal_values()[0] - env.uniform_values()[0] for env in envs]
    n = len(envs)
    return episodes * sum(float(envs[m % n].initial_law(m) @ gaps[m % n]) for m in range(agents))


def play(table: Table) -> Outcome:
    """One run, on one thread."""
    began = process_time()
    job = Job.parse(table)
    env, known = job.known_before(job.environments())
    with unattended():
        run = job.learner().learn(
            env, job.episodes, job.seed, features=job.feature_map(), progress=False, threads=1,
            **for_learn(known),
        )  # fmt: skip
    envs = env if isinstance(env, list) else [run.plan.envs[0] if run.plan is not None else env]
    return outcome(run, envs, process_time() - began)


class ResultFile:
    """Outcomes by key, as lines of a file that only grows."""

    def __init__(self, path: Path) -> None:
        files.make_folder(path.parent)
        self._lock = files.lock(
            path, f"{path} is in use by another command: wait for it, then repeat this one"
        )
        try:
            whole = files.whole_lines(path)
            self.outcomes = _outcomes(path, whole)
            self._file = files.AppendOnly(path, files.stamp(whole) if whole else None)
        except BaseException:
            self._let_go()
            raise

    @staticmethod
    def read(path: Path) -> dict[str, Outcome]:
        """What is there by now; the file is left as it is, whoever writes to it."""
        return _outcomes(path, files.whole_lines(path))

    def put(self, spec: RunSpec, found: Outcome) -> None:
        """Keep an outcome; it is durable when this returns."""
        entry = {"key": spec.key, "version": __version__, "job": spec.table}
        line = json.dumps(entry | {"outcome": asdict(found)}, ensure_ascii=False, allow_nan=False)
        self._file.append(line.encode() + b"\n")
        self._file.sync()
        self.outcomes[spec.key] = found

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()
        self._let_go()

    def _let_go(self) -> None:
        self._lock.release()


def _outcomes(path: Path, lines: bytes) -> dict[str, Outcome]:
    found: dict[str, Outcome] = {}
    for number, line in enumerate(lines.splitlines(), 1):
        try:
            entry = parse_json(path, line)
            check_shape(path, entry, ENTRY)
            found[entry["key"]] = Outcome(**entry["outcome"])
        except DamagedFile:
            raise InvalidInput(
                f"{path}, line {number}, is not a result: delete that line or the file, "
                "and its runs will be repeated",
                code="not-a-result",
            ) from None
    return found


def missing(specs: Iterable[RunSpec], results: ResultFile) -> list[RunSpec]:
    """Cells without an outcome, each once, the longest first."""
    left = {spec.key: spec for spec in specs if spec.key not in results.outcomes}
    return sorted(left.values(), key=lambda spec: -spec.expected)


def run_all(
    specs: Iterable[RunSpec],
    results: ResultFile,
    jobs: int,
    on_result: OnResult | None = None,
    cluster: Cluster | None = None,
) -> int:
    """Play every run that has no outcome yet.

    Args:
        specs: The runs.
        results: Where outcomes are kept.
        jobs: Processes.
        on_result: As `OnResult`.
        cluster: Where they are played, in place of processes of this machine.

    Returns:
        How many were played.
    """
    todo, played = deque(missing(specs, results)), 0
    for spec, found in _played(todo, jobs) if cluster is None else _spread(todo, *cluster):
        results.put(spec, found)
        played += 1
        more = on_result(spec, found) if on_result is not None else None
        todo.extendleft(reversed(missing(more or (), results)))
    return played


def _played(todo: deque[RunSpec], jobs: int) -> Iterator[tuple[RunSpec, Outcome]]:
    if jobs == 1 or len(todo) < 2:
        while todo:
            spec = todo.popleft()
            yield spec, play(spec.table)
        return
    with pool_errors(), pool(jobs) as processes:
        yield from _spread(todo, processes, jobs)


def _spread(todo: deque[RunSpec], workers: Workers, jobs: int) -> Iterator[tuple[RunSpec, Outcome]]:
    """The runs that these workers play, `jobs` at once, as they end."""
    waiting: dict[Future[Outcome | str], RunSpec] = {}
    while todo or waiting:
        while todo and len(waiting) < 2 * jobs:
            spec = todo.popleft()
            waiting[workers.submit(_work, spec.table)] = spec
        yield from _finished(waiting)


def _finished(waiting: dict[Future[Outcome | str], RunSpec]) -> Iterator[tuple[RunSpec, Outcome]]:
    for future in wait(waiting, return_when=FIRST_COMPLETED).done:
        spec, found = waiting.pop(future), future.result()
        if isinstance(found, str):
            who = f"{spec.table['algorithm']}, seed {spec.table['seed']}"
            raise InvalidInput(f"{who}: {found}", code="run-failed")
        yield spec, found


def _work(table: Table) -> Outcome | str:
    """In another process. Errors travel as sentences, because not every error can be sent."""
    try:
        return play(table)
    except FedLSVIError as error:
        return str(error)
    except Exception as error:  # a custom environment or algorithm
        text = " ".join(f"{type(error).__name__}: {error}".split())
        return f"{text} (--jobs 1 shows where it was raised)"
