"""`fedlsvi demo`: eight agents together, and the same eight alone.

Alone costs nothing to communicate, so an agent alone may replan after every episode (γ = 1), which
is the most that it can make of its own data.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from time import perf_counter

import numpy as np

from fedlsvi import FedLSVI, Run
from fedlsvi.checks import plural
from fedlsvi.cli.play import in_free_folder, named_folder
from fedlsvi.cli.text import number
from fedlsvi.envs import RandomLinearMDP
from fedlsvi.errors import InvalidInput
from fedlsvi.report import write_report
from fedlsvi.storage.run_writer import refuse_existing

AGENTS = 8
ALONE = 3
"""Agents that are really played alone; eight times their mean stands for all eight."""


def do_demo(arguments: argparse.Namespace) -> int:
    """Learn both ways, print a table, write plots and a page."""
    if arguments.episodes < 1:
        raise InvalidInput(f"--episodes must be at least 1, got {arguments.episodes}: try 20000")
    asked = None if arguments.out is None else named_folder(arguments.out)
    if asked is not None:
        refuse_existing(asked)
    began = perf_counter()
    env = RandomLinearMDP(n_states=20, n_actions=4, dim=8, horizon=5, seed=0, initial="uniform")
    _say(f"{AGENTS} agents learn together, {plural(arguments.episodes, 'episode')} each …")

    def learn(folder: Path) -> Run:
        return FedLSVI(n_agents=AGENTS).learn(env, arguments.episodes, seed=0, folder=folder)

    if asked is None:
        out, together = in_free_folder(Path("runs/demo"), learn)
    else:
        out, together = asked, learn(asked)
    alone = []
    for m in range(ALONE):
        _say(f"agent {m + 1} of {ALONE} learns alone, replanning after every episode …")
        alone.append(FedLSVI(gamma=1.0).learn(env, arguments.episodes, seed=100 + m))
    page, *_ = write_report([together], out, alone)
    print("\n".join(_table(together, alone)))
    print(f"\ndone in {perf_counter() - began:.0f} s. Open the plots and the page:")
    for name in ("alone", "regret", "rounds", "scalars"):
        print(f"  {out / 'plots' / name}.png")
    print(f"  {page}")
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _table(together: Run, alone: list[Run]) -> list[str]:
    """What a newcomer wants to know, each number beside what to hold against it."""
    p, summary = together.parameters, together.summary()
    assert together.regret is not None
    lost = float(together.regret[-1])
    apart = AGENTS * float(np.mean([run.regret[-1] for run in alone if run.regret is not None]))
    total = AGENTS * p.episodes
    bound = int(summary["bounds"]["theorem_3"]["bound"])
    raw = summary["scalars_raw"]
    rows = [
        ("", "Fed-LSVI", "compared with", ""),
        ("regret", number(lost), number(apart), f"{AGENTS} agents, each alone: "
         f"{_times(apart, lost)} as much"),
        ("  per episode", f"{lost / total:.2g}", f"{apart / total:.2g}",
         "reward lost per episode played"),
        ("rounds", number(together.rounds), number(bound), "the most that Theorem 3 allows"),
        ("scalars sent", number(summary["scalars"]), number(raw),
         f"sharing every trajectory: {_times(raw, summary['scalars'])} as many"),
        ("trajectories sent", "0", number(total), "sharing every trajectory"),
    ]  # fmt: skip
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = [
        "",
        f"Eight agents learn one task (20 states, 4 actions, {p.horizon} steps) in "
        f"{plural(p.episodes, 'episode')} each.",
        "Regret is the reward lost against an optimal policy; less is better.",
        "",
    ]
    for name, ours, theirs, why in rows:
        lines.append(
            f"  {name.ljust(widths[0])}  {ours.rjust(widths[1])}  {theirs.rjust(widths[2])}  {why}"
        )
    return [line.rstrip() for line in lines]


def _times(larger: float, smaller: float) -> str:
    return f"{larger / smaller:.1f} times" if smaller > 0.0 else "infinitely"
