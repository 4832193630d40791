"""A clinical table as episodes, by a recipe (`logs.recipe`): stays cut into steps of some hours.

    window      0 │ 1 │ 2 │ … │ n          of recipe.hours each, from the start of the stay
    step          │ 1 │ 2 │ … │ n

The policy decides at the beginning of a window on what was seen until then: the state of step j is
what was measured in window j − 1, or the last value before it, and its action is what was given in
window j. The first window is only observed. The reward is that of the outcome, at the last step.

Whatever has to be left out is counted: nothing disappears silently.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from fedlsvi.checks import needs_pandas, plural
from fedlsvi.logs.invalid_record import InvalidRecord
from fedlsvi.logs.labels import FLAGS
from fedlsvi.logs.recipe import Recipe, Variable

FORMATS = (".parquet", ".csv")


@dataclass(frozen=True)
class Episodes:
    """A log, and what became of the tables.

    Attributes:
        columns: The columns of the log.
        kept: Stays that are in it.
        left_out: Why stays, rows or values are not → how many.
    """

    columns: dict[str, np.ndarray]
    kept: int
    left_out: dict[str, int]

    def lines(self) -> list[str]:
        """For people."""
        found = [f"{plural(self.kept, 'stay')}, {plural(len(self.columns['step']), 'row')}"]
        return found + [f"left out: {n:,} {why}" for why, n in self.left_out.items()]


@dataclass(frozen=True)
class Stays:
    """n stays with W windows at most.

    Attributes:
        ids: (n,) what they are called.
        patients: (n,) whose they are; None where nobody says.
        rewards: (n,) of their outcomes.
        steps: (n,) steps of each.
        values: Variable → (n, W + 1) values of the windows, from what was before the first one on;
            NaN where there is none.
        measured: The same without what was carried on.
    """

    ids: np.ndarray
    patients: np.ndarray | None
    rewards: np.ndarray
    steps: np.ndarray
    values: dict[str, np.ndarray]
    measured: dict[str, np.ndarray]
    left_out: Counter[str]


def episodes(recipe: Recipe, data: Any, layout: Mapping[str, Any] | None = None) -> Episodes:
    """The episodes in some tables; of an open recipe, one value of each stay and variable
    (`logs.histograms`).

    Args:
        recipe: How they are made.
        data: A folder with the tables as Parquet or CSV files, one such file, or tables by name: a
            path or a data frame each.
        layout: Where things are in these tables, if they look different; see `logs.recipe`.
    """
    recipe = recipe if layout is None else recipe.laid_out(layout)
    if recipe.open:
        from fedlsvi.logs.histograms import samples

        return samples(recipe, stays_of(recipe, data))
    stays = stays_of(recipe, data)
    who, step = _steps(stays.steps)
    states = np.column_stack([_seen(stays, own, who, step) for own in recipe.states])
    given = [stays.values[own.name][who, step + 1] for own in recipe.actions]
    state, action = recipe.bins.states(states), recipe.doses.states(np.column_stack(given))
    left = Counter(stays.left_out)
    if recipe.mask is not None:
        bad = np.unique(who[~recipe.mask[state, action]])
        keep = ~np.isin(who, bad)
        who, step, state, action = (part[keep] for part in (who, step, state, action))
        left["stays in which something was given that is forbidden"] = len(bad)
    last = step == stays.steps[who]
    log = {
        "episode": stays.ids[who], "step": step, "observation": state, "action": action,
        "reward": np.where(last, stays.rewards[who], 0.0), "terminated": last,
    }  # fmt: skip
    if stays.patients is not None:
        log["patient"] = stays.patients[who]
    if recipe.mask is not None:
        log["allowed"] = recipe.mask[state]
    return Episodes(log, len(np.unique(who)), {why: n for why, n in left.items() if n})


def stays_of(recipe: Recipe, data: Any) -> Stays:
    """The windows of all stays that have an outcome and last for more than one of them."""
    pandas, left = needs_pandas(), Counter[str]()
    tables = _Tables(recipe, data)
    about = recipe.stays
    kinds = [name for name in ("outcome", "patient", "start") if getattr(about, name)]
    table = tables.read(about.table, [about.stay, *(getattr(about, kind) for kind in kinds)])
    table.columns = ["stay", *kinds]
    table["stay"] = _ids(table["stay"])
    table = table[table["stay"].notna()]
    begun = None
    if "start" in kinds:
        table["start"], begun = _hours(table["start"], about.table)
    grouped = table.groupby("stay", sort=False)
    for kind in kinds:
        apart = grouped[kind].nunique() > 1
        if apart.any():
            raise InvalidRecord(
                f"stay {apart.idxmax()} has two different values of {getattr(about, kind)} in "
                f"{about.table}: give each stay one",
                code="stay-differs",
            )
    stays = grouped.first()
    rewards = _rewards(recipe, stays["outcome"])
    left["stays without an outcome"] = int(np.isnan(rewards).sum())
    place = pandas.Series(np.arange(len(stays)), stays.index)

    timed = {}
    for name, rows_of in recipe.tables.items():
        wanted = [v for v in recipe.variables if v.table == name]
        listed = (
            [rows_of.name, rows_of.value]
            if rows_of.name
            else [c for v in wanted for c in v.columns]
        )
        read = tables.read(name, list(dict.fromkeys([rows_of.stay, rows_of.time, *listed])))
        hours, dated = _hours(read[rows_of.time], name)
        if begun is None:
            begun = dated
        if begun != dated:
            raise InvalidRecord(
                f"{name} has {'dates' if dated else 'numbers'} as times, and other tables have "
                f"{'dates' if begun else 'numbers'}: use one of the two",
                code="times-mixed",
            )
        who = place.reindex(_ids(read[rows_of.stay])).to_numpy(float)
        known = ~np.isnan(who) & ~np.isnan(hours)
        left[f"rows of {name} of unknown stays"] += int(np.isnan(who).sum())
        left[f"rows of {name} without a time"] += int((~np.isnan(who) & np.isnan(hours)).sum())
        timed[name] = (read[known], who[known].astype(int), hours[known])

    n, W = len(stays), recipe.steps + 1
    start, end = np.full(n, np.inf), np.full(n, -np.inf)
    for _, who, hours in timed.values():
        np.minimum.at(start, who, hours)
        np.maximum.at(end, who, hours)
    if "start" in kinds:
        start = stays["start"].to_numpy(float)
        left["stays without a start"] = int(np.isnan(start).sum())
    lasting = np.floor((end - start) / recipe.hours, where=np.isfinite(end), out=np.zeros(n))
    steps = np.clip(np.nan_to_num(lasting), 0, recipe.steps).astype(int)
    use = ~np.isnan(rewards) & (steps > 0)
    short = int((~np.isnan(rewards) & ~np.isnan(start) & (steps == 0)).sum())
    left[f"stays that end within {recipe.hours:g} hours"] = short

    values, measured = dict[str, np.ndarray](), dict[str, np.ndarray]()
    for own in recipe.variables:
        table, who, hours = timed[own.table]
        at, value = _values(recipe, own, table, left, tables.comma)
        who, hours = who[at], hours[at]
        window = np.floor((hours - start[who]) / recipe.hours)
        into = hours - start[who] - window * recipe.hours
        rows = pandas.DataFrame({"who": who, "at": np.maximum(window, -1) + 1, "value": value,
                                 "hour": hours, "into": into})  # fmt: skip
        rows = rows[(rows["at"] <= W) & use[who]].sort_values(["who", "hour"], kind="stable")
        each = rows.groupby(["who", "at"])
        seen, latest = (_grid(each["value"].agg(how), n, W) for how in (own.take, "last"))
        late = _grid(each["into"].min(), n, W) > 0.0
        measured[own.name] = seen[use]
        values[own.name] = _filled(own, own in recipe.states, seen, latest, late)[use]
    ids = stays.index.to_numpy().astype(str)[use]
    patients = _ids(stays["patient"]).to_numpy() if "patient" in kinds else None
    if patients is not None:
        nobody = stays["patient"].isna().to_numpy() & use
        if nobody.any():
            raise InvalidRecord(
                f"{plural(int(nobody.sum()), 'stay')} of {about.table} have no {about.patient}: "
                "without it nobody knows whose they are",
                code="patient-unknown",
            )
        patients = patients[use].astype(str)
    if not use.any():
        raise InvalidRecord(
            f"no stay of {about.table} can be used: "
            + "; ".join(f"{n:,} {why}" for why, n in left.items() if n),
            code="no-records",
        )
    return Stays(ids, patients, rewards[use], steps[use], values, measured, left)


def _steps(steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Stay and step, from 1, of every row of the log."""
    who = np.repeat(np.arange(len(steps)), steps)
    return who, np.arange(len(who)) - np.repeat(np.cumsum(steps) - steps, steps) + 1


