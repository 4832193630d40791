"""What a run begins with, as settings files and run folders name it: logs, or an earlier run.

data = "records.parquet"                  # with an agent column; or a list, one for each agent
[[data]]                                  # or tables; an empty one is an agent without a log
file = "north.parquet"
columns = { action = "dose" }

warm_start = "runs/before"                # or with its weight:
[warm_start]
run = "runs/before"
weight = 0.5
"""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np

from fedlsvi.checks import SEEDS, integer, number, refuse_unknown
from fedlsvi.errors import InvalidInput
from fedlsvi.logs.agent_data import worlds_and_logs
from fedlsvi.logs.rows import InvalidRecord
from fedlsvi.logs.world import LoggedWorld, logged_worlds, records
from fedlsvi.protocol.plan import Plan
from fedlsvi.protocol.warm_start import Prior
from fedlsvi.storage.settings_file import Table
from fedlsvi.warm_start import prior_of

if TYPE_CHECKING:
    from fedlsvi.storage.settings_file import Job

GIVEN = "given"
"""Key of a log that no file holds: it has to be given again."""

SIZES = ("horizon", "n_states", "n_actions", "reward_range", "action_names")


def entries_of(data: Any) -> list[Table]:
    """The tables of `data`: a word is a file, or a Minari data set."""
    many = [] if data is None else data if isinstance(data, list) else [data]
    found: list[Table] = []
    for one in many:
        if isinstance(one, str):
            minari = one.startswith("minari:")
            one = {"minari": one.removeprefix("minari:")} if minari else {"file": one}
        if not isinstance(one, dict):
            raise InvalidInput(
                f"data contains {one!r}: give a file name, or a table with file", code="bad-data"
            )
        refuse_unknown("key of data", one, [*signature(records).parameters, GIVEN])
        found.append(dict(one))
    return found


def start_of(warm: Any) -> Table | None:
    """The table of `warm_start`: a word is the folder of a run."""
    if warm is None:
        return None
    table = {"run": warm} if isinstance(warm, str) else warm
    if not isinstance(table, dict) or not ("run" in table) != ("file" in table):
        raise InvalidInput(
            f"warm_start is {warm!r}: give the folder of a run, or a table with `run` and `weight`",
            code="bad-warm_start",
        )
    refuse_unknown("key of warm_start", table, ("run", "file", "weight", "lam", "samples"))
    return dict(table)


def known_before(job: Job, env: Any, data: Any) -> tuple[Any, dict[str, Any]]:
    """The environments, and what `FedLSVI.prepare` takes of logs and prior."""
    M = job.settings.get("n_agents", 1)
    places = list(env) if isinstance(env, list | tuple) else [env]
    like = next((one for one in places if not isinstance(one, LoggedWorld)), None)
    given = data if data is not None else (_logs(job, like) or None)
    worlds, logs = worlds_and_logs(env, given, M)
    known: dict[str, Any] = {"logs": logs} if logs else {}
    if job.warm_start is not None:
        known["prior"] = _prior(job, job.warm_start)
    if known and job.algorithm != "fed-lsvi":
        raise InvalidInput(
            f"'{job.algorithm}' cannot use data or warm_start: use fed-lsvi",
            code="no-warm-start",
        )
    return worlds, known


def _logs(job: Job, like: Any) -> list[LoggedWorld | None]:
    """The logs that a job names, with the sizes of the environment where it gives none."""
    if len(job.data) == 1 and "key" not in job.data[0] and job.data[0]:
        own = _read(job, job.data[0], like)
        return list(own)
    found: list[LoggedWorld | None] = []
    for entry in job.data:
        if not entry:
            found.append(None)
            continue
        key = entry.get("key")
        own = [one for one in _read(job, entry, like) if one.key == key]
        if not own:
            raise InvalidRecord(f"{entry} has no agent {key}", code="no-agent")
        found.append(own[0])
    return found


def _read(job: Job, entry: Table, like: Any) -> list[LoggedWorld]:
    if GIVEN in entry:
        raise InvalidInput(
            "the logs of this run were given as objects, which are not in the run folder: give "
            "them again, data=...",
            code="data-was-given",
        )
    if ("file" in entry) == ("minari" in entry):
        raise InvalidInput(f"data contains {entry!r}: give file or minari", code="bad-data")
    where = f"minari:{entry['minari']}" if "minari" in entry else job.base / str(entry["file"])
    sizes = {key: entry[key] for key in SIZES if key in entry}
    return logged_worlds(where, like=like, columns=entry.get("columns"), **sizes)


def _prior(job: Job, table: Table) -> Prior:
    weight = table.get("weight", 1.0)
    if "run" in table:
        return prior_of(job.base / str(table["run"]), weight)
    from fedlsvi.storage.settings_file import load_arrays

    arrays = load_arrays("warm_start.file", job.base / str(table["file"]))
    if set(arrays) != {"w", "gram"}:
        raise InvalidInput(
            f"warm_start.file has the arrays {sorted(arrays)}, but must have w and gram",
            code="bad-warm_start",
        )
    weight = number("weight", weight, 0.0, strict=True)
    lam = number("lam", table.get("lam", 1.0), 0.0)
    samples = integer("samples", table.get("samples", 0), 0, most=SEEDS - 1)
    return Prior(arrays["w"], arrays["gram"], lam, weight, samples)


def described(
    plan: Plan, kept: dict[str, dict[str, np.ndarray]], file: str
) -> tuple[list[Table], Table | None]:
    """The tables of `data` and `warm_start` of a plan; arrays go into `kept`, those of
    an earlier run under the name `file`."""
    data: list[Table] = []
    for env, log in zip(plan.envs, plan.logs, strict=False):
        if log is None or log is env:  # one that is all an agent has stands in its place
            data.append({})
            continue
        spec = log.spec()
        given = {GIVEN: log.name, **spec["params"]}
        data.append(given if spec["name"] is None else dict(spec["params"]))
    data = data if any(data) else []
    if plan.prior is None:
        return data, None
    prior = plan.prior
    kept[file] = {"w": prior.w, "gram": prior.gram}
    numbers = {"weight": prior.weight, "lam": prior.lam, "samples": prior.samples}
    return data, {"file": file, **numbers}
