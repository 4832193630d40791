"""`exact` and `secure` give the same model for every split, and `float` within the bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import problems
from expecting import refused
from fedlsvi import FedLSVI, load
from fedlsvi.core.fixed_point import rounding
from fedlsvi.errors import InvalidSetting
from fedlsvi.privacy.sums import FixedPointSums, FloatSums
from fedlsvi.protocol.messages import Upload
from fedlsvi.protocol.transport import InProcess
from transports_over_frames import assert_same

ZOO = [problems.simplex(), problems.one_hot(), problems.deterministic(), problems.continuous()]
NAMES = [problem.name for problem in ZOO]


def learn(problem: Any, aggregation: Any, **options: Any) -> Any:
    policy = options.pop("policy", "auto")
    learner = FedLSVI(
        n_agents=5, gamma=6.0, beta=0.5, lam=0.5, aggregation=aggregation, policy=policy
    )
    return learner.learn(
        problem.envs, episodes=40, seed=3, features=problem.features, progress=False, **options
    )


@pytest.mark.parametrize("problem", ZOO, ids=NAMES)
def test_same_model_whatever_the_split(problem: Any) -> None:
    exact = learn(problem, "exact")
    assert_same(exact, learn(problem, "exact", cohorts=2))
    for split in (None, 3, 4):
        secure = learn(problem, "secure", cohorts=split)
        assert secure.taus == exact.taus
        assert secure.w.tobytes() == exact.w.tobytes()
        assert secure.gram.tobytes() == exact.gram.tobytes()
    assert np.abs(learn(problem, "float").w - exact.w).max() < 1e-9


@pytest.mark.parametrize("problem", ZOO, ids=NAMES)
def test_sums_are_within_the_stated_bound_of_floats(
    problem: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every upload of a run, added both ways; 20 bits after the point, so that rounding shows."""
    seen: list[Upload] = []
    deliver = InProcess.deliver

    def spy(self: InProcess, message: Any) -> Any:
        replies = deliver(self, message)
        seen.extend(reply for reply in replies if isinstance(reply, Upload))
        return replies

    monkeypatch.setattr(InProcess, "deliver", spy)
    run = learn(problem, "float", policy="explore")
    layout, worst = run.plan.layout, 0.0
    assert len(seen) == run.rounds * run.parameters.horizon
    for upload in seen:
        exact = np.concatenate(FixedPointSums(layout, 20)([upload], upload.h))
        added = np.concatenate(FloatSums(layout)([upload], upload.h))
        bound = rounding(20, 5) + 2.0**-52 * 5 * np.abs(added)  # and the rounding of the doubles
        assert (np.abs(exact - added) <= bound).all()
        worst = max(worst, float(np.abs(exact - added).max()))
    assert worst > 0.0


def test_ledger_of_sites_is_its_formula() -> None:
    """One upload for each site, and keys of 4 scalars: 4C up and 4C² down."""
    for sites in (3, 5):
        run = learn(problems.simplex(), "secure", cohorts=sites, policy="explore")
        bound = run.bounds["scalars"]
        assert bound.measured == bound.bound
        upload = run.parameters.horizon * (4 * 5 // 2 + 4)
        assert run.ledger.scalars["up_stats"] == run.rounds * sites * upload
        assert run.ledger.scalars["init"] == 5 * (upload + 3) + 4 * sites + 4 * sites**2


def test_fewer_than_three_sites_are_refused() -> None:
    for few in (1, 2):
        with refused(InvalidSetting, "too-few-sites", str(few)):
            learn(problems.simplex(), "secure", cohorts=few)


def test_unknown_aggregation_is_refused() -> None:
    with refused(InvalidSetting, "bad-aggregation", "mean"):
        learn(problems.simplex(), "mean")


def test_a_folder_keeps_it(tmp_path: Any) -> None:
    """The run folder has the setting and what the formula needs; a killed run resumes as secure."""
    run = learn(problems.simplex(), "secure", folder=tmp_path / "run", checkpoint_seconds=0)
    again = load(tmp_path / "run")
    assert again.parameters.aggregation == "secure"
    assert again.counts == run.counts == {"sites": 5}
    assert again.bounds["scalars"].measured == again.bounds["scalars"].bound
