"""Options of `fedlsvi federate …` and `verify`; nothing else, so that help is instant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def add_verbs(verbs: Any, common: Callable[..., None]) -> None:
    """Add the verbs to the command's parser."""
    federate = verbs.add_parser("federate", help="a federation of real sites on NVIDIA FLARE")
    actions = federate.add_subparsers(dest="action", required=True, metavar="ACTION")

    init = actions.add_parser("init", help="write a project: kits, certificates, job, README")
    init.add_argument("file", help="TOML: name, episodes, horizon, dim, [settings], …")
    init.add_argument("--sites", required=True, metavar="A,B,…", help="names of the sites")
    init.add_argument("--out", required=True, metavar="FOLDER", help="the project; must not exist")
    init.add_argument("--host", default="localhost", help="the server's name; default: localhost")
    init.add_argument("--port", type=int, default=8002, help="the server's port; default: 8002")
    common(init)

    for name, summary in (
        ("start", "submit the job, or submit it again after a crash"),
        ("status", "rounds, episodes and who is connected"),
        ("stop", "end the parties that `start --here` started"),
    ):
        action = actions.add_parser(name, help=summary)
        action.add_argument("folder", help="the project")
        if name == "start":
            action.add_argument("--here", action="store_true",
                                help="also start all parties, on this machine")  # fmt: skip
            action.add_argument("--wait", type=float, default=0.0, metavar="S",
                                help="wait up to S seconds for the end")  # fmt: skip
        common(action)

    demo = actions.add_parser("demo", help="a server and three sites as processes on loopback")
    demo.add_argument("--out", metavar="FOLDER", help="keep the project here; default: keep none")
    demo.add_argument("--episodes", type=int, default=300, metavar="T", help="default: 300")
    common(demo)

    verify = verbs.add_parser("verify", help="check a site's log of what left it")
    verify.add_argument("log", help="the site's sent.jsonl")
    verify.add_argument("--ledger", metavar="FILE", help="the server's ledger.json")
    verify.add_argument("--agents", metavar="A:B", help="the site's agents in it; default: all")
    common(verify)
