"""Sums in fixed point against integers of Python, which have no size."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expecting import refused
from fedlsvi.config import Settings
from fedlsvi.core.fixed_point import LARGEST, add, decode, encode, rounding, scale_bits
from fedlsvi.errors import InvalidInput, InvalidSetting
from fedlsvi.groups import ProblemSize

reals = st.floats(-1000.0, 1000.0)


@given(st.lists(st.tuples(reals, reals), min_size=1, max_size=7), st.integers(0, 45))
def test_sum_is_that_of_integers_within_the_bound(
    rows: list[tuple[float, float]], bits: int
) -> None:
    x = np.array(rows)
    M = len(x)
    found = decode(add(encode(x, bits, M)), bits)
    whole = [sum(round(Fraction(v) * 2**bits) for v in column) for column in x.T.tolist()]
    assert found.tolist() == [float(Fraction(w, 2**bits)) for w in whole]
    for got, column in zip(found.tolist(), x.T.tolist(), strict=True):
        exact = sum(map(Fraction, column))
        assert abs(Fraction(got) - exact) <= rounding(bits, M) + 2.0**-53 * abs(got)


@given(st.lists(reals, min_size=2, max_size=9), st.data())
def test_neither_order_nor_grouping_changes_a_bit(values: list[float], data: st.DataObject) -> None:
    words = encode(np.array(values)[:, None], 40, len(values))
    shuffled = words[data.draw(st.permutations(range(len(values))))]
    cut = len(values) // 2
    parts = np.stack([add(shuffled[:cut]), add(shuffled[cut:])])
    assert add(parts).tolist() == add(words).tolist()


def test_whole_numbers_are_exact() -> None:
    counts = np.array([[3.0, 0.0], [4.0, 2.0**20]])
    assert decode(add(encode(counts, 30, 2)), 30).tolist() == [7.0, 2.0**20]


def test_negative_sums_keep_their_sign() -> None:
    assert decode(add(encode(np.array([[1.5], [-4.0]]), 20, 2)), 20).tolist() == [-2.5]


@pytest.mark.parametrize("bad", [np.inf, np.nan, -1e300, 2.0**33])
def test_what_would_overflow_is_refused(bad: float) -> None:
    with refused(InvalidInput, "sum-overflow"):
        encode(np.array([1.0, bad]), 30, 2)


def test_bound_of_all_agents_together_fits() -> None:
    """M agents at the very bound do not reach the sign."""
    bits, M = scale_bits(4 * 100.0), 4
    each = np.full((M, 1), 100.0)
    total = add(encode(each, bits, M))
    assert decode(total, bits).tolist() == [400.0]
    assert int(total[0]) <= LARGEST


def test_scale_of_a_large_run_worked_by_hand() -> None:
    """T = 10⁶, M = 10, H = 10: Σ|b| ≤ 10⁷·11 < 2^27, and 62 − 27 = 35."""
    p = Settings(n_agents=10, aggregation="exact", preset="paper").resolve(
        ProblemSize(10**6, 10, 4, False)
    )
    assert (p.largest_target, p.scale_bits) == (11.0, 35)


def test_settings_that_leave_too_few_bits_are_refused() -> None:
    large = Settings(n_agents=10**6, aggregation="exact")
    with refused(InvalidSetting, "too-few-bits", "20"):
        large.resolve(ProblemSize(10**6, 10, 4, False))


def test_secure_with_two_agents_is_refused() -> None:
    with refused(InvalidSetting, "too-few-sites", "2"):
        Settings(n_agents=2, aggregation="secure")
