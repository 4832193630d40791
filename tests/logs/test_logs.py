"""Logs: twenty-odd ways to be wrong, each with its row, and the same rows from every source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from expecting import refused
from fedlsvi.envs import RandomMDP
from fedlsvi.logs import sources
from fedlsvi.logs.recording import record_episodes, write_records
from fedlsvi.logs.rows import InvalidRecord
from fedlsvi.logs.transitions import CUT, ENDED, ON
from fedlsvi.logs.world import LoggedWorld, logged_worlds, records, transitions_of

Log = dict[str, Any]


def log() -> Log:
    """Two episodes of three steps and one of two that ended: rows 1–3, 4–6 and 7–8."""
    return {
        "episode": np.array([0, 0, 0, 1, 1, 1, 5, 5]),
        "step": np.array([1, 2, 3, 1, 2, 3, 1, 2]),
        "observation": np.array([0, 1, 2, 1, 0, 3, 2, 2]),
        "action": np.array([0, 1, 1, 0, 0, 1, 1, 0]),
        "reward": np.array([0.0, 0.5, 1.0, 0.0, 0.0, 0.25, 1.0, 0.0]),
        "terminated": np.array([0, 0, 0, 0, 0, 0, 0, 1], bool),
    }


def put(name: str, row: int, value: Any) -> Callable[[Log], Log]:
    """Write a value into a row, counted from 1."""

    def change(table: Log) -> Log:
        column = table[name]
        if not isinstance(value, int | bool) or column.dtype.kind == "b":
            column = column.astype(object if isinstance(value, str | type(None)) else float)
        column[row - 1] = value
        return table | {name: column}

    return change


def without(row: int) -> Callable[[Log], Log]:
    return lambda table: {name: np.delete(column, row - 1) for name, column in table.items()}


def twice(row: int) -> Callable[[Log], Log]:
    return lambda table: {
        name: np.insert(column, row, column[row - 1]) for name, column in table.items()
    }


def lost(name: str) -> Callable[[Log], Log]:
    return lambda table: {key: column for key, column in table.items() if key != name}


def with_(**columns: Any) -> Callable[[Log], Log]:
    return lambda table: table | columns


MALFORMED: list[tuple[str, Callable[[Log], Log], str, int]] = [
    ("no action column", lost("action"), "missing-column", 0),
    ("no rows", lambda t: {k: c[:0] for k, c in t.items()}, "no-records", 0),
    ("reward is NaN", put("reward", 3, np.nan), "not-finite", 3),
    ("reward is infinite", put("reward", 4, np.inf), "not-finite", 4),
    ("reward is missing", put("reward", 2, None), "missing-value", 2),
    ("reward is a word", put("reward", 5, "high"), "not-a-number", 5),
    ("reward above the range", put("reward", 6, 1.5), "reward-outside", 6),
    ("reward below the range", put("reward", 6, -0.5), "reward-outside", 6),
    ("action is a fraction", put("action", 2, 0.5), "not-whole", 2),
    ("action too large", put("action", 7, 2), "action-outside", 7),
    ("action negative", put("action", 7, -1), "action-outside", 7),
    ("state too large", put("observation", 4, 4), "state-outside", 4),
    ("state negative", put("observation", 4, -2), "state-outside", 4),
    ("state is NaN", put("observation", 8, np.nan), "not-finite", 8),
    ("step missing", without(2), "step-missing", 2),
    ("first step missing", without(4), "step-missing", 4),
    ("first step of the log missing", without(1), "step-missing", 1),
    ("step doubled", twice(5), "step-doubled", 6),
    ("steps backward", put("step", 3, 1), "step-doubled", 3),
    ("episode comes back", put("episode", 7, 0), "step-doubled", 7),
    ("goes on after its end", put("terminated", 2, True), "row-after-end", 3),
    ("terminated is 2", put("terminated", 3, 2.0), "not-boolean", 3),
    ("longer than the horizon", with_(step=np.array([1, 2, 3, 1, 2, 3, 1, 2])), "episode-too-long",
     3),
    ("columns of different lengths", with_(reward=np.zeros(7)), "ragged-columns", 0),
    ("next observation of another state", with_(next_observation=np.array([1, 3] + [0] * 6)),
     "next-differs", 2),
    ("chance of zero", with_(probability=np.array([0.5] * 5 + [0.0] * 3)), "bad-probability", 6),
    ("a vector too short", with_(observation=np.array([[1.0, 2.0]] * 6 + [[1.0], [2.0, 3.0]],
                                                      dtype=object)), "bad-width", 7),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "code", "row"),
    [case[1:] for case in MALFORMED],
    ids=[case[0].replace(" ", "-") for case in MALFORMED],
)
def test_a_malformed_log_is_refused_with_its_row(
    change: Callable[[Log], Log], code: str, row: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the blocks are cut."""
    horizon = 2 if code == "episode-too-long" else 3
    for block in (100, 3, 1):
        monkeypatch.setattr(sources, "BLOCK", block)
        with refused(InvalidRecord, code) as caught:
            logged_worlds(change(log()), horizon=horizon, n_states=4, n_actions=2)
        assert isinstance(caught.value, InvalidRecord)
        if block == 100 or code not in ("bad-width", "ragged-columns", "missing-column"):
            assert caught.value.row == row


