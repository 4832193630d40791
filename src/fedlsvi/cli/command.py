"""What commands share: help in sections, options that several take, folders for results."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from fedlsvi.errors import FolderExists, InvalidInput

if TYPE_CHECKING:
    from fedlsvi.storage.settings_file import Table

MOST_SEEDS = 100_000
"""Runs that one command may ask for."""


class Option(click.Option):
    """An option that knows its section of the help."""

    def __init__(self, *names: Any, section: str = "Options", **attributes: Any) -> None:
        super().__init__(*names, **attributes)
        self.section = section

    def get_help_extra(self, ctx: click.Context) -> Any:
        """What stands in brackets behind the help: a default in words goes without parentheses."""
        extra = super().get_help_extra(ctx)
        extra.pop("range", None)
        return (
            extra | {"default": self.show_default} if isinstance(self.show_default, str) else extra
        )


class Command(click.Command):
    """A command whose help shows its options in sections."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each section with its options, in the order of their declaration."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            row = parameter.get_help_record(ctx)
            if row is not None and not isinstance(parameter, click.Argument):
                sections.setdefault(getattr(parameter, "section", "Options"), []).append(row)
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)


command = partial(click.command, cls=Command)
option = partial(click.option, cls=Option)

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def bundle(name: str, kind: type[Any], *parameters: Decorator) -> Decorator:
    """Give a command these parameters as one argument.

    Args:
        name: The argument's name.
        kind: A dataclass with a field for each parameter.
        parameters: Options and arguments of click.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def bundled(**given: Any) -> Any:
            values = {field.name: given.pop(field.name) for field in fields(kind)}
            return function(**given, **{name: kind(**values)})

        for parameter in reversed(parameters):
            parameter(bundled)
        return bundled

    return decorate


class Name(click.ParamType[str]):
    """A registered name, which the shell completes."""

    name = "name"

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Registered names that begin so; for environments, files too."""
        from importlib import import_module

        names = import_module(f"fedlsvi.{self.kind}.registry").names()
        found = [CompletionItem(name) for name in names if name.startswith(incomplete)]
        return found or [CompletionItem(incomplete, type="file")]


class Actions(click.ParamType[int | list[str]]):
    """How many actions there are, or what they are called."""

    name = "actions"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | list[str]:
        """A number, or names with commas between them."""
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]
        if not value.isdecimal():
            return [name.strip() for name in value.split(",")]
        if int(value) < 1:
            self.fail(f"{value} is not in the range x>=1.", param, ctx)
        return int(value)


column_option = option(
    "--column", multiple=True, metavar="OURS=THEIRS", section="Logs",
    help="Name of a column in the logs, e.g. action=dose or observation=age,sofa. Repeatable.",
)  # fmt: skip


def parse_columns(pairs: Sequence[str]) -> dict[str, str | list[str]]:
    """What --column says: our name → theirs."""
    columns: dict[str, str | list[str]] = {}
    for pair in pairs:
        ours, equals, theirs = pair.partition("=")
        if not equals or not theirs:
            raise click.UsageError(f"--column {pair}: write OURS=THEIRS, e.g. action=dose")
        names = theirs.split(",")
        columns[ours] = names[0] if len(names) == 1 else names
    return columns


def parse_actions(actions: int | list[str] | None) -> dict[str, Any]:
    """What --actions says, as `logged_worlds` takes it."""
    if actions is None:
        return {}
    return {"n_actions": actions} if isinstance(actions, int) else {"action_names": actions}


@dataclass(frozen=True)
class Problem:
    """What is learned, and how: a settings file and the options that override it."""

    file: str | None
    env: str | None
    features: str | None
    agents: int | None
    episodes: int | None
    changes: tuple[str, ...]

    @property
    def base(self) -> Path:
        """The folder that paths in the settings file start from."""
        return Path(self.file).parent if self.file else Path()

    def table(self, **more: Any) -> Table:
        """The settings file with what the options say instead; `more` are other options."""
        from fedlsvi.storage.settings_file import ARRAYS, read

        table: Table = read(self.file) if self.file else {}
        if self.env is not None and Path(self.env).suffix in (".npz", ".safetensors"):
            table["env"] = {"name": ARRAYS, "file": str(Path(self.env).absolute())}
        elif self.env is not None:
            announce_module(self.env)
            _rename(table, "env", self.env)
        if self.features is not None:
            _rename(table, "features", self.features)
        given = {"n_agents": self.agents, "episodes": self.episodes, **more}
        table |= {key: value for key, value in given.items() if value is not None}
        return self.assigned(table)

    def assigned(self, table: Table | None = None) -> Table:
        """A table, by default an empty one, with the assignments of --set."""
        from fedlsvi.storage.settings_file import assign

        table = {} if table is None else table
        for change in self.changes:
            assign(table, change)
        return table


