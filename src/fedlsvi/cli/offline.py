"""`fedlsvi offline`: learn a policy from logs, with no world to play in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

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
from fedlsvi.cli.run import Engine, engine_options, finish_run

if TYPE_CHECKING:
    from fedlsvi.logs.world import LoggedWorld


@dataclass(frozen=True)
class Logs:
    """Logs, and what is known about them besides."""

    records: tuple[str, ...]
    env: str | None
    horizon: int | None
    states: int | None
    actions: int | list[str] | None
    reward_range: tuple[float, float] | None
    column: tuple[str, ...]
    seen: int | None

    def worlds(self) -> list[LoggedWorld]:
        """The logs, checked; one for each agent."""
        from fedlsvi.envs.gym.convert import as_environment
        from fedlsvi.logs.world import logged_worlds

        given = {"horizon": self.horizon, "reward_range": self.reward_range}
        like: Any = None
        if self.env is not None:
            like = as_environment(self.env, **given)  # type: ignore[arg-type]
        data: Any = list(self.records) if len(self.records) > 1 else self.records[0]
        return logged_worlds(
            data, like=like, n_states=self.states, columns=parse_columns(self.column) or None,
            allowed=None if self.seen is None else "seen", at_least=self.seen or 1,
            **parse_actions(self.actions), **given,  # type: ignore[arg-type]
        )  # fmt: skip


_log = "Logs"


def log_options_with(required: bool) -> Any:
    """The options of `Logs`; whether there must be one."""
    return bundle(
        "logs", Logs,
        click.argument("records", nargs=-1, required=required, type=click.Path(),
                       help="Parquet or CSV files, one per agent or one with an agent column; or "
                       "minari:ID."),
        option("--env", type=Name("envs"), metavar="NAME", section=_log,
               help="Environment the logs come from; only its sizes are used."),
        option("--horizon", type=click.IntRange(min=1), metavar="H", section=_log,
               show_default="the longest episode", help="Steps per episode."),
        option("--states", type=click.IntRange(min=1), metavar="S", section=_log,
               show_default="the largest in the logs + 1", help="Number of states."),
        option("--actions", type=Actions(), metavar="A", section=_log,
               show_default="the largest in the logs + 1, or all names in their order",
               help="Number of actions, or their names in the order of their numbers, with "
               "commas."),
        option("--reward-range", type=(float, float), metavar="LOW HIGH", section=_log,
               show_default="0 1", help="Rewards that are mapped to 0 and 1."),
        column_option,
        option("--seen", type=click.IntRange(min=1), metavar="N", section=_log,
               show_default="every action",
               help="Allow only actions that the agent's log took at least N times in the state."),
    )  # fmt: skip


log_options = log_options_with(required=True)


def made_features(features: str | None, changes: tuple[str, ...]) -> tuple[dict[str, Any], Any]:
    """The settings that --set gives, and the feature map that was asked for."""
    from fedlsvi import features as feature_maps
    from fedlsvi.storage.settings_file import Table, assign

    table: Table = {} if features is None else {"features": {"name": features}}
    for change in changes:
        assign(table, change)
    named: Any = table.pop("features", None)
    if named is None:
        return table, None
    chosen = {"name": named} if isinstance(named, str) else dict(named)
    return table, feature_maps.make(chosen.pop("name"), **chosen)


def pevi_options(function: Any) -> Any:
    """The options of commands that see logs through features: --features and --set."""
    named = option(
        "--features", type=Name("features"), metavar="NAME", section="Logs",
        show_default="one-hot if states are numbered",
        help="Feature map: a name from `fedlsvi list features`.",
    )  # fmt: skip
    changed = option(
        "--set", "changes", multiple=True, metavar="KEY=VALUE", section="Logs",
        help="Setting of pevi, e.g. beta=0.3 or preset=paper. Repeatable.",
    )  # fmt: skip
    return named(changed(function))


@command()
@log_options
@pevi_options
@option("--out", metavar="FOLDER", show_default="runs/NAME", section="Output",
        help="Run folder; - to discard.")  # fmt: skip
@format_option
@engine_options
def offline(
    logs: Logs, features: str | None, changes: tuple[str, ...], out: str | None, form: str,
    engine: Engine,
) -> int:  # fmt: skip
    """Learn a policy from logs alone, by pessimistic value iteration.

    \b
    Examples:
      fedlsvi offline north.parquet south.parquet --states 16 --actions 4
      fedlsvi offline records.csv --env FrozenLake-v1 --horizon 20 --set beta=0.2
    """
    from fedlsvi.algorithms.registry import make

    table, phi = made_features(features, changes)
    worlds = logs.worlds()
    learner = make("pevi", n_agents=len(worlds), **table)
    shared: dict[str, Any] = {"features": phi, "cohorts": engine.cohorts}
    engine.options(None)
    learner.prepare(worlds, None, threads=engine.threads, **shared).close()  # type: ignore[arg-type]

    def play(folder: Path | None) -> Any:
        return learner.learn(worlds, None, folder=folder, **shared, **engine.options(folder))  # type: ignore[arg-type]

    name = Path(logs.records[0]).stem.replace(":", "-").replace("/", "-") or "offline"
    return finish_run(play, engine, out, name, form)
