"""Settings files: TOML read, changed key by key and written, and the job that its table describes.

A table is what `tomllib` gives: dictionaries, lists, numbers, words. A job is everything needed to
play a run again, as settings files and run folders write it down:

    algorithm = "fed-lsvi"
    episodes = 30000
    seed = 0
    n_agents = 8                 # and the algorithm's other settings

    [env]                        # or one [[env]] for each agent
    name = "random-linear"
    n_states = 20

    [features]                   # left out: the environment's own
    name = "one-hot"

`name = "arrays"` takes a finite MDP from a .npz or .safetensors file with P, r and, if wanted,
initial and phi; `reward_range` beside it says what rewards 0 and 1 stand for. An environment with a
parameter `agent` that is left out is made once per agent. `name = "records"` is a log, in a `file`
or a `minari` data set, for `algorithm = "pevi"`; beside other environments it is an agent that has
a log and plays nothing.

    data = ["north.parquet", "south.parquet"]    # what agents recorded before, one for each
    warm_start = "runs/before"                   # a run whose model is where this one begins
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from inspect import signature
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from fedlsvi import envs
from fedlsvi import features as feature_maps
from fedlsvi.algorithms import registry as algorithms
from fedlsvi.checks import refuse_unknown
from fedlsvi.envs import registry as environments
from fedlsvi.envs.base import Environment, units
from fedlsvi.errors import (
    InvalidEnvironment,
    InvalidFeatures,
    InvalidInput,
    UnknownName,
)
from fedlsvi.features.base import FeatureMap
from fedlsvi.learner import Algorithm
from fedlsvi.logs import RECORDS
from fedlsvi.registry import refuse_unasked
from fedlsvi.storage.schema import bounded

Table = dict[str, Any]

ARRAYS = "arrays"
"""Name of an environment that is given by its arrays."""

GIVEN = "given"
"""Name of an object that no name or array can rebuild: it has to be given again."""

AT_SITES = "at-sites"
"""Name of environments that only the sites of a federation know."""

EPISODES = 10_000
"""Episodes per agent where a settings file and the command line say nothing."""

SHOWN = ("reward_range", "first_observation", "first_action", "after_end")
"""What arrays do not tell of the environment that was read into them."""

_ARRAY_KEYS = ("file", "entry", "title", "P", "r", "horizon", "initial", "phi", *SHOWN)


def read(path: str | Path) -> Table:
    """The table in a TOML file."""
    try:
        return parse(Path(path).read_bytes(), path)
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
    raise InvalidInput(
        f"settings file {path} {problem}: give the path of a TOML file", code="bad-settings-file"
    ) from None


def parse(data: bytes, path: str | Path) -> Table:
    """The table in a TOML text; errors name `path` as its source."""
    try:
        table: Table = bounded(data, tomllib.loads)
        return table
    except UnicodeDecodeError:
        raise InvalidInput(
            f"settings file {path} is not UTF-8 text: give a TOML file", code="bad-settings-file"
        ) from None
    except ValueError as error:  # bad TOML, or a number of thousands of digits
        raise InvalidInput(
            f"settings file {path} is not valid TOML: {error}", code="bad-settings-file"
        ) from None


def assign(table: Table, assignment: str) -> None:
    """Carry out `key=value` on the table; dots lead into tables, as in `env.horizon=7`.

    The value is read as TOML or Python (7, 0.5, true, [1, 2], (1, 2), "word"); anything else is a
    word.
    """
    key, equals, text = assignment.partition("=")
    path = [part.strip() for part in key.split(".")]
    if not equals or not all(path):
        raise InvalidInput(
            f"--set {assignment!r} is not an assignment: write key=value, e.g. gamma=50",
            code="bad-assignment",
        )
    for part in path[:-1]:
        inner = table.setdefault(part, {})
        if isinstance(inner, str):  # env = "river-swim" is short for env = { name = "river-swim" }
            inner = table[part] = {"name": inner}
        if not isinstance(inner, dict):
            raise InvalidInput(
                f"--set {assignment!r}: '{part}' is a value, not a table, so it has no keys",
                code="bad-assignment",
            )
        table = inner
    table[path[-1]] = _value(text.strip())


def _value(text: str) -> Any:
    with suppress(ValueError):
        return tomllib.loads(f"value = {text}")["value"]
    with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
        value = ast.literal_eval(text)
        if isinstance(value, bool | list | tuple):
            return list(value) if isinstance(value, tuple) else value
    return text


def dump(table: Table) -> str:
    """The TOML text of a table; keys without a value (None) are left out."""
    return tomli_w.dumps(_writable(table))


def _writable(value: Any) -> Any:
    """The value with Python's own numbers and without None."""
    if isinstance(value, bool | str):
        return value
    if isinstance(value, Integral):  # NumPy's too
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, list | tuple):
        return [_writable(item) for item in value]
    if isinstance(value, dict):
        return {key: _writable(item) for key, item in value.items() if item is not None}
    raise InvalidInput(
        f"{value!r} cannot be written as TOML: use numbers, strings, lists and tables",
        code="not-toml",
    )


