"""Settings that every test shares: few threads, reproducible Hypothesis, tests/ on the path."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

# Before NumPy is imported: the matrices of the tests are small, more threads only cost time.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

# The literal reference and the problems are modules beside this file, under any import mode.
sys.path.insert(0, str(Path(__file__).parent))

import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "ci", deadline=None, max_examples=20, derandomize=True, suppress_health_check=SLOW
)
settings.register_profile("explore", deadline=None, max_examples=300, suppress_health_check=SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # as in a job that a shell has put into the background: tests press Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)

TOGETHER = {
    "flare": (
        *("test_flare.py", "test_flare_jobs.py", "test_federation_to_policy.py"),
        *("test_flare_kills.py", "test_drill.py"),  # never beside it
    ),
    "ray": ("test_ray.py", "test_ray_failures.py"),
}
"""Modules that one worker runs, because they share what is started once in a session; every other
module is a unit of its own."""

LONGEST_FIRST = (
    "tests/remote/flare/test_flare.py",
    "tests/remote/flare/test_federation_to_policy.py",
    "tests/remote/flare/test_flare_jobs.py",
    "tests/remote/flare/test_flare_kills.py",
    "tests/remote/flare/test_drill.py",
    "tests/remote/ray/test_ray",
    "tests/storage/test_kills.py",
    "tests/docs/test_code_blocks.py",
    "tests/remote/test_recovery.py",
    "tests/examples",
    "tests/docs",
    "tests/experiments",
    "tests/report",
)
"""What workers should begin with, so that none of it is left over at the end."""


def pytest_configure(config: pytest.Config) -> None:
    """Workers do not compile what another one is compiling."""
    if hasattr(config, "workerinput"):
        from compiling import one_process_at_a_time

        one_process_at_a_time()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Longest modules first; the order is otherwise that of collection."""

    def place(item: pytest.Item) -> int:
        found = (i for i, path in enumerate(LONGEST_FIRST) if item.nodeid.startswith(path))
        return next(found, len(LONGEST_FIRST))

    items.sort(key=place)


def unit(nodeid: str) -> str:
    """What one worker runs as a whole: a module, or several that stand `TOGETHER`."""
    module = nodeid.partition("::")[0]
    shared = (group for group, files in TOGETHER.items() if module.rpartition("/")[2] in files)
    return next(shared, module)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out modules. (xdist's own groups need a name of pytest that version 9 has not.)"""
    from xdist.scheduler import LoadScopeScheduling

    class ByUnit(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit(nodeid)

    return ByUnit(config, log)


@pytest.fixture
def sketched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures of reports are made but not rendered, which takes nine tenths of a report's time:
    for tests that read a page's text. The figures have tests in tests/report."""

    def sketch(made: object, *paths: str | Path) -> None:
        for path in paths:
            Path(path).write_text("<svg/>")

    monkeypatch.setattr("fedlsvi.report.save", sketch)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
