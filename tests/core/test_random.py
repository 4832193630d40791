"""Keyed randomness: known answers, independence of how it is asked for, uniformity."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from fedlsvi.core.random import philox, uniforms
from literal import uniform


@njit
def _words(c0, c1, c2, c3, k0, k1):  # type: ignore[no-untyped-def]
    return philox(
        np.uint64(c0), np.uint64(c1), np.uint64(c2), np.uint64(c3), np.uint64(k0), np.uint64(k1)
    )


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0,) * 4, (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_philox_gives_the_published_known_answers(counter, key, expected):
    """The vectors published with the generator (Salmon et al. 2011)."""
    assert " ".join(f"{int(w):08x}" for w in _words(*counter, *key)) == expected


@given(
    seed=st.integers(0, 2**63 - 1),
    agent=st.integers(0, 2**32 - 1),
    episode=st.integers(1, 2**32 - 8),
    n_draws=st.integers(1, 9),
)
def test_a_draw_is_a_function_of_its_key(seed, agent, episode, n_draws):
    """Each number equals the plain-integer generator at (seed, agent, episode, index)."""
    got = uniforms(seed, [agent], episode, 2, n_draws)
    for e in range(2):
        for j in range(n_draws):
            assert got[0, e, j] == uniform(seed, agent, episode + e, j)


def test_a_window_of_draws_does_not_depend_on_the_window():
    whole = uniforms(5, range(3), 1, 40, 7)
    for first, n in [(1, 1), (7, 13), (40, 1)]:
        part = uniforms(5, [1, 2], first, n, 7)
        assert np.array_equal(part, whole[1:, first - 1 : first - 1 + n])


def test_draws_are_uniform_and_streams_are_unrelated():
    u = uniforms(1, range(20), 1, 500, 10)
    assert np.abs(np.histogram(u, bins=20, range=(0, 1))[0] / u.size - 0.05).max() < 0.003
    other = uniforms(1, range(20), 1, 500, 10, stream=1)
    assert abs(np.corrcoef(u.ravel(), other.ravel())[0, 1]) < 0.02
    shifted = uniforms(1, range(20), 2, 500, 10)
    assert abs(np.corrcoef(u[..., 0].ravel(), shifted[..., 1].ravel())[0, 1]) < 0.05
