"""Commands to paste: each names the modules of one's own that a run needs, so that it works."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable
from typing import Any

from fedlsvi.algorithms import registry as algorithms
from fedlsvi.envs import registry as environments
from fedlsvi.errors import FedLSVIError
from fedlsvi.features import registry as features
from fedlsvi.registry import VARIABLE, extension_files
from fedlsvi.storage.job import ARRAYS, GIVEN


def command(*words: str, missing: bool = False) -> str:
    """`fedlsvi …` with what is imported here; MODULE stands for what is `missing`."""
    given = [os.environ.get(VARIABLE, "").strip(), "MODULE" if missing else ""]
    named = [part for name in given if name for part in ("--import", name)]
    return shlex.join(["fedlsvi", *named, *words])


def missing(algorithm: Iterable[str], env: Any, phi: Any) -> list[str]:
    """Names that another process would not know: neither this package nor anything that it imports
    registers them. `env` and `phi` are as in settings: a name, a table with one, or a list."""
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
