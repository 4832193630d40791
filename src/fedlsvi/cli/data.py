"""`fedlsvi data`: what is in a log, before anything is learned from it."""

from __future__ import annotations

from typing import Any

import click

from fedlsvi.cli.command import (
    command,
    format_option,
    option,
    parse_actions,
    parse_columns,
)
from fedlsvi.cli.evaluate import Request
from fedlsvi.cli.offline import Logs, log_options, made_features, pevi_options
from fedlsvi.cli.text import as_json, columns, number

STEPS = 12
"""Steps that are printed; of a longer horizon, so many of the worst covered."""


@command()
@log_options
@pevi_options
@option(
    "--policy",
    metavar="RUN",
    type=click.Path(),
    section="Policy",
    help="Folder of a run or of a policy: estimate what it is worth beside rules that need no "
    "learning.",
)
@option(
    "--repeats",
    type=click.IntRange(min=0),
    default=100,
    metavar="N",
    section="Policy",
    help="Repeats of the bootstrap, with --policy.",
)
@option(
    "--stationary",
    is_flag=True,
    section="Policy",
    help="With --policy: every row counts for all steps.",
)
@option("--plot", metavar="FILE", section="Output",
        help="Draw the eigenvalues into a .png or .svg file.")  # fmt: skip
@format_option
def data(
    logs: Logs, features: str | None, changes: tuple[str, ...], policy: str | None, repeats: int,
    stationary: bool, plot: str | None, form: str,
) -> int:  # fmt: skip
    """Show what logs contain and which directions of feature space they hardly cover.

    With --policy, also what a learned policy is worth by several estimates, beside the action that
    the logs have most often, always the first action, and actions at random.

    \b
    Examples:
      fedlsvi data north.parquet south.parquet --states 16 --actions 4 --plot coverage.png
      fedlsvi data other.parquet --policy runs/ward
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
        "action_names": worlds[0].action_names,
        "steps": [
            {"step": h + 1, "visits": float(seen.visits[h]),
             "smallest": float(seen.eigenvalues[h, 0]), "unseen": int(seen.unseen[h]),
             "blind": int(seen.blind[h])}
            for h in range(run.parameters.horizon)
        ],
        "meaning": seen.meaning(),
    }  # fmt: skip
    if policy is not None:
        how = {"repeats": repeats, "stationary": stationary}
        found["policies"] = _policies(policy, logs, how)
    if plot is not None:
        run.plot("coverage", plot)
        found["plot"] = plot
    print(as_json(found) if form == "json" else "\n".join(_lines(found)))
    return 0


def _policies(policy: str, logs: Logs, how: dict[str, Any]) -> dict[str, Any]:
    """What a learned policy and plain rules are worth, estimated from the same logs."""
    from fedlsvi.algorithms.fitted_q_evaluation import estimate_value
    from fedlsvi.algorithms.shared.plain_policies import plain_policies
    from fedlsvi.cli.stages import known_range, policy_on_logs

    reading = {"columns": parse_columns(logs.column), **parse_actions(logs.actions)}
    request = Request(policy, None, (), 0)
    learned, features, worlds = policy_on_logs(request, list(logs.records), reading)
    how = how | {"value_range": known_range(learned)}
    rules = {"learned": learned} | plain_policies(worlds, features)
    return {
        name: estimate_value(rule, worlds, features, **how).row() for name, rule in rules.items()
    }


def _estimates(rows: dict[str, Any]) -> list[str]:
    """Several estimates of several policies, side by side."""

    def shown(row: dict[str, Any], name: str, begins: str) -> str:
        if row[name] is None:
            return "–"
        low, high = row[f"{begins}low"], row[f"{begins}high"]
        between = "" if low is None or high is None else f" [{low:.4g}, {high:.4g}]"
        return f"{row[name]:.4g}{between}"

    head = ("policy", "fitted-Q", "unseen adds", "doubly robust", "importance sampling",
            "episodes it uses")  # fmt: skip
    table = [
        (name, shown(row, "value", ""), f"{row['unseen']:.4g}", shown(row, "robust", "robust_"),
         shown(row, "importance", "importance_"),
         "–" if row["effective"] is None else number(round(row["effective"])))
        for name, row in rows.items()
    ]  # fmt: skip
    row = next(iter(rows.values()))
    missing = {own["importance_missing"] for own in rows.values()} - {None}
    return [
        "", *columns([head, *table], "<>>>>>", "  "), "",
        f"measured return of the behaviour: {shown(row, 'behaviour', 'behaviour_')}",
        *(f"  –: {why}" for why in sorted(missing)),
        "Logs from which the policy was learned make it look better than it is.",
    ]  # fmt: skip


def _lines(found: dict[str, Any]) -> list[str]:
    """The same for people."""
    from fedlsvi.logs.action_names import numbered

    head = ("log", "episodes", "transitions", "mean length", "mean return", "rewards", "left out")
    rows = [
        (one["name"], number(one["episodes"]), number(one["transitions"]),
         number(one["mean_length"]), f"{one['mean_return']:.4g}",
         f"{one['smallest_reward']:.4g} to {one['largest_reward']:.4g}", number(one["left_out"]))
        for one in found["agents"]
    ]  # fmt: skip
    lines = columns([head, *rows], "<>>>>>>", "  ")
    if found["action_names"] is not None:
        lines += ["", f"actions: {numbered(found['action_names'])}"]
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
    if "policies" in found:
        lines += _estimates(found["policies"])
    if "plot" in found:
        lines.append(f"plot: {click.format_filename(found['plot'])}")
    return lines
