"""Options of `fedlsvi compare`, `tune` and `reproduce`; nothing else, so that help is instant."""

from __future__ import annotations

from typing import Any


def add_verbs(verbs: Any, common: Any) -> None:
    """The options of the three verbs."""
    compare = verbs.add_parser("compare", help="several algorithms on one problem: table, figure")
    compare.add_argument("file", nargs="?", help="TOML settings; the options override them")
    _problem(compare)
    compare.add_argument(
        "--algorithms", metavar="A,B,…", default="fed-lsvi,centralised,independent",
        help="default: fed-lsvi,centralised,independent",
    )  # fmt: skip
    compare.add_argument("--seeds", default="0:5", metavar="A:B", help="default 0:5; or 1,2,5")
    compare.add_argument("--out", metavar="FOLDER", help="asked again, it continues")
    _jobs(compare)
    common(compare)

    tune = verbs.add_parser("tune", help="choose each algorithm's scale on instances kept apart")
    tune.add_argument("file", nargs="?", help="TOML settings; the options override them")
    _problem(tune)
    tune.add_argument("--algorithms", metavar="A,B,…", default="fed-lsvi,centralised,independent",
                      help="default: fed-lsvi,centralised,independent")  # fmt: skip
    tune.add_argument("--tune", default="0:3", metavar="A:B", help="tuning instances; default 0:3")
    tune.add_argument("--test", default="100:105", metavar="A:B",
                      help="instances to report on; default 100:105")  # fmt: skip
    tune.add_argument("--out", metavar="FOLDER", help="asked again, it continues")
    _jobs(tune)
    common(tune)

    reproduce = verbs.add_parser("reproduce", help="the paper's claims, measured, with verdicts")
    reproduce.add_argument("claims", nargs="*", metavar="CLAIM", help="default: all")
    reproduce.add_argument(
        "--quick", action="store_true",
        help="fewer, smaller runs: minutes of one core instead of up to about an hour",
    )  # fmt: skip
    reproduce.add_argument("--out", metavar="FOLDER", default="runs/reproduce",
                           help="pages and figures; default runs/reproduce")  # fmt: skip
    reproduce.add_argument(
        "--cells", metavar="FOLDER", help="the runs themselves, for resuming; default OUT/cells"
    )
    reproduce.add_argument("--plan", action="store_true", help="say what would be run, and stop")
    _jobs(reproduce)
    common(reproduce)


def _problem(parser: Any) -> None:
    parser.add_argument("--env", metavar="NAME", help="environment, or a file of one")
    parser.add_argument("--features", metavar="NAME", help="feature map; default: the problem's")
    parser.add_argument("--agents", type=int, metavar="M", help="number of agents")
    parser.add_argument("--episodes", type=int, metavar="T", help="episodes per agent")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="changes",
        help="env.dim=8; lam=0.1 for all that have it; fed-lsvi.gamma=50 for one",
    )  # fmt: skip
    parser.set_defaults(algorithm=None, seed=None)


def _jobs(parser: Any) -> None:
    parser.add_argument("--jobs", type=int, metavar="N", help="runs at a time; default: one a core")
