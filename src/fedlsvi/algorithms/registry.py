"""Algorithms by name: what settings, run folders and the command line say.

A row is a constructor whose keyword arguments are the algorithm's settings. What it makes is a
`fedlsvi.learner.Algorithm`: it has `settings`, and `prepare`, which checks a problem and returns
the session that plays it. The store and the command line need nothing else.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fedlsvi.algorithms import (
    async_coop,
    centralised,
    coop_lsvi,
    coopts_lmc,
    coopts_phe,
    fed_ucbvi,
    fedq_advantage,
    fedq_bernstein,
    fedq_hoeffding,
    independent,
    low_switching,
    lsvi_ucb_pp,
    periodic,
    rare_switch,
    stale,
)
from fedlsvi.errors import InvalidSetting, UnknownName, refuse_unknown
from fedlsvi.learner import Algorithm, FedLSVI
from fedlsvi.registry import load_extensions
from fedlsvi.run import Run


@dataclass(frozen=True)
class AlgorithmEntry:
    """A row of the registry."""

    name: str
    constructor: Callable[..., Algorithm]
    summary: str
    scalars: Callable[[Run], dict[str, int]] | None = None
    """The closed formula of what a run sent, by category of the ledger; absent is nothing."""

    def parameters(self) -> dict[str, Any]:
        """Settings and their defaults (None where there is none)."""
        return {
            key: None if parameter.default is inspect.Parameter.empty else parameter.default
            for key, parameter in inspect.signature(self.constructor).parameters.items()
        }


_ENTRIES: dict[str, AlgorithmEntry] = {}


def register(
    name: str,
    constructor: Callable[..., Algorithm],
    summary: str,
    scalars: Callable[[Run], dict[str, int]] | None = None,
) -> None:
    """Add an algorithm; a name is taken once."""
    if name in _ENTRIES:
        raise InvalidSetting(f"algorithm '{name}' is registered already: choose another name")
    _ENTRIES[name] = AlgorithmEntry(name, constructor, summary, scalars)


def names() -> list[str]:
    """Every registered name, sorted."""
    load_extensions()
    return sorted(_ENTRIES)


def entry(name: str) -> AlgorithmEntry:
    """The row of a name."""
    if name not in _ENTRIES:
        load_extensions()
    if name not in _ENTRIES:
        raise UnknownName("algorithm", name, _ENTRIES)
    return _ENTRIES[name]


def make(name: str, /, **settings: Any) -> Algorithm:
    """The learner of this name with these settings."""
    row = entry(name)
    refuse_unknown(f"setting of algorithm '{name}'", settings, row.parameters())
    made = row.constructor(**settings)
    if made is None:
        raise InvalidSetting(
            f"the constructor of algorithm '{name}' returned None: it must return a learner"
        )
    return made


register(
    "fed-lsvi",
    FedLSVI,
    "federated LSVI with optimism; statistics travel when a trigger fires",
    stale.scalars,
)
register(
    "stale",
    stale.Stale,
    "Fed-LSVI in one round trip: responses from the model before the synchronisation",
    stale.scalars,
)
register(
    "periodic",
    periodic.Periodic,
    "Fed-LSVI without its trigger: synchronise after every `period` episodes",
    periodic.scalars,
)
register(
    "centralised",
    centralised.Centralised,
    "LSVI-UCB on everybody's trajectories, pooled after every episode",
    centralised.scalars,
)
register(
    "independent",
    independent.Independent,
    "LSVI-UCB, each agent alone",
    independent.scalars,
)
register(
    "low-switching",
    low_switching.LowSwitching,
    "LSVI-UCB, each agent alone, a new policy when a determinant has doubled",
    low_switching.scalars,
)
register(
    "rare-switch",
    rare_switch.RareSwitch,
    "LSVI-UCB, each agent alone, with a budget of policies",
    rare_switch.scalars,
)
register(
    "coop-lsvi",
    coop_lsvi.CoopLSVI,
    "Coop-LSVI: agents replan alone and exchange raw transitions when a trigger fires",
    coop_lsvi.scalars,
)
register(
    "async-coop",
    async_coop.AsyncCoop,
    "Async-Coop-LSVI-UCB: one agent at a time sends raw transitions and gets a model",
    async_coop.scalars,
)
register(
    "coopts-phe",
    coopts_phe.CoopTSPHE,
    "CoopTS: Thompson sampling by perturbed histories, raw transitions exchanged",
    coopts_phe.scalars,
)
register(
    "coopts-lmc",
    coopts_lmc.CoopTSLMC,
    "CoopTS: Thompson sampling by Langevin Monte Carlo, raw transitions exchanged",
    coopts_lmc.scalars,
)
register(
    "fedq-hoeffding",
    fedq_hoeffding.FedQHoeffding,
    "federated Q-learning with a Hoeffding bonus; tabular",
    fedq_hoeffding.scalars,
)
register(
    "fedq-bernstein",
    fedq_bernstein.FedQBernstein,
    "federated Q-learning with a Bernstein bonus; tabular",
    fedq_bernstein.scalars,
)
register(
    "fedq-advantage",
    fedq_advantage.FedQAdvantage,
    "federated Q-learning with a reference function; tabular",
    fedq_advantage.scalars,
)
register(
    "fed-ucbvi",
    fed_ucbvi.FedUCBVI,
    "federated value iteration on counts; tabular",
    fed_ucbvi.scalars,
)
register(
    "lsvi-ucb-pp",
    lsvi_ucb_pp.LSVIUCBPlusPlus,
    "LSVI-UCB++: one agent with everybody's episodes and known rewards",
    lsvi_ucb_pp.scalars,
)
