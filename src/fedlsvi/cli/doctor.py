"""`fedlsvi doctor`: what this machine is, and whether results on it can be trusted."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

import fedlsvi
from fedlsvi.cli.text import as_json
from fedlsvi.experience.values import ROWS
from fedlsvi.experience.workers import Workers
from fedlsvi.storage import versions

TAUS = [1, 3, 7, 12, 18, 24, 29, 36, 43, 51, 59, 61]
"""First episodes of the rounds of `_tiny`, on any machine."""

Check = tuple[str, bool, str]


def do_doctor(arguments: argparse.Namespace) -> int:
    """Check everything; exit code 1 if something is wrong."""
    found = list(_checks())
    healthy = all(good for _, good, _ in found)
    if arguments.format == "json":
        rows = [{"check": name, "ok": good, "detail": detail} for name, good, detail in found]
        print(as_json({"ok": healthy, "versions": versions(), "checks": rows}))
    else:
        width = max(len(name) for name, _, _ in found)
        for name, good, detail in found:
            print(f"{'ok ' if good else 'BAD'}  {name.ljust(width)}  {detail}")
        print("everything is in order" if healthy else "see the lines marked BAD")
    return 0 if healthy else 1


def _checks() -> Iterator[Check]:
    for name, check in (
        ("versions", _versions),
        ("threads", _threads),
        ("BLAS", _blas),
        ("compiled code", _cache),
        ("disk", _disk),
        ("known run", _known_run),
        ("matrix rows", _rows),
    ):
        yield _guarded(name, check)


def _guarded(name: str, check: Callable[[], tuple[bool, str]]) -> Check:
    """A check that raises has failed; the others still run."""
    try:
        return (name, *check())
    except Exception as error:  # whatever it is, the doctor reports it
        return name, False, f"{type(error).__name__}: {error}"


def _versions() -> tuple[bool, str]:
    found = versions()
    names = ("fedlsvi", "python", "numpy", "scipy", "numba", "safetensors")
    return True, ", ".join(f"{name} {found[name]}" for name in names) + f", {found['platform']}"


def _threads() -> tuple[bool, str]:
    workers = Workers()
    workers.close()
    usable = len(os.sched_getaffinity(0))
    return True, f"{workers.threads} for compiled loops, {usable} of {os.cpu_count()} cores usable"


def _blas() -> tuple[bool, str]:
    np.ones((2, 2)) @ np.ones((2, 2))  # loads the library, so that it can be found
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    if not pools:
        return True, "none found; NumPy multiplies by itself"
    named = {f"{p['internal_api']} {p['version']} ({p['num_threads']} threads)" for p in pools}
    return True, ", ".join(sorted(named)) + "; one thread is used while a run is played"


def _cache() -> tuple[bool, str]:
    where = Path(os.environ.get("NUMBA_CACHE_DIR") or Path(fedlsvi.__file__).parent)
    if os.access(where, os.W_OK):
        return True, f"cached under {where}"
    return False, f"{where} is not writable, every start compiles anew: set NUMBA_CACHE_DIR"


def _disk() -> tuple[bool, str]:
    free = shutil.disk_usage(Path.cwd()).free / 2**30
    return free > 0.1, f"{free:,.1f} GiB free in the current folder"


def _tiny(**cut: Any) -> fedlsvi.Run:
    from fedlsvi.envs import RandomLinearMDP

    env = RandomLinearMDP(n_states=6, n_actions=2, dim=3, horizon=3, seed=0, initial="uniform")
    learner = fedlsvi.FedLSVI(n_agents=4, gamma=8.0, beta=0.5, lam=1.0, preset="paper")
    return learner.learn(env, episodes=60, seed=0, progress=False, **cut)


def _known_run() -> tuple[bool, str]:
    whole = _tiny(threads=1)
    if whole.taus != TAUS:
        return False, f"the rounds of a known run begin at {whole.taus}, not at {TAUS}"
    for cut in ({"block": 3}, {"threads": 2}, {"cohorts": 4}):
        other = _tiny(**cut)
        if other.w.tobytes() != whole.w.tobytes() or other.taus != whole.taus:
            return False, f"a known run came out differently with {cut}"
    return True, "as expected, to the last bit with other blocks, threads and cohorts"


def _rows() -> tuple[bool, str]:
    """Does a row of a product of fixed shape keep its bits wherever it stands?"""
    rng = np.random.default_rng(0)
    with threadpool_limits(limits=1, user_api="blas"):
        for dim in (5, 8, 20, 64):
            rows, right = rng.standard_normal((ROWS, dim)), rng.standard_normal((dim, dim))
            straight = rows @ right
            for shift in (1, 3, 8, ROWS // 2 + 1):
                moved = np.roll(rows, shift, axis=0) @ right
                if (np.roll(moved, -shift, axis=0) != straight).any():
                    return False, f"BLAS rounds rows by their place (d = {dim}): blocks may matter"
    return True, "a row of a matrix product does not depend on its place"
