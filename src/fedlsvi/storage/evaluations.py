"""What the policy of a run was found to be worth afterwards, in a file of its run folder.

Two lists that are never mixed: *estimated* from logs of another behaviour, and *measured* by
playing. Each entry says after how many episodes the policy was what it was, so that a run that has
gone on since does not show the value of an earlier policy as its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from fedlsvi.storage import checkpoint, files
from fedlsvi.storage.run_header import read_header
from fedlsvi.storage.run_reader import notice
from fedlsvi.storage.schema import Shape

FILE = "evaluations.json"

Kind = Literal["estimated", "measured"]
Entry = dict[str, Any]

_NUMBER: Shape = (float, None)
_KEYS = {
    "estimated": ("data", "stationary"),
    "measured": ("environment",),
}
"""What an entry is of: a later one of the same takes its place."""

_ESTIMATED: Shape = {
    "data": [str],
    "stationary": bool,
    "played": int,
    "repeats": int,
    "episodes": int,
    "scalars": int,
    **dict.fromkeys(("value", "unseen", "behaviour"), float),
    **dict.fromkeys(("low", "high", "behaviour_low", "behaviour_high"), _NUMBER),
    **dict.fromkeys(("pessimistic", "optimistic"), _NUMBER),  # a private estimate has none
    **dict.fromkeys(("importance", "effective"), _NUMBER),
    # older files do not say why there is no importance sampling, and what was spent
    str: (str, float, None),
}
_MEASURED: Shape = {
    "environment": str,
    "played": int,
    "episodes": int,
    "mean": float,
    "low": _NUMBER,
    "high": _NUMBER,
}
_SHAPE: Shape = {"format": int, "estimated": [_ESTIMATED], "measured": [_MEASURED]}


def is_run(folder: str | Path) -> bool:
    """Whether this is the folder of a run, and not of a policy alone."""
    return files.exists(Path(folder) / "settings.toml")


def add(folder: str | Path, kind: Kind, entry: Entry) -> Path:
    """Write down what was found of a run's policy as it is now.

    Args:
        folder: The run folder.
        kind: Whether it was estimated from logs or measured by playing.
        entry: The numbers, without `played`, which is read from the folder.

    Returns:
        The file.
    """
    run = read_header(folder).run
    newest = checkpoint.newest(run, notice)
    played = 0 if newest is None else int(newest[0].plain["t"])
    found = read(run)
    same = [entry[key] for key in _KEYS[kind]]
    kept = [old for old in found[kind] if [old[key] for key in _KEYS[kind]] != same]
    found[kind] = [*kept, {**entry, "played": played}]
    path = files.inside(run, FILE)
    files.write_json(path, {"format": files.FORMAT} | {str(key): of for key, of in found.items()})
    return path


def read(folder: str | Path) -> dict[Kind, list[Entry]]:
    """What was written down of a run's policy; empty lists where nothing was."""
    path = files.inside(Path(folder), FILE)
    if not files.exists(path):
        return {"estimated": [], "measured": []}
    content = files.read_json(path, _SHAPE)
    return {"estimated": content["estimated"], "measured": content["measured"]}
