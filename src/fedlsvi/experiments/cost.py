"""How long a run may take: a rough model, so that long runs start first and hours can be stated.

Playing costs about 0.04 µs per agent-step. Planning costs what its mathematics costs: one backup
over H steps for S·A pairs of d features, each time a policy is renewed. Coefficients were measured
on one core of an ordinary server; other machines differ, the order of the runs hardly does.
"""

from __future__ import annotations

from fedlsvi.storage.settings_file import Table

STEP = 4e-8
"""Seconds per agent-step."""

START = 0.03
"""Seconds before the first episode."""

PER_EPISODE = {
    "centralised": 1.7e-5,
    "async-coop": 1.7e-5,
    "lsvi-ucb-pp": 5.0e-6,
    "fedq-hoeffding": 2.0e-5,
    "fedq-bernstein": 3.0e-5,
    "fedq-advantage": 3.0e-5,
    "fed-ucbvi": 4.0e-5,
    "ucbvi": 1.0e-4,
}
"""Seconds per episode and step of the horizon where one party replans."""

PER_AGENT = {
    "independent": 1.4e-5,
    "low-switching": 2.0e-6,
    "rare-switch": 2.0e-6,
    "coop-lsvi": 1.0e-5,
    "coopts-phe": 1.5e-5,
    "coopts-lmc": 3.0e-5,
    "q-ucb2": 4.0e-6,
    "q-avg": 6.0e-6,
    "fed-sarsa": 6.0e-6,
}
"""The same per agent, where every agent replans."""

PER_ROUND = 1.5e-4
"""Seconds per round and step where rounds are rare (Fed-LSVI and its ablations)."""


def expected_seconds(table: Table, horizon: int = 10, dim: int = 8) -> float:
    """An estimate for one spec, for problems of a few dozen states."""
    name, T, M = table["algorithm"], int(table["episodes"]), int(table.get("n_agents", 1))
    planning = T * horizon * (PER_EPISODE.get(name, 0.0) + M * PER_AGENT.get(name, 0.0))
    if name in ("fed-lsvi", "stale", "periodic"):
        gamma = table.get("gamma", "auto")
        floor = T / max(1.0, float(gamma)) if isinstance(gamma, int | float) else 4.0 * M * dim
        planning = min(T, floor + 4.0 * dim) * horizon * PER_ROUND * max(1.0, dim / 16.0)
    return START + STEP * M * T * horizon + planning