def test_a_file_that_is_not_there_or_not_a_table(tmp_path: Path) -> None:
    with refused(InvalidRecord, "no-file", "gone.parquet"):
        logged_worlds(tmp_path / "gone.parquet")
    with refused(InvalidRecord, "bad-file", "log.txt"):
        logged_worlds(tmp_path / "log.txt")
    (tmp_path / "log.parquet").write_bytes(b"PAR1 no more")
    with refused(InvalidRecord, "unreadable-table", "log.parquet"):
        logged_worlds(tmp_path / "log.parquet")
    with refused(InvalidRecord, "bad-data"):
        logged_worlds(7)
    with refused(InvalidRecord, "missing-column", "dose"):
        logged_worlds(log(), columns={"action": "dose"})


def everything(worlds: list[LoggedWorld]) -> list[tuple[Any, ...]]:
    """All transitions, in the order of agents, episodes and steps."""
    rows = [
        (i, *values)
        for i, seen in transitions_of(worlds)
        for values in zip(
            seen.episode.tolist(), seen.h.tolist(), seen.state.tolist(), seen.action.tolist(),
            seen.reward.tolist(), seen.following.tolist(), seen.fate.tolist(), strict=True,
        )
    ]  # fmt: skip
    return sorted(rows)


def test_transitions_by_hand() -> None:
    """Episode 5 is the third and ended; rows 3 and 6 are at the horizon, where nothing follows."""
    found = everything(logged_worlds(log()))
    assert found == [
        (0, 0, 1, 0, 0, 0.0, 1, ON), (0, 0, 2, 1, 1, 0.5, 2, ON), (0, 0, 3, 2, 1, 1.0, 0, CUT),
        (0, 1, 1, 1, 0, 0.0, 0, ON), (0, 1, 2, 0, 0, 0.0, 3, ON), (0, 1, 3, 3, 1, 0.25, 0, CUT),
        (0, 2, 1, 2, 1, 1.0, 2, ON), (0, 2, 2, 2, 0, 0.0, 0, ENDED),
    ]  # fmt: skip
    (world,) = logged_worlds(log())
    ((_, seen),) = list(transitions_of([world]))[:1]
    assert seen.per_step(3).fate.tolist() == [ON, ON, ENDED, ON, ON, ENDED, ON]
    assert world.log.cut(3) == 0
    assert world.log.cut(3, stationary=True) == 2
    (world,) = logged_worlds(log(), horizon=4)
    assert [row[-1] for row in everything([world])] == [ON, ON, CUT, ON, ON, CUT, ON, ENDED]
    assert (world.log.episodes, world.log.transitions, world.log.cut(4)) == (3, 8, 2)
    assert world.log.lengths.tolist() == [0, 1, 2]
    assert world.mean_return == pytest.approx(2.75 / 3)


