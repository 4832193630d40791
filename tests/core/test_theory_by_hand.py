"""The theorems' right-hand sides at λ ≠ 1 and ξ > 0, worked by hand.

d = 2, H = 3, M = 4, T = 8, γ = 4, β = 1/2, λ = 1/4, ξ = 1/10, p = 1/10, so that
MT = 32,  MT/(λd) = 64,  ℓ = log 65 = 4.174387,  √ℓ = 2.043132,  1/√λ = 2.

    √(8H³MT log(2/p)) = √(6912 log 20)                                  143.8975
    the same at p/2   = √(6912 log 40)                                  159.6795
    √(6dMT·ℓ)         = √(384·ℓ)                                         40.0370
    (Md/log 3)(√(γ log γ) + 1/√λ)·ℓ = 7.281914 · (2.354820 + 2) · ℓ     132.3758
    2Hβ(…)            = 3 · (40.0370 + 132.3758)                        517.2384
    4ξMdH²T·√ℓ        = 230.4 · √ℓ                                      470.7376
"""

from __future__ import annotations

import pytest

import problems
from fedlsvi import FedLSVI
from fedlsvi.core import theory

SIZE = (2, 3, 4, 8)


def near(value: float) -> object:
    """Equal in the digits that the tables here have."""
    return pytest.approx(value, abs=2e-3)


def test_theorem_1() -> None:
    """143.8975 + 517.2384."""
    assert theory.regret_bound(*SIZE, 4.0, 0.5, lam=0.25, p=0.1) == near(661.1360)


def test_theorem_2() -> None:
    """159.6795 + 517.2384 + 470.7376."""
    found = theory.regret_bound_misspecified(*SIZE, 4.0, 0.5, 0.1, lam=0.25, p=0.1)
    assert found == near(1147.6554)


def test_theorem_3() -> None:
    """1 + 2·8/4 + (6/log 2)·ℓ = 5 + 36.1342."""
    assert theory.rounds_bound(*SIZE, 4.0, lam=0.25) == near(41.1342)


def test_the_theorems_beta() -> None:
    """c·H·d·√log(1 + dMHT/p) = 6√log 1921 = 16.4979 at c = 1; with ξ, 6√log 3841 = 17.2373 and
    2Hξ√(dMT) = 6 · 0.1 · 8 = 4.8 more."""
    assert theory.beta_theory(*SIZE, p=0.1) == near(16.4979)
    assert theory.beta_theory(*SIZE, p=0.1, c=0.5) == near(8.2490)
    assert theory.beta_theory(*SIZE, xi=0.1, p=0.1) == near(22.0373)


@pytest.mark.parametrize(("episodes", "gamma", "rounds"), [
    (10, 3.5, 3), (12, 3.5, 3), (13, 3.5, 4), (10, 1.0, 10), (10, 1e9, 1), (1, 2.0, 1),
])  # fmt: skip
def test_fewest_rounds(episodes: int, gamma: float, rounds: int) -> None:
    """A round has at most ⌈γ⌉ episodes: ⌈10/4⌉ = 3 at γ = 3.5."""
    assert theory.rounds_floor(episodes, gamma) == rounds


def test_scalars_of_one_round() -> None:
    """2MH(P + d) + M + 2s with P = 3, s = 3: 24·5 + 4 + 6; dense P = 4, diagonal P = 2."""
    assert theory.scalars_per_round(2, 3, 4, "packed", 3) == 130
    assert theory.scalars_per_round(2, 3, 4, "dense", 3) == 154
    assert theory.scalars_per_round(2, 3, 4, "diagonal", 1) == 102


def test_scalars_of_shared_trajectories() -> None:
    """MTH steps of state, action and reward: 4·8·3·3; with states of three numbers 4·8·3·5."""
    assert theory.scalars_raw(3, 4, 8) == 288
    assert theory.scalars_raw(3, 4, 8, per_step=5) == 480


@pytest.mark.parametrize(("xi", "name", "bound"), [(0.0, "theorem_1", 661.1360),
                                                    (0.1, "theorem_2", 1147.6554)])  # fmt: skip
def test_a_run_of_that_size_has_these_bounds(xi: float, name: str, bound: float) -> None:
    """With the λ, ξ and p in force."""
    learner = FedLSVI(4, gamma=4.0, beta=0.5, lam=0.25, xi=xi, confidence=0.1)
    run = learner.learn(problems.simplex(d=2, H=3).envs, 8, progress=False)
    assert set(run.bounds) == {name, "theorem_3", "scalars"}
    assert run.bounds[name].bound == near(bound)
    assert run.bounds["theorem_3"].bound == 8.0  # Theorem 3 says 41.1342; there are 8 episodes
    assert run.scalars_raw == 288
    assert run.bounds["scalars"].holds