def _seen(stays: Stays, own: Variable, who: np.ndarray, step: np.ndarray) -> np.ndarray:
    """A variable of the state in every row of the log."""
    found: np.ndarray = stays.values[own.name][who, step]
    if np.isnan(found).any():
        silent = len(np.unique(who[np.isnan(found)]))
        raise InvalidRecord(
            f"{own.name} has no value at the first step of {plural(silent, 'stay')}, and the "
            "recipe does not say what to take then: give it missing = …",
            code="missing-value",
        )
    return found


def _values(
    recipe: Recipe, own: Variable, table: Any, left: Counter[str], comma: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Which rows have a value of a variable, and these; what cannot be one is counted."""
    pandas, about = needs_pandas(), recipe.tables[own.table]
    at = [np.zeros(0, int)]
    raw = [pandas.Series(dtype=float)]
    if about.name:
        rows = np.flatnonzero(_ids(table[about.name]).isin(own.columns))
        at, raw = [*at, rows], [*raw, table[about.value].iloc[rows]]
    else:
        for column in own.columns:
            at, raw = [*at, np.arange(len(table))], [*raw, table[column]]
    places = np.concatenate(at)
    given = pandas.concat([one.astype(object) for one in raw[1:]], ignore_index=True)
    there = given.notna().to_numpy() & (given.astype(str).str.strip() != "").to_numpy()
    places, given = places[there], given[there]
    if comma:
        given = given.astype(str).str.replace(",", ".", regex=False)
    value = own.scale * pandas.to_numeric(given, errors="coerce").to_numpy(float)
    fine = np.isfinite(value)
    left[f"values of {own.name} that are no numbers"] = int((~fine).sum())  # no text of a record
    low, high = own.range or (-np.inf, np.inf)
    low = low if own in recipe.states else min(low, 0.0)  # nothing is a dose too
    beyond = fine & ((value < low) | (value > high))
    left[f"values of {own.name} outside its range"] = int(beyond.sum())
    if len(value) and beyond.sum() > 0.5 * len(value):
        raise InvalidRecord(
            f"{int(beyond.sum()):,} of {len(value):,} values of {own.name} are outside its range, "
            f"{low:g} to {high:g}, such as {value[beyond][0]:g}: it may be in another unit here",
            code="other-unit",
        )
    keep = fine & ~beyond
    return places[keep], value[keep]


def _grid(found: Any, n: int, W: int) -> np.ndarray:
    """(n, W + 1) of values by stay and window; NaN elsewhere."""
    grid = np.full((n, W + 1), np.nan)
    if len(found):
        who, at = (found.index.get_level_values(i).to_numpy().astype(int) for i in (0, 1))
        grid[who, at] = found.to_numpy(float)
    return grid


def _filled(
    own: Variable, state: bool, seen: np.ndarray, latest: np.ndarray, late: np.ndarray
) -> np.ndarray:
    """The values in force in every window: of a state and a rate, the last one stays. A rate that
    changes within a window (`late`) was another one before."""
    found = seen
    if state or own.hold:
        there = np.where(np.isnan(latest), 0, np.arange(latest.shape[1]))
        held = np.take_along_axis(latest, np.maximum.accumulate(there, axis=1), axis=1)
        found = np.where(np.isnan(seen), held, seen)
        if own.hold and own.take == "max":
            before = np.where(late[:, 1:], held[:, :-1], np.nan)
            found[:, 1:] = np.fmax(found[:, 1:], before)
    usual = own.missing if state else own.missing or 0.0
    return found if usual is None else np.where(np.isnan(found), usual, found)


def _rewards(recipe: Recipe, outcome: Any) -> np.ndarray:
    """(n,) of the outcomes; NaN where there is none."""
    about, found = recipe.stays, np.full(len(outcome), np.nan)
    paid = {key.strip().lower(): reward for key, reward in (about.rewards or {}).items()}
    known = FLAGS if about.rewards is None else paid
    for i, value in enumerate(_ids(outcome)):
        if value is None or value != value or not value.strip():
            continue
        word, reward = value.strip().lower(), about.otherwise
        if word in known:
            reward = known[word]
        if reward is None:
            raise InvalidRecord(
                f"{about.outcome} is {value!r} in {about.table}, which has no reward: list it in "
                f"rewards = {{...}}, or say what all others pay with otherwise = ...",
                code="unknown-outcome",
            )
        found[i] = reward
    return found


def _ids(column: Any) -> Any:
    """A column of ids or codes as text; whole numbers are written without a fraction."""
    pandas = needs_pandas()
    if column.dtype.kind == "f" and (column.dropna() % 1 == 0).all():
        column = column.astype("Int64")
    text = column.astype(object).where(column.notna(), None)
    return pandas.Series([None if v is None else str(v).strip() for v in text], column.index,
                         dtype=object)  # fmt: skip


def _hours(column: Any, table: str) -> tuple[np.ndarray, bool]:
    """Times in hours, NaN where there is none, and whether they are dates."""
    pandas = needs_pandas()
    if column.dtype.kind in "iuf":
        return column.to_numpy(float), False
    moments = pandas.to_datetime(column, utc=True, errors="coerce", format="ISO8601")
    wrong = moments.isna().to_numpy() & column.notna().to_numpy()
    if wrong.any():
        bad = int(wrong.argmax())
        raise InvalidRecord(
            f"{column.name} of {table} is {column.iloc[bad]!r}: give hours as numbers, or dates "
            "and times such as 2024-05-01 10:30",
            code="not-a-time",
            row=bad + 1,
        )
    since = (moments - pandas.Timestamp(0, tz="UTC")) / pandas.Timedelta(hours=1)
    return since.to_numpy(float), True


class _Tables:
    """The tables of a site."""

    def __init__(self, recipe: Recipe, data: Any) -> None:
        self.comma = False
        named = dict.fromkeys([recipe.stays.table, *recipe.tables])
        if isinstance(data, str | PathLike):
            path = Path(data)
            if path.is_dir():
                self.data: dict[str, Any] = {name: _file(path, name) for name in named}
            elif len(named) == 1:
                self.data = dict.fromkeys(named, path)
            else:
                raise InvalidRecord(
                    f"the recipe needs the tables {', '.join(named)}, and {path} is one file: give "
                    "the folder that they are in",
                    code="no-file",
                )
        elif hasattr(data, "columns"):
            self.data = dict.fromkeys(named, data)
        else:
            self.data = dict(data)

    def read(self, name: str, wanted: list[str]) -> Any:
        """Some columns of a table; a copy."""
        data = self.data.get(name)
        if data is None:
            raise InvalidRecord(f"the table {name!r} of the recipe is missing", code="no-file")
        frame = data if hasattr(data, "columns") else self._load(Path(data))
        if lost := [column for column in wanted if column not in frame.columns]:
            raise InvalidRecord(
                f"{name} has no column {lost[0]!r}; its columns are "
                f"{', '.join(map(str, frame.columns))}",
                code="missing-column",
                hint="say in a layout which one it is",
            )
        return frame[wanted].reset_index(drop=True)

    def _load(self, path: Path) -> Any:
        pandas = needs_pandas()
        if path.suffix not in FORMATS:
            raise InvalidRecord(f"{path} is neither a .parquet nor a .csv file", code="bad-file")
        try:
            if path.suffix == ".parquet":
                return pandas.read_parquet(path)
            with path.open(encoding="utf-8-sig") as file:
                head = file.readline()
            how: dict[str, Any] = {}
            if head.count(";") > head.count(","):  # as spreadsheets write where 1.5 is 1,5
                self.comma = True
                how = {"sep": ";", "decimal": ","}
            return pandas.read_csv(path, low_memory=False, encoding="utf-8-sig", **how)
        except FileNotFoundError:
            raise InvalidRecord(f"{path} does not exist", code="no-file") from None
        except Exception as error:  # whatever pandas says of a file from someone else
            raise InvalidRecord(
                f"{path} cannot be read as a table: {' '.join(str(error).split())[:200]}",
                code="unreadable-table",
            ) from None


def _file(folder: Path, name: str) -> Path:
    for suffix in FORMATS:
        if (path := folder / f"{name}{suffix}").is_file():
            return path
    raise InvalidRecord(
        f"{folder} has neither {name}.parquet nor {name}.csv, a table of the recipe",
        code="no-file",
    )
