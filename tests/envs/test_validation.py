"""Every bad array or parameter is refused by one sentence with field, value, place and fix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from expecting import refused
from fedlsvi.envs import (
    CombinationLock,
    ContinuousLinearMDP,
    DeepSea,
    FiniteMDP,
    Garnet,
    HardChain,
    LinearMDP,
    NChain,
    RandomLinearMDP,
    RandomMDP,
    RiverSwim,
    XiCloseMDP,
    make,
    xi_close,
)
from fedlsvi.errors import InvalidInput

UNIFORM = np.full((2, 3, 2), 0.5)
ZEROS = np.zeros((2, 3))


def spoiled(array: np.ndarray, index: tuple[int, ...], value: float) -> np.ndarray:
    array = array.copy()
    array[index] = value
    return array


def stepped(array: np.ndarray, index: tuple[int, ...], value: float) -> np.ndarray:
    return spoiled(np.stack([array] * 4), index, value)


@pytest.mark.parametrize(
    ("P", "r", "options", "message"),
    [
        (
            spoiled(UNIFORM, (1, 2, 0), 0.6),
            ZEROS,
            {},
            ("bad-P", "P[x=1, a=2]", "1.1", "64"),
        ),
        (stepped(UNIFORM, (3, 1, 2, 0), 0.6), ZEROS, {}, ("bad-P", "P[h=4, x=1, a=2]", "1.1")),
        (spoiled(UNIFORM, (1, 0, 1), 0.5 + 2e-9), ZEROS, {}, ("bad-P", "1.000000002")),
        (spoiled(UNIFORM, (0, 1, 1), -0.5), ZEROS, {}, ("bad-P", "P[x=0, a=1, x'=1]", "-0.5")),
        (spoiled(UNIFORM, (0, 1, 1), np.nan), ZEROS, {}, ("bad-P", "P[x=0, a=1, x'=1]")),
        (np.full((2, 3, 4), 0.25), ZEROS, {}, ("bad-P", "(2, 3, 4)")),
        (np.ones((1, 1)), ZEROS, {}, ("bad-P", "(1, 1)")),
        (np.ones((0, 1, 0)), ZEROS, {}, ("bad-P", "(0, 1, 0)")),
        ([[["a"]]], ZEROS, {}, ("bad-P",)),
        (UNIFORM + 0.3j, ZEROS, {}, ("bad-P",)),
        ([[[1.0 + 0j]]], [[0]], {}, ("bad-P",)),
        (UNIFORM, ZEROS + 0.3j, {}, ("bad-r",)),
        ([[[0.5], [0.5, 0.5]]], ZEROS, {}, ("bad-P",)),
        (
            UNIFORM,
            spoiled(ZEROS, (1, 2), 1.5),
            {},
            ("bad-r", "r[x=1, a=2]", "1.5"),
        ),
        (UNIFORM, spoiled(ZEROS, (1, 2), -2e-9), {}, ("bad-r", "r[x=1, a=2]", "-2e-09")),
        (UNIFORM, spoiled(ZEROS, (1, 2), 1 + 2e-9), {}, ("bad-r", "1.000000002")),
        (UNIFORM, ZEROS, {"initial": [[0], [0, 1]]}, ("bad-initial",)),
        (UNIFORM, spoiled(ZEROS, (1, 2), np.nan), {}, ("bad-r", "r[x=1, a=2]")),
        (UNIFORM, stepped(ZEROS, (2, 1, 2), 7.0), {}, ("bad-r", "r[h=3, x=1, a=2]")),
        (
            UNIFORM,
            spoiled(np.zeros((2, 3, 2)), (1, 2, 0), 7.0),
            {},
            ("bad-r", "r[x=1, a=2, x'=0]"),
        ),
        (
            UNIFORM,
            np.zeros((3, 2)),
            {},
            ("bad-r", "(3, 2)"),
        ),
        (UNIFORM, np.zeros((5, 2, 3)), {"horizon": 4}, ("bad-horizon",)),
        (stepped(UNIFORM, (0, 0, 0, 0), 0.5), np.zeros((5, 2, 3)), {}, ("bad-horizon",)),
        (UNIFORM, ZEROS, {"horizon": None}, ("missing-horizon",)),
        (UNIFORM, ZEROS, {"horizon": 0}, ("bad-horizon",)),
        (UNIFORM, ZEROS, {"horizon": 2.5}, ("bad-horizon", "2.5")),
        (UNIFORM, ZEROS, {"horizon": True}, ("bad-horizon",)),
        (
            UNIFORM,
            ZEROS,
            {"initial": 2},
            ("bad-initial", "initial[agent=0]"),
        ),
        (UNIFORM, ZEROS, {"initial": [0, -1]}, ("bad-initial", "initial[agent=1]", "-1")),
        (
            UNIFORM,
            ZEROS,
            {"initial": [0.5, 0.6]},
            ("bad-initial", "initial[agent=0]", "1.1"),
        ),
        (UNIFORM, ZEROS, {"initial": [[1.0, 0.0], [np.nan, 1.0]]}, ("bad-initial",)),
        (UNIFORM, ZEROS, {"initial": [0.5, 0.25, 0.25]}, ("bad-initial", "(3,)")),
        (UNIFORM, ZEROS, {"initial": []}, ("bad-initial", "(0,)")),
        (UNIFORM, ZEROS, {"initial": "random"}, ("bad-initial", "'random'")),
        (UNIFORM, ZEROS, {"initial": None}, ("bad-initial",)),
        (
            UNIFORM,
            ZEROS,
            {"phi": np.full((2, 3, 2), 0.9)},
            ("norm-above-1", "features[x=0, a=0]", "1.27"),
        ),
        (
            UNIFORM,
            ZEROS,
            {"phi": np.zeros((3, 3, 2))},
            ("bad-shape", "(3, 3, 2)"),
        ),
    ],
)
def test_arrays_that_are_no_mdp(
    P: Any, r: Any, options: dict[str, Any], message: tuple[str, ...]
) -> None:
    stationary = np.shape(r) in ((2, 3), (2, 3, 2))
    with refused(InvalidInput, *message):
        FiniteMDP(P, r, **(({"horizon": 4} if stationary else {}) | options))


def test_an_ambiguous_shape_is_not_guessed() -> None:
    """With S = A = H = 2, (2, 2, 2) is both (H, S, A) and (S, A, S)."""
    P, r = np.full((2, 2, 2), 0.5), np.zeros((2, 2, 2))
    with refused(InvalidInput, "ambiguous-r", "(2, 2, 2)"):
        FiniteMDP(P, r, horizon=2)
    with refused(InvalidInput, "ambiguous-r"):
        FiniteMDP(P, r)
    assert FiniteMDP(P[None], r, horizon=2).reward_on_transition is None
    assert FiniteMDP(P, r[None], horizon=2).reward_on_transition is not None
    assert FiniteMDP(P, r, horizon=3).reward_on_transition is not None


PHI = np.eye(3).reshape(3, 1, 3)
MU = np.eye(3)[[1, 2, 0]]


@pytest.mark.parametrize(
    ("phi", "mu", "theta", "message"),
    [
        (2 * PHI, MU, np.zeros(3), ("norm-above-1", "features[x=0, a=0]")),
        (PHI, MU, [1.0, 2.0, 0.0], ("bad-theta", "theta[h=1]", "2.236067977", "1.7320508")),
        (PHI, MU, [1.0, 1.1, 0.0], ("bad-theta", "1.1")),
        (PHI, MU, [1.0, -0.1, 0.0], ("bad-theta", "-0.1")),
        (PHI, 2 * MU, np.zeros(3), ("bad-mu", "3.46")),
        (PHI, 0.5 * MU, np.zeros(3), ("bad-P", "P[h=1, x=0, a=0]", "0.5")),
        (PHI, MU - 0.2 * np.eye(3), np.zeros(3), ("bad-mu", "-0.2")),
        (PHI, MU[:, :2], np.zeros(3), ("bad-mu", "(3, 2)", "(3, 1, 3)")),
        (PHI, MU, np.zeros(2), ("bad-theta", "(2,)")),
        (PHI, spoiled(MU, (1, 2), np.nan), np.zeros(3), ("bad-mu", "mu[h=1, i=1, x=2]")),
        (PHI, MU, [0.0, np.inf, 0.0], ("bad-theta", "theta[h=1, i=1]")),
        (PHI, np.stack([MU] * 3), np.zeros((4, 3)), ("bad-horizon",)),
    ],
)
def test_arrays_that_are_no_linear_mdp(
    phi: Any, mu: Any, theta: Any, message: tuple[str, ...]
) -> None:
    with refused(InvalidInput, *message):
        LinearMDP(phi, mu, theta, horizon=2)


LINEAR = RandomLinearMDP(3, 2, 2, 2)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (
            lambda: RandomLinearMDP(n_states=2, n_actions=2, dim=5),
            ("bad-dim",),
        ),
        (lambda: RandomLinearMDP(n_states=0), ("bad-n_states", "n_states")),
        (lambda: RiverSwim(horizon=10**400), ("bad-horizon", "1000")),
        (lambda: HardChain(gap=10**400), ("bad-gap", "1000")),
        (lambda: RandomLinearMDP(seed=-1), ("bad-seed", "-1")),
        (lambda: RandomLinearMDP(horizon="3"), ("bad-horizon", "'3'")),  # type: ignore[arg-type]
        (lambda: RandomLinearMDP(initial=99), ("bad-initial", "99", "19")),
        (lambda: HardChain(dim=1), ("bad-dim",)),
        (lambda: HardChain(dim=20), ("bad-dim", "20", "19", "12")),
        (lambda: HardChain(horizon=1), ("bad-horizon",)),
        (lambda: HardChain(gap=1.5), ("bad-gap", "1.5")),
        (lambda: HardChain(gap=0.0), ("bad-gap", "0.0")),
        (lambda: HardChain(gap=np.nan), ("bad-gap",)),
        (lambda: HardChain(gap="x"), ("bad-gap", "'x'")),  # type: ignore[arg-type]
        (lambda: CombinationLock(n_actions=2, dim=7), ("bad-dim",)),
        (lambda: CombinationLock(n_actions=1), ("bad-n_actions", "n_actions")),
        (lambda: RiverSwim(1), ("bad-n_states", "n_states")),
        (lambda: NChain(2), ("bad-n_states", "n_states")),
        (lambda: DeepSea(1), ("bad-size",)),
        (lambda: Garnet(n_states=2, branching=3), ("bad-branching",)),
        (lambda: RandomMDP(epsilon=2), ("bad-epsilon",)),
        (lambda: ContinuousLinearMDP(dim=1), ("bad-dim",)),
        (lambda: ContinuousLinearMDP(points=1), ("bad-points",)),
        (lambda: ContinuousLinearMDP(initial=1.5), ("bad-initial", "initial[agent=0]", "1.5")),
        (lambda: ContinuousLinearMDP(initial=[0.5, np.nan]), ("bad-initial", "initial[agent=1]")),
        (lambda: ContinuousLinearMDP(initial="x"), ("bad-initial", "'x'")),
        (lambda: ContinuousLinearMDP(initial=[[0.1]]), ("bad-initial", "(1, 1)")),
        (lambda: ContinuousLinearMDP().step(0, *[np.zeros((1, 2))] * 3), ("bad-step",)),
        (lambda: xi_close(LINEAR, 0, 0.1), ("bad-n_agents", "n_agents")),
        (lambda: xi_close(LINEAR, 2, 1.1), ("bad-xi", "1.1")),
        (
            lambda: xi_close(LINEAR, 2, 0.1, mode="exakt"),
            ("unknown-mode", "'exakt'", "'exact'"),
        ),
        (lambda: xi_close(LINEAR, 2, 0.1, noise="points"), ("unknown-noise", "'points'")),
        (lambda: xi_close(RiverSwim(), 2, 0.1), ("bad-reference",)),  # type: ignore[arg-type]
        (
            lambda: xi_close(HardChain(), 2, 0.1),
            ("bad-noise", "'point'"),
        ),
    ],
)
def test_bad_parameters(made: Callable[[], Any], message: tuple[str, ...]) -> None:
    with refused(InvalidInput, *message):
        made()


def test_the_advice_for_rows_in_single_precision_helps() -> None:
    P = np.random.default_rng(0).random((50, 3, 50)).astype(np.float32)
    P /= P.sum(axis=-1, keepdims=True)
    with refused(InvalidInput, "bad-P", "64"):
        FiniteMDP(P, np.zeros((50, 3)), horizon=2)
    exact = P.astype(np.float64)
    assert FiniteMDP(exact / exact.sum(axis=-1, keepdims=True), np.zeros((50, 3)), horizon=2)


def test_an_environment_that_no_memory_holds_is_refused() -> None:
    with refused(InvalidInput, "constructor-failed", "1000000000000"):
        make("river-swim", n_states=10**12)


def test_a_reference_without_parameters_is_refused() -> None:
    with refused(InvalidInput, "bad-spec", "'name'", "'x'"):
        XiCloseMDP({"name": "x"})
