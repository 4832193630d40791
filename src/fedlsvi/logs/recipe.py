"""How a clinical table becomes episodes: a recipe in TOML, the same at every site.

    hours = 4                          # of a step
    steps = 18                         # H; what comes later is left out

    [tables.labs]                      # one for each file: labs.parquet or labs.csv
    stay = "hospitalization_id"
    time = "lab_result_dttm"           # a date and time, or hours as a number
    name = "lab_category"              # long tables alone: what was measured, …
    value = "lab_value_numeric"        # … and its value

    [stays]                            # how each stay began and ended
    table = "hospitalization"
    stay = "hospitalization_id"
    patient = "patient_id"             # optional
    start = "admission_dttm"           # optional; else the first row of a stay
    outcome = "discharge_category"
    rewards = {Expired = 0}            # optional, where outcomes are words
    otherwise = 1

    [[states]]
    name = "lactate"                   # what messages call it
    table = "labs"                     # left out where there is one table
    column = "lactate"                 # or names, of long tables; left out: the name
    take = "max"                       # of the values of a step
    missing = 1.5                      # before the first value; later the last one stays
    range = [0, 30]                    # other values are typing errors
    edges = [2, 4]                     # of its bins; or quantiles = 4, to be agreed on

    [[actions]]
    name = "vasopressor"
    table = "drugs"
    column = "norepinephrine"
    take = "max"
    hold = true                        # a rate, which holds until the next row
    edges = [0.01, 0.2]                # of its classes: the first one is nothing
    names = ["none", "low", "high"]

    [[forbid]]                         # optional: classes that no policy may choose …
    when = {lactate = 0}               # … in these bins
    actions = {vasopressor = ["high"]}

A recipe is *open* while it asks for quantiles. Sites then add up histograms (`logs.histograms`),
from which the edges of all follow.

A site whose tables look different says where things are in a *layout*, a file of its own:

    [tables.measurement]               # in place of all tables of the recipe
    stay = "visit_occurrence_id"
    time = "measurement_datetime"
    name = "measurement_concept_id"
    value = "value_as_number"

    [stays]                            # what differs
    table = "visit_occurrence"

    [columns.lactate]
    table = "measurement"
    column = ["3047181", "3014111"]
    scale = 0.111                      # from mg/dL
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from fedlsvi.checks import integer, is_number, number, refuse_unknown
from fedlsvi.errors import FedLSVIError, InvalidSetting
from fedlsvi.logs.bins import Bins

TAKES = ("mean", "median", "max", "min", "sum", "first", "last")
"""What becomes of the values of a step."""

CELLS = 100
"""Cells of a histogram, where a recipe says nothing else."""


@dataclass(frozen=True)
class TimedTable:
    """A file of rows with a time; see the head of this module."""

    stay: str
    time: str
    name: str | None = None
    value: str | None = None

    def check(self, at: str) -> None:
        """A long table has both a column of names and one of values."""
        if (self.name is None) != (self.value is None):
            raise _bad(f"{at} has only one of name and value: a long table needs both")


@dataclass(frozen=True)
class Stays:
    """How each stay began and ended; see the head of this module."""

    table: str
    stay: str
    outcome: str
    patient: str | None = None
    start: str | None = None
    rewards: dict[str, float] | None = None
    otherwise: float | None = None

    def check(self, at: str) -> None:
        """Rewards are numbers from 0 to 1."""
        for what, paid in (*(self.rewards or {}).items(), ("otherwise", self.otherwise)):
            if paid is not None:
                number(f"{at}.{what}", paid, 0.0, most=1.0)


@dataclass(frozen=True)
class Variable:
    """A part of the state or of the action; see the head of this module."""

    name: str
    table: str
    column: str | list[str] | None = None
    scale: float = 1.0
    take: str = "last"
    missing: float | None = None
    range: list[float] | None = None
    edges: list[float] | None = None
    quantiles: int | None = None
    cells: int = CELLS
    hold: bool = False
    names: list[str] | None = None

    def check(self, at: str) -> None:
        """Every bin has edges or is yet to get them, and names are those of the classes."""
        if self.take not in TAKES:
            raise _bad(f"{at}.take is {self.take!r}: choose one of {', '.join(TAKES)}")
        if self.hold and self.take not in ("max", "last"):
            raise _bad(f"{at} holds until the next row: take max or last")
        if (self.edges is None) == (self.quantiles is None):
            raise _bad(f"{at} needs either edges or quantiles, not both")
        limits = self.range
        if limits is not None and not (
            len(limits) == 2 and all(map(is_number, limits)) and limits[0] < limits[1]
        ):
            raise _bad(f"{at}.range is {limits!r}: give the lowest and the highest value")
        integer(f"{at}.cells", self.cells, 2, most=100_000)
        if self.quantiles is not None:
            integer(f"{at}.quantiles", self.quantiles, 2, most=self.cells)
            if limits is None:
                raise _bad(f"{at} has quantiles, which need a range, such as range = [0, 30]")
            if self.names is not None:
                raise _bad(f"{at} has names for classes whose edges are not agreed on yet")
        elif self.names is not None and len(self.names) != len(self.edges or ()) + 1:
            raise _bad(f"{at} has {len(self.names)} names for {len(self.edges or ()) + 1} classes")

    @property
    def columns(self) -> list[str]:
        """The columns, or names in a long table, whose values it has."""
        given = self.name if self.column is None else self.column
        return [given] if isinstance(given, str) else list(given)

    @property
    def classes(self) -> list[str]:
        """What its bins are called."""
        return self.names or [str(i) for i in range(len(self.edges or ()) + 1)]


@dataclass(frozen=True)
class Recipe:
    """See the head of this module."""

    hours: float
    steps: int
    tables: dict[str, TimedTable]
    stays: Stays
    states: list[Variable]
    actions: list[Variable]
    forbid: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Recipe:
        """From the table of a TOML file, checked."""
        try:
            return cls._of(given)
        except FedLSVIError:
            raise
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise _bad(f"a part of the recipe is of the wrong kind ({error})") from None

    @classmethod
    def _of(cls, given: Mapping[str, Any]) -> Recipe:
        refuse_unknown("key of a recipe", given, [own.name for own in fields(cls)])
        for key in ("hours", "steps", "tables", "stays", "states", "actions"):
            if not given.get(key):
                raise _bad(f"the recipe has no {key}")
        number("hours", given["hours"], 0.0, strict=True)
        integer("steps", given["steps"], 1)
        tables = {
            name: _made(TimedTable, own, f"tables.{name}")
            for name, own in _table(given["tables"], "tables").items()
        }
        alone = {"table": next(iter(tables))} if len(tables) == 1 else {}
        stays = _made(Stays, {**alone, **_table(given["stays"], "stays")}, "stays")
        parts = {
            key: [_made(Variable, {**alone, **_table(own, key)}, f"{key}.{_named(own)}")
                  for own in given[key]]
            for key in ("states", "actions")
        }  # fmt: skip
        recipe = cls(given["hours"], given["steps"], tables, stays, parts["states"],
                     parts["actions"], list(given.get("forbid", [])))  # fmt: skip
        recipe.check()
        return recipe

    def check(self) -> None:
        """Names are there once, tables exist, edges rise, and every state allows something."""
        names = [own.name for own in self.variables]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise _bad(f"two variables are called {twice}")
        for name in (self.stays.table, *self.tables):  # of a file in the folder of the records
            if name.startswith(".") or {"/", "\\"} & set(name):
                raise _bad(f"a table cannot be called {name!r}")
        for own in self.variables:
            if own.table not in self.tables:
                raise _bad(f"{own.name} is from the table {own.table!r}, but [tables] has "
                           f"{', '.join(self.tables)}")  # fmt: skip
        for part in (self.states, self.actions):
            if closed := {own.name: own.edges for own in part if own.edges is not None}:
                Bins(closed)
        if not self.open:
            _ = self.mask, self.action_names

    @property
    def variables(self) -> list[Variable]:
        """Of the state, then of the action."""
        return [*self.states, *self.actions]

    @property
    def open(self) -> list[Variable]:
        """Those whose edges are yet to be agreed on."""
        return [own for own in self.variables if own.edges is None]

    @cached_property
    def bins(self) -> Bins:
        """Of states."""
        return Bins({own.name: own.edges or [] for own in self.states})

    @cached_property
    def doses(self) -> Bins:
        """Of actions."""
        return Bins({own.name: own.edges or [] for own in self.actions})

    @property
    def n_states(self) -> int:
        """States; of an open recipe, the cells of all histograms."""
        return sum(own.cells for own in self.open) or self.bins.n_states

    @property
    def action_names(self) -> list[str]:
        """The classes of all parts of an action, such as low/none; the last part is the fastest."""
        return ["/".join(parts) for parts in itertools.product(*(a.classes for a in self.actions))]

    @cached_property
    def mask(self) -> np.ndarray | None:
        """(S, A) the actions that are allowed; None where nothing is forbidden."""
        if not self.forbid:
            return None
        found = np.ones((self.bins.n_states, self.doses.n_states), bool)
        for i, rule in enumerate(self.forbid):
            at = f"forbid[{i}]"
            refuse_unknown(f"key of {at}", rule, ["when", "actions"])
            where = _chosen(self.states, _table(rule.get("when", {}), f"{at}.when"))
            what = _chosen(self.actions, _table(rule.get("actions", {}), f"{at}.actions"))
            found[np.ix_(where, what)] = False
        if not found.any(axis=1).all():
            raise _bad(f"forbid leaves no action in state {int((~found.any(axis=1)).argmax())}")
        return found

    def laid_out(self, layout: Mapping[str, Any]) -> Recipe:
        """The same recipe for tables that look different; see the head of this module."""
        refuse_unknown("key of a layout", layout, ["tables", "stays", "columns"])
        columns = _table(layout.get("columns", {}), "columns")
        refuse_unknown("variable of a layout", columns, [own.name for own in self.variables])
        for name, own in columns.items():
            keys = ["table", "column", "scale"]
            refuse_unknown(f"key of columns.{name}", _table(own, f"columns.{name}"), keys)
        table = self.table()
        table["stays"] |= _table(layout.get("stays", {}), "stays")
        table["tables"] = layout.get("tables", table["tables"])
        for key in ("states", "actions"):
            table[key] = [own | columns.get(own["name"], {}) for own in table[key]]
        return Recipe.of(table)

    def table(self) -> dict[str, Any]:
        """What `of` reads back."""
        kept: dict[str, Any] = _without_none(asdict(self))
        return kept


def _made(kind: Any, given: dict[str, Any], at: str) -> Any:
    """One of the parts, checked."""
    refuse_unknown(f"key of {at}", given, [own.name for own in fields(kind)])
    try:
        made = kind(**given)
    except TypeError:
        needed = [f.name for f in fields(kind) if f.name not in given]
        raise _bad(f"{at} is not complete: it may lack {', '.join(needed)}") from None
    made.check(at)
    return made


def _chosen(parts: list[Variable], rule: Mapping[str, Any]) -> np.ndarray:
    """Which of the combinations of bins a rule means."""
    refuse_unknown("variable of forbid", rule, [own.name for own in parts])
    kept = []
    for own in parts:
        given = rule.get(own.name, own.classes)
        words = [str(one) for one in (given if isinstance(given, list) else [given])]
        numbered = [str(i) for i in range(len(own.classes))]
        places = {**dict(zip(numbered, numbered, strict=True)),
                  **dict(zip(own.classes, numbered, strict=True))}  # fmt: skip
        refuse_unknown(f"class of {own.name}", words, list(places))
        kept.append(np.isin(numbered, [places[word] for word in words]))
    grid = np.array(list(itertools.product(*kept))).all(axis=1)
    return np.flatnonzero(grid)


def _table(given: Any, at: str) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise _bad(f"{at} is {given!r}: write a table")
    return dict(given)


def _named(given: Any) -> str:
    return str(given.get("name", "?")) if isinstance(given, Mapping) else "?"


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(own) for key, own in value.items() if own is not None}
    return [_without_none(own) for own in value] if isinstance(value, list) else value


def _bad(message: str) -> InvalidSetting:
    return InvalidSetting(message, code="bad-recipe")
