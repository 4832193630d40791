"""How to play a run again: commands to paste, and settings to save."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable
from html import escape
from pathlib import Path
from typing import Any

from fedlsvi.algorithms import registry as algorithms
from fedlsvi.envs import registry as environments
from fedlsvi.errors import FedLSVIError
from fedlsvi.features import registry as features
from fedlsvi.registry import VARIABLE, extension_files
from fedlsvi.report import html
from fedlsvi.report.groups import Group, job_of
from fedlsvi.run import Run
from fedlsvi.storage import files, versions
from fedlsvi.storage.run_header import read_header
from fedlsvi.storage.settings_file import ARRAYS, GIVEN, Job, dump


def command(*words: str, missing: bool = False) -> str:
    """`fedlsvi …` with the modules imported here; MODULE stands for one that is `missing`."""
    given = [os.environ.get(VARIABLE, "").strip(), "MODULE" if missing else ""]
    named = [part for name in given if name for part in ("--import", name)]
    return shlex.join(["fedlsvi", *named, *words])


def missing(algorithm: Iterable[str], env: Any, phi: Any) -> list[str]:
    """Names that another process would not know: neither this package nor its imports have them.

    Args:
        algorithm: Names of algorithms.
        env: Environments as in settings: a name, a table with one, or a list.
        phi: Features, likewise.
    """
    wanted: list[tuple[Callable[[str], Any], str]]
    wanted = [(algorithms.entry, name) for name in algorithm]
    wanted += [(environments.entry, name) for name in _names(env)]
    wanted += [(features.entry, name) for name in _names(phi)]
    return list(dict.fromkeys(name for entry, name in wanted if not _known(entry, name)))


def _names(entries: Any) -> list[str]:
    several = entries if isinstance(entries, list) else [] if entries is None else [entries]
    named = [str(one["name"] if isinstance(one, dict) else one) for one in several]
    return [name for name in named if name not in (ARRAYS, GIVEN)]


def _known(entry: Callable[[str], Any], name: str) -> bool:
    try:
        home = str(getattr(entry(name).constructor, "__module__", ""))
        return home.partition(".")[0] == "fedlsvi" or home in extension_files()
    except FedLSVIError:
        return False


def rerun(group: Group) -> str:
    """HTML: the settings in TOML, what to do with them, and the versions that were used."""
    run = group.first
    job = job_of(run)
    seeds = ["--seeds", ",".join(str(one.seed) for one in group.runs)]
    unknown = missing([job.algorithm], job.env, job.features)
    words = ["run", "settings.toml", *(seeds if len(group.runs) > 1 else [])]
    shell = f"<code>{escape(command(*words, missing=bool(unknown)))}</code>"
    toml = _kept_settings(run) or dump(job.table())
    entries = [*job.env, *([] if job.features is None else [job.features])]
    objects = " and ".join(_objects(job))
    if objects:
        toml = dump(job.table())  # without the line that says how a file is played
        text = (
            f"Settings alone cannot repeat this run: {escape(objects)} was a Python object. Pass "
            "it to <code>learn</code> again, with these settings."
        )
    elif any("file" in entry for entry in entries):
        text = (
            "The arrays are next to settings.toml in the run folder, which "
            f"<code>run.save(folder)</code> writes: run {shell} there."
        )
    else:
        text = f"Save as settings.toml and run {shell}."
    if unknown and not objects:
        text += f" MODULE is your module or .py file that registers {escape(', '.join(unknown))}."
    made = _versions(run)
    note = html.paragraph(f"Made with {made}.", "note") if made else ""
    return f"<p>{text}</p>{html.code(toml)}{note}"


def _objects(job: Job) -> list[str]:
    """What no name or array can rebuild, each with its kind."""
    named = {"the environment": job.env, "the feature map": [job.features] if job.features else []}
    found = []
    for name, entries in named.items():
        kinds = dict.fromkeys(
            str(e.get("what", "an object")) for e in entries if e["name"] == GIVEN
        )
        found += [f"{name} ({', '.join(kinds)})"] if kinds else []
    return found


def _kept_settings(run: Run) -> str | None:
    """The settings file of a run that was read from a folder."""
    if run.plan is not None or run.folder is None:
        return None
    return files.read(files.inside(Path(run.folder), "settings.toml")).decode()


def _versions(run: Run) -> str:
    """The versions that decide the last bit."""
    found = versions() if run.folder is None else read_header(run.folder).versions
    shown = ("fedlsvi", "python", "numpy", "scipy", "numba", "cpu")
    return ", ".join(f"{name} {found[name]}" for name in shown if found.get(name))