@pytest.mark.parametrize("block", [1, 2, 3, 1000])
def test_every_source_and_every_cut_gives_the_same(
    block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrays, a data frame, Parquet, CSV, steps from 0, and agents in one table or in several."""
    import pandas

    env = RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1)
    logs = [record_episodes(env, 3 + m, agent=m) for m in range(2)]
    wanted = everything(logged_worlds(logs, like=env))
    monkeypatch.setattr(sources, "BLOCK", block)
    one = {name: np.concatenate([part[name] for part in logs]) for name in logs[0]}
    one["agent"] = np.repeat([3, 7], [len(part["step"]) for part in logs])
    mixed = np.argsort(np.concatenate([np.arange(len(part["step"])) for part in logs]),
                       kind="stable")  # fmt: skip
    interleaved = {name: column[mixed] for name, column in one.items()}
    write_records(interleaved, tmp_path / "log.parquet")
    write_records(one, tmp_path / "log.csv")
    write_records(logs[0], tmp_path / "a.parquet")
    write_records(logs[1], tmp_path / "b.csv")
    for data in (
        logs, one, interleaved, pandas.DataFrame(interleaved), tmp_path / "log.parquet",
        str(tmp_path / "log.csv"), [tmp_path / "a.parquet", tmp_path / "b.csv"],
        one | {"step": one["step"] - 1},
    ):  # fmt: skip
        assert everything(logged_worlds(data, like=env)) == wanted
    world = records(file=str(tmp_path / "log.parquet"), key=7, n_states=4, n_actions=3)
    assert [row[1:] for row in everything([world])] == [row[1:] for row in wanted if row[0] == 1]
    again = world.spec()
    assert again["name"] == "records"
    assert everything([records(**again["params"])]) == everything([world])
    with refused(InvalidRecord, "no-agent", "5"):
        records(file=str(tmp_path / "log.parquet"), key=5)


def test_observations_of_several_columns(tmp_path: Path) -> None:
    """observation_0, observation_1 and a list column are the same vectors."""
    seen = np.random.default_rng(0).random((8, 12))
    table = log() | {"observation": seen}
    write_records(table, tmp_path / "wide.parquet")
    import pyarrow
    from pyarrow import parquet

    lists = log() | {"observation": pyarrow.array(seen.tolist())}
    parquet.write_table(pyarrow.table(lists), tmp_path / "lists.parquet")
    wanted = everything(logged_worlds(table))
    for name in ("wide", "lists"):
        (world,) = logged_worlds(tmp_path / f"{name}.parquet")
        assert world.state_dim == 12
        assert everything([world]) == wanted


@pytest.mark.filterwarnings("ignore::UserWarning")  # Minari asks for authors and permalinks
def test_a_minari_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded from FrozenLake; the observation after a cut is known there."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    gymnasium, minari = pytest.importorskip("gymnasium"), pytest.importorskip("minari")
    lake = gymnasium.make("FrozenLake-v1", max_episode_steps=4)
    rng, seen, buffers = np.random.default_rng(0), [], []
    for episode in range(6):
        x, _ = lake.reset(seed=episode)
        states, actions, rewards, ends, cuts = [x], [], [], [False], [False]
        while not (ends[-1] or cuts[-1]):
            a = int(rng.integers(4))
            y, r, ended, cut, _ = lake.step(a)
            seen.append((episode, x, a, float(r), 0 if ended else y, ENDED if ended else ON))
            x = y
            for column, value in zip(
                (states, actions, rewards, ends, cuts), (y, a, r, ended, cut), strict=True
            ):
                column.append(value)
        buffers.append(
            minari.data_collector.EpisodeBuffer(
                id=episode, observations=np.array(states), actions=np.array(actions),
                rewards=rewards, terminations=ends[1:], truncations=cuts[1:], infos=None,
            )
        )  # fmt: skip
    recorded = minari.create_dataset_from_buffers(
        "lake/random-v0", buffers, observation_space=lake.observation_space,
        action_space=lake.action_space, algorithm_name="random",
    )  # fmt: skip
    for data in (recorded, "minari:lake/random-v0"):
        (world,) = logged_worlds(data, horizon=9, n_states=16, n_actions=4)
        found = everything([world])
        assert [(e, x, a, r, y, fate) for _, e, _, x, a, r, y, fate in found] == seen
    with refused(InvalidRecord, "no-file", "lake/none-v0"):
        logged_worlds("minari:lake/none-v0")


def test_a_recorded_behaviour_has_its_frequencies_and_values() -> None:
    """20,000 episodes: actions as often as they should be, returns around V^π."""
    env = RandomMDP(n_states=3, n_actions=2, horizon=3, seed=0)
    law = np.random.default_rng(1).dirichlet([1.0, 2.0], (3, 3))
    found = record_episodes(env, 20_000, law)
    for h in range(3):
        for x in range(3):
            here = (found["step"] == h + 1) & (found["observation"] == x)
            assert found["action"][here].mean() == pytest.approx(law[h, x, 1], abs=0.03)
    (world,) = logged_worlds(found, like=env)
    value = float(env.initial_law(0) @ env.policy_values(law)[0])
    assert world.mean_return == pytest.approx(value, abs=0.02)
