"""`fedlsvi evaluate` and `fedlsvi record`: play a learned policy in its environment or another."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedlsvi.checks import plural
from fedlsvi.cli.command import (
    Actions,
    Name,
    bundle,
    column_option,
    command,
    format_option,
    option,
    parse_actions,
    parse_columns,
)
from fedlsvi.cli.text import as_json
from fedlsvi.errors import StoreError

if TYPE_CHECKING:
    from fedlsvi.envs.gym.play import Evaluation
    from fedlsvi.storage.evaluations import Kind


@dataclass(frozen=True)
class Request:
    """A policy and the environment to play it in."""

    policy: str
    env: str | None
    changes: tuple[str, ...]
    seed: int


request_options = bundle(
    "request", Request,
    click.argument("policy", type=click.Path(), help="Folder of a policy or of a run."),
    option("--env", type=Name("envs"), metavar="NAME", show_default="the policy's own",
           help="Environment or Gymnasium id."),
    option("--set", "changes", multiple=True, metavar="KEY=VALUE",
           help="Parameter of the environment, e.g. env.kwargs.is_slippery=false. Repeatable."),
    option("--seed", type=int, default=0, metavar="N", help="Seed of the episodes."),
)  # fmt: skip


@command()
@request_options
@option("--episodes", type=int, default=100, metavar="N", help="Number of episodes.")
@option(
    "--data",
    multiple=True,
    metavar="FILE",
    type=click.Path(),
    help="Estimate the value from a log instead of playing; one per agent. Repeatable.",
)
@option(
    "--repeats",
    type=click.IntRange(min=0),
    default=500,
    metavar="N",
    help="Repeats of the bootstrap, with --data.",
)
@option(
    "--value-range",
    type=click.FloatRange(min=0.0, min_open=True),
    metavar="V",
    show_default="the run's",
    help="With --data: the largest return of an episode, in rewards mapped to [0, 1].",
)
@column_option
@option(
    "--actions",
    type=Actions(),
    metavar="A",
    section="Logs",
    show_default="the run's",
    help="With --data: names of the actions in the order of their numbers, with commas.",
)
@option(
    "--stationary",
    is_flag=True,
    help="With --data: transitions and rewards are the same at every step, so every row counts for "
    "all steps.",
)
@option(
    "--transport",
    type=click.Choice(["inprocess", "ray"]),
    default="inprocess",
    help="With --data: where the logs are read.",
)
@option(
    "--aggregation",
    type=click.Choice(["float", "exact", "secure"]),
    default="float",
    help="With --data: how sums are added.",
)
@option(
    "--min-round",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="With --data: leave out a log's steps that fewer episodes reached.",
)
@option(
    "--privacy",
    type=(float, float),
    metavar="EPSILON DELTA",
    help="With --data: a budget of differential privacy for the estimate.",
)
@format_option
def evaluate(
    request: Request,
    episodes: int,
    data: tuple[str, ...],
    repeats: int,
    value_range: float | None,
    column: tuple[str, ...],
    actions: int | list[str] | None,
    stationary: bool,
    transport: str,
    aggregation: str,
    min_round: int,
    privacy: tuple[float, float] | None,
    form: str,
) -> int:
    """Play a learned policy and print its mean return with a confidence interval.

    With --data nothing is played: the value is estimated from logs of another policy, and saved
    with the run for its report. Columns are those of the logs that the run learned from; --column
    overrides them.

    \b
    Examples:
      fedlsvi evaluate runs/lake --env FrozenLake-v1 --episodes 200
      fedlsvi evaluate runs/ward --data north.parquet --data south.parquet --column action=dose
    """
    if data:
        how = {"repeats": repeats, "value_range": value_range, "stationary": stationary,
               "transport": transport, "aggregation": aggregation, "min_round": min_round,
               "privacy": None if privacy is None else dict(
                   zip(("epsilon", "delta"), privacy, strict=True))}  # fmt: skip
        reading = {"columns": parse_columns(column), **parse_actions(actions)}
        return _from_logs(request, list(data), reading, how, form)
    import numpy as np

    from fedlsvi.cli.stages import choose_stages, learned_from_logs
    from fedlsvi.envs.gym.play import Evaluation, evaluate_policy

    policy, stages = choose_stages(request)
    found = [
        evaluate_policy(policy, env, episodes, request.seed, kwargs=kwargs, agent=agent, **steps)
        for env, kwargs, _, agent, steps in stages
    ]
    alone = len(stages) == 1
    name = stages[0].name if alone else f"the environments of {plural(len(stages), 'agent')}"
    # episode t overall is the mean of the agents' episodes t, so every agent has the same weight
    returns, lengths = zip(*((one.returns, one.lengths) for one in found), strict=True)
    every = Evaluation(np.mean(returns, axis=0), np.mean(lengths, axis=0))
    if learned_from_logs(request.policy):  # the report of any other run measures by itself
        _keep(request.policy, "measured", _row(name, every))
    if form == "json":
        agents = [
            {"agent": stage.agent, **_row(stage.name, one)}
            for stage, one in zip(stages, found, strict=True)
        ]
        print(as_json(_row(name, every) | ({} if alone else {"agents": agents})))
        return 0
    print(f"mean return in {name}: {every}")
    for stage, one in zip(stages, found, strict=True):
        if not alone:
            print(f"  agent {stage.agent}, {stage.name}: {one}")
    return 0


def _from_logs(
    request: Request, data: list[str], reading: dict[str, Any], how: dict[str, Any], form: str
) -> int:
    """Estimate a policy's value from logs, and print it beside what was measured in them."""
    from fedlsvi.algorithms.fitted_q_evaluation import estimate_value
    from fedlsvi.cli.stages import known_range, policy_on_logs

    policy, features, worlds = policy_on_logs(request, data, reading)
    if how["value_range"] is None:
        how["value_range"] = known_range(policy)
    found = estimate_value(policy, worlds, features, seed=request.seed, **how)
    repeats = how["repeats"] if found.epsilon is None else 0
    about = {"data": data, "stationary": how["stationary"], "repeats": repeats}
    kept = _keep(request.policy, "estimated", about | found.row())
    if form == "json":
        print(as_json(found.row()))
        return 0

    def between(low: float | None, high: float | None) -> str:
        return "" if low is None or high is None else f" [{low:.4g}, {high:.4g}] (95 %, bootstrap)"

    print(f"estimated value from {plural(found.episodes, 'logged episode')}: {found.value:.4g}"
          f"{between(found.low, found.high)}")  # fmt: skip
    covered = "" if found.epsilon is not None else ", which the interval includes"
    print(f"  unseen transitions could add {found.unseen:.4g}{covered}")
    if found.epsilon is not None:
        print(f"  differentially private: ε = {found.epsilon:g} at δ = {found.delta:g}; an "
              "interval and bounds would each spend as much again")  # fmt: skip
    else:
        print(f"  bounds from Λ at the theorem's β: {found.pessimistic:.4g} to "
              f"{found.optimistic:.4g}")  # fmt: skip
    if found.robust is not None:
        print(f"  doubly robust: {found.robust:.4g}{between(found.robust_low, found.robust_high)}")
    if found.importance is not None and found.effective is not None:
        print(f"  importance sampling: {found.importance:.4g}"
              f"{between(found.importance_low, found.importance_high)}, "
              f"which uses {plural(round(found.effective), 'episode')} effectively")  # fmt: skip
    else:
        print(f"  no importance sampling: {found.importance_missing}")
    print(f"measured return of the behaviour: {found.behaviour:.4g}"
          f"{between(found.behaviour_low, found.behaviour_high)}")  # fmt: skip
    if kept is not None:
        print(f"kept in {kept}; `fedlsvi report` shows it")
    return 0


