"""`fedlsvi demo`: eight agents learn together, and the same eight learn alone.

Learning alone costs no communication, so an agent alone may replan after every episode (γ = 1),
which makes the most of its own data.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import click

from fedlsvi.checks import plural
from fedlsvi.cli.command import command, named_folder, new_folder, option, quiet_option
from fedlsvi.cli.text import columns, number

if TYPE_CHECKING:
    from fedlsvi.envs import RandomLinearMDP
    from fedlsvi.run import Run

AGENTS = 8
ALONE = 3
"""Agents that really learn alone; eight times their mean stands for all eight."""


@command()
@option(
    "--episodes",
    type=click.IntRange(min=1),
    default=20_000,
    metavar="T",
    help="Episodes per agent.",
)
@option("--out", metavar="FOLDER", show_default="runs/demo", help="Where to write.")
@quiet_option
def demo(episodes: int, out: str | None, quiet: bool) -> int:
    """Compare eight agents that learn together with learning alone.

    Prints a table and writes plots and an HTML page, in about a minute.
    """  # fmt: skip
    from fedlsvi import FedLSVI
    from fedlsvi.envs import RandomLinearMDP
    from fedlsvi.experiments.processes import cores, pool, pool_errors
    from fedlsvi.learner import unattended
    from fedlsvi.report import write_report
    from fedlsvi.report.plotting import check_matplotlib
    from fedlsvi.storage.run_writer import refuse_existing

    check_matplotlib()  # before a minute of playing
    where: AbstractContextManager[Path] = new_folder(Path("runs/demo"))
    if out is not None:
        where = nullcontext(named_folder(out))
        refuse_existing(Path(out))
    began = perf_counter()
    progress = False if quiet else None
    env = RandomLinearMDP(n_states=20, n_actions=4, dim=8, horizon=5, seed=0, initial="uniform")

    def say(text: str) -> None:
        if not quiet:
            print(text, file=sys.stderr)

    with where as folder, unattended():
        say(f"{AGENTS} agents learn together, {plural(episodes, 'episode')} each …")
        together = FedLSVI(n_agents=AGENTS).learn(
            env, episodes, seed=0, folder=folder, progress=progress
        )
        say(f"{ALONE} agents learn alone, each replanning after every episode …")
        with pool_errors(), pool(min(ALONE, cores())) as processes:
            tasks = [processes.submit(_learn_alone, env, episodes, 100 + m) for m in range(ALONE)]
            alone = [task.result() for task in tasks]
        page, *_ = write_report([together], folder, alone)
    print("\n".join(_table(together, alone)))
    print(f"\ndone in {perf_counter() - began:.0f} s. Open the plots and the page:")
    for name in ("alone", "regret", "rounds", "scalars"):
        print(f"  {folder / 'plots' / name}.png")
    print(f"  {page}")
    return 0


def _learn_alone(env: RandomLinearMDP, episodes: int, seed: int) -> Run:
    """One agent that synchronises with itself after every episode."""
    from fedlsvi import FedLSVI

    return FedLSVI(gamma=1.0).learn(env, episodes, seed=seed, progress=False)


def _table(together: Run, alone: Sequence[Run]) -> list[str]:
    """What a newcomer wants to know, each number next to one to compare it with."""
    p, summary = together.parameters, together.summary(values=False)
    assert together.regret is not None
    lost = float(together.regret[-1])
    apart = AGENTS * sum(float(r.regret[-1]) for r in alone if r.regret is not None) / len(alone)
    total = AGENTS * p.episodes
    bound = int(summary["bounds"]["theorem_3"]["bound"])
    raw = summary["scalars_raw"]
    rows = [
        ("", "Fed-LSVI", "compared with", ""),
        ("regret", number(lost), number(apart),
         f"{AGENTS} agents, each alone: {_times(apart, lost)} as much"),
        ("  per episode", f"{lost / total:.2g}", f"{apart / total:.2g}",
         "reward lost per episode played"),
        ("rounds", number(together.rounds), number(bound), "the most that Theorem 3 allows"),
        ("scalars sent", number(summary["scalars"]), number(raw),
         f"sharing every trajectory: {_times(raw, summary['scalars'])} as many"),
        ("trajectories sent", "0", number(total), "sharing every trajectory"),
    ]  # fmt: skip
    return [
        "",
        f"Eight agents learn one task (20 states, 4 actions, {plural(p.horizon, 'step')}) in "
        f"{plural(p.episodes, 'episode')} each.",
        "Regret is the reward lost against an optimal policy; less is better.",
        "",
        *columns(rows, "<>><", "  "),
    ]


def _times(larger: float, smaller: float) -> str:
    return f"{larger / smaller:.1f} times" if smaller > 0.0 else "infinitely"