def announce_module(name: str) -> None:
    """Whoever types module:Name asks for the module, as by --import."""
    from fedlsvi.registry import announce

    if module := name.rpartition(":")[0]:
        announce([module])


def _rename(table: Table, key: str, name: str) -> None:
    """Set the name; parameters in the file stay only if they were written for that name."""
    entry = table.get(key)
    if not (isinstance(entry, dict) and entry.get("name") == name):
        table[key] = {"name": name}


def problem_options(set_help: str) -> Decorator:
    """The options of `Problem`; `set_help` says what --set can do in this command."""
    problem = partial(option, section="Problem")
    return bundle(
        "problem", Problem,
        click.argument("file", required=False, type=click.Path(),
                       help="TOML settings; options override them."),
        problem("--env", type=Name("envs"), metavar="NAME",
                help="Environment: a name from `fedlsvi list environments`, a Gymnasium id such "
                     "as FrozenLake-v1, or a .npz or .safetensors file with P and r."),
        problem("--features", type=Name("features"), metavar="NAME",
                show_default="the environment's own",
                help="Feature map: a name from `fedlsvi list features`."),
        problem("--agents", type=int, metavar="M", show_default="1", help="Number of agents."),
        problem("--episodes", type=int, metavar="T", show_default="10000",
                help="Episodes per agent."),
        problem("--set", "changes", multiple=True, metavar="KEY=VALUE", help=set_help),
    )  # fmt: skip


format_option = option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", section="Output",
    help="Output format.",
)  # fmt: skip
quiet_option = option(
    "-q", "--quiet", is_flag=True, section="Output",
    help="Print only the result: no progress bar, no notices.",
)  # fmt: skip


def parse_seeds(text: str, name: str = "--seeds") -> list[int]:
    """0:10 is 0 … 9; 1,2,5 is just these."""
    first, colon, last = text.partition(":")
    try:
        seeds = range(int(first), int(last)) if colon else [int(s) for s in text.split(",")]
        if seeds[MOST_SEEDS:]:
            problem = f"has more than {MOST_SEEDS:,} seeds"
        elif seeds and len(set(seeds)) == len(seeds):
            return list(seeds)
        else:
            problem = "is empty or has duplicates"
    except ValueError:
        problem = "is not a range"
    raise InvalidInput(f"{name} {text!r} {problem}: write 0:10, or 1,2,5", code="bad-seeds")


def named_folder(out: str) -> Path:
    """The folder of --out, where something must be written; `-` means no folder."""
    if out == "-":
        raise InvalidInput(
            "--out - discards the result, which only `fedlsvi run` can do: give a folder",
            code="bad-out",
        )
    return Path(out)


@contextmanager
def new_folder(wanted: Path) -> Iterator[Path]:
    """Make the first free folder of NAME, NAME-2, …; it is removed if an error leaves it empty.

    Making the folder claims it: of two commands at once, each has its own.
    """
    missing = [path for path in wanted.parents if not path.exists()]
    wanted.parent.mkdir(parents=True, exist_ok=True)
    folder = _claim(wanted)
    try:
        yield folder
    except BaseException:
        for path in (folder, *missing):
            with suppress(OSError):  # it is not empty, or gone
                path.rmdir()
        raise


def _claim(wanted: Path) -> Path:
    for number in range(1, 10_000):
        folder = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        with suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise FolderExists(
        f"{wanted} and 9,998 folders numbered after it already exist: choose another name with "
        "--out",
        code="no-free-folder",
    )


def run_folders(folder: Path) -> list[Path]:
    """Every run folder below this one, and this one if it is one."""
    return sorted(path.parent for path in folder.rglob("settings.toml"))


def refuse_parent(folder: Path, verb: str) -> None:
    """If a folder is not a run but contains runs, say which to give to a command."""
    inside = run_folders(folder)
    if inside and folder not in inside:
        more = f" and {len(inside) - 8} more" if len(inside) > 8 else ""
        raise InvalidInput(
            f"{folder} contains runs but is not one: give one of {', '.join(map(str, inside[:8]))}"
            f"{more}, e.g. `{shlex.join(['fedlsvi', verb, str(inside[0])])}`",
            code="contains-runs",
        )
