"""Modules outside this package that register environments, features or algorithms.

An installed package names its module under the entry point group `fedlsvi.registry`. Anything
else is named in the variable FEDLSVI_IMPORT, or by the command's `--import`, which sets it: modules
on Python's path, or files that end in .py, with commas between them (a comma of a name is written
with a backslash, but not where `--import` names a file that exists). They are imported when a
registry is first asked for a name, here and in every process that a run starts. No settings file
and no run folder can name one.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from fedlsvi.errors import InvalidInput

GROUP = "fedlsvi.registry"
VARIABLE = "FEDLSVI_IMPORT"


def announce(names: list[str]) -> None:
    """Have these imported, here and in processes to come."""
    apart = [part for name in names for part in ([name] if Path(name).exists() else _parts(name))]
    given = [str(Path(name).absolute()) if name.endswith(".py") else name for name in apart]
    every = [*_parts(os.environ.get(VARIABLE, "")), *given]
    os.environ[VARIABLE] = ",".join(name.replace(",", "\\,") for name in every)
    load_extensions.cache_clear()


def _parts(text: str) -> list[str]:
    """What stands between commas; one that belongs to a name has a backslash before it."""
    parts = [part.replace("\\,", ",").strip() for part in re.split(r"(?<!\\),", text)]
    return [part for part in parts if part]


@cache
def load_extensions() -> None:
    """Import every extension that is not imported yet."""
    for point in entry_points(group=GROUP):
        _load(point.name, f"an installed package's {GROUP}", point.load)
    for name in _parts(os.environ.get(VARIABLE, "")):
        load = partial(_load_file if name.endswith(".py") else import_module, name)
        _load(name, f"--import or {VARIABLE}", load)


def extension_files() -> dict[str, Path]:
    """The source of every extension, by module; of a package all that is imported of it."""
    load_extensions()
    given = _parts(os.environ.get(VARIABLE, ""))
    tops = {Path(name).stem if name.endswith(".py") else name for name in given}
    tops |= {point.module for point in entry_points(group=GROUP)}
    homes = {Path(name).parent for name in given if name.endswith(".py")}
    found = {}
    for name, module in sorted(sys.modules.items()):
        inside = any(name == top or name.startswith(f"{top}.") for top in tops)
        source = getattr(module, "__file__", None)
        near = source is not None and Path(source).parent in homes  # a file may import neighbours
        if source is not None and (inside or near) and Path(source).is_file():
            found[name] = Path(source)
    return found


def _load(name: str, where: str, load: Callable[[], Any]) -> None:
    """Whatever an extension raises while it is imported becomes one sentence."""
    try:
        load()
    except Exception as error:
        kind = "" if isinstance(error, InvalidInput) else f"{type(error).__name__}: "
        said = " ".join(str(error).split())
        raise InvalidInput(f"cannot import '{name}', named by {where}: {kind}{said}") from error


def _load_file(name: str) -> None:
    """A file as the module of its name, which must be its own."""
    path = Path(name)
    there = getattr(sys.modules.get(path.stem), "__file__", None)
    if there is not None and Path(there).resolve() == path.resolve():
        return
    if path.stem in sys.modules or path.stem in sys.stdlib_module_names:
        raise InvalidInput(f"another module is called {path.stem}: give the file another name")
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[path.stem] = module_from_spec(spec)
    try:
        if str(path.parent) not in sys.path:  # last, so that its neighbours hide no other module
            sys.path.append(str(path.parent))
        spec.loader.exec_module(sys.modules[path.stem])
    except BaseException:
        del sys.modules[path.stem]
        raise
