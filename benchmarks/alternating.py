"""Is the finite benchmark slower than in an older version? CPU seconds, run alternately.

    git worktree add /tmp/older COMMIT
    python -m benchmarks.alternating /tmp/older/src

Each version runs in its own process; ratios are of the medians of all turns. With the paper's
preset both do the same work; with the practical one each has the default of its version.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

PRESETS = ("paper", "practical")

PLAY = """
import json, sys, time
from fedlsvi import FedLSVI
from fedlsvi.envs import RandomLinearMDP
env = RandomLinearMDP(n_states=50, n_actions=5, dim=20, horizon=10, seed=0)
def learn(preset, episodes):
    learner = FedLSVI(10, preset=preset)
    return learner.learn(env, episodes=episodes, seed=0, progress=False, threads=1).rounds
for line in sys.stdin:
    preset = line.strip()
    learn(preset, 100)
    began = time.process_time()
    rounds = learn(preset, 1_000_000)
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

    def play(self, preset: str) -> tuple[float, int]:
        """CPU seconds and rounds."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(preset, file=self.process.stdin, flush=True)
        spent, rounds = json.loads(self.process.stdout.readline())
        return spent, rounds


def main(older: str, turns: int = 7) -> None:
    """Print a line for each preset."""
    here = Path(__file__).parent.parent / "src"
    versions = {"older": Version(Path(older)), "this": Version(here)}
    for preset in PRESETS:
        spent: dict[str, list[float]] = {name: [] for name in versions}
        rounds = {}
        for turn in range(turns + 1):
            for name, version in versions.items():
                seconds, rounds[name] = version.play(preset)
                if turn:  # the first one compiles
                    spent[name].append(seconds)
        mid = {name: median(found) for name, found in spent.items()}
        said = ", ".join(f"{name} {mid[name]:.2f} s, {rounds[name]} rounds" for name in versions)
        print(f"{preset}: this / older = {mid['this'] / mid['older']:.2f} ({said})", flush=True)
    for version in versions.values():
        version.process.stdin.close()  # type: ignore[union-attr]
        version.process.wait()


if __name__ == "__main__":
    main(sys.argv[1], *(int(a) for a in sys.argv[2:3]))
