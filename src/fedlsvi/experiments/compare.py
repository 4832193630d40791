"""Several algorithms on one problem: same environment, same seeds, same counting.

Everything is checked before anything is played. The folder holds the question (`question.json`),
every run (`runs.jsonl`, `runs.csv`, `curves.csv`) and the answer (`summary.json`, `table.md`, the
figure). A repeated command plays only what is missing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedlsvi.algorithms import registry as algorithms
from fedlsvi.checks import refuse_unknown
from fedlsvi.errors import FolderExists, InvalidInput, StoreError, UnknownName
from fedlsvi.experiments.cost import expected_seconds
from fedlsvi.experiments.runner import RunSpec
from fedlsvi.protocol.plan import Plan
from fedlsvi.registry import extension_files
from fedlsvi.report.model_class import ModelClass, unguaranteed
from fedlsvi.storage import files
from fedlsvi.storage.settings_file import EPISODES, Job, Table

JOB_KEYS = ("episodes", "env", "features")
QUESTION, RESULTS = "question.json", "runs.jsonl"
ASKED = {"algorithms": [str], "seeds": [int], "shared": {str: Any}, "own": {str: dict},
         "cannot_pool": [str], str: Any}  # fmt: skip
"""What stands in the question's file."""


@dataclass(frozen=True)
class Question:
    """What is compared on what.

    Attributes:
        names: Algorithms.
        seeds: The same for all of them.
        shared: The problem, and settings of all.
        own: Settings by algorithm.
        unable: Those that cannot pool steps, where no law depends on the step.
    """

    names: list[str]
    seeds: list[int]
    shared: Table
    own: dict[str, Table]
    unable: list[str] = field(default_factory=list)

    @classmethod
    def parse(
        cls,
        table: Table,
        names: Sequence[str],
        seeds: Sequence[int],
        asked: Collection[str] = (),
    ) -> Question:
        """Sort settings: those of all algorithms, and those that only some have.

        Args:
            table: Settings; `NAME.key` is for one algorithm.
            names: Algorithms.
            seeds: Seeds.
            asked: Keys given on the command line, which must have an effect. The others come from
                a file, which may be that of a run: what does not apply is left out.
        """
        for name in names:
            algorithms.entry(name)
        if len(set(names)) < len(names) or not names:
            raise InvalidInput(
                f"--algorithms {','.join(names)} is empty or has duplicates: name each algorithm "
                "once",
                code="bad-algorithms",
            )
        own: dict[str, Table] = {name: {} for name in names}
        shared: Table = {"episodes": EPISODES}
        known = {name: algorithms.entry(name).parameters() for name in names}
        every = {key for parameters in known.values() for key in parameters}
        for key, value in table.items():
            if key in ("algorithm", "seed"):
                if key in asked:
                    raise InvalidInput(
                        f"{key} is set to {value}, but a comparison has several algorithms and "
                        "seeds: leave it out, and use --algorithms and --seeds",
                        code="not-for-comparison",
                    )
                continue
            if key in known:
                own[key].update(_own(key, value, known[key]))
            elif key in JOB_KEYS:
                shared[key] = value
            elif key in every:
                for name in names:
                    if key in known[name]:
                        own[name].setdefault(key, value)
            elif not any(key in algorithms.entry(n).parameters() for n in algorithms.names()):
                raise UnknownName("setting", key, [*every, *JOB_KEYS, *names])
            elif key in asked:
                raise InvalidInput(
                    f"{key} is set to {value}, but none of the algorithms {', '.join(names)} has "
                    f"this setting: leave it out",
                    code="setting-without-effect",
                )
        return cls(list(names), list(seeds), shared, own).levelled()

    def levelled(self) -> Question:
        """The same for algorithms that all have one model class: none of them pools the data of all
        steps unless all of them can.

        Raises:
            InvalidInput: Settings ask for a class that some algorithm does not have, or for two.
        """
        jobs = [Job.parse(self.table(name, self.seeds[0])) for name in self.names]
        learners = {name: job.learner() for name, job in zip(self.names, jobs, strict=True)}
        made = jobs[0].environments()
        envs = made if isinstance(made, list) else [made]
        unable = [n for n, one in learners.items() if not all(map(one.can_pool, envs))]
        asked = {name: one.settings.stationary for name, one in learners.items()
                 if "stationary" in vars(one.settings)}  # fmt: skip
        wished = {value for value in asked.values() if value != "auto"}
        if True in wished and (unable or False in wished):
            raise _two_classes(unable, [name for name, value in asked.items() if value is False])
        alike = all(env.stationary and env.horizon > 1 for env in envs)
        paper = any(vars(one.settings).get("preset") == "paper" for one in learners.values())
        pooled = True in wished or (alike and not (unable or wished or paper))
        if not alike and not wished:
            return self
        own = {n: table | ({"stationary": pooled} if n in asked else {})
               for n, table in self.own.items()}  # fmt: skip
        return replace(self, own=own, unable=unable if alike else [])

    @property
    def model(self) -> ModelClass:
        """Whether they learn one model for all steps."""
        pooled = {name: table.get("stationary") is True for name, table in self.own.items()}
        unproven = unguaranteed({name: name for name in self.names})
        return ModelClass(pooled, self.unable, unproven)

    def table(self, name: str, seed: int) -> Table:
        """The job of one run."""
        return {"algorithm": name, "seed": seed} | self.own[name] | self.shared

    def specs(self) -> list[RunSpec]:
        """Every run, with an estimate of its time."""
        sizes = [plan.parameters for plan in self.check().values()]
        H, d = sizes[0].horizon, max(p.dim for p in sizes)
        tables = [(name, self.table(name, seed)) for name in self.names for seed in self.seeds]
        return [
            RunSpec(table, {"algorithm": name}, expected_seconds(table, H, d))
            for name, table in tables
        ]

    def check(self) -> dict[str, Plan]:
        """Refuse what cannot be played, before anything is; returns each algorithm's plan."""
        plans = {}
        for name in self.names:
            job = Job.parse(self.table(name, self.seeds[0]))
            for seed in {min(self.seeds), max(self.seeds)}:
                env, known = job.known_before(job.environments())
                session = job.learner().prepare(
                    env, job.episodes, seed, features=job.feature_map(), threads=1, **known
                )
                plans[name] = session.plan
                session.close()
        return plans

    def stamps(self) -> dict[str, files.Stamp]:
        """Hashes of the files that it names: with other contents it is another question."""
        entries = [self.shared.get(key) for key in ("env", "features")]
        flat = [e for entry in entries for e in (entry if isinstance(entry, list) else [entry])]
        named = [str(e["file"]) for e in flat if isinstance(e, dict) and "file" in e]
        every = {name: Path(name) for name in named} | extension_files()
        return {name: files.stamp(files.read(path)) for name, path in every.items()}

    def to_dict(self) -> dict[str, Any]:
        """A JSON form."""
        named = {"algorithms": self.names, "seeds": self.seeds}
        return named | {"shared": self.shared, "own": self.own, "cannot_pool": self.unable}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Question:
        """What `to_dict` described."""
        named = data["algorithms"], data["seeds"]
        return cls(*named, data["shared"], data["own"], data["cannot_pool"])


