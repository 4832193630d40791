"""Taxi with its own masks and without: episodes until the regret of an episode is small.

Taxi-v4 of 20 steps, 8 agents, 5 seeds. "Small": from some episode on, the mean regret of the next
200 episodes of all agents is below a tenth of the gap between V* and uniform play without masks.
The masks leave out moves into walls and every pickup and dropoff that would fail; V* is the same.
Settings, seeds and the limit were fixed before the first run.
"""

from __future__ import annotations

import numpy as np

from fedlsvi import FedLSVI
from fedlsvi.envs import FiniteMDP, as_environment
from fedlsvi.experiments.measure import Row

SEEDS, AGENTS, WINDOW, SHARE = (11, 12, 13, 14, 15), 8, 200, 0.1


def main() -> list[Row]:
    """Medians over the seeds, with sharp settings and with the preset."""
    free = as_environment("Taxi-v4", horizon=20)
    masked = as_environment("Taxi-v4", horizon=20, allowed="env")
    start = free.initial_law(0)
    gap = float(start @ (free.optimal_values()[0] - free.uniform_values()[0]))
    lam = 1e-4  # one visit tells everything where moves are deterministic
    sharp = {"value_range": 7.34, "lam": lam, "beta": 7.34 * lam**0.5, "gamma": 50.0}
    rows = []
    for name, settings, episodes in (
        ("sharp", sharp, 5_000),
        ("preset", {"value_range": 7.34}, 20_000),
    ):
        found = {}
        for what, env in (("without masks", free), ("with its masks", masked)):
            each = [until(env, seed, episodes, gap, settings) for seed in SEEDS]
            found[what] = float(np.median(each))
            shown = ", ".join(f"{e:,}" if e < episodes else "never" for e in each)
            rows.append(Row(f"Taxi, {name}, {what} ({shown})", found[what]))
        ratio = found["with its masks"] / found["without masks"]
        rows.append(Row(f"  ratio, {name}", ratio, wanted="< 1", holds=ratio < 1.0))
    return rows


def until(env: FiniteMDP, seed: int, episodes: int, gap: float, settings: dict[str, float]) -> int:
    """The first episode after which regret is small; `episodes` where it never is."""
    run = FedLSVI(AGENTS, **settings).learn(env, episodes, seed, progress=False)
    assert run.regret is not None
    each = np.diff(run.regret, prepend=0.0) / AGENTS
    means = np.convolve(each, np.ones(WINDOW) / WINDOW, "valid")
    small = np.flatnonzero(means < SHARE * gap)
    return int(small[0]) if len(small) else episodes
