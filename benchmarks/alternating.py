"""Are finite and continuous states slower than in an older version? CPU seconds, run alternately.

    git worktree add /tmp/older COMMIT
    python -m benchmarks.alternating /tmp/older/src [TURNS [WORLD …]]

Each version runs in its own process; ratios are of the medians of all turns. With the paper's
preset both do the same work; with the practical one each has the default of its version. Worlds
are `finite` and `continuous`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import median

WORLDS = ("finite", "continuous")
PRESETS = ("paper", "practical")

PLAY = """
import json, sys, time
from fedlsvi import FedLSVI
from fedlsvi.envs import ContinuousLinearMDP, RandomLinearMDP
finite = RandomLinearMDP(n_states=50, n_actions=5, dim=20, horizon=10, seed=0)
continuous = ContinuousLinearMDP(dim=64, n_actions=4, horizon=5, seed=0)
WORLDS = {"finite": (finite, 10, 1_000_000), "continuous": (continuous, 4, 2_000)}
def learn(env, agents, preset, episodes):
    learner = FedLSVI(agents, preset=preset)
    return learner.learn(env, episodes=episodes, seed=0, progress=False, threads=1).rounds
for line in sys.stdin:
    world, preset = line.split()
    env, agents, episodes = WORLDS[world]
    learn(env, agents, preset, 100)
    began = time.process_time()
    rounds = learn(env, agents, preset, episodes)
    print(json.dumps([time.process_time() - began, rounds]), flush=True)
"""


class Version:
    """A process with one version of the package, which plays when it is told to."""

    def __init__(self, source: Path) -> None:
        whole = os.environ | {"PYTHONPATH": str(source), "PYTHONWARNINGS": "ignore"}
        single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, "-c", PLAY], env=whole | single, stdin=pipe, stdout=pipe, text=True
        )

    def play(self, world: str, preset: str) -> tuple[float, int]:
        """CPU seconds and rounds."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(world, preset, file=self.process.stdin, flush=True)
        spent, rounds = json.loads(self.process.stdout.readline())
        return spent, rounds


def main(older: str, turns: int = 7, worlds: Sequence[str] = WORLDS) -> None:
    """Print a line for each world and preset."""
    here = Path(__file__).parent.parent / "src"
    versions = {"older": Version(Path(older)), "this": Version(here)}
    for world, preset in product(worlds, PRESETS):
        spent: dict[str, list[float]] = {name: [] for name in versions}
        rounds = {}
        for turn in range(turns + 1):
            for name, version in versions.items():
                seconds, rounds[name] = version.play(world, preset)
                if turn:  # the first one compiles
                    spent[name].append(seconds)
        mid = {name: median(found) for name, found in spent.items()}
        said = ", ".join(f"{name} {mid[name]:.2f} s, {rounds[name]} rounds" for name in versions)
        ratio = mid["this"] / mid["older"]
        print(f"{world}, {preset}: this / older = {ratio:.2f} ({said})", flush=True)
    for version in versions.values():
        version.process.stdin.close()  # type: ignore[union-attr]
        version.process.wait()


if __name__ == "__main__":
    source, *rest = sys.argv[1:]
    main(source, int(rest[0]) if rest else 7, rest[1:] or WORLDS)
