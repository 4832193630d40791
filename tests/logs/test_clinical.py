"""Clinical tables become episodes: literally, in every format, with bins that all sites share."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from expecting import refused
from fedlsvi import PEVI
from fedlsvi.cli import main
from fedlsvi.envs import logged_worlds
from fedlsvi.errors import InvalidInput, InvalidSetting
from fedlsvi.logs.clinical import episodes
from fedlsvi.logs.histograms import with_edges
from fedlsvi.logs.invalid_record import InvalidRecord
from fedlsvi.logs.recipe import TAKES, Recipe
from fedlsvi.policy import Policy
from fedlsvi.remote.mail.study import Study, sizes_of
from fedlsvi.storage import settings_file
from literal_clinical import literal_episodes
from mailing import kits
from notebooks import ROOT

TABLE: dict[str, Any] = {
    "hours": 4, "steps": 3, "tables": {"ward": {"stay": "stay", "time": "t"}},
    "stays": {"stay": "stay", "outcome": "died", "rewards": {"yes": 0, "no": 1}},
    "states": [
        {"name": "lactate", "take": "max", "missing": 1.0, "range": [0, 30], "edges": [2, 4]},
        {"name": "sofa", "take": "last", "missing": 0.0, "edges": [5]},
    ],
    "actions": [
        {"name": "fluids", "take": "sum", "edges": [1, 500]},
        {"name": "drug", "take": "max", "hold": True, "edges": [0.01], "names": ["no", "yes"]},
    ],
}  # fmt: skip
SMALL = {"states": TABLE["states"][:1], "actions": TABLE["actions"][:1]}
COLUMNS = ("lactate", "sofa", "fluids", "drug")


def recipe(**changes: Any) -> Recipe:
    return Recipe.of(TABLE | changes)


def messy(seed: int, stays: int = 40) -> tuple[pandas.DataFrame, dict[str, Any]]:
    """A table with gaps, in any order, and the same stay by stay."""
    rng, rows, literal = np.random.default_rng(seed), [], {}
    for i in range(stays):
        name, n = f"S{i}", int(rng.integers(1, 9))
        hours = np.sort(rng.integers(0, 40, n)) / 2.0
        hours -= hours[0]
        own = []
        for t in hours:
            given = [round(float(v), 2) if rng.random() < 0.5 else None
                     for v in rng.uniform(0, 1, 4) * (8, 9, 700, 0.04)]  # fmt: skip
            own.append({"t": t, **dict(zip(COLUMNS, given, strict=True))})
        died = "Yes " if rng.random() < 0.5 else "no"
        rows += [{"stay": name, "died": died, **row} for row in own]
        if hours[-1] >= 4:
            literal[name] = (float(died == "no"), own)
    table = pandas.DataFrame(rows)
    table["t"] += rng.integers(0, 100, stays)[table["stay"].str[1:].astype(int)]
    # of two rows at the same time the order in the table counts, so it stays within a stay
    order = np.argsort(rng.random(stays)[table["stay"].str[1:].astype(int)], kind="stable")
    return table.iloc[order].reset_index(drop=True), literal


@pytest.mark.parametrize("dated", [False, True])
@pytest.mark.parametrize("take", TAKES)
def test_a_table_becomes_the_episodes_of_a_literal_reading(take: str, dated: bool) -> None:
    states = [own | {"take": take} for own in TABLE["states"]]
    made = recipe(states=states)
    assert Recipe.of(made.table()) == made
    for seed in range(3):
        table, literal = messy(seed)
        if dated:
            since = pandas.to_timedelta(table["t"], unit="h")
            table["t"] = (pandas.Timestamp("2024-02-28 22:30") + since).astype(str)
        found = episodes(made, table)
        rows = pandas.DataFrame(found.columns).to_dict("records")
        wanted = literal_episodes(made, literal)
        by = lambda row: (row["episode"], row["step"])  # noqa: E731
        assert sorted(rows, key=by) == sorted(wanted, key=by)
        assert found.kept == len(literal)
        assert sum(found.left_out.values()) == table["stay"].nunique() - len(literal)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_three_formats_of_the_same_patients_are_the_same_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    example: Any = importlib.import_module("examples.clinic.run")
    table = example.patients(40, 3)
    given = Recipe.of(settings_file.read(example.HERE / "recipe.toml"))
    logs = []
    for (write, _), layout in zip(example.SITES.values(), example.layouts(), strict=True):
        write(table, tmp_path / write.__name__)
        opened = episodes(given, tmp_path / write.__name__, layout)
        learner = PEVI(1, exchange="one-trip")
        worlds = logged_worlds(opened.columns, n_states=given.n_states, n_actions=1)
        run = learner.learn(worlds, progress=False)
        closed = with_edges(given, run.gram_packed, run.w)
        logs.append((closed.variables, episodes(closed, tmp_path / write.__name__, layout)))
    for edges, log in logs[1:]:
        assert [own.edges for own in edges] == [own.edges for own in logs[0][0]]
        for name, column in logs[0][1].columns.items():
            assert log.columns[name].tolist() == column.tolist(), name
        assert log.left_out == logs[0][1].left_out


def test_the_example_learns_and_its_interval_holds_the_truth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    example: Any = importlib.import_module("examples.clinic.run")
    found = example.main(tmp_path)
    learned = found["survival under the learned policy, simulated"]
    assert learned > found["survival under the clinicians, simulated"] + 0.1
    assert found["  at least"] < learned < found["  at most"]


def open_recipe(**changes: Any) -> Recipe:
    """Quartiles of lactate, and two classes of fluids besides nothing."""
    lactate = {"name": "lactate", "take": "max", "missing": 1.0, "range": [0, 10], "quantiles": 4}
    fluids = {"name": "fluids", "take": "sum", "range": [1, 2000], "quantiles": 2}
    return recipe(states=[lactate], actions=[fluids], **changes)


def sites(n: int = 3) -> list[pandas.DataFrame]:
    return [messy(seed, 400)[0].drop(columns=["sofa", "drug"]) for seed in range(n)]


def learn(tables: list[pandas.DataFrame], **settings: Any) -> Recipe:
    own = open_recipe()
    logs = [episodes(own, table).columns for table in tables]
    worlds = logged_worlds(logs, horizon=1, n_states=own.n_states, n_actions=1)
    learner = PEVI(len(tables), exchange="one-trip", **settings)
    run = learner.learn(worlds, progress=False)
    return with_edges(own, run.gram_packed, run.w)


def test_bins_of_all_sites_are_quantiles_of_all_values() -> None:
    """Exact, secure and pooled agree to the bit, and with quantiles up to a cell; noise moves them
    by little."""
    tables = sites()
    exact, secure = (learn(tables, aggregation=how) for how in ("exact", "secure"))
    values = [episodes(open_recipe(), table).columns["observation"] for table in tables]
    cells = np.concatenate(values)
    assert exact == secure
    first, second = exact.variables
    assert first.edges == pytest.approx(
        np.quantile((cells[cells < 100] + 0.5) / 10.0, [0.25, 0.5, 0.75]), abs=0.1
    )
    assert second.edges is not None
    assert second.edges[0] == 1.0
    assert second.edges[1:] == pytest.approx(
        [1 + (np.median(cells[cells >= 100]) - 100 + 0.5) * 19.99], abs=20.0
    )
    privacy = {"epsilon": 10.0, "delta": 1e-6, "unit": "user", "episodes_per_user": 2}
    noisy = learn(tables, aggregation="secure", privacy=privacy)
    assert noisy.states[0].edges == pytest.approx(first.edges, abs=1.0)


def test_a_stay_counts_once_for_each_variable() -> None:
    table = sites(1)[0]
    log = episodes(open_recipe(), table).columns
    who = pandas.Series(log["patient"])
    assert who.groupby([who, log["observation"] >= 100]).size().max() == 1
    assert log["patient"].tolist() == [name.split()[0] for name in log["episode"]]


def test_by_mail_from_tables_to_a_policy_that_keeps_to_the_mask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Histograms first, then the study of the recipe that follows from them; both to the bit what
    one process makes of the same tables."""
    monkeypatch.chdir(tmp_path)

    def typed(line: str, *more: str) -> Any:
        capsys.readouterr()
        assert main([*line.split()[1:], *more, "--format", "json"]) == 0
        return json.loads(capsys.readouterr().out)

    names, tables = ("east", "north", "south"), sites()
    given = open_recipe(forbid=[{"when": {"lactate": [2, 3]}, "actions": {"fluids": 0}}])
    Path("recipe.toml").write_text(settings_file.dump(given.table()))
    for name, table in zip(names, tables, strict=True):
        typed(f"fedlsvi study key {name} --kit {name}")
        table.to_csv(tmp_path / name / "ward.csv", index=False)
    keys = [word for name in names for word in ("--site", f"{name}/{name}.site")]

    def together(study: str, recipe: str, out: str) -> dict[str, Any]:
        typed(f"fedlsvi study init --name ward --episodes 500 --recipe {recipe} --out {study}",
              *keys)  # fmt: skip
        for name in names:
            typed(f"fedlsvi contribute {study} --kit {name} --keys --out {name}.keys")
        for name in names:
            data = f"--data {name}/ward.csv --yes --out {name}.contribution"
            typed(f"fedlsvi contribute {study} --kit {name} {data}", *(f"{n}.keys" for n in names))
        files = [f"{name}.contribution" for name in names]
        found: dict[str, Any] = typed(f"fedlsvi merge {study} --out {out}", *files)
        typed(f"fedlsvi attest {out}")
        typed(f"fedlsvi recheck {out}/statement.json", *files)
        return found

    bins = together("bins.toml", "recipe.toml", "runs/bins")
    closed = Recipe.of(settings_file.read(bins["recipe"]))
    assert closed.variables == learn(tables, aggregation="secure").variables
    together("study.toml", bins["recipe"], "runs/ward")
    policy = Policy.load("runs/ward/policy")
    mask = closed.mask
    assert mask is not None
    assert not mask.all()
    logs = [episodes(closed, table).columns for table in tables]
    worlds = logged_worlds(logs, horizon=3, n_states=4, action_names=closed.action_names)
    run = PEVI(3, aggregation="exact").learn(worlds, progress=False)
    for h in range(1, 4):
        chosen = [policy.action(x, h) for x in range(4)]
        assert mask[np.arange(4), chosen].all()
        assert chosen == run.policy.table[h - 1].tolist()
    assert "bins of lactate" in Path("runs/ward/model-card.md").read_text()


