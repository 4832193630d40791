"""Names for environments, features and algorithms: `Registry`, and the modules that add to it.

A row of this package names its constructor as "module:attribute", so that looking at a registry
imports nothing. Other packages add rows when they are imported. An installed package names its
module under the entry point group `fedlsvi.registry`. Any other module is named in the variable
FEDLSVI_IMPORT or by the command's `--import`, which sets it: modules on Python's path or files that
end in .py, separated by commas (a comma inside a name is written with a backslash, except where
`--import` names an existing file). They are imported when a registry is first asked for an unknown
name, here and in every process that a run starts. No settings file and no run folder can name one.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Generic, TypeVar

from fedlsvi.checks import refuse_unknown
from fedlsvi.docstrings import parameter_texts
from fedlsvi.errors import FedLSVIError, InvalidInput, UnknownName

GROUP = "fedlsvi.registry"
VARIABLE = "FEDLSVI_IMPORT"


def resolve(target: Any) -> Any:
    """The object that "module:attribute" names; anything else is returned as it is."""
    if not isinstance(target, str):
        return target
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


@dataclass(frozen=True)
class Entry:
    """A row of a registry.

    Attributes:
        name: The registered name.
        target: The constructor, or "module:attribute", which is imported when it is needed.
        summary: One line for `fedlsvi list`.
        defaults: Parameters that replace the constructor's own defaults.
    """

    name: str
    target: Callable[..., Any] | str
    summary: str
    defaults: dict[str, Any] = field(default_factory=dict, kw_only=True)

    @property
    def constructor(self) -> Callable[..., Any]:
        """What makes the object; its keyword arguments are the parameters."""
        made: Callable[..., Any] = resolve(self.target)
        return made

    @cached_property
    def _signature(self) -> inspect.Signature:
        made = inspect.signature(self.constructor)
        kinds = [parameter.kind for parameter in made.parameters.values()]
        settings: Any = getattr(self.constructor, "settings_type", None)
        by_name = inspect.Parameter.VAR_KEYWORD in kinds and settings is not None
        return inspect.signature(settings) if by_name else made

    def parameters(self) -> dict[str, Any]:
        """Parameters and their defaults, None where there is none."""
        return {
            key: None if parameter.default is inspect.Parameter.empty else parameter.default
            for key, parameter in self._signature.parameters.items()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        } | self.defaults

    def parameter_texts(self) -> dict[str, str]:
        """What docstrings say of the parameters: the constructor's, or those of its settings."""
        made = self.constructor
        settings = inspect.getmro(getattr(made, "settings_type", object))
        texts: dict[str, str] = {}
        for documents in settings:
            texts = parameter_texts(documents.__doc__) | texts
        known = self.parameters()
        inherited = {name: text for name, text in texts.items() if name in known}
        return inherited | parameter_texts(made.__doc__)

    def takes_anything(self) -> bool:
        """Whether the constructor has **kwargs, so that its parameters cannot be checked here."""
        kinds = [p.kind for p in self._signature.parameters.values()]
        return inspect.Parameter.VAR_KEYWORD in kinds


Row = TypeVar("Row", bound=Entry)


class Registry(Generic[Row]):
    """Objects by name.

    Args:
        kind: What the names are of, as error messages call it: "environment".
        product: What a constructor must return, in words: "an environment".
        error: The class of the errors.
        parameter: What a parameter is called: "setting" of an algorithm.
        base: The class of the objects; `object` accepts everything but None.
    """

    def __init__(
        self,
        kind: str,
        product: str,
        error: type[InvalidInput],
        parameter: str = "parameter",
        base: type = object,
    ) -> None:
        self.kind, self.product, self.error = kind, product, error
        self.parameter, self.base = parameter, base
        self.rows: dict[str, Row] = {}

    def register(self, row: Row) -> None:
        """Add a row; a name is taken once."""
        if row.name in self.rows:
            raise self.error(
                f"{self.kind} '{row.name}' is already registered: choose another name",
                code="name-taken",
            )
        self.rows[row.name] = row

    def names(self) -> list[str]:
        """Every registered name, sorted."""
        load_extensions()
        return sorted(self.rows)

    def entry(self, name: str) -> Row:
        """The row of a name."""
        if name not in self.rows:
            load_extensions()
        if name not in self.rows:
            raise UnknownName(self.kind, name, self.rows)
        return self.rows[name]

    def make(self, row: Entry, params: Mapping[str, Any]) -> Any:
        """The object of a row. Parameters left out take the row's defaults, then the constructor's.

        Raises:
            UnknownName: The constructor has no such parameter.
            InvalidInput: The constructor failed, or returned something else.
        """
        what, known = f"{self.kind} '{row.name}'", row.parameters()
        if params and not known and not row.takes_anything():
            raise self.error(
                f"{what} has no {self.parameter}s, got '{next(iter(params))}'",
                code=f"no-{self.parameter}s",
            )
        if not row.takes_anything():
            refuse_unknown(f"{self.parameter} of {what}", params, known)
        given = row.defaults | dict(params)
        try:
            made = row.constructor(**given)
        except (TypeError, ValueError, OverflowError, MemoryError) as error:
            if isinstance(error, FedLSVIError):
                raise
            raise self.error(
                f"cannot make {what} from {given}: {error}", code="constructor-failed"
            ) from error
        if made is None or not isinstance(made, self.base):
            raise self.error(
                f"the constructor of {what} returned {made!r}: it must return {self.product}",
                code="bad-constructor",
            )
        return made


