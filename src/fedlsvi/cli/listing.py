"""`fedlsvi list`: registered names, settings, and runs in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fedlsvi.cli.command import command, format_option, run_folders
from fedlsvi.cli.text import as_json, columns, number
from fedlsvi.errors import FedLSVIError, InvalidInput

NAMES = ("environments", "algorithms", "features", "settings")

MEANING = {
    "n_agents": "number of agents M",
    "gamma": "threshold of the determinant test; higher means fewer rounds",
    "beta": "scale of the exploration bonus",
    "taper": "whether β shrinks with the value still to come",
    "lam": "ridge regularisation λ",
    "xi": "how much the agents' environments differ, in total variation",
    "value_range": "largest return of an episode, in rewards mapped to [0, 1]",
    "preset": "practical, or paper for the theorems' constants",
    "overshoot": "cut or keep the episodes played after the signal",
    "packing": "which entries of Λ are sent: auto, packed, dense or diagonal",
    "confidence": "p: the theorems hold with probability 1 − 2p",
    "c_beta": "constant of the theorems' β",
    "c": "scale of the bonus: 1 in the paper's preset, tuned in the practical one",
    "sigma": "scale of the noise that explores",
}
"""Settings that several algorithms have."""


@command("list")
@click.argument(
    "what",
    required=False,
    type=click.Choice([*NAMES, "runs"]),
    metavar="WHAT",
    help="environments, algorithms, features, settings or runs; default: all but runs.",
)
@click.argument(
    "folder",
    required=False,
    type=click.Path(),
    help="With `list runs`: where to look; default: runs.",
)
@format_option
def list_names(what: str | None, folder: str | None, form: str) -> int:
    """List environments, algorithms, features, settings or runs.

    \b
    Examples:
      fedlsvi list environments
      fedlsvi list settings       what --set can change
      fedlsvi list runs studies   runs in the folder studies
    """  # fmt: skip
    if what == "runs":
        return _print_runs(Path(folder or "runs"), form)
    if folder is not None:
        raise InvalidInput(
            f"`fedlsvi list {what}` takes no folder, got {folder!r}: only `list runs` does",
            code="bad-folder",
        )
    found = {kind: _rows(kind) for kind in ([what] if what else NAMES)}
    if form == "json":
        print(as_json(found))
        return 0
    for kind, rows in found.items():
        print(f"{kind}:")
        width = max(len(row["name"]) for row in rows)
        for row in rows:
            print(f"  {row['name'].ljust(width)}  {row['summary']}")
            if row["parameters"]:
                inside = ", ".join(
                    f"{k}={'…' if v is None else v}" for k, v in row["parameters"].items()
                )
                print(f"  {' ' * width}    {inside}")
    return 0


def _rows(kind: str) -> list[dict[str, Any]]:
    """Name, summary and parameters of everything of a kind."""
    from fedlsvi.algorithms import registry as algorithms
    from fedlsvi.envs import registry as environments
    from fedlsvi.envs.base import plain
    from fedlsvi.features import registry as features
    from fedlsvi.storage.settings_file import ARRAYS

    if kind == "settings":
        return _settings()
    registry: Any = {"environments": environments, "algorithms": algorithms}.get(kind, features)
    rows = [
        {"name": row.name, "summary": row.summary, "parameters": plain(row.parameters())}
        for row in map(registry.entry, registry.names())
    ]
    if kind == "environments":
        summary = (
            "your own finite MDP: a .npz or .safetensors file with P, r and maybe initial, phi"
        )
        own = {"file": None, "horizon": None}
        rows.append({"name": ARRAYS, "summary": summary, "parameters": own})
    return rows


def _settings() -> list[dict[str, Any]]:
    """Every setting with its default in fed-lsvi and the algorithms that have it."""
    from fedlsvi.algorithms import registry as algorithms

    known = {name: algorithms.entry(name).parameters() for name in algorithms.names()}
    rows = []
    for key in dict.fromkeys([*known["fed-lsvi"], *(k for own in known.values() for k in own)]):
        having = [name for name, own in known.items() if key in own]
        default = known[having[0] if "fed-lsvi" not in having else "fed-lsvi"][key]
        meaning = MEANING.get(key, "see docs/api/algorithms.md")
        who = "all algorithms" if len(having) == len(known) else ", ".join(having)
        shown = {} if default is None else {"default": default}
        rows.append({"name": key, "summary": f"{meaning} ({who})", "parameters": shown})
    return rows


def _print_runs(folder: Path, form: str) -> int:
    """The runs in a folder, one line each."""
    rows = [_run(path, folder) for path in run_folders(folder)]
    if not rows and not folder.is_dir():
        raise InvalidInput(
            f"there is no folder {folder}: start a run with `fedlsvi run`, or name another "
            "folder, `list runs FOLDER`",
            code="no-folder",
        )
    if form == "json":
        print(as_json({"folder": str(folder), "runs": rows}))
        return 0
    if not rows:
        print(f"no runs in {folder}")
        return 0
    head = ["run", "algorithm", "environment", "episodes", "rounds", "regret", "return"]
    lines = [head]
    for row in rows:
        if "problem" in row:
            lines.append([row["name"], row["problem"], *[""] * 5])
            continue
        done = f"{row['episodes']:,}/{row['of']:,}"
        numbers = [number(row[key]) for key in ("rounds", "regret", "return")]
        lines.append([row["name"], row["algorithm"], row["environment"], done, *numbers])
    print("\n".join(columns(lines, "<<<>")))
    return 0


def _run(path: Path, base: Path) -> dict[str, Any]:
    """One run, from the header and the last record of its folder."""
    from fedlsvi.storage import files
    from fedlsvi.storage.run_header import read_header
    from fedlsvi.storage.run_reader import parse_records

    name = str(path.relative_to(base)) if path != base else path.name
    try:
        header = read_header(path)
        records, summary = (files.inside(path, own) for own in ("records.jsonl", "summary.json"))
        lines = files.whole_lines(records).splitlines()
        last = parse_records(records, lines[-1]).pop() if lines else None
        shape = {"return": (float, None), str: Any}
        late = files.read_json(summary, shape)["return"] if files.exists(summary) else None
    except FedLSVIError as error:
        return {"name": name, "folder": str(path), "problem": str(error)}
    return {
        "name": name, "folder": str(path), "algorithm": header.job.algorithm,
        "environment": str(header.job.env[0].get("id") or header.job.env[0]["name"]),
        "episodes": last.last if last else 0, "of": header.parameters.episodes,
        "rounds": last.k if last else 0, "regret": last.regret if last else None,
        "return": last.mean_return if last and late is None else late,
    }  # fmt: skip