def test_the_command_writes_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, literal = messy(0)
    table.to_csv(tmp_path / "ward.csv", index=False, sep=";", decimal=",")
    (tmp_path / "recipe.toml").write_text(settings_file.dump(recipe().table()))
    out = tmp_path / "log.parquet"
    given = [str(tmp_path / name) for name in ("recipe.toml", "ward.csv")]
    assert main(["episodes", *given, "--out", str(out), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["stays"] == len(literal)
    world = logged_worlds(str(out), n_actions=6)[0]
    assert world.log.episodes == len(literal)
    assert world.log.transitions == len(episodes(recipe(), table).columns["step"])


def two_rows(**changes: Any) -> pandas.DataFrame:
    rows = {"stay": ["a", "a"], "t": [0, 5], "died": ["no", "no"], "lactate": [1.0, 5.0],
            "sofa": [1, 2], "fluids": [0, 10], "drug": [0.0, 0.0]}  # fmt: skip
    return pandas.DataFrame(rows | changes)


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"died": ["no", "yes"]}, "stay-differs", "stay a"),
        ({"died": ["gone", "gone"]}, "unknown-outcome", "gone"),
        ({"died": [None, None]}, "no-records", "without an outcome"),
        ({"t": [0, 1]}, "no-records", "within 4 hours"),
        ({"t": ["2024-05-01", "yesterday"]}, "not-a-time", "yesterday"),
        ({"lactate": [80.0, 90.0]}, "other-unit", "lactate"),
    ],
)
def test_tables_that_cannot_be_read(changes: dict[str, Any], code: str, said: str) -> None:
    with refused(InvalidRecord, code, said):
        episodes(recipe(), two_rows(**changes))