@dataclass(frozen=True)
class Job:
    """What to play. Paths of files inside are relative to `base`."""

    algorithm: str
    settings: dict[str, Any]
    episodes: int
    seed: int
    env: list[Table]
    features: Table | None = None
    base: Path = field(default=Path(), compare=False)
    data: list[Table] = field(default_factory=list)
    warm_start: Table | None = None

    @classmethod
    def parse(cls, table: Table, base: Path | None = None) -> Job:
        """Read a table; unknown keys are refused here, values when the job is made ready."""
        rest = dict(table)
        algorithm = rest.pop("algorithm", "fed-lsvi")
        row = algorithms.entry(str(algorithm))
        episodes, seed = rest.pop("episodes", EPISODES), rest.pop("seed", 0)
        env, features = rest.pop("env", None), rest.pop("features", None)
        data, warm = rest.pop("data", None), rest.pop("warm_start", None)
        known = row.parameters()
        others = ("algorithm", "episodes", "seed", "env", "features", "data", "warm_start")
        refuse_unknown("setting", rest, [*known, *others])
        if env is None or env == []:
            what = "missing" if env is None else "an empty list"
            raise InvalidInput(
                f"env is {what}: give --env NAME or an [env] table with a name "
                "(`fedlsvi list environments` shows the names)",
                code="missing-env",
            )
        entries = [_named("env", e) for e in (env if isinstance(env, list) else [env])]
        phi = None if features is None else _named("features", features)
        made = cls(str(algorithm), rest, episodes, seed, entries, phi, base or Path())
        if data is None and warm is None:
            return made
        from fedlsvi.storage import warm_sources

        before = warm_sources.entries_of(data), warm_sources.start_of(warm)
        return replace(made, data=before[0], warm_start=before[1])

    def table(self) -> Table:
        """What `parse` reads back; written as TOML by `dump`."""
        table: Table = {"algorithm": self.algorithm, "episodes": self.episodes, "seed": self.seed}
        table |= {key: value for key, value in self.settings.items() if value is not None}
        table["env"] = self.env[0] if len(self.env) == 1 else self.env
        if self.features is not None:
            table["features"] = self.features
        if self.data:
            table["data"] = self.data
        if self.warm_start is not None:
            table["warm_start"] = self.warm_start
        return table

    def learner(self, **instead: Any) -> Algorithm:
        """The algorithm with its settings, or with others in place of some."""
        return algorithms.make(self.algorithm, **self.settings | instead)

    def environments(self) -> Environment | list[Environment]:
        """One environment for all agents, or a list with one for each."""
        if len(self.env) > 1:
            return [self._environment(entry) for entry in self.env]
        entry, n_agents = self.env[0], self.settings.get("n_agents", 1)
        if not _per_agent(entry) or not isinstance(n_agents, int):
            return self._environment(entry)
        own = [self._environment(entry | {"agent": m}) for m in range(n_agents)]
        prints = {
            env.fingerprint if isinstance(env, envs.FiniteMDP) else m for m, env in enumerate(own)
        }
        return own[0] if len(prints) == 1 else own  # agents that are alike share one

    @property
    def first_entry(self) -> Table:
        """The first environment that can be played; where all are logs, the first of them."""
        return next((one for one in self.env if one["name"] != RECORDS), self.env[0])

    def first_environment(self) -> Environment:
        """Agent 0's, or that of the first agent that has more than a log."""
        entry = self.first_entry
        return self._environment(entry | {"agent": 0} if _per_agent(entry) else entry)

    def known_before(self, env: Any, data: Any = None) -> tuple[Any, dict[str, Any]]:
        """The environments once more, and what the run begins with, as `FedLSVI.prepare` takes
        both; `data` is in place of the logs that are named here."""
        places = list(env) if isinstance(env, list | tuple) else [env]
        if data is None and not self.data and self.warm_start is None:
            playing = [one for one in places if not one.recorded]
            if not playing or len(playing) == len(places):  # all play, or pevi reads all
                return env, {}
        from fedlsvi.storage import warm_sources

        return warm_sources.known_before(self, env, data)

    def feature_map(self) -> FeatureMap | None:
        """The features that were asked for; None is the environment's own."""
        if self.features is None:
            return None
        params = {key: value for key, value in self.features.items() if key != "name"}
        name = self.features["name"]
        if name == GIVEN:
            raise InvalidFeatures(
                f"the features of this run ({params.get('what', 'a function')}) were given as an "
                "object, which is not in the run folder: give them again, features=...",
                code="features-were-given",
            )
        if name == "table" and "file" in params:
            extra = sorted(set(params) - {"file"})
            if extra:
                raise UnknownName("parameter of features 'table'", extra[0], ["file", "table"])
            arrays = load_arrays("features.file", self.base / str(params["file"]))
            if "table" not in arrays:
                raise InvalidFeatures(
                    f"features.file {params['file']} has arrays {sorted(arrays)}: "
                    "name the (S, A, d) array 'table'",
                    code="no-table",
                )
            params = {"table": arrays["table"]}
        return feature_maps.make(name, **params)

    def _environment(self, entry: Table) -> Environment:
        params = {key: value for key, value in entry.items() if key != "name"}
        if entry["name"] == GIVEN:
            raise InvalidEnvironment(
                f"the environment of this run ({params.get('what', 'an object')}) was given as an "
                "object, which is not in the run folder: give it again, env=...",
                code="env-was-given",
            )
        if entry["name"] == AT_SITES:
            raise InvalidEnvironment(
                "the environments of this run are at the sites of its federation: give one with "
                "the same sizes, env=... or --env",
                code="env-at-sites",
            )
        if entry["name"] == ARRAYS:
            return self._from_arrays(params)
        if entry["name"] == RECORDS:
            return self._from_log(params)
        refuse_unasked(entry)
        return envs.make(entry["name"], **params)

    def _from_log(self, params: Table) -> Environment:
        from fedlsvi.logs.world import records

        known = signature(records).parameters
        refuse_unknown(f"parameter of environment '{RECORDS}'", params, known)
        own = {"file": str(self.base / str(params["file"]))} if "file" in params else {}
        return records(**params | own)

    def _from_arrays(self, params: Table) -> Environment:
        refuse_unknown(f"parameter of environment '{ARRAYS}'", params, _ARRAY_KEYS)
        given = {key: value for key, value in params.items() if key not in ("file", "entry")}
        if "file" in params:
            arrays = load_arrays("env.file", self.base / str(params["file"]))
            prefix = f"{params['entry']}." if "entry" in params else ""
            for key in ("P", "r", "horizon", "initial", "phi"):
                if prefix + key in arrays:
                    array = arrays[prefix + key]
                    given.setdefault(key, array.item() if array.ndim == 0 else array)
        for key in ("P", "r"):
            if key not in given:
                raise InvalidEnvironment(
                    f"env has no {key}: give file=, a .npz or .safetensors file with P and r, "
                    f"or {key} itself",
                    code="missing-array",
                )
        P, r = given.pop("P"), given.pop("r")
        shown = {key: given.pop(key) for key in SHOWN if key in given}
        title = str(given.pop("title", "FiniteMDP"))
        env = envs.FiniteMDP(P, r, name=title, **given)
        for key, value in shown.items():
            setattr(env, key, _shown(key, value))
        return env


