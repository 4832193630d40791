"""A curious server that knows the features solves for the pairs (x, a) that each site visited.

Λ^loc = Σ n(x, a) φφᵀ is linear in the counts n. Where the matrices φφᵀ are linearly independent it
has one solution, however long the round. With secure sums the server sees noise and a sum.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
import pytest

import problems
from fedlsvi.core.fixed_point import add, decode
from fedlsvi.core.statistics import packed_size
from studies import reconstruction
from studies.reconstruction import (
    View,
    from_features,
    from_policy,
    recovered,
    shares,
    solve,
    spread,
    watched,
)

S, A, D, H, M = 6, 3, 6, 3, 3
PROBLEM = problems.simplex(0, S=S, A=A, d=D, H=H)
ROWS = PROBLEM.phi.reshape(S * A, D)


def view(aggregation: Any, length: int) -> View:
    """Four rounds of this length: at γ = Δt every ratio fires, and before there is the floor."""
    return watched(
        PROBLEM.envs, 4 * length, gamma=float(length), min_round=length, beta=0.5, lam=0.5,
        aggregation=aggregation,
    )  # fmt: skip


@pytest.mark.parametrize("length", [1, 5, 30])
def test_without_protection_visits_are_recovered(length: int) -> None:
    found = view("float", length)
    read = [from_features(sent, PROBLEM.phi) for sent in found.uploads]
    assert len(read) == found.rounds * H * M
    assert np.mean(read) > 0.99


@pytest.mark.parametrize("length", [1, 5, 30])
def test_with_secure_sums_a_site_is_as_good_as_guessed(length: int) -> None:
    """The same attack on each masked upload, and on it with any of the others added, is right no
    more often than on random words in their place; the sum itself is recovered."""
    found, P = view("secure", length), packed_size(D, "packed")
    rng = np.random.default_rng(0)
    attacks, guesses, sums = [], [], []
    for i in range(0, len(found.uploads), M):
        truth = np.stack([sent.visits for sent in found.uploads[i : i + M]])
        words = np.stack([sent.reply.words[:P] for sent in found.uploads[i : i + M]])
        summed = solve(ROWS, decode(add(words), found.bits), M * length)
        sums.append(recovered(summed, truth.sum(axis=0)))
        for site in range(M):
            pairs = [words[site], *(words[site] + words[o] for o in range(M) if o != site)]
            for combined in pairs:
                noise = rng.integers(2**64, size=P, dtype=np.uint64)
                for kept, seen in ((attacks, combined), (guesses, noise)):
                    guess = solve(ROWS, decode(seen, found.bits), length)
                    kept.append(recovered(guess, truth[site]))
    assert np.mean(sums) > 0.99
    spread_of_means = np.hypot(np.std(attacks), np.std(guesses)) / np.sqrt(len(attacks))
    assert np.mean(attacks) <= np.mean(guesses) + 4 * spread_of_means
    assert np.mean(attacks) < 0.6


def test_a_floor_hides_no_visits() -> None:
    """With a floor of 100 no upload is shorter, and where the matrices are independent all visits
    of a site are read all the same; each agrees with what the round was."""
    found = watched(PROBLEM.envs, 450, min_round=100, beta=0.5, lam=0.5)
    assert [n for n, _ in groupby(sent.length for sent in found.uploads)][-1] >= 100
    assert min(sent.length for sent in found.uploads) >= 100
    for sent in found.uploads:
        assert sent.visits.sum() == sent.length
        assert from_features(sent, PROBLEM.phi) == 1.0


def test_who_knows_the_policy_reads_more() -> None:
    """More pairs than the rank, rounds of 100: a column for each state is better than one for each
    pair, and both are better than no upload. With masks it is worse than none."""
    env = reconstruction.PROBLEMS["S = 60, A = 4, d = 8"]()
    features, policy, masked, nothing = shares(env, 100)
    assert masked < nothing < features < policy < 1.0


def test_one_hot_visits_are_the_upload() -> None:
    env = reconstruction.PROBLEMS["one-hot, S = 10, A = 3"]()
    found, phi = watched(env, 60, min_round=20), reconstruction.table_of(env)
    assert {from_policy(sent, phi) for sent in found.uploads} == {1.0}
    for sent in found.uploads:
        np.testing.assert_array_equal(reconstruction.packed_gram(sent, 30), sent.visits)


def test_guesses_have_the_length_of_the_round() -> None:
    np.testing.assert_array_equal(spread(np.array([1.0, 2.0, 0.0]), 10), [3, 7, 0])
    assert spread(np.zeros(3), 10).tolist() == [4, 3, 3]
    assert recovered(np.array([4, 3, 3]), np.array([10, 0, 0])) == 0.4
