"""What the guard can still say where agents eliminate coefficients of their own."""

from __future__ import annotations

import numpy as np
import pytest

from fedlsvi import FedLSVI
from fedlsvi.core.elimination import OwnBlock
from fedlsvi.core.statistics import pack, read_only
from fedlsvi.protocol.messages import Stop
from fedlsvi.remote.contribution import Contribution
from fedlsvi.remote.endpoint_factory import guard_for
from fedlsvi.remote.guard import Guard, Refusal
from literal_own_features import offset_sites

M, A, H, LAM = 3, 3, 4, 0.001
SITES = offset_sites(M, 5, A, H)


def guard(t: int, length: int) -> Guard:
    """After t episodes, in a round of this length."""
    session = FedLSVI(M, own_features=A, lam=LAM).prepare(SITES, 500, 0)
    session.close()
    made = guard_for(session.plan)
    made.sends(session.player.server.parameters())  # type: ignore[attr-defined]
    made.t = t
    made.sends(Stop(t + length))
    return made


def part(gram: np.ndarray, b: np.ndarray, behind: tuple[float, float]) -> Contribution:
    packed = read_only(pack(gram[None], "packed"))
    return Contribution(1, packed, read_only(b[None]), moments=read_only(np.array([behind])))


def growth(n: int) -> tuple[np.ndarray, np.ndarray]:
    """S of n episodes with a small own feature, and what one more adds that tells about it."""
    small = np.sqrt(np.sqrt(LAM) / n)
    first = np.tile([np.sqrt(1.0 - small**2), small], (n, 1))
    last = np.array([0.0, 1.0])
    seen = first.T @ first
    before, after = (OwnBlock.of(g, 1, LAM).schur for g in (seen, seen + np.outer(last, last)))
    return before, after - before


def test_one_episode_may_bring_more_than_one_vector() -> None:
    """0.8·n and more: a lawful upload that the bound of one round would refuse."""
    n = 100
    made, sums = guard(n, 1), growth(n)
    assert sums[1][0, 0] > 0.8 * n
    for one in sums:
        gram = np.zeros((3, 3))
        gram[0, 0] = one[0, 0]
        sent = part(gram, np.zeros(3), (0.5, 0.7))
        made.check(0, sent)
        made.accept(0, sent)


@pytest.mark.parametrize(
    ("gram", "b", "behind", "name"),
    [
        (102.0, 0.0, (0.0, 0.0), "trace of gram"),
        (-1.0, 0.0, (0.0, 0.0), "remainder of gram"),
        (1.0, 60.0, (900.0, 90.0), "bᵀG⁺b"),
        (1.0, 0.0, (1e5, 90.0), "Σy²"),
        (1.0, 0.0, (1.0, 102.0), "number of targets"),
        (1.0, 2.0, (1.0, 90.0), "bᵀG⁺b"),
    ],
)
def test_what_no_agent_can_have_is_refused(
    gram: float, b: float, behind: tuple[float, float], name: str
) -> None:
    made = guard(100, 1)
    matrix, response = np.zeros((3, 3)), np.zeros(3)
    matrix[0, 0], response[0] = gram, b
    with pytest.raises(Refusal) as error:
        made.check(0, part(matrix, response, behind))
    assert error.value.field == name


def test_neither_simplex_nor_signs_are_expected() -> None:
    made = guard(100, 1).bounds
    assert made.eliminated
    assert not made.simplex
    assert not made.nonnegative