def _shown(key: str, value: Any) -> Any:
    """A value of SHOWN, checked."""
    if key == "reward_range":
        return units(value)
    kind = bool if key == "after_end" else int
    if type(value) is not kind:
        word = "true or false" if kind is bool else "an integer"
        raise InvalidEnvironment(f"{key} must be {word}, got {value!r}", code=f"bad-{key}")
    return value


def _per_agent(entry: Table) -> bool:
    """Whether the environment is one agent's, and the entry does not say whose."""
    if entry["name"] in (ARRAYS, AT_SITES, GIVEN, RECORDS) or "agent" in entry:
        return False
    return "agent" in environments.entry(entry["name"]).parameters()


def _named(field: str, entry: Any) -> Table:
    """A table with a name; a word alone is a name."""
    if isinstance(entry, str):
        entry = {"name": entry}
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise InvalidInput(
            f"{field} is {entry!r}: give a name, or a table with a name and parameters",
            code=f"bad-{field}",
        )
    return dict(entry)


def load_arrays(field: str, path: Path) -> dict[str, np.ndarray]:
    """Arrays of a .npz or .safetensors file; never pickled ones."""
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                return {key: archive[key] for key in archive.files}
        if path.suffix == ".safetensors":
            from safetensors.numpy import load_file

            return load_file(path)
    except FileNotFoundError:
        raise InvalidInput(
            f"{field} {path} does not exist: give the path of the file", code="no-such-file"
        ) from None
    except Exception as error:  # each library has errors of its own for a file that is not one
        if isinstance(error, OSError) and error.strerror is not None:
            raise InvalidInput(
                f"{field} {path} cannot be read: {error.strerror}", code="unreadable"
            ) from None
        writer = "numpy.savez" if path.suffix == ".npz" else "safetensors.numpy.save_file"
        raise InvalidInput(
            f"{field} {path} cannot be read as arrays of numbers: write them with {writer}",
            code="bad-arrays-file",
        ) from None
    raise InvalidInput(
        f"{field} {path} is neither a .npz nor a .safetensors file: give one of these",
        code="bad-arrays-file",
    )


def compact(specs: Sequence[dict[str, Any]]) -> list[Table]:
    """Entries of `env` for these specs; a family that differs in `agent` alone becomes one."""
    entries: list[Table] = [{"name": s["name"], **s["params"]} for s in specs]
    shared = [{k: v for k, v in e.items() if k != "agent"} for e in entries]
    numbered = [e.get("agent") for e in entries] == list(range(len(entries)))
    if len(entries) > 1 and numbered and all(s == shared[0] for s in shared):
        return shared[:1]
    return entries


def for_learn(known: dict[str, Any]) -> dict[str, Any]:
    """What `prepare` takes of logs and prior, as `learn` takes it."""
    names = {"logs": "data", "prior": "warm_start"}
    return {names[key]: list(value) if key == "logs" else value for key, value in known.items()}
