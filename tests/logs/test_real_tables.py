"""Tables as hospitals have them: unsorted, with words, categories, yes and no, dates; the same log
as one of numbers, or a sentence that says what to do."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import fedlsvi
from expecting import refused
from fedlsvi.envs import RandomMDP, logged_worlds, record_episodes
from fedlsvi.errors import FedLSVIWarning
from fedlsvi.logs import order, sources
from fedlsvi.logs.rows import InvalidRecord
from fedlsvi.logs.world import LoggedWorld, records, transitions_of

TREATMENTS = ["none", "low", "high"]
COLUMNS = {"episode": "patient", "step": "when", "action": "dose", "terminated": "died",
           "agent": "ward"}  # fmt: skip


def recorded(episodes: int = 12, seed: int = 0) -> dict[str, np.ndarray]:
    env = RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1)
    log = record_episodes(env, episodes, seed=seed, ends=[1])
    return log | {"agent": log["episode"] % 2}


def ward_table(log: dict[str, np.ndarray]) -> pandas.DataFrame:
    """The same as a clinic writes it down."""
    table = pandas.DataFrame(log)
    table["patient"] = [f"P{number}" for number in log["episode"]]
    table["when"] = pandas.Timestamp("2024-02-28") + pandas.to_timedelta(log["step"] * 9, unit="h")
    table["dose"] = np.array(TREATMENTS)[log["action"]]
    table["died"] = np.where(log["terminated"], "Yes", "no")
    table["ward"] = np.where(log["agent"] == 0, "north", "south")
    return table.drop(columns=["episode", "step", "action", "terminated", "agent"])


def everything(worlds: list[LoggedWorld]) -> list[tuple[Any, ...]]:
    """All transitions without the numbers of episodes, in any order."""
    return sorted(
        (i, *values)
        for i, seen in transitions_of(worlds)
        for values in zip(
            seen.h.tolist(), seen.state.tolist(), seen.action.tolist(), seen.reward.tolist(),
            seen.following.tolist(), seen.fate.tolist(), strict=True,
        )
    )  # fmt: skip


@pytest.mark.parametrize("block", [1, 7, 1000])
@pytest.mark.parametrize("kind", ["frame", "categories", "csv", "parquet", "dictionary"])
def test_a_table_of_words_is_the_log_of_numbers(
    kind: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "BLOCK", block)
    log = recorded()
    table, data = ward_table(log), Any
    names = TREATMENTS if kind == "categories" else sorted(TREATMENTS)
    numbers = np.array([names.index(name) for name in TREATMENTS])
    wanted = everything(logged_worlds(log | {"action": numbers[log["action"]]}))
    if kind in ("categories", "dictionary"):
        table["dose"] = pandas.Categorical(table["dose"], categories=TREATMENTS)
        table["ward"] = table["ward"].astype("category")
    data = table
    if kind == "csv":
        table.to_csv(data := tmp_path / "log.csv", index=False)
    elif kind in ("parquet", "dictionary"):
        table.to_parquet(data := tmp_path / "log.parquet", index=False)
    worlds = logged_worlds(data, columns=COLUMNS)
    assert [world.key for world in worlds] == ["north", "south"]
    assert all(world.action_names == names for world in worlds)
    assert everything(worlds) == wanted
    if kind != "frame" and kind != "categories":
        again = [records(**world.spec()["params"]) for world in worlds]
        assert everything(again) == wanted
        assert [one.fingerprint for one in again] == [one.fingerprint for one in worlds]


@pytest.mark.parametrize("dated", [False, True])
@pytest.mark.parametrize("kind", ["arrays", "csv"])
def test_rows_in_any_order_are_sorted(kind: str, dated: bool, tmp_path: Path) -> None:
    """And a warning says so, at the line that gave the log."""
    log = recorded()
    wanted, shuffled = everything(logged_worlds(log)), pandas.DataFrame(log)
    if dated:
        shuffled["step"] = [datetime(2024, 1, 1) + timedelta(days=int(h)) for h in log["step"]]
    shuffled = shuffled.sample(frac=1.0, random_state=3)
    data: Any = shuffled
    if kind == "csv":
        shuffled.to_csv(data := tmp_path / "log.csv", index=False)
    with pytest.warns(FedLSVIWarning, match="sorted") as caught:
        worlds = logged_worlds(data)
    assert caught[0].filename == __file__
    assert everything(worlds) == wanted
    assert everything([pickle.loads(pickle.dumps(world)) for world in worlds[:1]]) == [
        row for row in wanted if row[0] == 0
    ]


def test_a_table_by_steps_is_sorted_within_its_agents() -> None:
    """All first steps, then all second ones: as many tables are exported."""
    log = recorded()
    by_step = np.lexsort((log["episode"], log["step"]))
    with pytest.warns(FedLSVIWarning, match="sorted"):
        worlds = logged_worlds({name: column[by_step] for name, column in log.items()})
    assert everything(worlds) == everything(logged_worlds(log))


def test_sorting_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong besides is refused, with its row in the table as it was given."""
    log = {name: column for name, column in recorded().items() if name != "agent"}
    ends = [int(np.flatnonzero(log["episode"] == e)[-1]) for e in np.unique(log["episode"])]
    assert ends[1] - ends[0] == 3
    gap = {name: np.delete(column, ends[0] + 2) for name, column in log.items()}
    with refused(InvalidRecord, "step-missing", "step 2 of episode"):
        logged_worlds({name: column[::-1] for name, column in gap.items()})
    twice = {name: np.append(column, column[0]) for name, column in log.items()}
    with refused(InvalidRecord, "step-doubled") as caught:
        logged_worlds(twice)
    assert caught.value.row == len(log["step"]) + 1  # type: ignore[attr-defined]
    # two batches that both begin with episode 0 are no one order
    doubled = {name: np.concatenate([column, column]) for name, column in log.items()}
    with refused(InvalidRecord, "step-doubled"):
        logged_worlds(doubled)
    monkeypatch.setattr(order, "MOST_ROWS", 5)
    with refused(InvalidRecord, "episode-disorder", "5 rows"):
        logged_worlds({name: column[::-1] for name, column in log.items()})


