"""Modules outside this package that register environments, features or algorithms.

An installed package names its module under the entry point group `fedlsvi.extensions`. Anything
else is named in the variable FEDLSVI_IMPORT, or by the command's `--import`, which sets it: modules
on Python's path, or files that end in .py, with commas between them. They are imported when a
registry is first asked for a name, here and in every process that a run starts. No settings file
and no run folder can name one.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from fedlsvi.errors import InvalidInput

GROUP = "fedlsvi.extensions"
VARIABLE = "FEDLSVI_IMPORT"


def announce(names: list[str]) -> None:
    """Have these imported, here and in processes to come."""
    given = [str(Path(name).absolute()) if name.endswith(".py") else name for name in names]
    already = [name for name in os.environ.get(VARIABLE, "").split(",") if name]
    os.environ[VARIABLE] = ",".join([*already, *given])
    load_extensions.cache_clear()


@cache
def load_extensions() -> None:
    """Import every extension that is not imported yet."""
    for point in entry_points(group=GROUP):
        point.load()
    for name in os.environ.get(VARIABLE, "").split(","):
        if name:
            _load(name)


def _load(name: str) -> None:
    try:
        if name.endswith(".py"):
            _load_file(Path(name))
        else:
            import_module(name)
    except (ImportError, FileNotFoundError) as error:
        raise InvalidInput(
            f"cannot import '{name}', named by --import or {VARIABLE}: {error}"
        ) from None


def _load_file(path: Path) -> None:
    """A file as the module of its name."""
    if path.stem in sys.modules:
        return
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[path.stem] = module_from_spec(spec)
    try:
        spec.loader.exec_module(sys.modules[path.stem])
    except BaseException:
        del sys.modules[path.stem]
        raise
