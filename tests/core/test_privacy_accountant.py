"""(ε, δ) of Gaussian noise, against Google's dp-accounting and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from accounting import google
from fedlsvi.core.factorisation import BITS
from fedlsvi.core.privacy_accountant import delta_of, epsilon_of, mu_of
from fedlsvi.core.private_release import PrivateRelease
from fedlsvi.core.stepwise_release import StepwiseRelease

EPSILONS = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0)


@pytest.mark.parametrize("mu", [0.05, 0.2367, 0.5, 1.02, 3.0])
def test_delta_is_that_of_dp_accounting(mu: float) -> None:
    mechanisms, _ = google()
    theirs = mechanisms.GaussianPrivacyLoss(1.0 / mu)
    for epsilon in EPSILONS:
        assert delta_of(mu, epsilon) == pytest.approx(
            theirs.get_delta_for_epsilon(epsilon), rel=1e-6, abs=1e-15
        )


def test_all_rounds_compose_to_what_was_promised() -> None:
    """What an episode of the first round moves in each release, as dp-accounting composes it."""
    _, distributions = google()
    epsilon, interval = 1.0, 1e-4
    release = PrivateRelease(epsilon, 1e-5, 1, (1.0,) * 33, 5, 8, 20, "packed", False, True, 40)
    each = release.units / (math.ldexp(release.sensitivity, release.bits) + release._rounded)
    one = distributions.PrivacyLossDistribution
    make = getattr(one, "from_gaussian_mechanism", None) or distributions.from_gaussian_mechanism
    column = np.linalg.inv(np.ldexp(release.factors.mixing.astype(float), -BITS))[:, 0]
    column = column[column > 1e-3]
    total = make(each / column[0], value_discretization_interval=interval)
    for moved in column[1:]:
        total = total.compose(make(each / moved, value_discretization_interval=interval))
    spent = total.get_epsilon_for_delta(1e-5)
    # their discretisation rounds up, by at most its interval for each release
    assert epsilon - 1e-3 <= spent <= epsilon + len(column) * interval


def test_steps_compose_to_what_was_promised() -> None:
    """All that is released by a run that goes step by step, as dp-accounting composes them."""
    _, distributions = google()
    epsilon, interval, rounds = 1.0, 1e-4, 9
    known = (epsilon, 1e-5, 1, (1.0,) * rounds, 2, 3, 0, "packed", False, True, 40)
    release = StepwiseRelease(*known, (2.0, 1.0))  # type: ignore[arg-type]
    one = distributions.PrivacyLossDistribution
    make = getattr(one, "from_gaussian_mechanism", None) or distributions.from_gaussian_mechanism
    # what one of H steps moves, with its part of the rounding: √2 for Λ, √2·y_h for b_h
    more = release._touched(1.0, 1.0) / math.ldexp(release.sensitivity, release.bits)
    # the releases of Λ are together like one of all that a column of C moves
    gram = release.sigma / (math.sqrt(2.0) * (1.0 + more) * release.factors.norm)
    total, count = make(gram, value_discretization_interval=interval), 2
    total = total.self_compose(count)
    for h, y in enumerate(release.targets, start=1):
        each = release.response_sigma(h) / (math.sqrt(2.0) * y * (1.0 + more))
        part = make(each, value_discretization_interval=interval)
        total, count = total.compose(part.self_compose(rounds)), count + rounds
    spent = total.get_epsilon_for_delta(1e-5)
    assert epsilon - 1e-6 <= spent <= epsilon + count * interval


def test_by_hand_and_back() -> None:
    phi = norm.cdf
    assert delta_of(1.0, 1.0) == pytest.approx(phi(-0.5) - math.e * phi(-1.5), abs=1e-15)
    assert delta_of(0.0, 1.0) == 0.0
    for epsilon in EPSILONS[1:]:
        for delta in (1e-9, 1e-6, 1e-2):
            mu = mu_of(epsilon, delta)
            assert delta_of(mu, epsilon) == pytest.approx(delta, rel=1e-9)
            assert epsilon_of(mu, delta) == pytest.approx(epsilon, abs=1e-9)
    assert epsilon_of(1e-9, 1e-6) == 0.0


def test_spending_grows_with_the_rounds() -> None:
    release = PrivateRelease(2.0, 1e-6, 1, (1.0,) * 9, 3, 4, 5, "packed", False, True, 40)
    spent = [release.spent(k) for k in range(11)]
    assert spent[0] == 0.0
    assert spent == sorted(spent)
    assert spent[1] < spent[4] < spent[9] == spent[10] == 2.0
