"""`fedlsvi data`: what is in a log, before anything is learned from it."""

from __future__ import annotations

from typing import Any

import click

from fedlsvi.cli.command import command, format_option, option
from fedlsvi.cli.offline import Logs, log_options, made_features, pevi_options
from fedlsvi.cli.text import as_json, columns, number

STEPS = 12
"""Steps that are printed; of a longer horizon, so many of the worst covered."""


@command()
@log_options
@pevi_options
@option("--plot", metavar="FILE", section="Output",
        help="Draw the eigenvalues into a .png or .svg file.")  # fmt: skip
@format_option
def data(
    logs: Logs, features: str | None, changes: tuple[str, ...], plot: str | None, form: str
) -> int:
    """Show what logs contain and which directions of feature space they hardly cover.

    \b
    Example:
      fedlsvi data north.parquet south.parquet --states 16 --actions 4 --plot coverage.png
    """
    from fedlsvi.algorithms.registry import make

    table, phi = made_features(features, changes)
    worlds = logs.worlds()
    learner: Any = make("pevi", n_agents=len(worlds), **table)
    run = learner.learn(worlds, features=phi, progress=False)
    seen = run.coverage
    found = {
        "agents": [
            {
                "name": world.name, "episodes": world.log.episodes,
                "transitions": world.log.transitions,
                "left_out": world.log.cut(world.horizon, run.parameters.stationary),
                "mean_length": world.log.transitions / world.log.episodes,
                "longest": len(world.log.visits), "mean_return": world.mean_return,
                "smallest_reward": world.original_reward(world.log.smallest_reward),
                "largest_reward": world.original_reward(world.log.largest_reward),
            }
            for world in worlds
        ],
        "horizon": run.parameters.horizon, "dim": run.parameters.dim,
        "beta": run.parameters.beta, "lam": run.parameters.lam,
        "steps": [
            {"step": h + 1, "visits": float(seen.visits[h]),
             "smallest": float(seen.eigenvalues[h, 0]), "unseen": int(seen.unseen[h]),
             "blind": int(seen.blind[h])}
            for h in range(run.parameters.horizon)
        ],
        "meaning": seen.meaning(),
    }  # fmt: skip
    if plot is not None:
        run.plot("coverage", plot)
        found["plot"] = plot
    print(as_json(found) if form == "json" else "\n".join(_lines(found)))
    return 0


def _lines(found: dict[str, Any]) -> list[str]:
    """The same for people."""
    head = ("log", "episodes", "transitions", "mean length", "mean return", "rewards", "left out")
    rows = [
        (one["name"], number(one["episodes"]), number(one["transitions"]),
         number(one["mean_length"]), f"{one['mean_return']:.4g}",
         f"{one['smallest_reward']:.4g} to {one['largest_reward']:.4g}", number(one["left_out"]))
        for one in found["agents"]
    ]  # fmt: skip
    lines = columns([head, *rows], "<>>>>>>", "  ")
    steps = found["steps"]
    if len(steps) > STEPS:
        steps = sorted(
            sorted(steps, key=lambda one: -one["blind"])[:STEPS], key=lambda s: s["step"]
        )
        lines += ["", f"the {STEPS} steps with the most directions unseen, of {found['horizon']}:"]
    titles = ("step", "visits", "smallest eigenvalue", "below one visit", "as good as unseen")
    table = [
        (str(one["step"]), number(one["visits"]), f"{one['smallest']:.3g}",
         f"{one['unseen']:,} of {found['dim']:,}", f"{one['blind']:,} of {found['dim']:,}")
        for one in steps
    ]  # fmt: skip
    lines += ["", *columns([titles, *table], ">>>>>", "  ")]
    lines += ["", f"At β = {found['beta']:.4g} and λ = {found['lam']:g}, {found['meaning']}."]
    if "plot" in found:
        lines.append(f"plot: {click.format_filename(found['plot'])}")
    return lines