def test_times_that_tie_or_are_no_times_are_refused() -> None:
    log = recorded()
    when = np.datetime64("2024-01-01") + log["step"]
    assert everything(logged_worlds(log | {"step": when})) == everything(logged_worlds(log))
    zoned = np.array([datetime(2024, 1, h, tzinfo=UTC) for h in log["step"]], dtype=object)
    assert everything(logged_worlds(log | {"step": zoned})) == everything(logged_worlds(log))
    texts = np.array([f"2024-01-0{h} 10:30" for h in log["step"]])
    assert everything(logged_worlds(log | {"step": texts})) == everything(logged_worlds(log))
    tied = when.copy()
    tied[1] = tied[0]
    with refused(InvalidRecord, "step-doubled", "2024-01-02"):
        logged_worlds(log | {"step": tied})
    with refused(InvalidRecord, "not-a-number", "soon"):
        logged_worlds(log | {"step": np.array(["soon"] * len(when))})
    lost = when.copy()
    lost[4] = np.datetime64("NaT")
    with refused(InvalidRecord, "missing-value") as caught:
        logged_worlds(log | {"step": lost})
    assert caught.value.row == 5  # type: ignore[attr-defined]
    for name in ("reward", "action"):  # a date is only an order
        with refused(InvalidRecord, "actions-unnamed" if name == "action" else "not-a-number"):
            logged_worlds(log | {name: when})


def test_ids_of_any_kind() -> None:
    log = recorded()
    wanted = everything(logged_worlds(log))
    for ids in (
        [f"case-{e}" for e in log["episode"]],
        [("case", int(e)) for e in log["episode"]],
        [datetime(2024, 1, 1) + timedelta(days=int(e)) for e in log["episode"]],
    ):
        column = np.empty(len(ids), dtype=object)
        column[:] = ids
        assert everything(logged_worlds(log | {"episode": column})) == wanted
    named = log | {"episode": np.array([f"P{e}" for e in log["episode"]])}
    second = int(np.flatnonzero(log["step"] == 3)[0]) - 1
    cut = {name: np.delete(column, second) for name, column in named.items()}
    with refused(InvalidRecord, "step-missing", "episode P"):  # as the log calls it
        logged_worlds(cut)
    column[2] = None
    with refused(InvalidRecord, "missing-value", "episode"):
        logged_worlds(log | {"episode": column})
    column[2] = [1]
    with refused(InvalidRecord, "bad-id"):
        logged_worlds(log | {"episode": column})