def _two_classes(unable: Sequence[str], apart: Sequence[str]) -> InvalidInput:
    """The error for stationary=True that not all algorithms can have."""
    why = (
        f"{', '.join(unable)} cannot pool the steps of this environment" if unable
        else f"it is False for {', '.join(apart)}"
    )  # fmt: skip
    return InvalidInput(
        f"stationary is set to True, but {why}, and in a comparison all algorithms have one model "
        "for all steps or all have one for each: leave out stationary, or these algorithms",
        code="model-classes-differ",
    )


def _own(name: str, table: Any, known: Table) -> Table:
    """The settings of one algorithm; what makes runs comparable is shared by all."""
    if not isinstance(table, dict):
        raise InvalidInput(
            f"{name} is {table!r}, but it is an algorithm: write {name}.KEY=VALUE to set one of "
            "its settings",
            code="algorithm-as-setting",
        )
    for key in table:
        if key in ("algorithm", "seed", "n_agents", *JOB_KEYS):
            raise InvalidInput(
                f"{name}.{key} is set, but all algorithms are compared on the same problem, agents "
                "and seeds: leave it out",
                code="setting-is-shared",
            )
    refuse_unknown(f"setting of algorithm '{name}'", table, known)
    return table


def claim_folder(folder: Path, question: Question, more: Mapping[str, Any] | None = None) -> bool:
    """Take a folder for a question, or continue there.

    Args:
        folder: Where to write.
        question: What is compared.
        more: What else the question says.

    Returns:
        Whether the folder already held this question.

    Raises:
        FolderExists: It holds something else.
    """
    if not (folder / QUESTION).exists():
        _refuse_foreign(folder)
        files.make_folder(folder)
        if _first(folder, _asked(question, more)):
            return False
    if not holds(folder, question, more):
        raise FolderExists(
            f"folder {folder} holds a different comparison: choose another folder with --out, or "
            "repeat its arguments to continue it",
            code="another-question",
        )
    return True


def _refuse_foreign(folder: Path) -> None:
    """Only question files may be there, finished or not."""
    if not folder.exists():
        return
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else {""}
    if QUESTION not in names and not all(f"{QUESTION}." in name for name in names):
        raise FolderExists(
            f"folder {folder} already exists and was not written by this command: choose another "
            "folder",
            code="folder-exists",
        )


def _first(folder: Path, asked: Mapping[str, Any]) -> bool:
    """Write the question, unless there is one: of several commands only one can make the link."""
    own = folder / f".{QUESTION}.{os.getpid()}"
    files.write_json(own, asked)
    try:
        os.link(own, folder / QUESTION)
        files.sync_folder(folder)
    except FileExistsError:
        return False
    except OSError:  # no links on this disk
        os.replace(own, folder / QUESTION)
    finally:
        own.unlink(missing_ok=True)
    return True


def holds(folder: Path, question: Question, more: Mapping[str, Any] | None = None) -> bool:
    """Whether it was started for this question, with the same files."""
    kept = files.read_json(files.inside(folder, QUESTION), ASKED)
    return bool(kept == json.loads(json.dumps(_asked(question, more))))


def _asked(question: Question, more: Mapping[str, Any] | None) -> dict[str, Any]:
    return question.to_dict() | dict(more or {}) | {"files": question.stamps()}


def begun(name: str, question: Question, more: Mapping[str, Any] | None = None) -> Path | None:
    """A folder runs/NAME… where this question was started and not finished, if there is one."""
    for path in sorted(Path("runs").glob(f"{name}*/{QUESTION}")):
        with suppress(StoreError):  # a damaged one cannot be continued
            if not (path.parent / "summary.json").exists() and holds(path.parent, question, more):
                return path.parent
    return None
