"""One head for every pass: the number of β is all that differs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlsvi.algorithms.shared.policy_values import PolicyValues
from fedlsvi.core.heads import Head
from fedlsvi.core.statistics import factorise
from fedlsvi.experience.values import BlockValues, DiverseValues, Headed, TabularValues
from fedlsvi.features.tabular import TableFeatures

H, S, A, D = 3, 4, 2, 3


class Model(NamedTuple):
    """w and Λ of every step."""

    w: list[np.ndarray]
    grams: list[np.ndarray]


Read = tuple[np.ndarray, np.ndarray]
"""V and the actions of which it is, (H, S)."""

Reader = Callable[[np.ndarray, Head, Model, "np.ndarray | None"], Read]


def some_model(seed: int) -> tuple[np.ndarray, Model]:
    """Features (S, A, d), and a model."""
    rng = np.random.default_rng(seed)
    phi = rng.normal(size=(S, A, D))
    phi /= np.linalg.norm(phi, axis=2, keepdims=True)
    rows = [phi.reshape(-1, D)[rng.integers(S * A, size=5)] for _ in range(H)]
    grams = [0.1 * np.eye(D) + x.T @ x for x in rows]
    return phi, Model(list(rng.normal(size=(H, D))), grams)


def of_tables(kind: type) -> Reader:
    """V of tables over all states."""

    def read(phi: np.ndarray, head: Head, model: Model, mask: np.ndarray | None) -> Read:
        about = (TableFeatures(phi), head, False, mask)
        values = kind(0.3, *about) if kind is DiverseValues else kind(*about)
        for h in range(H, 0, -1):
            values.update(h, model.w[h - 1], model.grams[h - 1])
        return values.values[:H], values.policy

    return read


def in_blocks(phi: np.ndarray, head: Head, model: Model, mask: np.ndarray | None) -> Read:
    """V of a few states at a time, two here."""
    allowed = None if mask is None else lambda h, x: mask[0][x]
    values, states = BlockValues(TableFeatures(phi), head, 2 * A, allowed), np.arange(S)
    best, greedy = np.empty((H, S)), np.empty((H, S), np.int32)
    for h in range(H, 0, -1):
        values.update(h, model.w[h - 1], model.grams[h - 1])
        for cut in (slice(0, 2), slice(2, S)):
            of_step = (best[h - 1, cut], greedy[h - 1, cut])
            values.block(h, states[cut], values.scratch(), *of_step)
    return best, greedy


def of_a_policy(phi: np.ndarray, head: Head, model: Model, mask: np.ndarray | None) -> Read:
    """V of the policy that is greedy under this head."""
    greedy, states = of_tables(TabularValues)(phi, head, model, mask)[1], np.arange(S)
    values, best = PolicyValues(TableFeatures(phi), head), np.empty((H, S))
    for h in range(H, 0, -1):
        values.take(h, model.w[h - 1][:, None], [factorise(model.grams[h - 1])])
        best[h - 1] = values.at(h, states, greedy[h - 1])[:, 0]
    return best, greedy


READERS: dict[type, Reader] = {
    TabularValues: of_tables(TabularValues),
    DiverseValues: of_tables(DiverseValues),
    BlockValues: in_blocks,
    PolicyValues: of_a_policy,
}


def below(kind: type) -> set[type]:
    return {kind}.union(*(below(part) for part in kind.__subclasses__()))


def test_all_that_have_a_head_are_read() -> None:
    assert below(Headed) - {Headed} == set(READERS)


@pytest.mark.parametrize("kind", READERS)
@given(st.integers(0, 1000), st.sampled_from([-0.5, 0.0, 0.5]), st.booleans(), st.booleans())
def test_whoever_reads_a_model_reads_it_alike(
    kind: type, seed: int, beta: float, tapers: bool, masked: bool
) -> None:
    """V is the largest Q of the allowed actions, whichever kernel computes it."""
    phi, model = some_model(seed)
    top = np.array([3.0, 2.0, 1.0])
    head = Head(beta, top, top / 3.0 if tapers else None)
    mask = np.random.default_rng(seed).random((1, S, A)) < 0.5
    mask[0, :, 0] |= ~mask[0].any(axis=1)
    best, greedy = READERS[kind](phi, head, model, mask if masked else None)
    for h in range(H, 0, -1):
        gram = model.grams[h - 1]
        norms2 = np.einsum("sai,ij,saj->sa", phi, np.linalg.inv(gram), phi)
        q = head.read(h, phi @ model.w[h - 1], norms2)
        largest = np.where(mask[0], q, -np.inf).max(axis=1) if masked else q.max(axis=1)
        np.testing.assert_allclose(best[h - 1], largest, atol=1e-9)
        np.testing.assert_allclose(q[np.arange(S), greedy[h - 1]], largest, atol=1e-9)


def test_what_was_not_seen_is_worth_the_most_or_nothing() -> None:
    """One-hot by hand: of n visits with mean reward 1 at λ = 1, the share 1/(n + 1) is unseen."""
    n = np.array([0.0, 1.0, 3.0])
    least, most = (
        Head(0.0, np.array([2.0]), unseen=rho).read(1, n / (n + 1.0), 1.0 / (n + 1.0))
        for rho in (0.0, 1.0)
    )
    assert least == pytest.approx([0.0, 1 / 2, 3 / 4])
    assert most == pytest.approx([2.0, 1 / 2 + 2 / 2, 3 / 4 + 2 / 4])


def test_another_beta_tapers_or_not() -> None:
    head = Head(2.0, np.ones(3), np.array([1.0, 0.5, 0.25]))
    assert head.with_beta(4.0).betas.tolist() == [4.0, 2.0, 1.0]
    assert head.even(-1.0).betas.tolist() == [-1.0] * 3
    assert head.tapers
    assert not head.even(1.0).tapers
    assert not head.even(0.0).needs_width