def _keep(folder: str, kind: Kind, entry: dict[str, Any]) -> Path | None:
    """Write what was found beside the run, for its report; None where there is no run, or no
    leave to write: the numbers are printed anyway."""
    from fedlsvi.storage import evaluations

    if not evaluations.is_run(folder):
        return None
    try:
        path = evaluations.add(folder, kind, entry)
        _write_card(folder)
        return path
    except StoreError as error:
        print(f"fedlsvi: notice: the report will not show this: {error}", file=sys.stderr)
        return None


def _write_card(folder: str) -> None:
    """Where the run was learned by mail, its model card again, with this estimate."""
    from fedlsvi.remote.mail import STUDY
    from fedlsvi.storage import files, load

    if files.exists(Path(folder) / STUDY):
        from fedlsvi.report.model_card import write_card

        write_card(load(folder), folder)


def _row(name: str, found: Evaluation) -> dict[str, Any]:
    """An evaluation for JSON; null where there is no interval."""
    low, high = found.interval or (None, None)
    return {"environment": name, "mean": found.mean, "low": low, "high": high,
            "episodes": len(found.returns)}  # fmt: skip


@command()
@request_options
@option("--out", required=True, metavar="FILE", help="File that ends in .txt, .gif or .mp4.")
@format_option
def record(request: Request, out: str, form: str) -> int:
    """Play one episode into a .txt, .gif or .mp4 file.

    Where agents differ, agent 0's environment is played.

    \b
    Example:
      fedlsvi record runs/lake --env FrozenLake-v1 --out episode.gif
    """
    from fedlsvi.cli.stages import choose_stages
    from fedlsvi.envs.gym.play import record as record_episode

    policy, stages = choose_stages(request)
    env, kwargs, name, agent, steps = stages[0]
    earned = record_episode(policy, env, out, request.seed, kwargs=kwargs, agent=agent, **steps)
    whose = "" if len(stages) == 1 else f" of agent {agent}"
    text = f"wrote {out}: one episode{whose} in {name}, return {earned:g}"
    row = {"file": out, "environment": name, "return": earned}
    print(as_json(row) if form == "json" else text)
    return 0