def test_what_is_left_out_is_counted() -> None:
    table = two_rows(lactate=["pending", 5.0], stay=["a", "a"])
    other = two_rows(stay=["b", None], t=[0, 9])
    found = episodes(recipe(), pandas.concat([table, other]))
    assert found.kept == 1
    assert sorted(found.left_out.values()) == [1, 1, 1]  # a value, a row, a stay
    assert not any("pending" in why for why in found.left_out)  # sites keep logs of what is said
    no_default = [TABLE["states"][0] | {"missing": None}, TABLE["states"][1]]
    with refused(InvalidRecord, "missing-value", "lactate"):
        episodes(recipe(states=no_default), table)
    with refused(InvalidRecord, "missing-column", "drug", "fluids"):
        episodes(recipe(), table.drop(columns="drug"))
    with refused(InvalidRecord, "no-file", "ward"):
        episodes(recipe(), ROOT)


def test_what_was_given_against_the_recipe_is_left_out_whole() -> None:
    """The mask is one of states: by hand, high lactate must get fluids."""
    rule = [{"when": {"lactate": 2}, "actions": {"fluids": 0, "drug": "no"}}]
    table = pandas.concat([two_rows(lactate=[9.0, 9.0], fluids=[0, 0]),
                           two_rows(stay=["b", "b"])])  # fmt: skip
    found = episodes(recipe(forbid=rule), table)
    assert found.columns["episode"].tolist() == ["b"]
    allowed = found.columns["allowed"]
    assert allowed.shape == (1, 6)
    assert allowed.all()  # lactate was low
    mask = recipe(forbid=rule).mask
    assert mask is not None
    assert np.argwhere(~mask).tolist() == [[4, 0], [5, 0]]


