"""keep_models=True: every round's model, kept no larger than it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from expecting import refused
from fedlsvi import FedLSVI, checks
from fedlsvi.algorithms import registry
from fedlsvi.envs import RandomLinearMDP, RiverSwim
from fedlsvi.errors import InvalidSetting

ONE_HOT = RiverSwim(n_states=4, horizon=6)
LINEAR = RandomLinearMDP(n_states=5, n_actions=2, dim=3, horizon=6, seed=0)


@pytest.mark.parametrize(
    ("env", "stationary", "shape"),
    [
        (ONE_HOT, False, (6, 8)),
        (ONE_HOT, True, (1, 8)),
        (LINEAR, False, (6, 3, 3)),
    ],
    ids=["diagonal", "shared diagonal", "dense"],
)
def test_a_model_is_expanded_only_when_asked_for(
    env: Any, stationary: bool, shape: tuple[int, ...]
) -> None:
    run = FedLSVI(2, stationary=stationary).learn(env, 40, progress=False, keep_models=True)
    assert len(run.models) == run.rounds > 1
    assert {gram.shape for _, gram in run.models.packed} == {shape}
    H, d = run.w.shape
    for w, gram in run.models:
        assert (w.shape, gram.shape) == ((H, d), (H, d, d))
    last_w, last_gram = run.models[-1]
    assert np.array_equal(last_w, run.w)
    assert np.array_equal(last_gram, run.gram)
    if len(shape) == 2:
        assert np.array_equal(last_gram, [np.diag(row) for row in run.gram_packed])
    assert len(run.models[:1]) == 1


def test_another_algorithm_keeps_what_it_shares_once() -> None:
    learner = registry.make("centralised", n_agents=2, stationary=False)
    run = learner.learn(ONE_HOT, 10, progress=False, keep_models=True)
    assert {gram.shape for _, gram in run.models.packed} == {(6, 8)}
    assert np.array_equal(run.models[-1][1], run.gram)


def test_kept_models_are_part_of_the_check_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine of 8 GiB. w, the diagonal of Λ and the policy of 20 steps, 1,000 pairs and 500
    states take 400,000 bytes a round; Λ as matrices would take 160 MB."""
    monkeypatch.setattr(checks.os, "sysconf", {"SC_PAGE_SIZE": 2**12, "SC_PHYS_PAGES": 2**21}.get)
    env, T = RiverSwim(n_states=500, horizon=20), 22_000

    def prepare(rounds: int, **settings: Any) -> None:
        FedLSVI(2, rounds=rounds, cap="off", **settings).prepare(env, T, keep_models=True)

    prepare(21_000, stationary=False)
    with refused(InvalidSetting, "too-large", "keep_models", "22,000"):
        prepare(T, stationary=False)
    prepare(T, stationary=True)  # one Λ for all steps
    FedLSVI(2, rounds=T, cap="off", stationary=False).prepare(env, T)
