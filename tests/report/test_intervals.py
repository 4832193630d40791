"""Intervals over seeds, exponents and crossings: exact on made-up data, decided by the seed."""

from __future__ import annotations

import numpy as np
import pytest

from fedlsvi.experiments.sweeps import crossing, exponent, slopes
from fedlsvi.report.intervals import (
    Interval,
    aggregate,
    bootstrap,
    interval_name,
    median,
    over_seeds,
)


def test_the_bootstrap_is_a_function_of_its_seed() -> None:
    data = np.random.default_rng(0).lognormal(size=(20, 3))
    assert np.array_equal(
        bootstrap(data, resamples=9, seed=5), bootstrap(data, resamples=9, seed=5)
    )
    assert not np.array_equal(
        bootstrap(data, resamples=9, seed=5), bootstrap(data, resamples=9, seed=6)
    )


def test_a_curve_is_resampled_as_one() -> None:
    """Points of a curve stay together: the intervals of x and 2x are one and its double."""
    runs = np.random.default_rng(1).lognormal(size=(8, 1))
    found = bootstrap(np.hstack([runs, 2.0 * runs]))
    assert np.array_equal(2.0 * found[:, 0], found[:, 1])


def test_intervals_of_the_median_stay_within_the_data() -> None:
    found = median([3.0, 1.0, 2.0])
    assert found == Interval(2.0, 1.0, 3.0)


def test_few_runs_have_a_range_and_no_95_percent() -> None:
    assert [interval_name(n) for n in (1, 2, 4)] == ["", "min–max", "min–max"]
    assert "95 %" in interval_name(5)
    assert "95" not in over_seeds(3)
    assert median([4.0, 1.0, 9.0, 2.0]) == Interval(3.0, 1.0, 9.0)


def test_the_same_seeds_give_one_answer_everywhere() -> None:
    """What `run --seeds` prints is what a comparison prints."""
    regrets = [5.0, 1.0, 3.0, 2.0, 8.0, 7.0]
    rows = [{"seed": i, "regret": v, "return": None, "rounds": 1, "scalars": 0}
            for i, v in enumerate(regrets)]  # fmt: skip
    found = aggregate(rows)
    assert found["regret"] == median(regrets).to_dict()
    assert found["return"] is None
    assert found["interval"] == interval_name(6)


def test_one_run_says_nothing_about_its_spread() -> None:
    found = median([7.0])
    assert (found.mid, found.low, found.high) == (7.0, -np.inf, np.inf)
    assert found.to_dict() == {"median": 7.0, "low": None, "high": None}
    assert found.text() == "7"


def test_the_interval_covers_the_median_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(2)
    hits = 0
    for i in range(200):
        found = median(rng.lognormal(size=25), seed=i)
        hits += found.low <= 1.0 <= found.high
    assert 0.88 <= hits / 200 <= 1.0


@pytest.mark.parametrize("power", [-0.5, 0.0, 0.5, 1.0])
def test_the_exponent_of_a_power_law_is_found_exactly(power: float) -> None:
    x = np.array([10.0, 40.0, 90.0, 1000.0])
    y = np.array([[3.0], [50.0]]) * x**power
    assert slopes(x, y) == pytest.approx([power, power], abs=1e-12)
    assert exponent(x, y).mid == pytest.approx(power, abs=1e-12)


def test_the_exponent_of_noisy_data_is_inside_its_interval() -> None:
    rng, x = np.random.default_rng(3), np.geomspace(100, 1e5, 8)
    y = x**0.5 * np.exp(0.2 * rng.normal(size=(12, 8)))
    found = exponent(x, y)
    assert found.low < 0.5 < found.high
    assert found.high - found.low < 0.1


def test_an_exponent_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        exponent(np.array([1.0, 2.0]), np.array([[0.0, 1.0]]))


def test_curves_cross_where_they_cross() -> None:
    """10 against x, and x² against 100·x."""
    x = np.array([1.0, 4.0, 16.0, 64.0])
    assert crossing(x, np.full(4, 10.0), x) == pytest.approx(10.0)
    assert crossing(x, x, np.full(4, 10.0)) is None
    assert crossing(x, np.full(4, 0.5), x) == 1.0
