"""One Ray for all tests of this folder that need it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from fedlsvi.remote.ray import cluster as cluster_module


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """One Ray for all tests of this session; its processes find the modules of the tests."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    cluster_module.connect()
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before
    folders = set(cluster_module._folders)
    yield
    cluster_module._folders |= folders  # which stay where an actor failed, as some do here
    cluster_module.end(cluster_module.ray_library())
