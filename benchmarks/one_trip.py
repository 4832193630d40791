"""One trip per synchronisation instead of H, on NVIDIA FLARE: a server and three sites on loopback.

    python -m benchmarks one_trip

River-swim with H = 20 and one agent at each site, the same seed, both exchanges, plain and secure
sums. It reports the rounds, the median time of a synchronisation and the scalars sent, and compares
the models of both.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import fedlsvi
from fedlsvi import envs
from fedlsvi.experiments.measure import Row
from fedlsvi.remote.federation import Federation
from fedlsvi.remote.flare import project
from fedlsvi.remote.flare.console import write_job
from fedlsvi.remote.flare.demo import free_port

HORIZON, EPISODES = 20, 20
ENV: dict[str, Any] = {"name": "river-swim", "horizon": HORIZON}
SITES = ("site-1", "site-2", "site-3")
KINDS = [(e, a) for a in ("float", "secure") for e in ("stepwise", "one-trip")]


def main() -> list[Row]:
    """The figures."""
    env = envs.make(ENV["name"], horizon=HORIZON)
    n_states: int = env.n_states  # type: ignore[attr-defined]
    base = Federation(
        "stepwise-float", episodes=EPISODES, horizon=HORIZON, dim=n_states * env.n_actions,
        one_hot=True, features={"name": "one-hot"}, n_states=n_states,
    )  # fmt: skip
    runs = {}
    with tempfile.TemporaryDirectory(prefix="fedlsvi-") as scratch:
        folder = Path(scratch) / "project"
        own = {"agents": 1, "env": ENV}
        project.init(folder, base, dict.fromkeys(SITES, own), port=free_port())
        try:
            project.launch(folder)
            for exchange, aggregation in KINDS:
                name = f"{exchange}-{aggregation}"
                settings = {"gamma": 10.0, "exchange": exchange, "aggregation": aggregation}
                job = replace(base, name=name, settings=settings)
                connection = project.console(folder)
                number = connection.submit(write_job(job.table(), folder / "job", 3).absolute())
                connection.close()
                ended = project.wait(folder, number, 300.0)
                if ended != project.COMPLETED:
                    raise SystemExit(f"{name}: {ended}: {project.reason(folder, number)}")
                runs[name] = fedlsvi.load(project.server_folder(folder).parent / name)
        finally:
            project.stop(folder)
            project.clean(folder)
    first, rows = runs["stepwise-float"], []
    for name, run in runs.items():
        seconds = median(record.seconds["synchronise"] for record in run.records)
        off = float(np.abs(run.w - first.w).max())
        alike = run.taus == first.taus and off < 1e-9
        rows += [
            Row(f"{name}, H = {HORIZON}: a synchronisation", seconds, "s"),
            Row(f"{name}: scalars in {run.rounds} rounds", run.ledger.total, ""),
            Row(f"{name}: w against stepwise-float", off, "", "below 1e-9", alike),
        ]
    return rows
