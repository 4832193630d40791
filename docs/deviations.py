"""Writes tables of docs/algorithm.md, docs/settings.md and studies/sources.md from the code.

python docs/deviations.py
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from fedlsvi import FedLSVI, groups, incompatible
from fedlsvi.algorithms import registry
from fedlsvi.config import Parameters, Settings
from fedlsvi.groups import ProblemSize

ROOT = Path(__file__).parents[1]
WRITTEN = (
    ROOT / "docs" / "algorithm.md",
    ROOT / "studies" / "sources.md",
    ROOT / "docs" / "settings.md",
)
THE_PAPERS_OWN = ("n_agents", "xi", "value_range", "preset", "packing", "confidence", "c_beta")
"""Settings that are numbers of the paper, or that change no result."""

EXAMPLE: dict[str, Any] = {
    "episodes": 5_000, "horizon": 50, "dim": 68, "one_hot": True, "steady": True, "states": 17,
    "repeats": True,
}  # fmt: skip
"""FrozenLake-v1, stepped; the page names it."""

PAGES = {
    "taper": "defaults.md", "bonus": "defaults.md#a-bonus-that-knows-the-noise",
    "beta": "defaults.md", "lam": "defaults.md",
    "gamma": "trigger.md#continue-a-run", "cap": "trigger.md", "min_round": "trigger.md",
    "rounds": "trigger.md", "scalars": "trigger.md", "stationary": "stationary.md",
    "policy": "howto-policies.md#which-policy-to-deploy",
    "pessimism": "howto-policies.md#which-policy-to-deploy", "diversity": "diversity.md",
    "aggregation": "privacy.md", "exchange": "privacy.md", "participation": "participation.md",
    "present": "participation.md", "privacy": "privacy.md", "own_features": "own-features.md",
}  # fmt: skip


def values(preset: Any) -> dict[str, str]:
    """What each setting becomes in the example."""
    asked = Settings(n_agents=8, preset=preset)
    made: Parameters = asked.resolve(ProblemSize(**EXAMPLE))
    shown = {name: getattr(made, name, getattr(asked, name)) for name in vars(asked)}
    shown["policy"] = "exploit" if made.exploit else "explore"
    return {name: _written(value) for name, value in shown.items()}


def _written(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "off", True: "yes", False: "no"}[value]
    return f"{value:,.6g}" if isinstance(value, float | int) else f'"{value}"'


def defaults() -> str:
    """Settings in which the practical preset differs from the paper's."""
    paper, practical = values("paper"), values("practical")
    rows = [
        (f"`{name}`", paper[name], practical[name], text)
        for name, text in _texts().items()
        if paper[name] != practical[name]
    ]
    return table(("setting", "paper", "practical", "what it does"), rows)


def options() -> str:
    """Settings that leave the paper only where they are given; docs/settings.md explains them."""
    paper, practical = values("paper"), values("practical")
    names = [name for name in _texts() if paper[name] == practical[name]]
    return ", ".join(f"[`{name}`]({PAGES.get(name, 'settings.md')})" for name in names)


def _texts() -> dict[str, str]:
    """How the docstring of each setting that may deviate begins, and where there is more."""
    said = {row["name"]: _beginning(row["text"]) for row in Settings.documented()}
    names = [field.name for field in fields(Settings) if field.name not in THE_PAPERS_OWN]
    more = {name: f" ([more]({PAGES[name]}))" if name in PAGES else "" for name in names}
    return {name: f"{said[name]}{more[name]}" for name in names}


def _beginning(text: str) -> str:
    """The first clauses, twelve words at least; docs/settings.md has all."""
    clauses = re.split(r"(?<=[.;]) ", text)
    n = next((n for n in range(1, len(clauses)) if len(" ".join(clauses[:n]).split()) > 11), None)
    return re.sub("[.;]$", "", " ".join(clauses[:n]))


def algorithms() -> str:
    """What the docstring of each algorithm's module says of its source: its last paragraph."""
    rows = []
    for name in registry.names():
        module = inspect.getmodule(registry.entry(name).constructor)
        if name != FedLSVI.name:
            *_, last = inspect.cleandoc(module.__doc__ or "").split("\n\n")
            assert last.startswith(("Checked: ", "Everything here", "The paper is quoted")), name
            rows.append((f"`{name}`", " ".join(last.split())))
    return table(("algorithm", "what was checked, what is ours"), rows)


def settings(kind: type[groups.SettingGroup]) -> str:
    """All that a group of settings documents of itself."""
    rows = [(f"`{row['name']}`", _code(row["default"]), row["text"]) for row in kind.documented()]
    return table(("setting", "default", "what it does"), rows)


def _code(value: Any) -> str:
    return "" if value is None else f"`{value!r}`".replace("'", '"')


def together() -> str:
    """The settings that cannot be combined."""
    rows = [(row["settings"], row["reason"], row["instead"]) for row in incompatible.rows()]
    return table(("together", "why not", "instead"), rows)


GROUPS = (
    groups.CommonSettings, groups.StationarySettings, *groups.GROUPS.values(),
    groups.BonusSettings, groups.OwnFeaturesSettings, groups.ExchangeSettings,
    groups.PrivacySettings,
)  # fmt: skip
TABLES: dict[str, Callable[[], str]] = {
    "defaults": defaults, "options": options, "algorithms": algorithms, "together": together,
    **{kind.__name__: partial(settings, kind) for kind in GROUPS},
}  # fmt: skip
"""What stands between `<!-- NAME: docs/deviations.py -->` and `<!-- end -->`."""


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(c.replace("|", "\\|") for c in line) + " |" for line in lines
    )


def written(page: str) -> str:
    """The page with its tables as they are now."""
    for mark, make in TABLES.items():
        begin, end = f"<!-- {mark}: docs/deviations.py -->\n", "<!-- end -->"
        pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        text = f"{begin}\n{make()}\n\n{end}"
        page = pattern.sub(lambda _, text=text: text, page)
    return page


if __name__ == "__main__":
    for path in WRITTEN:
        path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
