"""How much noise is needed: every neighbour of small problems, by brute force."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from fedlsvi.config import Settings
from fedlsvi.groups import ProblemSize
from fedlsvi.privacy.sums import FixedPointSums
from fedlsvi.protocol.messages import NextStates, Upload
from fedlsvi.protocol.transport import layout

STATES, ACTIONS, H = 3, 2, 2


def features(kind: str) -> np.ndarray:
    """(S, A, d) of norm at most 1."""
    rng = np.random.default_rng(0)
    if kind == "one-hot":
        return np.eye(STATES * ACTIONS).reshape(STATES, ACTIONS, -1)
    phi = rng.normal(size=(STATES, ACTIONS, 2))
    if kind == "nonnegative":
        phi = np.abs(phi)
        phi[0, 0], phi[0, 1] = (1.0, 0.0), (0.0, 1.0)
    phi /= np.linalg.norm(phi, axis=-1, keepdims=True)
    if kind == "signed":
        phi[0, 1] = -phi[0, 0]
    return phi


def parameters(kind: str, **settings: Any) -> Any:
    phi = features(kind)
    chosen = Settings(
        n_agents=4, exchange="one-trip", aggregation="secure", rounds=5,
        privacy={"epsilon": 1.0, "delta": 1e-5}, **settings,
    )  # fmt: skip
    return chosen.resolve(
        ProblemSize(
            100,
            H,
            phi.shape[-1],
            kind == "one-hot",
            states=STATES,
            nonnegative=kind == "nonnegative",
        )
    )


def episodes(kind: str, p: Any) -> np.ndarray:
    """(n, words) int64: what every possible episode adds to a site's upload, as it is encoded."""
    phi, sums = features(kind), FixedPointSums(layout(p), p.scale_bits)
    every = []
    steps = list(product(range(STATES), range(ACTIONS), (0.0, 1.0)))
    for one in product(steps, repeat=H):
        gram, u = np.zeros((H, p.dim, p.dim)), np.zeros((H, p.dim))
        table = np.zeros((H - 1, p.dim, STATES))
        for h, (x, a, r) in enumerate(one):
            gram[h] += np.outer(phi[x, a], phi[x, a])
            u[h] += r * phi[x, a]
            if h + 1 < H:
                table[h, :, one[h + 1][0]] += phi[x, a]
        if p.stationary:  # all steps in one: the last one's next state is any, say the first
            table = table.sum(axis=0, keepdims=True)
            table[0, :, 0] += phi[one[-1][0], one[-1][1]]
            gram, u = gram.sum(axis=0, keepdims=True), u.sum(axis=0, keepdims=True)
        rows, columns = np.triu_indices(p.dim)
        packed = gram[:, rows, columns]
        if p.packing == "diagonal":
            packed = np.diagonal(gram, axis1=1, axis2=2)
        flat = table.ravel()
        following = NextStates.shorter(np.flatnonzero(flat), flat[flat != 0], flat.size)
        reply = Upload(1, packed[None].copy(), u[None].copy(), (following,))
        every.append(sums.words(reply).view(np.int64))
    return np.array(every)


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("kind", ["one-hot", "nonnegative", "signed"])
def test_no_neighbour_is_farther_than_the_sensitivity(kind: str, stationary: bool) -> None:
    p = parameters(kind, stationary=stationary)
    release = p.release
    scaled = episodes(kind, p) / release.shares(1)
    square = np.square(scaled).sum(axis=1)
    apart = np.sqrt(np.max(square[:, None] + square[None] - 2.0 * scaled @ scaled.T))
    allowed = release.mu / release.factors.norm
    assert apart <= allowed
    if not stationary:  # and no less would do: the noise is not larger than it must be
        assert apart >= 0.98 * allowed


def test_a_user_counts_as_often_as_she_comes() -> None:
    one = parameters("signed").release
    privacy = {"epsilon": 1.0, "delta": 1e-5, "unit": "user", "episodes_per_user": 3}
    chosen = Settings(n_agents=4, exchange="one-trip", aggregation="exact", rounds=5,
                      privacy=privacy)  # fmt: skip
    three = chosen.resolve(ProblemSize(100, H, 2, False, states=STATES)).release
    assert three is not None
    assert three.sigma == pytest.approx(3 * one.sigma, rel=1e-3)


@pytest.mark.parametrize("parties", [1, 2, 7, 50])
def test_shares_add_up_to_the_noise_that_is_needed(parties: int) -> None:
    release = parameters("nonnegative").release
    alone, shared = release.shares(1), release.shares(parties)
    total = np.sqrt(parties * np.square(shared.astype(float)))
    assert np.all(total >= alone - 1)
    assert np.all(total <= 1.01 * alone)
