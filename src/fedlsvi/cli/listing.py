"""`fedlsvi list`: registered names, settings, and runs in a folder."""

from __future__ import annotations

import shutil
import textwrap
from pathlib import Path
from typing import Any

import click

from fedlsvi import incompatible
from fedlsvi.cli.command import command, format_option, run_folders
from fedlsvi.cli.text import as_json, columns, number
from fedlsvi.errors import FedLSVIError, InvalidInput

NAMES = ("environments", "algorithms", "features", "settings")


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
    pairs = incompatible.rows() if "settings" in found else []
    if form == "json":
        print(as_json(found | ({"incompatible": pairs} if pairs else {})))
        return 0
    for kind, rows in found.items():
        print(f"{kind}:")
        width = max(len(row["name"]) for row in rows)
        for row in rows:
            inside = ", ".join(
                f"{k}={'…' if v is None else v}" for k, v in row["parameters"].items()
            )
            first, *more = (
                _wrapped(row["summary"], width) if kind == "settings" else [row["summary"]]
            )
            print("\n".join([f"  {row['name'].ljust(width)}  {first}", *more]))
            if inside:
                print(f"  {' ' * width}    {inside}")
    if pairs:
        print("settings that cannot be combined:")
    for row in pairs:
        first, *more = _wrapped(f"{row['settings']}: {row['reason']}; {row['instead']}", 0)
        print("\n".join([f"  {first}", *more]))
    return 0


def _wrapped(text: str, indent: int) -> list[str]:
    """The text in lines as wide as the terminal; all but the first are indented."""
    room = max(40, shutil.get_terminal_size().columns - indent - 4)
    first, *rest = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)
    return [first, *(f"{' ' * (indent + 4)}{line}" for line in rest)]


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
    """Every setting: what its docstring says, the algorithms that have it, and its default, in
    fed-lsvi where that has it."""
    from fedlsvi.algorithms import registry as algorithms

    rows: dict[str, dict[str, Any]] = {}
    known = {name: algorithms.entry(name) for name in ["fed-lsvi", *algorithms.names()]}
    for name, entry in known.items():
        texts = entry.parameter_texts()
        for key, default in entry.parameters().items():
            shown = {} if default is None else {"default": default}
            row = rows.setdefault(key, {"name": key, "summary": "", "parameters": shown})
            row["summary"] = row["summary"] or texts.get(key, "")
            row.setdefault("algorithms", []).append(name)
    for row in rows.values():
        having = sorted(row["algorithms"])
        who = "all algorithms" if len(having) == len(known) else ", ".join(having)
        row["algorithms"] = having
        row["summary"] = f"{row['summary']} ({who})".lstrip()
    return list(rows.values())


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
