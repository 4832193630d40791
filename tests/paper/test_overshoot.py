"""overshoot="keep": a world without undo keeps the episodes beyond the signal."""

from __future__ import annotations

import numpy as np
import pytest

from fedlsvi import FedLSVI, Run
from fedlsvi.envs import ContinuousLinearMDP, RandomLinearMDP


@pytest.mark.parametrize("block", [1, 3, None])
@pytest.mark.parametrize("kind", ["finite", "continuous"])
def test_kept_episodes_are_reported_and_counted_once(kind: str, block: int | None) -> None:
    """Every episode lies in exactly one round, and Λ has the trace of all of them."""
    env = (
        RandomLinearMDP(n_states=12, n_actions=3, dim=5, horizon=3, seed=3)
        if kind == "finite"
        else ContinuousLinearMDP(dim=5, n_actions=2, horizon=3, seed=3)
    )
    M, T, lam = 3, 150, 1.0

    def learn(overshoot: str) -> Run:
        learner = FedLSVI(M, lam=lam, beta=0.5, gamma=30.0, overshoot=overshoot)  # type: ignore[arg-type]
        return learner.learn(env, T, seed=4, block=block, progress=False)

    kept, cut = learn("keep"), learn("cut")
    assert [r.first for r in kept.records] == [1, *(r.last + 1 for r in kept.records[:-1])]
    assert kept.records[-1].last == T
    assert sum(r.overshoot for r in kept.records) > 0
    assert all(r.overshoot == 0 for r in cut.records)
    assert kept.rounds <= cut.rounds
    # simplex features: 1ᵀφφᵀ1 = 1 for each of the MT samples, so 1ᵀΛ1 = λd + MT
    total = kept.gram.sum(axis=(1, 2))
    np.testing.assert_allclose(total, lam * 5 + M * T, rtol=1e-12)
