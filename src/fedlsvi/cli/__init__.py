"""The command `fedlsvi`. Verbs import what they need when they are called, so help is instant."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NoReturn

from fedlsvi import __version__
from fedlsvi.cli import experiment_options, federate_options
from fedlsvi.errors import FedLSVIError, InvalidInput, StoreError, UnknownName
from fedlsvi.registry import announce

HOME = {
    "run": "play",
    "resume": "play",
    "list": "catalogue",
    "report": "results",
    "bench": "bench",
    "doctor": "doctor",
    "demo": "demo",
    "compare": "experiments",
    "tune": "experiments",
    "reproduce": "experiments",
    "federate": "federate",
    "verify": "federate",
    "evaluate": "policies",
    "record": "policies",
}
"""Verb → module of this package that has a function of that name."""


class Parser(argparse.ArgumentParser):
    """Mistakes get one sentence, like every other refusal."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"fedlsvi: error: {message} (see `{self.prog} --help`)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 2 for bad input, 130 after Ctrl-C."""
    given = list(sys.argv[1:] if argv is None else argv)
    try:
        if given and not given[0].startswith("-") and given[0] not in HOME:
            raise UnknownName("command", given[0], HOME)
        arguments = build().parse_args(given)
        if arguments.extensions:
            announce(arguments.extensions)
        module = import_module(f"fedlsvi.cli.{HOME[arguments.verb]}")
        verb: Callable[[argparse.Namespace], int] = getattr(module, f"do_{arguments.verb}")
        return verb(arguments)
    except (InvalidInput, StoreError) as error:
        return _fail(error, 2)
    except FedLSVIError as error:
        return _fail(error, 1)
    except KeyboardInterrupt:
        print("fedlsvi: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of a pipe has gone, as with `| head`
        sys.stderr.close()
        return 1
    except OSError as error:
        if error.filename is None:
            raise
        return _fail(StoreError(f"cannot use {error.filename}: {error.strerror}"), 2)


def _fail(error: FedLSVIError, code: int) -> int:
    print(f"fedlsvi: error: {error}", file=sys.stderr)
    return code


def build() -> Parser:
    """The parser of the whole command."""
    parser = Parser(
        prog="fedlsvi",
        description="Federated online reinforcement learning with linear function approximation.",
    )
    parser.add_argument("--version", action="version", version=f"fedlsvi {__version__}")
    parser.add_argument(
        "--import", action="append", default=[], metavar="MODULE", dest="extensions",
        help="a module or .py file of your own that registers environments, features, algorithms",
    )  # fmt: skip
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="COMMAND")

    run = verbs.add_parser("run", help="learn, and write a run folder")
    run.add_argument("file", nargs="?", help="TOML settings; the options override them")
    run.add_argument(
        "--env", metavar="NAME", help="environment, or a .npz/.safetensors file of one"
    )
    run.add_argument("--features", metavar="NAME", help="feature map; default: the environment's")
    run.add_argument("--algorithm", metavar="NAME", help="default: fed-lsvi")
    run.add_argument("--agents", type=int, metavar="M", help="number of agents")
    run.add_argument("--episodes", type=int, metavar="T", help="episodes per agent")
    run.add_argument("--seed", type=int, metavar="N", help="seed of the run")
    run.add_argument("--seeds", metavar="A:B", help="several runs: 0:10 is 0 to 9; or 1,2,5")
    run.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="changes",
        help="any setting, e.g. gamma=50 or env.horizon=7; may be repeated",
    )  # fmt: skip
    run.add_argument("--out", metavar="FOLDER", help="run folder; default runs/NAME; - keeps none")
    _common(run, threads=True, seconds=True)
    _transport(run)

    resume = verbs.add_parser("resume", help="continue an interrupted run to the same result")
    resume.add_argument("folder", help="run folder")
    _common(resume, threads=True, seconds=True)
    _transport(resume)

    listing = verbs.add_parser("list", help="environments, algorithms and features by name")
    listing.add_argument(
        "what", nargs="?", choices=("environments", "algorithms", "features"), metavar="WHAT",
        help="environments, algorithms or features; default: all",
    )  # fmt: skip
    _common(listing)

    report = verbs.add_parser("report", help="plots (PNG, SVG) and an HTML page of runs")
    report.add_argument("runs", nargs="+", metavar="RUN", help="run folders")
    where = "default: the run folder; of several, report/ in the folder that they share"
    report.add_argument("--out", metavar="FOLDER", help=where)
    _common(report)

    verbs.add_parser("bench", help="time this machine against plain NumPy")

    doctor = verbs.add_parser("doctor", help="check the installation and this machine")
    _common(doctor)

    demo = verbs.add_parser("demo", help="eight agents together against learning alone")
    demo.add_argument("--out", metavar="FOLDER", help="default: runs/demo, runs/demo-2, …")
    demo.add_argument("--episodes", type=int, default=20_000, metavar="T", help="default: 20000")

    experiment_options.add_verbs(verbs, _common)
    federate_options.add_verbs(verbs, _common)

    evaluate = verbs.add_parser("evaluate", help="play a learned policy; mean return, interval")
    evaluate.add_argument("--episodes", type=int, default=100, metavar="N", help="default: 100")
    record = verbs.add_parser("record", help="play one episode into a .txt, .gif or .mp4 file")
    record.add_argument("--out", required=True, metavar="FILE", help="ends in .txt, .gif or .mp4")
    for verb in (evaluate, record):
        verb.add_argument("policy", help="folder of a policy, or of a run")
        verb.add_argument(
            "--env", metavar="NAME", help="environment or Gymnasium id; default: the policy's own"
        )
        verb.add_argument(
            "--set", action="append", default=[], metavar="KEY=VALUE", dest="changes",
            help="of the environment, e.g. env.kwargs.is_slippery=false; may be repeated",
        )  # fmt: skip
        verb.add_argument("--seed", type=int, default=0, metavar="N", help="default: 0")
        _common(verb)
    return parser


def _transport(parser: Parser) -> None:
    parser.add_argument(
        "--transport", choices=("inprocess", "ray"), default="inprocess",
        help="where the agents are; never changes the result",
    )  # fmt: skip
    parser.add_argument("--ray-address", metavar="ADDRESS", help="of a Ray cluster, e.g. auto")
    parser.add_argument(
        "--cohorts", type=_count, metavar="N", help="processes that share the agents"
    )


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of at least 1")
    return int(text)


def _common(parser: Parser, threads: bool = False, seconds: bool = False) -> None:
    parser.add_argument("--format", choices=("text", "json"), default="text", help="of the output")
    if threads:
        parser.add_argument("--threads", type=_count, metavar="N", help="never changes the result")
    if seconds:
        parser.add_argument(
            "--checkpoint-seconds", type=float, default=5.0, metavar="S",
            help="time between checkpoints; default 5; 0: after every round",
        )  # fmt: skip
