"""What was sent: scalars and bytes by category, of all agents and of each.

Categories: `init` (the first broadcast), `signal` (synchronisation and control), `up_stats` (Gram
matrices and responses), `down_model` (models), `up_raw` and `down_raw` (trajectories; always zero
for Fed-LSVI). A broadcast to M agents counts M times.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.errors import UnknownName
from fedlsvi.protocol.messages import SCALAR_BYTES

CATEGORIES = ("init", "signal", "up_stats", "up_raw", "down_model", "down_raw")


class Ledger:
    """Running totals. What all agents send alike is counted once and multiplied when asked."""

    def __init__(self, n_agents: int) -> None:
        self.agents = np.zeros((n_agents, len(CATEGORIES)), np.int64)
        self._every = dict.fromkeys(CATEGORIES, 0)
        self._single = dict.fromkeys(CATEGORIES, 0)

    def __repr__(self) -> str:
        sent = ", ".join(f"{c}={n:,}" for c, n in self.scalars.items() if n)
        return f"<Ledger {plural(self.total, 'scalar')}: {sent or 'nothing sent'}>"

    def _repr_html_(self) -> str:
        found = [(c, n, self.bytes[c]) for c, n in self.scalars.items()]
        found.append(("all", self.total, SCALAR_BYTES * self.total))
        rows = "".join(f"<tr><td>{c}</td><td>{n:,}</td><td>{b:,}</td></tr>" for c, n, b in found)
        head = "<tr><th>category</th><th>scalars</th><th>bytes</th></tr>"
        return f"<table>{head}{rows}</table>"

    def each(self, category: str, scalars: int) -> None:
        """Every agent sent or received this many scalars."""
        _refuse_unknown(category)
        self._every[category] += scalars

    def some(self, category: str, agents: np.ndarray, scalars: int | np.ndarray) -> None:
        """Each of these agents (numbers, none twice) sent or received this many scalars; an array
        has the scalars of each of them."""
        _refuse_unknown(category)
        self.agents[agents, CATEGORIES.index(category)] += scalars
        self._single[category] += int(np.broadcast_to(scalars, len(agents)).sum())

    def single(self, category: str) -> int:
        """Scalars of a category that were not the same for all agents."""
        return self._single[category]

    @property
    def scalars(self) -> dict[str, int]:
        """Scalars by category, all agents together."""
        m = len(self.agents)
        return {c: m * self._every[c] + self._single[c] for c in CATEGORIES}

    @property
    def bytes(self) -> dict[str, int]:
        """Bytes by category: 8 per scalar, integers too."""
        return {c: SCALAR_BYTES * n for c, n in self.scalars.items()}

    @property
    def total(self) -> int:
        """All scalars of the run."""
        return sum(self.scalars.values())

    @property
    def alike(self) -> bool:
        """Whether all agents took part in every synchronisation: nobody was away or excluded."""
        return not self._single["up_stats"] and not self._single["down_model"]

    @property
    def by_agent(self) -> dict[str, np.ndarray]:
        """Scalars by category for each agent, (M,) each."""
        return {c: self.agents[:, i] + self._every[c] for i, c in enumerate(CATEGORIES)}

    def to_dict(self) -> dict[str, Any]:
        """A JSON form that `from_dict` reads back."""
        return {
            "n_agents": len(self.agents),
            "every": dict(self._every),
            "single": dict(self._single),
            "agents": {
                c: self.agents[:, i].tolist() for i, c in enumerate(CATEGORIES) if self._single[c]
            },
            "scalars": self.scalars,
            "bytes": self.bytes,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Ledger:
        """The ledger that `to_dict` described."""
        ledger = cls(data["n_agents"])
        ledger.restore(data)
        return ledger

    def restore(self, data: Mapping[str, Any]) -> None:
        """Become the ledger that `to_dict` described; whoever holds this one goes on with it."""
        self._every.update(data["every"])
        self._single.update(data["single"])
        for name, column in data["agents"].items():
            self.agents[:, CATEGORIES.index(name)] = column


def _refuse_unknown(category: Any) -> None:
    """A category that does not exist, or an array where a category was forgotten."""
    name = category if isinstance(category, str) else type(category).__name__
    if name not in CATEGORIES:
        raise UnknownName("category of the ledger", name, CATEGORIES)