@pytest.mark.parametrize("words", [("yes", "no"), ("TRUE", "False"), ("y", "n"), ("1", "0")])
def test_yes_and_no(words: tuple[str, str]) -> None:
    log = recorded()
    ended, paid = log["terminated"], log["reward"] > 0.5
    wanted = everything(logged_worlds(log | {"reward": paid}))
    said = {"terminated": np.where(ended, *words), "reward": np.where(paid, *words)}
    assert everything(logged_worlds(log | said)) == wanted
    with refused(InvalidRecord, "not-a-number", "maybe"):
        logged_worlds(log | {"terminated": np.where(ended, "maybe", "no")})


def test_names_of_actions_are_the_same_at_every_agent() -> None:
    """One log lacks a word; the numbers are those of all words together."""
    log = {name: column for name, column in recorded().items() if name != "agent"}
    words = np.array(TREATMENTS)[log["action"]]
    without = np.isin(log["episode"], log["episode"][log["action"] == 2], invert=True)
    assert without.any()
    few = {name: column[without] for name, column in (log | {"action": words}).items()}
    worlds = logged_worlds([log | {"action": words}, few])
    assert worlds[1].action_names == worlds[0].action_names == ["high", "low", "none"]
    (alone,) = logged_worlds(few, action_names=TREATMENTS)
    assert alone.n_actions == 3
    actions = np.concatenate([seen.action for _, seen in transitions_of([alone])])
    assert sorted(actions.tolist()) == sorted(log["action"][without].tolist())
    frames = [pandas.DataFrame(log | {"action": pandas.Categorical(words, categories=own)})
              for own in (TREATMENTS, TREATMENTS[::-1])]  # fmt: skip
    with refused(InvalidRecord, "actions-disagree"):
        logged_worlds(frames)
    for given, code in (
        ({"action_names": ["none", "low"]}, "action-outside"),
        ({"action_names": ["none", "low", "low"]}, "bad-action_names"),
        ({"action_names": "none"}, "bad-action_names"),
        ({"action_names": TREATMENTS, "n_actions": 4}, "bad-action_names"),
        ({"n_actions": 4}, "actions-unnamed"),
        ({"like": RandomMDP(n_states=4, n_actions=3, horizon=3)}, "actions-unnamed"),
    ):
        with refused(InvalidRecord, code):
            logged_worlds(log | {"action": words}, **given)  # type: ignore[arg-type]
    with refused(InvalidRecord, "actions-mixed"):
        logged_worlds([log, log | {"action": words}])
    numbers = np.array(["1", "2", "10"])[log["action"]]  # in the order of numbers
    assert logged_worlds(log | {"action": numbers})[0].action_names == ["1", "2", "10"]


def test_a_run_knows_the_names_of_its_actions(tmp_path: Path) -> None:
    table = ward_table(recorded(40))
    run = fedlsvi.offline(table, columns=COLUMNS, folder=tmp_path / "run", progress=False)
    assert run.policy.action_names == ["high", "low", "none"]
    assert "none:" in run.policy._repr_html_() or "low:" in run.policy._repr_html_()
    run.policy.save(tmp_path / "policy")
    for policy in (
        fedlsvi.load(tmp_path / "run", env=logged_worlds(table, columns=COLUMNS)).policy,
        fedlsvi.policy.Policy.load(tmp_path / "policy"),
    ):
        assert policy.action_names == ["high", "low", "none"]
    run.report()
    assert "0 = high, 1 = low, 2 = none" in (tmp_path / "run" / "report.html").read_text()


def test_actions_that_are_counted_from_one() -> None:
    log = recorded()
    later = log | {"action": log["action"] + 1}
    with pytest.warns(FedLSVIWarning, match="numbered from 1 to 3") as caught:
        (world, _) = logged_worlds(later)
    assert caught[0].filename == __file__
    assert world.n_actions == 4
    assert logged_worlds(later, n_actions=4)[0].n_actions == 4  # whoever says so knows
    with refused(InvalidRecord, "action-outside"):
        logged_worlds(later, n_actions=3)
