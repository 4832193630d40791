"""The command `fedlsvi`. Commands import the library when they run, so that help is instant."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from fedlsvi import __version__
from fedlsvi.errors import FedLSVIError, FedLSVIWarning, InvalidInput, StoreError

SECTIONS = {
    "Learn": {
        "run": "run:run",
        "plan": "plan:plan",
        "offline": "offline:offline",
        "resume": "run:resume",
        "demo": "demo:demo",
        "new": "new:new",
    },
    "Look at results": {
        "report": "report:report",
        "watch": "watch:watch",
        "privacy": "privacy:privacy",
        "evaluate": "evaluate:evaluate",
        "record": "evaluate:record",
        "episodes": "episodes:episodes",
        "data": "data:data",
        "list": "listing:list_names",
    },
    "Experiments": {
        "compare": "experiments:compare",
        "tune": "experiments:tune",
        "reproduce": "experiments:reproduce",
        "power": "power:power",
    },
    "Real sites": {
        "federate": "federate:federate",
        "site": "site:site",
        "verify": "federate:verify",
    },
    "Sites by mail": {
        "study": "study:study",
        "contribute": "study:contribute",
        "merge": "study:merge",
        "attest": "study:attest",
        "recheck": "study:recheck",
    },
    "This machine": {
        "doctor": "machine:doctor",
        "bench": "machine:bench",
        "completion": "machine:completion",
    },
}
"""Section of the help → command → module of this package and the command's name there."""

SHELL_HINTS = {
    "missing-features": "give --features fourier, rbf or tiles (`fedlsvi list features` shows all)",
    "missing-horizon": "give --set env.horizon=H",
    "reward-out-of-range": "give --set env.reward_range=[LOW,HIGH] that contains every reward, "
    "or --set env.clip_rewards=true",
    "bad-gamma": "--set gamma=auto is max(T/(Md), 1)",
    "bad-beta": "leave it out to use the preset's value, or give --set beta=theory",
}
"""Code of an error → what to type, in place of the library's hint, which is in Python."""


class Commands(click.Group):
    """The root command: it imports a command's module when that command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the help."""
        return [name for section in SECTIONS.values() for name in section]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command of this name."""
        home = {name: home for section in SECTIONS.values() for name, home in section.items()}
        if name not in home:
            return None
        module, _, attribute = home[name].partition(":")
        found: click.Command = getattr(import_module(f"fedlsvi.cli.{module}"), attribute)
        return found

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """The command that the words begin with, or an error that names the nearest one."""
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise click.exceptions.NoSuchCommand(args[0], possibilities=self.list_commands(ctx))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands in sections."""
        for title, section in SECTIONS.items():
            commands = {name: self.get_command(ctx, name) for name in section}
            with formatter.section(title):
                formatter.write_dl(
                    [(n, c.get_short_help_str(90)) for n, c in commands.items() if c]
                )


@click.group(
    cls=Commands,
    context_settings={
        "help_option_names": ["-h", "--help"], "show_default": True, "max_content_width": 100,
    },
    epilog="`fedlsvi COMMAND --help` shows a command's options.",
)  # fmt: skip
@click.version_option(__version__, prog_name="fedlsvi", message="%(prog)s %(version)s")
@click.option(
    "--import", "extensions", multiple=True, metavar="MODULE",
    help="Module or .py file that registers your environments, features or algorithms. Repeatable.",
)  # fmt: skip
def commands(extensions: tuple[str, ...]) -> None:
    """Federated online reinforcement learning with linear function approximation."""
    if extensions:
        from fedlsvi.registry import announce

        announce(list(extensions))


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: The words after `fedlsvi`; by default those of this process.

    Returns:
        The exit code: 0, 2 for bad input, 1 for other errors, 130 after Ctrl-C.
    """
    given = None if argv is None else list(argv)
    try:
        with _sentences():
            return commands.main(given, prog_name="fedlsvi", standalone_mode=False) or 0
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 2
    except click.ClickException as error:
        return _fail(_usage(error), 2)
    except (InvalidInput, StoreError) as error:
        return _fail(in_shell_words(error), 2)
    except FedLSVIError as error:
        return _fail(in_shell_words(error), 1)
    except (click.Abort, KeyboardInterrupt):
        print("fedlsvi: interrupted", file=sys.stderr)
        return 130
    except OSError as error:
        if error.filename is None:
            raise
        return _fail(f"cannot use {error.filename}: {error.strerror}", 2)


@contextmanager
def _sentences() -> Iterator[None]:
    """Warnings of ours as lines on standard error, each once, without a line of code."""
    said: set[str] = set()

    def show(message: Any, category: Any, *where: Any) -> None:
        if not issubclass(category, FedLSVIWarning):
            usual(message, category, *where)
        elif str(message)[:30] not in said:  # of several runs, the numbers differ
            said.add(str(message)[:30])
            print(f"fedlsvi: warning: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        usual = warnings.showwarning
        warnings.simplefilter("always", FedLSVIWarning)
        warnings.showwarning = show  # type: ignore[assignment]
        yield


def in_shell_words(error: FedLSVIError) -> str:
    """The sentence of an error, with a hint that can be typed on the shell if there is one."""
    hint = error.shell_hint or SHELL_HINTS.get(error.code)
    if hint is None:
        return str(error)
    if not error.hint:
        return f"{error} (here: {hint})"
    return f"{str(error).removesuffix(error.hint)}{hint}"


def _usage(error: click.ClickException) -> str:
    """What is wrong with the command line, in one sentence."""
    sentence = " ".join(error.format_message().split()).removesuffix(".")
    context = getattr(error, "ctx", None)
    where = context.command_path if context is not None else "fedlsvi"
    return f"{sentence[:1].lower()}{sentence[1:]} (see `{where} --help`)"


def _fail(sentence: str, code: int) -> int:
    print(f"fedlsvi: error: {sentence}", file=sys.stderr)
    return code
