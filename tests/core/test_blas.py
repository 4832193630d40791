"""BLAS has one thread while we compute, and as many as before when we are done."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import fedlsvi
from fedlsvi.core.blas import one_blas_thread
from fedlsvi.features import FourierFeatures


def threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def _two() -> Any:
    with threadpool_limits(limits=2, user_api="blas"):
        yield


def test_the_limit_ends_with_the_last_who_asked_for_it() -> None:
    with one_blas_thread():
        assert threads() == {1}
        with one_blas_thread():
            assert threads() == {1}
        assert threads() == {1}
    assert threads() == {2}


def test_a_policy_acts_on_one_thread() -> None:
    seen: list[set[int]] = []

    class Watched(FourierFeatures):
        def fill(self, states: np.ndarray, out: np.ndarray) -> None:
            seen.append(threads())
            super().fill(states, out)

    run = fedlsvi.FedLSVI(1).learn("CartPole-v1", 2, features=Watched(), horizon=5, progress=False)
    seen.clear()
    run.policy.action(np.zeros(4), step=1)
    assert seen == [{1}]
    assert threads() == {2}
