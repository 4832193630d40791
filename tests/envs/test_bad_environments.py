"""Every bad array or parameter is refused by one sentence with field, value, place and fix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

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
            r"P\[x=1, a=2\] sums to 1.1, not 1: divide the row by its sum, in float64",
        ),
        (stepped(UNIFORM, (3, 1, 2, 0), 0.6), ZEROS, {}, r"P\[h=4, x=1, a=2\] sums to 1.1, not 1"),
        (spoiled(UNIFORM, (1, 0, 1), 0.5 + 2e-9), ZEROS, {}, "sums to 1.000000002"),
        (spoiled(UNIFORM, (0, 1, 1), -0.5), ZEROS, {}, r"P\[x=0, a=1, x'=1\] is -0.5, a negative"),
        (spoiled(UNIFORM, (0, 1, 1), np.nan), ZEROS, {}, r"P\[x=0, a=1, x'=1\] is nan: replace"),
        (np.full((2, 3, 4), 0.25), ZEROS, {}, r"P has shape \(2, 3, 4\): give \(S, A, S\), or"),
        (np.ones((1, 1)), ZEROS, {}, r"P has shape \(1, 1\)"),
        (np.ones((0, 1, 0)), ZEROS, {}, r"P has shape \(0, 1, 0\)"),
        ([[["a"]]], ZEROS, {}, "P must be an array of numbers, got list"),
        (UNIFORM + 0.3j, ZEROS, {}, "P must be an array .* complex .*: give .* floats"),
        ([[[1.0 + 0j]]], [[0]], {}, "P must be an array of numbers, got list"),
        (UNIFORM, ZEROS + 0.3j, {}, "r must be an array of numbers, got ndarray"),
        ([[[0.5], [0.5, 0.5]]], ZEROS, {}, "P must be an array of numbers, got list with ragged"),
        (
            UNIFORM,
            spoiled(ZEROS, (1, 2), 1.5),
            {},
            r"r\[x=1, a=2\] is 1.5, outside \[0, 1\]: shift",
        ),
        (UNIFORM, spoiled(ZEROS, (1, 2), -2e-9), {}, r"r\[x=1, a=2\] is -2e-09, outside"),
        (UNIFORM, spoiled(ZEROS, (1, 2), 1 + 2e-9), {}, r"is 1.000000002, outside"),
        (UNIFORM, ZEROS, {"initial": [[0], [0, 1]]}, "initial must be an array of numbers, got l"),
        (UNIFORM, spoiled(ZEROS, (1, 2), np.nan), {}, r"r\[x=1, a=2\] is nan: replace"),
        (UNIFORM, stepped(ZEROS, (2, 1, 2), 7.0), {}, r"r\[h=3, x=1, a=2\] is 7, outside"),
        (
            UNIFORM,
            spoiled(np.zeros((2, 3, 2)), (1, 2, 0), 7.0),
            {},
            r"r\[x=1, a=2, x'=0\] is 7, outside",
        ),
        (
            UNIFORM,
            np.zeros((3, 2)),
            {},
            r"r has shape \(3, 2\), P has 2 states and 3 actions: give",
        ),
        (UNIFORM, np.zeros((5, 2, 3)), {"horizon": 4}, "r has 5 steps, horizon says 4: make them"),
        (stepped(UNIFORM, (0, 0, 0, 0), 0.5), np.zeros((5, 2, 3)), {}, "r has 5 steps, P says 4"),
        (UNIFORM, ZEROS, {"horizon": None}, "horizon is required when transitions and rewards are"),
        (UNIFORM, ZEROS, {"horizon": 0}, "horizon must be at least 1, got 0"),
        (UNIFORM, ZEROS, {"horizon": 2.5}, "horizon must be an integer, got 2.5"),
        (UNIFORM, ZEROS, {"horizon": True}, "horizon must be an integer, got True"),
        (
            UNIFORM,
            ZEROS,
            {"initial": 2},
            r"initial\[agent=0\] is state 2: give a state from 0 to 1",
        ),
        (UNIFORM, ZEROS, {"initial": [0, -1]}, r"initial\[agent=1\] is state -1"),
        (UNIFORM, ZEROS, {"initial": [0.5, 0.6]}, r"initial\[agent=0\] sums to 1.1, not 1"),
        (UNIFORM, ZEROS, {"initial": [[1.0, 0.0], [np.nan, 1.0]]}, r"\[agent=1, x=0\] is nan"),
        (UNIFORM, ZEROS, {"initial": [0.5, 0.25, 0.25]}, r"initial has shape \(3,\): give a state"),
        (UNIFORM, ZEROS, {"initial": []}, r"initial has shape \(0,\)"),
        (UNIFORM, ZEROS, {"initial": "random"}, "initial is 'random': give a state, a law"),
        (UNIFORM, ZEROS, {"initial": None}, "initial"),
        (UNIFORM, ZEROS, {"phi": np.full((2, 3, 2), 0.9)}, r"features\[x=0, a=0\] has norm 1.27"),
        (
            UNIFORM,
            ZEROS,
            {"phi": np.zeros((3, 3, 2))},
            r"features have shape \(3, 3, 2\), FiniteMDP",
        ),
    ],
)
def test_arrays_that_are_no_mdp(P: Any, r: Any, options: dict[str, Any], message: str) -> None:
    stationary = np.shape(r) in ((2, 3), (2, 3, 2))
    with pytest.raises(InvalidInput, match=message):
        FiniteMDP(P, r, **(({"horizon": 4} if stationary else {}) | options))


def test_an_ambiguous_shape_is_not_guessed() -> None:
    """With S = A = H = 2, (2, 2, 2) is both (H, S, A) and (S, A, S)."""
    P, r = np.full((2, 2, 2), 0.5), np.zeros((2, 2, 2))
    with pytest.raises(InvalidInput, match=r"r of shape \(2, 2, 2\) may be \(H, S, A\) or"):
        FiniteMDP(P, r, horizon=2)
    with pytest.raises(InvalidInput, match=r"give P as \(H, S, A, S\) for the first"):
        FiniteMDP(P, r)
    assert FiniteMDP(P[None], r, horizon=2).reward_on_transition is None
    assert FiniteMDP(P, r[None], horizon=2).reward_on_transition is not None
    assert FiniteMDP(P, r, horizon=3).reward_on_transition is not None


PHI = np.eye(3).reshape(3, 1, 3)
MU = np.eye(3)[[1, 2, 0]]


@pytest.mark.parametrize(
    ("phi", "mu", "theta", "message"),
    [
        (2 * PHI, MU, np.zeros(3), r"features\[x=0, a=0\] has norm 2 > 1"),
        (PHI, MU, [1.0, 2.0, 0.0], r"theta\[h=1\] has norm 2.236067977 > sqrt\(d\) = 1.7320508"),
        (PHI, MU, [1.0, 1.1, 0.0], r"⟨phi, theta⟩\[h=1, x=1, a=0\] is 1.1: keep every product"),
        (PHI, MU, [1.0, -0.1, 0.0], r"⟨phi, theta⟩\[h=1, x=1, a=0\] is -0.1"),
        (PHI, 2 * MU, np.zeros(3), r"mu\(X\)\[h=1\] has norm 3.46.* > sqrt\(d\)"),
        (PHI, 0.5 * MU, np.zeros(3), r"P\[h=1, x=0, a=0\] sums to 0.5"),
        (PHI, MU - 0.2 * np.eye(3), np.zeros(3), r"⟨phi, mu⟩\[h=1, x=0, a=0, x'=0\] is -0.2: make"),
        (PHI, MU[:, :2], np.zeros(3), r"mu has shape \(3, 2\), phi has shape \(3, 1, 3\): give mu"),
        (PHI, MU, np.zeros(2), r"theta has shape \(2,\), phi has shape"),
        (PHI, spoiled(MU, (1, 2), np.nan), np.zeros(3), r"mu\[h=1, i=1, x=2\] is nan"),
        (PHI, MU, [0.0, np.inf, 0.0], r"theta\[h=1, i=1\] is inf"),
        (PHI, np.stack([MU] * 3), np.zeros((4, 3)), "mu has 3 steps, horizon says 2"),
    ],
)
def test_arrays_that_are_no_linear_mdp(phi: Any, mu: Any, theta: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        LinearMDP(phi, mu, theta, horizon=2)


LINEAR = RandomLinearMDP(3, 2, 2, 2)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (
            lambda: RandomLinearMDP(n_states=2, n_actions=2, dim=5),
            "dim is 5, but 2 states .* only 4",
        ),
        (lambda: RandomLinearMDP(n_states=0), "n_states must be at least 1, got 0"),
        (lambda: RiverSwim(horizon=10**400), r"horizon must be below 2\^63, got 1000"),
        (lambda: HardChain(gap=10**400), "gap must be a number, got 1000"),
        (
            lambda: make("river-swim", n_states=10**12),
            "cannot make environment 'river-swim' from {'n_states': 1000000000000}: ",
        ),
        (lambda: RandomLinearMDP(seed=-1), "seed must be at least 0, got -1"),
        (lambda: RandomLinearMDP(horizon="3"), "horizon must be an integer, got '3'"),  # type: ignore[arg-type]
        (lambda: RandomLinearMDP(initial=99), "is state 99: give a state from 0 to 19"),
        (lambda: HardChain(dim=1), "dim must be at least 2, got 1"),
        (lambda: HardChain(dim=20), r"dim is 20, which makes 2\^19 actions: give at most 12"),
        (lambda: HardChain(horizon=1), "horizon must be at least 2, got 1"),
        (lambda: HardChain(gap=1.5), r"gap must lie in \(0, 1\], got 1.5"),
        (lambda: HardChain(gap=0.0), r"gap must lie in \(0, 1\], got 0.0"),
        (lambda: HardChain(gap=np.nan), r"gap must lie in \(0, 1\], got nan"),
        (lambda: HardChain(gap="x"), "gap must be a number, got 'x'"),  # type: ignore[arg-type]
        (lambda: CombinationLock(n_actions=2, dim=7), "dim is 7, but 3 states and 2 actions .* 6"),
        (lambda: CombinationLock(n_actions=1), "n_actions must be at least 2, got 1"),
        (lambda: RiverSwim(1), "n_states must be at least 2, got 1"),
        (lambda: NChain(2), "n_states must be at least 3, got 2"),
        (lambda: DeepSea(1), "size must be at least 2, got 1"),
        (lambda: Garnet(n_states=2, branching=3), "branching is 3, but there are 2 states: give"),
        (lambda: RandomMDP(epsilon=2), r"epsilon must lie in \[0, 1\], got 2"),
        (lambda: ContinuousLinearMDP(dim=1), "dim must be at least 2, got 1"),
        (lambda: ContinuousLinearMDP(points=1), "points must be at least 2, got 1"),
        (lambda: ContinuousLinearMDP(initial=1.5), r"initial\[agent=0\] is 1.5: give a state in"),
        (lambda: ContinuousLinearMDP(initial=[0.5, np.nan]), r"initial\[agent=1\] is nan"),
        (lambda: ContinuousLinearMDP(initial="x"), "initial is 'x': give a state in"),
        (lambda: ContinuousLinearMDP(initial=[[0.1]]), r"initial has shape \(1, 1\)"),
        (lambda: ContinuousLinearMDP().step(0, *[np.zeros((1, 2))] * 3), "h is 0: give a step"),
        (lambda: xi_close(LINEAR, 0, 0.1), "n_agents must be at least 1, got 0"),
        (lambda: xi_close(LINEAR, 2, 1.1), r"xi must lie in \[0, 1\], got 1.1"),
        (
            lambda: xi_close(LINEAR, 2, 0.1, mode="exakt"),
            "unknown mode 'exakt': did you mean 'exact'",
        ),
        (lambda: xi_close(LINEAR, 2, 0.1, noise="points"), "unknown noise 'points': did you mean"),
        (lambda: xi_close(RiverSwim(), 2, 0.1), "reference is a RiverSwim: give a LinearMDP"),  # type: ignore[arg-type]
        (
            lambda: xi_close(HardChain(), 2, 0.1),
            "HardChain are not on the simplex, .* noise='point'",
        ),
        (lambda: XiCloseMDP({"name": "x"}), "spec is {'name': 'x'}: give"),
    ],
)
def test_bad_parameters(made: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        made()


def test_the_advice_for_rows_in_single_precision_helps() -> None:
    P = np.random.default_rng(0).random((50, 3, 50)).astype(np.float32)
    P /= P.sum(axis=-1, keepdims=True)
    with pytest.raises(InvalidInput, match="divide the row by its sum, in float64"):
        FiniteMDP(P, np.zeros((50, 3)), horizon=2)
    exact = P.astype(np.float64)
    assert FiniteMDP(exact / exact.sum(axis=-1, keepdims=True), np.zeros((50, 3)), horizon=2)
