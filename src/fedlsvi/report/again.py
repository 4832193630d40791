"""How a run is played again, as far as a file can do it."""

from __future__ import annotations

from html import escape
from pathlib import Path

from fedlsvi.report import html
from fedlsvi.report.choices import job_of
from fedlsvi.report.command import command, missing
from fedlsvi.report.groups import Group
from fedlsvi.run import Run
from fedlsvi.storage import files, versions
from fedlsvi.storage.job import GIVEN, Job
from fedlsvi.storage.run_header import read_header
from fedlsvi.storage.settings_file import dump


def again(group: Group) -> str:
    """The settings in TOML, what to do with them, and the versions that decided the last bit."""
    run = group.first
    job = job_of(run)
    seeds = ["--seeds", ",".join(str(one.seed) for one in group.runs)]
    unknown = missing([job.algorithm], job.env, job.features)
    words = ["run", "settings.toml", *(seeds if len(group.runs) > 1 else [])]
    with_it = f"<code>{escape(command(*words, missing=bool(unknown)))}</code>"
    toml = _kept(run) or dump(job.table())
    entries = [*job.env, *([] if job.features is None else [job.features])]
    given = " and ".join(_objects(job))
    if given:
        toml = dump(job.table())  # without the line that says how a file is played
        text = (
            f"A file cannot play this run again: {escape(given)} must be given as an object, to "
            "<code>learn</code> in Python, with these settings."
        )
    elif any("file" in entry for entry in entries):
        text = (
            "Its arrays stand beside settings.toml in the folder of the run, which "
            f"<code>run.save(folder)</code> writes: call {with_it} there."
        )
    else:
        text = f"Save as settings.toml and call {with_it}."
    if unknown and not given:
        text += f" MODULE is your module or .py file that registers {escape(', '.join(unknown))}."
    made = _played_with(run)
    note = html.paragraph(f"Played with {made}.", "note") if made else ""
    return f"<p>{text}</p>{html.code(toml)}{note}"


def _objects(job: Job) -> list[str]:
    """What no name or array can rebuild, each with its kind."""
    named = {"the environment": job.env, "the features": [job.features] if job.features else []}
    found = []
    for name, entries in named.items():
        kinds = dict.fromkeys(
            str(e.get("what", "an object")) for e in entries if e["name"] == GIVEN
        )
        found += [f"{name} ({', '.join(kinds)})"] if kinds else []
    return found


def _kept(run: Run) -> str | None:
    """The settings file of a run that was read from a folder."""
    if run.plan is not None or run.folder is None:
        return None
    return files.read(files.inside(Path(run.folder), "settings.toml")).decode()


def _played_with(run: Run) -> str:
    """The versions that decided the last bit."""
    found = versions() if run.folder is None else read_header(run.folder).versions
    shown = ("fedlsvi", "python", "numpy", "scipy", "numba")
    return ", ".join(f"{name} {found[name]}" for name in shown if found.get(name))
