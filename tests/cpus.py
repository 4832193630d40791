"""Plays a few runs and prints what another CPU must repeat: `python tests/cpus.py SEEDS NAME…`.

The environment of the process may emulate another CPU: NUMBA_CPU_NAME for compiled loops,
OPENBLAS_CORETYPE for matrix products.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from fedlsvi.algorithms import registry
from fedlsvi.envs import FiniteMDP
from patience import PATIENCE

OTHER_CPU = {
    "NUMBA_CPU_NAME": "generic",
    "NUMBA_CPU_FEATURES": "",
    "OPENBLAS_CORETYPE": "Prescott",
}
"""An x86-64 without wide vectors and fused products."""

LEARNERS: dict[str, dict[str, Any]] = {
    "fed-lsvi": {"gamma": 40.0},
    "fed-ucbvi": {"c": 0.1},
    "lsvi-ucb-pp": {},
    "fedq-bernstein": {"c": 0.02},
    "coopts-phe": {},
    "coop-lsvi": {},
    "centralised": {},
}


def unit_norms(seed: int = 0, S: int = 7, A: int = 5, d: int = 11, H: int = 3) -> FiniteMDP:
    """A table of features of norm one: at w = 0 every score is a tie."""
    rng = np.random.default_rng(seed)
    phi = rng.normal(size=(S, A, d))
    phi /= np.linalg.norm(phi, axis=2, keepdims=True)
    P = rng.dirichlet(np.full(S, 0.5), size=(S, A))
    return FiniteMDP(P, rng.random((S, A)), horizon=H, initial=0, phi=phi)


def played(name: str, seed: int) -> dict[str, Any]:
    """τ's, the last policy, regret and the sum of |w| of one run."""
    learner = registry.make(name, n_agents=3, **LEARNERS[name])
    run = learner.learn(unit_norms(seed), 150, seed, progress=False)
    return {
        "taus": [int(t) for t in run.taus],
        "policy": run.exploring_policy.table.tolist(),
        "regret": float(run.regret[-1]),
        "size": float(np.abs(run.w).sum()),
    }


def play_all(names: list[str], seeds: int) -> dict[str, list[dict[str, Any]]]:
    """These learners on every seed."""
    return {name: [played(name, seed) for seed in range(seeds)] for name in names}


def play_elsewhere(names: list[str], seeds: int) -> dict[str, list[dict[str, Any]]]:
    """The same in a process that emulates another CPU."""
    command = [sys.executable, __file__, str(seeds), *names]
    done = subprocess.run(
        command, env=os.environ | OTHER_CPU, capture_output=True, text=True, check=True,
        cwd=Path(__file__).parent, timeout=PATIENCE,
    )  # fmt: skip
    found: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    print(json.dumps(play_all(sys.argv[2:], int(sys.argv[1]))))