def lazy_exports(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package that imports its names on first use.

    Args:
        package: The package's `__name__`.
        homes: Submodule → its public names, separated by spaces; ".NAME" is beside the package.
    """
    home = {name: module for module, names in homes.items() for name in names.split()}
    public = sorted(home)

    def __getattr__(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        found = getattr(import_module(f".{home[name]}", package), name)
        setattr(sys.modules[package], name, found)
        return found

    return __getattr__, lambda: public, public


def announce(names: list[str]) -> None:
    """Import these modules or files, here and in the processes that a run starts."""
    apart = [part for name in names for part in ([name] if Path(name).exists() else _parts(name))]
    given = [str(Path(name).absolute()) if name.endswith(".py") else name for name in apart]
    every = [*_parts(os.environ.get(VARIABLE, "")), *given]
    os.environ[VARIABLE] = ",".join(name.replace(",", "\\,") for name in every)
    load_extensions.cache_clear()


def _parts(text: str) -> list[str]:
    """The parts between commas; a comma that belongs to a name follows a backslash."""
    parts = [part.replace("\\,", ",").strip() for part in re.split(r"(?<!\\),", text)]
    return [part for part in parts if part]


@cache
def load_extensions() -> None:
    """Import every extension that is not imported yet."""
    for point in entry_points(group=GROUP):
        _load(point.name, f"an installed package's {GROUP}", point.load)
    for name in _parts(os.environ.get(VARIABLE, "")):
        load = partial(_load_file if name.endswith(".py") else import_module, name)
        _load(name, f"the command line or {VARIABLE}", load)


def refuse_unasked(entry: Any) -> None:
    """Refuse a table from a file whose "name" or "id", at any depth, is of the form module:Name,
    unless the module is imported already: a file from someone else must not choose code to run."""
    if isinstance(entry, Mapping):
        for key, value in entry.items():
            module, colon, _ = value.rpartition(":") if isinstance(value, str) else ("", "", "")
            if key in ("name", "id") and colon:
                load_extensions()
                if module not in sys.modules:
                    raise InvalidInput(
                        f"{value!r} would import the module {module!r} and run its code",
                        code="module-not-imported",
                        hint=f"if you trust it, import {module} first",
                        shell_hint=f"if you trust it, give --import {module}",
                    )
            refuse_unasked(value)
    elif isinstance(entry, list | tuple):
        for value in entry:
            refuse_unasked(value)


def extension_files() -> dict[str, Path]:
    """The source file of every extension by module; of a package, all its imported modules."""
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
    """Turn whatever an extension raises while it is imported into one sentence."""
    try:
        load()
    except Exception as error:
        kind = "" if isinstance(error, InvalidInput) else f"{type(error).__name__}: "
        reason = " ".join(str(error).split())
        raise InvalidInput(
            f"cannot import '{name}', named by {where}: {kind}{reason}", code="import-failed"
        ) from error


def _load_file(name: str) -> None:
    """Import a file as the module of its name, which no other module may have."""
    path = Path(name)
    there = getattr(sys.modules.get(path.stem), "__file__", None)
    if there is not None and Path(there).resolve() == path.resolve():
        return
    if path.stem in sys.modules or path.stem in sys.stdlib_module_names:
        raise InvalidInput(
            f"another module is already called {path.stem}: rename the file",
            code="module-name-taken",
        )
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