def test_a_layout_finds_and_scales_columns() -> None:
    table = two_rows().rename(columns={"lactate": "LAC", "stay": "encounter"})
    table["LAC"] *= 9.0
    layout = {"tables": {"icu": {"stay": "encounter", "time": "t"}},
              "stays": {"table": "icu", "stay": "encounter"},
              "columns": {"lactate": {"table": "icu", "column": "LAC", "scale": 1.0 / 9.0},
                          **{n: {"table": "icu"} for n in ("sofa", "fluids", "drug")}}}  # fmt: skip
    same = episodes(recipe(), {"icu": table}, layout).columns
    for name, column in episodes(recipe(), two_rows()).columns.items():
        assert same[name].tolist() == column.tolist()


@pytest.mark.parametrize(
    "changes",
    [
        {"hours": 0}, {"steps": 0}, {"tables": {}}, {"states": []},
        {"stays": {"stay": "stay"}}, {"surplus": 1},
        {"states": [SMALL["states"][0] | {"quantiles": 4}]},
        {"states": [SMALL["states"][0] | {"take": "mode"}]},
        {"states": [SMALL["states"][0] | {"edges": [4, 2]}]},
        {"states": [SMALL["states"][0] | {"range": [4, 2]}]},
        {"states": [SMALL["states"][0], SMALL["states"][0]]},
        {"states": [SMALL["states"][0] | {"table": "other"}]},
        {"actions": [SMALL["actions"][0] | {"names": ["one"]}]},
        {"actions": [SMALL["actions"][0] | {"hold": True}]},
        {"actions": [{"name": "fluids", "quantiles": 3}]},
        {"forbid": [{"when": {}, "actions": {}}]},
        {"forbid": [{"when": {"lactate": 7}, "actions": {}}]},
        {"tables": {"ward": {"stay": "stay", "time": "t", "name": "what"}}},
        {"tables": {"../ward": {"stay": "stay", "time": "t"}}}, {"tables": 3}, {"actions": 0.5},
        {"states": [SMALL["states"][0] | {"name": ["lactate"]}]},
        {"actions": [TABLE["actions"][1] | {"names": [1, 2]}]}, {"forbid": [7]},
    ],
)  # fmt: skip
def test_a_recipe_that_cannot_be(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        recipe(**changes)
    assert issubclass(InvalidSetting, InvalidInput)


def test_the_histograms_of_a_private_study_are_private_for_whole_stays(tmp_path: Path) -> None:
    """ε of a single episode would be that of one of a stay's variables."""
    table: dict[str, Any] = {
        "name": "ward", "episodes": 500, "sites": kits(tmp_path), "recipe": open_recipe().table(),
    }  # fmt: skip
    table |= sizes_of(open_recipe())
    privacy = {"epsilon": 1.0, "delta": 1e-6}
    assert len(open_recipe().open) == 2
    for unit, code in (
        ({}, "bad-episodes_per_user"),
        ({"unit": "user", "episodes_per_user": 2}, ""),
    ):
        given = table | {"settings": {"aggregation": "secure", "privacy": privacy | unit}}
        if not code:
            assert Study.of(given).open
            continue
        with refused(InvalidSetting, code):
            Study.of(given)
