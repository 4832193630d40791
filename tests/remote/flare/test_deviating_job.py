"""A server on NVIDIA FLARE that asks one site for more than the others gets noise."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from parties import FEDERATION, SITES

from fedlsvi.remote.flare import project
from fedlsvi.remote.flare.demo import free_port
from patience import PATIENCE
from repeats import only_ci

# FLARE's threads use what its libraries call deprecated
pytestmark = pytest.mark.filterwarnings("ignore")

DEVIATING = Path(__file__).with_name("deviating")


@only_ci
def test_a_longer_round_of_one_site_is_noise(tmp_path: Path) -> None:
    """Stop(t + 40) to the first of three sites, Stop(t) to the others. The sum was the victim's
    episodes, all but alone; now masks do not cancel, and nothing that is read can be a sum."""
    secure = {"gamma": 100.0, "aggregation": "secure", "min_round": 20}
    federation = replace(FEDERATION, name="deviates", settings=secure)
    world = {"agents": 1, "env": {"name": "random-linear", "horizon": 5, "dim": 8}}
    folder = project.init(
        tmp_path / "project", federation, dict.fromkeys(SITES, world), port=free_port()
    )
    paths = [str(DEVIATING), *(path for path in sys.path if path)]
    try:
        server = {"localhost": ("env", f"PYTHONPATH={os.pathsep.join(paths)}")}
        project.launch(folder, within=server)
        number = project.start(folder, PATIENCE)
        ended = project.wait(folder, number, PATIENCE)
        found = project.outcome(folder, number, ended)
    finally:
        project.stop(folder, kill=True)
        project.clean(folder)
    assert ended != project.COMPLETED
    assert "all agents together" in found["reason"]
    assert not found["rounds"]
