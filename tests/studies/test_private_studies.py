"""The studies of private runs: what they vary reaches the run, and every arm can be played."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlsvi import FedLSVI
from fedlsvi.core.stepwise_release import StepwiseRelease
from fedlsvi.envs import RandomLinearMDP
from fedlsvi.protocol.session import FederatedPlayer
from studies import private, private_steps
from studies.arms import ArmFile

pytestmark = pytest.mark.filterwarnings("ignore::fedlsvi.errors.TrafficWarning")


def test_another_division_of_the_budget_reaches_the_noise() -> None:
    """ρ = 2: σ_h is twice as large beside σ, Λ has 1/(1 + 1/4) of μ², and μ stays."""
    learner = FedLSVI(
        6, aggregation="secure", rounds=9, privacy={"epsilon": 5.0, "delta": 1e-7},
        exchange="stepwise",
    )  # fmt: skip
    session = learner.prepare(RandomLinearMDP(seed=0), 200, 0, cohorts=3)
    session.close()
    usual = session.plan.parameters.release
    assert isinstance(usual, StepwiseRelease)
    parameters = private_steps.divided(session.plan.parameters, 2.0)
    player: Any = FederatedPlayer.of(replace(session.plan, parameters=parameters), 3)
    release = player.between.repair.release
    player.close()
    np.testing.assert_allclose(release.ratios, 2.0 * usual.ratios)
    gram, response = release.split
    assert gram**2 == pytest.approx(0.8 * release.mu**2)
    assert gram**2 + response**2 == pytest.approx(usual.mu**2)
    assert parameters.scale_bits == release.bits


def test_another_shift_reaches_the_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    shifts = []

    def late_regret(session: Any) -> float:
        shifts.append(session.player.between.repair.shift)
        session.close()
        return 0.0

    monkeypatch.setattr(private, "late_regret", late_regret)
    private.play(private.Arm(5.0, 200, 3, 9, 0.3), 8_500)
    private.play(private.Arm(5.0, 200, 3), 8_500)
    assert shifts == [0.3, 0.1]


@pytest.mark.parametrize(
    ("study", "arms"),
    [
        (private, [private.Arm(5.0, 200, 3, 9, 0.3), private.Arm(5.0, 200, 0),
                   private.Arm(None, 200, 3)]),
        (private_steps, [private_steps.Arm(5.0, 200, "stepwise", False, 2.0, 9),
                         private_steps.Arm(5.0, 200, "one-trip"),
                         private_steps.Arm(None, 200, "stepwise")]),
    ],
)  # fmt: skip
def test_every_kind_of_arm_is_played_once(study: Any, arms: list[Any], tmp_path: Path) -> None:
    """The share of the uniform policy's regret is between none and, with much noise, twice it."""
    runs = [(arm, 8_500) for arm in arms]
    ArmFile(tmp_path / "runs", study.Arm).play(runs, study.play)
    again = ArmFile(tmp_path / "runs", study.Arm)
    again.play(runs, lambda *_: pytest.fail("it was played again"))
    for arm in arms:
        (value,) = again.values(arm)
        assert 0.0 <= value < 2.0
