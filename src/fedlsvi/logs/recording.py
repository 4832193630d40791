"""Make a log: play a behaviour in a simulator, and write what happened as a table."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from os import PathLike
from pathlib import Path

import numpy as np

from fedlsvi.checks import integer
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.errors import InvalidInput
from fedlsvi.logs.rows import InvalidRecord

CHUNK = 4096
"""Episodes that are played at once."""


def record_episodes(
    env: FiniteMDP,
    episodes: int,
    behaviour: np.ndarray | None = None,
    *,
    seed: int = 0,
    agent: int = 0,
    ends: Collection[int] = (),
) -> dict[str, np.ndarray]:
    """Columns of a log: episodes of a behaviour in a finite MDP, in its own units.

    Args:
        env: The simulator.
        episodes: Number of episodes.
        behaviour: Chances of actions, (H, S, A), or a policy table, int (H, S); None is uniform
            over the allowed actions.
        seed: Seed; another agent gets other episodes.
        agent: The agent whose first states and episodes these are.
        ends: States in which an episode is over: nothing is written of them.
    """
    integer("episodes", episodes, 1)
    law = _law(env, behaviour)
    over = np.zeros(env.n_states, bool)
    over[list(ends)] = True
    parts = [
        _chunk(env, law, over, np.random.default_rng([seed, agent, at]), at,
               min(CHUNK, episodes - at), agent)
        for at in range(0, episodes, CHUNK)
    ]  # fmt: skip
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _law(env: FiniteMDP, behaviour: np.ndarray | None) -> np.ndarray:
    shape = (env.horizon, env.n_states, env.n_actions)
    if behaviour is None:
        return env.uniform_policy()
    given = np.asarray(behaviour)
    if given.shape == shape[:2] and given.dtype.kind in "iu":
        certain: np.ndarray = np.eye(env.n_actions)[given]
        return certain
    if given.shape != shape or not np.allclose(given.sum(axis=-1), 1.0) or (given < 0.0).any():
        raise InvalidInput(
            f"behaviour has shape {given.shape}: give action probabilities of shape (H, S, A) = "
            f"{shape} that sum to 1, or a table of actions (H, S)",
            code="bad-behaviour",
        )
    return given


def _chunk(
    env: FiniteMDP, law: np.ndarray, over: np.ndarray, rng: np.random.Generator, first: int,
    n: int, agent: int,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Episodes first … first + n − 1, sorted by episode and step."""
    low, high = env.reward_range
    moving = env.reward_on_transition
    x = _draw(rng, np.tile(env.initial_law(agent), (n, 1)))
    who = np.flatnonzero(~over[x])
    found: dict[str, list[np.ndarray]] = {}
    for h in range(env.horizon):
        here = x[who]
        a = _draw(rng, law[h, here])
        to = _draw(rng, env.P[h % len(env.P)][here, a])
        paid = env.r[h % len(env.r)][here, a]
        if moving is not None:
            paid = moving[h % len(moving)][here, a, to]
        columns = {
            "episode": first + who, "step": np.full(len(who), h + 1), "observation": here,
            "action": a, "reward": low + (high - low) * paid, "terminated": over[to],
            "next_observation": to, "probability": law[h, here, a],
        }  # fmt: skip
        for name, column in columns.items():
            found.setdefault(name, []).append(column)
        x[who] = to
        who = who[~over[to]]
    joined = {name: np.concatenate(parts) for name, parts in found.items()}
    order = np.lexsort((joined["step"], joined["episode"]))
    return {name: column[order] for name, column in joined.items()}


def _draw(rng: np.random.Generator, laws: np.ndarray) -> np.ndarray:
    """One draw from each row of `laws` (n, k)."""
    edges = np.cumsum(laws, axis=1)
    u = rng.random(len(laws)) * edges[:, -1]
    found: np.ndarray = np.minimum((edges <= u[:, None]).sum(axis=1), laws.shape[1] - 1)
    return found


def write_records(columns: Mapping[str, np.ndarray], path: str | PathLike[str]) -> None:
    """Write a log as a .parquet or .csv file; observations that are vectors as several columns."""
    try:
        import pyarrow
    except ImportError:
        raise InvalidRecord(
            'Parquet and CSV files need pyarrow: pip install "fedlsvi[data]"', code="needs-pyarrow"
        ) from None
    flat: dict[str, np.ndarray] = {}
    for name, column in columns.items():
        if column.ndim == 1:
            flat[name] = column
        else:
            flat |= {f"{name}_{i}": column[:, i] for i in range(column.shape[1])}
    table = pyarrow.table(flat)
    if Path(path).suffix == ".csv":
        from pyarrow import csv

        csv.write_csv(table, path)
    else:
        from pyarrow import parquet

        parquet.write_table(table, path)
