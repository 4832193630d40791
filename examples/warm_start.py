"""What records are worth: regret of a warm start compared with a cold one.

`python -m examples.warm_start [seeds [figure.png [kept.npz]]]`: FrozenLake with records of a
behaviour that is half random, and ICU-Sepsis with records of the clinicians. Agents, records and
settings are fixed here; each seed draws its own records and its own run.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from examples.sepsis.hospitals import ENDS, clinicians, sepsis

from fedlsvi import FedLSVI, Run
from fedlsvi.envs import FiniteMDP, as_environment, record_episodes
from fedlsvi.errors import TrafficWarning
from fedlsvi.features import LowRankFeatures
from fedlsvi.report.plotting import Curve, Panel, paint

EPISODES, FIRST = 200, 100
"""Episodes that each agent plays, and over how many of them regret is compared."""


Curves = dict[str, dict[str, list[np.ndarray]]]
"""Problem → cold or warm → cumulative regret of each seed."""


@dataclass(frozen=True)
class Case:
    """A problem, who plays it, and what was recorded before."""

    name: str
    env: FiniteMDP
    behaviour: np.ndarray  # (H, S, A)
    agents: int
    logged: int
    ends: tuple[int, ...]
    features: Any = None

    def data(self, seed: int) -> list[dict[str, np.ndarray]]:
        """The log of each agent."""
        return [
            record_episodes(
                self.env, self.logged, self.behaviour, seed=1000 + seed, agent=m, ends=self.ends
            )
            for m in range(self.agents)
        ]

    def play(self, seed: int, data: Any = None) -> Run:
        """A run at the practical default; an episode pays 1 at most."""
        learner = FedLSVI(self.agents, value_range=1.0)
        return learner.learn(
            self.env, EPISODES, seed, features=self.features, data=data, progress=False
        )


def frozen_lake() -> Case:
    """Four agents with 250 episodes each, of which every second action is drawn at random."""
    env: Any = as_environment("FrozenLake-v1", horizon=50)
    best = np.eye(env.n_actions)[env.greedy_policy()]
    half = 0.5 * best + 0.5 / env.n_actions
    end = (env.n_states - 1,) if env.after_end else ()
    return Case("FrozenLake", env, half, 4, 250, end)


def icu_sepsis() -> Case:
    """Ten hospitals with the records of 1,000 patients each; features of `settings.toml`."""
    env = sepsis()
    phi = LowRankFeatures(16).bind(env)
    return Case("ICU-Sepsis", env, clinicians(env), 10, 1_000, ENDS, phi)


def main(seeds: int = 5, path: str = "", kept: str = "") -> Curves:
    """Print regret after 100 episodes of each agent; draw the curves if a path is given. Runs
    stored in a file are not repeated."""
    curves: Curves = {}
    known = Path(kept)
    done = dict(np.load(known)) if kept and known.exists() else {}
    for case in (frozen_lake(), icu_sepsis()):
        found = curves.setdefault(case.name, {"cold": [], "warm": []})
        for seed, how in ((seed, how) for seed in range(seeds) for how in found):
            key = f"{case.name} {how} {seed}"
            if key not in done:
                run = case.play(seed, case.data(seed) if how == "warm" else None)
                assert run.regret is not None
                assert run.bounds["scalars"].holds
                done[key] = run.regret
                if kept:
                    np.savez(known, **done)
            found[how].append(done[key])
        cold, warm = (np.array([curve[FIRST - 1] for curve in found[how]]) for how in found)
        print(f"{case.name:<12} regret of the first {FIRST} episodes of {case.agents} agents: "
              f"cold {np.median(cold):.2f} [{cold.min():.2f}, {cold.max():.2f}], "
              f"warm {np.median(warm):.2f} [{warm.min():.2f}, {warm.max():.2f}], "
              f"ratio {np.median(cold / warm):.1f} (least {(cold / warm).min():.1f})")  # fmt: skip
    if path:
        draw(curves, path)
    return curves


def draw(curves: Curves, path: str) -> None:
    """Median and range of cumulative regret, a panel for each problem."""
    panels = []
    for name, found in curves.items():
        drawn = []
        for how, runs in found.items():
            played = np.array(runs)
            t = np.arange(1, played.shape[1] + 1)
            middle, low, high = np.median(played, axis=0), played.min(0), played.max(0)
            drawn.append(Curve(f"{how} start", t, middle, low, high, marks=False))
        axes = {"xlabel": "episode t (each agent)", "ylabel": "cumulative regret, all agents"}
        panels.append(Panel(name, **axes, curves=drawn, logx=False, logy=False))
    paint(panels, Path(path))


if __name__ == "__main__":
    warnings.simplefilter("ignore", TrafficWarning)
    main(*(int(a) for a in sys.argv[1:2]), *sys.argv[2:4])
