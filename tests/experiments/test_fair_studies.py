"""Studies that compare algorithms say what differs between them, and nothing else does."""

from __future__ import annotations

import pytest

from fedlsvi.experiments.claims import centralised, communication, stale
from fedlsvi.experiments.reproduce import study
from fedlsvi.storage.settings_file import Job

PROBLEM = {"algorithm", "episodes", "seed", "n_agents", "env"}
SMALL = dict.fromkeys(("episodes", "seed", "n_agents", "env"))


def test_all_but_two_are_at_their_defaults() -> None:
    """Fed-LSVI and stale have the paper's trigger; docs/results/communication.md says so."""
    changed = {
        spec.labels["arm"]
        for spec in communication.sweep("quick")
        if set(spec.table) - PROBLEM
    }  # fmt: skip
    assert changed == {"fed-lsvi", "stale"}
    arms = {spec.labels["arm"]: spec.table["algorithm"] for spec in communication.sweep("quick")}
    assert arms[communication.DEFAULT] == "fed-lsvi"


def test_fed_lsvi_is_also_measured_exploring_as_the_centralised_learner_does() -> None:
    """Wherever its agents would have different policies."""
    specs = centralised.sweep("quick")
    diverse = set()
    for spec in specs:
        if spec.labels["arm"] == "default":
            job = Job.parse(spec.table)
            plan = job.learner().prepare(job.environments(), job.episodes, job.seed).plan
            assert not plan.parameters.stationary
            if plan.parameters.diversity:
                diverse.add(spec.labels["problem"])
    alike = [spec for spec in specs if spec.labels["arm"] == "alike"]
    assert {spec.labels["problem"] for spec in alike} == diverse == set(centralised.DIVERSE)
    assert all(spec.table["diversity"] == 0 for spec in alike)
    assert set(centralised.PALETTE) == set(centralised.ARMS)


def test_both_protocols_explore_alike() -> None:
    for spec in stale.sweep("quick"):
        job = Job.parse(spec.table)
        plan = job.learner().prepare(job.environments(), job.episodes, job.seed).plan
        assert plan.parameters.diversity == 0.0


@pytest.mark.parametrize(
    "name", ["theorem-1", "theorem-2", "theorem-3", "trigger", "stale", "single-agent"]
)
def test_studies_of_the_paper_have_its_bonus_in_every_arm(name: str) -> None:
    """A default that changes in some arms only would have them compare bonuses."""
    arms = {str({**spec.table, **SMALL}): spec.table for spec in study(name).sweep("quick")}
    for table in arms.values():
        job = Job.parse(table)
        plan = job.learner().prepare(job.environments(), job.episodes, job.seed).plan
        assert plan.parameters.bonus == "constant"
