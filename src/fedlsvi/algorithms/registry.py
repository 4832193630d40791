"""Algorithms by name: what settings, run folders and the command line say.

A row is a constructor whose keyword arguments are the algorithm's settings. What it makes is a
`fedlsvi.learner.Algorithm`: it has `settings`, and `prepare`, which checks a problem and returns
the session that plays it. Storage and the command line need nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fedlsvi.errors import InvalidSetting
from fedlsvi.learner import Algorithm
from fedlsvi.registry import Entry, Registry, resolve
from fedlsvi.run import Run

Scalars = Callable[[Run], dict[str, int]]
"""The closed formula of what a run sent, by category of the ledger; an absent one is zero."""


@dataclass(frozen=True)
class AlgorithmEntry(Entry):
    """A row of the registry; `formula` is a `Scalars`, or "module:attribute". One that is
    `offline` learns from logs and plays in no world. One without `guarantee` has no bound on
    regret, and tables say so."""

    formula: Scalars | str | None = None
    offline: bool = False
    guarantee: bool = True

    @property
    def scalars(self) -> Scalars | None:
        """The formula, imported when it is needed; None where none was given."""
        found: Scalars | None = resolve(self.formula)
        return found


REGISTRY: Registry[AlgorithmEntry] = Registry(
    "algorithm", "a learner", InvalidSetting, parameter="setting"
)
names, entry = REGISTRY.names, REGISTRY.entry


def register(
    name: str,
    constructor: Callable[..., Algorithm] | str,
    summary: str,
    scalars: Scalars | str | None = None,
    offline: bool = False,
    guarantee: bool = True,
) -> None:
    """Add an algorithm; a name is taken once.

    Args:
        name: What settings and the command line call it.
        constructor: Makes the learner from its settings; or "module:attribute", imported on use.
        summary: One line for `fedlsvi list algorithms`.
        scalars: What a run sends as a formula, by category of the ledger; `check_algorithm`
            compares it with the ledger.
        offline: Whether it learns from logs, `fedlsvi.logs`, and plays in no world.
        guarantee: Whether a bound on its regret is known.
    """
    row = AlgorithmEntry(
        name, constructor, summary, formula=scalars, offline=offline, guarantee=guarantee
    )
    REGISTRY.register(row)


def make(name: str, /, **settings: Any) -> Algorithm:
    """The learner of this name with these settings."""
    made: Algorithm = REGISTRY.make(entry(name), settings)
    return made


register(
    "fed-lsvi",
    "fedlsvi.learner:FedLSVI",
    "federated LSVI with optimism; agents synchronise when a trigger fires",
    "fedlsvi.learner:scalars",
)
for _name, _class, _summary in (
    ("stale", "Stale", "Fed-LSVI in one round trip, with responses from the previous model"),
    ("periodic", "Periodic", "Fed-LSVI without its trigger: synchronise every `period` episodes"),
    ("centralised", "Centralised", "LSVI-UCB on all trajectories, pooled after every episode"),
    ("independent", "Independent", "LSVI-UCB, each agent alone"),
    (
        "low-switching",
        "LowSwitching",
        "LSVI-UCB, each agent alone; replans when a determinant doubles",
    ),
    ("rare-switch", "RareSwitch", "LSVI-UCB, each agent alone, with a limited number of policies"),
    (
        "coop-lsvi",
        "CoopLSVI",
        "agents replan alone; a trigger makes them send raw transitions",
    ),
    ("async-coop", "AsyncCoop", "one agent at a time sends raw transitions and gets a model"),
    ("coopts-phe", "CoopTSPHE", "CoopTS: Thompson sampling by perturbed histories, raw exchange"),
    ("coopts-lmc", "CoopTSLMC", "CoopTS: Thompson sampling by Langevin Monte Carlo, raw exchange"),
    ("fedq-hoeffding", "FedQHoeffding", "federated Q-learning with a Hoeffding bonus; tabular"),
    ("fedq-bernstein", "FedQBernstein", "federated Q-learning with a Bernstein bonus; tabular"),
    ("fedq-advantage", "FedQAdvantage", "federated Q-learning with a reference function; tabular"),
    ("fed-ucbvi", "FedUCBVI", "federated value iteration on counts; tabular"),
    ("ucbvi", "UCBVI", "value iteration on counts, pooled after every episode; tabular"),
    ("psrl", "PSRL", "posterior sampling from pooled counts, a draw for each agent; tabular"),
    ("ucrl-vtr", "UCRLVTR", "value-targeted regression, pooled after every episode; known rewards"),
    ("fed-ucrl-vtr", "FedUCRLVTR", "value-targeted regression, sent by a trigger; known rewards"),
    ("q-ucb2", "QUCB2", "Q-learning that switches rarely, each agent alone; tabular"),
    ("q-avg", "QAvg", "Q-learning and averages of Q-tables; tabular; no guarantee on regret"),
    (
        "fed-sarsa",
        "FedSARSA",
        "SARSA with linear functions and averages of weights; no guarantee on regret",
    ),
    ("lsvi-ucb-pp", "LSVIUCBPlusPlus", "LSVI-UCB++: one agent plays all episodes; known rewards"),
):
    _module = f"fedlsvi.algorithms.{_name.replace('-', '_')}"
    _bound = not _summary.endswith("no guarantee on regret")
    register(_name, f"{_module}:{_class}", _summary, f"{_module}:scalars", guarantee=_bound)
register(
    "pevi",
    "fedlsvi.algorithms.pevi:PEVI",
    "pessimistic value iteration on the agents' logs; one synchronisation, no environment needed",
    "fedlsvi.algorithms.pevi:scalars",
    offline=True,
)
