"""`fedlsvi doctor`, `bench` and `completion`: this machine and its shell."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedlsvi.cli.command import command, format_option
from fedlsvi.cli.text import as_json, columns
from fedlsvi.errors import InvalidInput

if TYPE_CHECKING:
    from fedlsvi.run import Run

TAUS = [1, 3, 7, 12, 18, 24, 29, 36, 43, 51, 59, 61]
"""First episodes of the rounds of `_tiny`, on any machine."""


@command()
def bench() -> int:
    """Time this machine against plain NumPy."""
    from fedlsvi.experiments.bench import main

    return main()


@command()
@click.argument(
    "shell",
    type=click.Choice(["bash", "zsh", "fish"]),
    required=False,
    help="Default: the shell of $SHELL.",
)
def completion(shell: str | None) -> int:
    """Print the script that completes commands, options and names in your shell.

    \b
    Add one line to the file that your shell reads at its start:
      eval "$(fedlsvi completion bash)"      ~/.bashrc
      eval "$(fedlsvi completion zsh)"       ~/.zshrc
      fedlsvi completion fish | source       ~/.config/fish/config.fish
    """  # fmt: skip
    from click.shell_completion import get_completion_class

    from fedlsvi.cli import commands

    name = shell or Path(os.environ.get("SHELL", "")).name
    kind = get_completion_class(name)
    if kind is None:
        raise InvalidInput(
            f"there is no completion for the shell {name!r}: give bash, zsh or fish",
            code="unknown-shell",
        )
    print(kind(commands, {}, "fedlsvi", "_FEDLSVI_COMPLETE").source())
    return 0


@command()
@format_option
def doctor(form: str) -> int:
    """Check the installation and this machine; exit code 1 if a check fails."""
    from fedlsvi.storage import versions

    found = [(name, *_checked(check)) for name, check in CHECKS.items()]
    healthy = all(good for _, good, _ in found)
    if form == "json":
        rows = [{"check": name, "ok": good, "detail": detail} for name, good, detail in found]
        print(as_json({"ok": healthy, "versions": versions(), "checks": rows}))
    else:
        lines = [("ok" if good else "FAIL", name, detail) for name, good, detail in found]
        print("\n".join(columns(lines, "<")))
        print("all checks passed" if healthy else "see the lines marked FAIL")
    return 0 if healthy else 1


def _versions() -> tuple[bool, str]:
    from fedlsvi.storage import versions

    found = versions()
    names = ("fedlsvi", "python", "numpy", "scipy", "numba", "safetensors")
    return True, ", ".join(f"{name} {found[name]}" for name in names) + f", {found['platform']}"


def _threads() -> tuple[bool, str]:
    from fedlsvi.experience.workers import Workers

    workers = Workers()
    workers.close()
    usable = len(os.sched_getaffinity(0))
    return True, f"{workers.threads} for compiled loops, {usable} of {os.cpu_count()} cores usable"


def _blas() -> tuple[bool, str]:
    import numpy as np
    from threadpoolctl import threadpool_info

    np.ones((2, 2)) @ np.ones((2, 2))  # loads the library so that it can be found
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    if not pools:
        return True, "none found; NumPy uses its own matrix product"
    named = {f"{p['internal_api']} {p['version']} ({p['num_threads']} threads)" for p in pools}
    return True, ", ".join(sorted(named)) + "; a run uses one thread"


def _cache() -> tuple[bool, str]:
    import fedlsvi

    where = Path(os.environ.get("NUMBA_CACHE_DIR") or Path(fedlsvi.__file__).parent)
    if os.access(where, os.W_OK):
        return True, f"cached under {where}"
    return False, f"{where} is not writable, so every start compiles again: set NUMBA_CACHE_DIR"


def _disk() -> tuple[bool, str]:
    free = shutil.disk_usage(Path.cwd()).free / 2**30
    return free > 0.1, f"{free:,.1f} GiB free in the current folder"


def _tiny(**cut: Any) -> Run:
    from fedlsvi import FedLSVI
    from fedlsvi.envs import RandomLinearMDP
    from fedlsvi.learner import unattended

    env = RandomLinearMDP(n_states=6, n_actions=2, dim=3, horizon=3, seed=0, initial="uniform")
    learner = FedLSVI(n_agents=4, gamma=8.0, beta=0.5, lam=1.0, preset="paper")
    with unattended():
        return learner.learn(env, episodes=60, seed=0, progress=False, **cut)


def _known_run() -> tuple[bool, str]:
    whole = _tiny(threads=1)
    if whole.taus != TAUS:
        return False, f"the rounds of a known run begin at {whole.taus}, not at {TAUS}"
    for cut in ({"block": 3}, {"threads": 2}, {"cohorts": 4}):
        other = _tiny(**cut)
        if other.w.tobytes() != whole.w.tobytes() or other.taus != whole.taus:
            return False, f"a known run differs with {cut}"
    return True, "bit-identical with other blocks, threads and cohorts"


def _rows() -> tuple[bool, str]:
    """Whether a row of a product of fixed shape has the same bits in every position."""
    import numpy as np

    from fedlsvi.core.blas import one_blas_thread
    from fedlsvi.experience.values import ROWS

    rng = np.random.default_rng(0)
    with one_blas_thread():
        for dim in (5, 8, 20, 64):
            rows, right = rng.standard_normal((ROWS, dim)), rng.standard_normal((dim, dim))
            straight = rows @ right
            for shift in (1, 3, 8, ROWS // 2 + 1):
                moved = np.roll(rows, shift, axis=0) @ right
                if (np.roll(moved, -shift, axis=0) != straight).any():
                    return (
                        False,
                        f"BLAS rounds rows by position (d = {dim}): results may depend on blocks",
                    )
    return True, "a row of a matrix product does not depend on its position"


CHECKS = {
    "versions": _versions,
    "threads": _threads,
    "BLAS": _blas,
    "compiled code": _cache,
    "disk": _disk,
    "known run": _known_run,
    "matrix rows": _rows,
}


def _checked(check: Callable[[], tuple[bool, str]]) -> tuple[bool, str]:
    """A check that raises has failed; the others still run."""
    try:
        return check()
    except Exception as error:  # the doctor reports everything
        return False, f"{type(error).__name__}: {error}"
