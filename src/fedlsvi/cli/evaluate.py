"""`fedlsvi evaluate` and `fedlsvi record`: play a learned policy in its environment or another."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedlsvi.checks import plural
from fedlsvi.cli.command import Name, bundle, command, format_option, option
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
    default=100,
    metavar="N",
    help="Repeats of the bootstrap, with --data.",
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
@format_option
def evaluate(
    request: Request,
    episodes: int,
    data: tuple[str, ...],
    repeats: int,
    stationary: bool,
    transport: str,
    form: str,
) -> int:
    """Play a learned policy and print its mean return with a confidence interval.

    With --data nothing is played: the value is estimated from logs of another policy, and saved
    with the run for its report.

    \b
    Examples:
      fedlsvi evaluate runs/lake --env FrozenLake-v1 --episodes 200
      fedlsvi evaluate runs/ward --data north.parquet --data south.parquet
    """
    if data:
        how = {"repeats": repeats, "stationary": stationary, "transport": transport}
        return _from_logs(request, list(data), how, form)
    import numpy as np

    from fedlsvi.cli.stages import choose_stages, learned_from_logs
    from fedlsvi.envs.gym.play import Evaluation, evaluate_policy

    policy, stages = choose_stages(request)
    found = [
        evaluate_policy(
            policy, env, episodes, request.seed, kwargs=kwargs, agent=agent, repeat=repeat
        )
        for env, kwargs, _, agent, repeat in stages
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


def _from_logs(request: Request, data: list[str], how: dict[str, Any], form: str) -> int:
    """Estimate a policy's value from logs, and print it beside what was measured in them."""
    from fedlsvi.algorithms.fitted_q_evaluation import estimate_value
    from fedlsvi.cli.stages import policy_for_logs
    from fedlsvi.envs.logged.world import logged_worlds

    policy, features, sizes = policy_for_logs(request)
    worlds = logged_worlds(data if len(data) > 1 else data[0], **sizes)
    found = estimate_value(policy, worlds, features(worlds[0]), seed=request.seed, **how)
    about = {"data": data, "stationary": how["stationary"], "repeats": how["repeats"]}
    kept = _keep(request.policy, "estimated", about | found.row())
    if form == "json":
        print(as_json(found.row()))
        return 0

    def between(low: float | None, high: float | None) -> str:
        return "" if low is None or high is None else f" [{low:.4g}, {high:.4g}] (95 %, bootstrap)"

    print(f"estimated value from {plural(found.episodes, 'logged episode')}: {found.value:.4g}"
          f"{between(found.low, found.high)}")  # fmt: skip
    print(f"  unseen transitions could add {found.unseen:.4g}, which the interval includes")
    print(f"  bounds from Λ at the theorem's β: {found.pessimistic:.4g} to {found.optimistic:.4g}")
    if found.importance is not None and found.effective is not None:
        print(f"  importance sampling: {found.importance:.4g}, "
              f"which uses {plural(round(found.effective), 'episode')} effectively")  # fmt: skip
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
        return evaluations.add(folder, kind, entry)
    except StoreError as error:
        print(f"fedlsvi: notice: the report will not show this: {error}", file=sys.stderr)
        return None


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
    env, kwargs, name, agent, repeat = stages[0]
    earned = record_episode(
        policy, env, out, request.seed, kwargs=kwargs, agent=agent, repeat=repeat
    )
    whose = "" if len(stages) == 1 else f" of agent {agent}"
    text = f"wrote {out}: one episode{whose} in {name}, return {earned:g}"
    row = {"file": out, "environment": name, "return": earned}
    print(as_json(row) if form == "json" else text)
    return 0
