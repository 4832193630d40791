"""Settings that every test shares: few threads, reproducible Hypothesis, tests/ on the path."""

from __future__ import annotations

import os
import sys
from pathlib import Path

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


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
