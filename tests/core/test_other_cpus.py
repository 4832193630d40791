"""Another CPU rounds differently, and still plays the same run: ties do not decide."""

from __future__ import annotations

import platform

import pytest

from cpus import LEARNERS, play_all, play_elsewhere
from repeats import only_ci


@only_ci  # another CPU needs every kernel compiled for it
@pytest.mark.skipif(platform.machine() != "x86_64", reason="emulates an old x86-64")
def test_another_cpu_plays_the_same_rounds() -> None:
    """With features of norm one every first score ties. With rounding as the judge, half of these
    seeds take other policies on the other CPU."""
    names, seeds = list(LEARNERS), 20
    here, there = play_all(names, seeds), play_elsewhere(names, seeds)
    for name in names:
        for one, other in zip(here[name], there[name], strict=True):
            assert one["taus"] == other["taus"], name
            assert one["policy"] == other["policy"], name
            assert one["regret"] == pytest.approx(other["regret"], rel=1e-12)
            assert one["size"] == pytest.approx(other["size"], rel=1e-9)
    fed = zip(here["fed-lsvi"], there["fed-lsvi"], strict=True)
    assert any(one["size"] != other["size"] for one, other in fed), "this was the same CPU"
