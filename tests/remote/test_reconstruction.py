"""A curious server that knows the features solves for the pairs (x, a) that each site visited.

Λ^loc = Σ n(x, a) φφᵀ is linear in the counts n. Where the matrices φφᵀ are linearly independent it
has one solution, however long the round. With secure sums the server sees noise and a sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import problems
from fedlsvi import FedLSVI
from fedlsvi.core.fixed_point import add, decode
from fedlsvi.core.statistics import pack, packed_size
from fedlsvi.experience.finite import FiniteExperience
from fedlsvi.protocol.messages import MaskedUpload, Upload

S, A, D, H, M = 6, 3, 6, 3, 3
PROBLEM = problems.simplex(0, S=S, A=A, d=D, H=H)
OUTER = pack(np.einsum("xai,xaj->xaij", PROBLEM.phi, PROBLEM.phi).reshape(S * A, D, D), "packed")


class View:
    """What a server sees in a run, and what the agents did."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, aggregation: Any, length: int) -> None:
        self.seen: list[tuple[int, list[Any]]] = []
        self.visits: list[np.ndarray] = []  # of each round, (M, H, S·A)
        close, view = FiniteExperience.close, self

        def closing(world: Any, length: int) -> None:
            close(world, length)
            view._closed(world._log[:, :, :length], world._policy, world.agents)

        monkeypatch.setattr(FiniteExperience, "close", closing)
        learner = FedLSVI(
            n_agents=M, gamma=float(length), min_round=length, beta=0.5, lam=0.5,
            aggregation=aggregation, stationary=False, policy="explore",
        )  # fmt: skip
        session = learner.prepare(PROBLEM.envs, 4 * length, 1, cohorts=M)
        transport = session.player.transport  # type: ignore[attr-defined]
        broadcast = transport.broadcast

        def heard(message: Any) -> Any:
            replies = broadcast(message)
            uploads = [r for r in replies if isinstance(r, Upload | MaskedUpload)]
            if uploads:
                self.seen.append((uploads[0].h, uploads))
            return replies

        transport.broadcast = heard
        self.bits = session.player.parameters.scale_bits
        self.rounds = len(list(session.rounds()))
        session.close()

    def _closed(self, states: np.ndarray, policy: np.ndarray, agents: np.ndarray) -> None:
        counts = np.zeros((H, S * A))
        for h in range(H):
            pairs = states[0, h].astype(int) * A + policy[h, states[0, h].astype(int)]
            counts[h] = np.bincount(pairs, minlength=S * A)
        if agents[0] == 0:
            self.visits.append(np.zeros((M, H, S * A)))
        self.visits[-1][agents[0]] = counts


def solve(gram: np.ndarray, total: int) -> np.ndarray:
    """Counts of all pairs, `total` together, nearest to the solution of a packed Λ^loc."""
    found = np.clip(np.linalg.lstsq(OUTER.T, gram, rcond=None)[0], 0.0, None)
    share = found * (total / found.sum()) + 1e-9
    counts = np.floor(share)
    rest = total - int(counts.sum())
    if rest > 0:
        counts[np.argsort(counts - share)[:rest]] += 1.0
    return counts


def recovered(guess: np.ndarray, truth: np.ndarray) -> float:
    """The share of visits that a guess has right."""
    return float(np.minimum(guess, truth).sum() / truth.sum())


@pytest.mark.parametrize("length", [1, 5, 30])
def test_without_protection_visits_are_recovered(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = View(monkeypatch, "float", length)
    shares = [
        recovered(solve(upload.gram[0], length), view.visits[i // H][site, h - 1])
        for i, (h, uploads) in enumerate(view.seen)
        for site, upload in enumerate(uploads)
    ]
    assert len(shares) == view.rounds * H * M
    assert np.mean(shares) > 0.99


@pytest.mark.parametrize("length", [1, 5, 30])
def test_with_secure_sums_a_site_is_as_good_as_guessed(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same attack on each masked upload, and on it with any of the others added, is right no
    more often than on random words in their place; the sum itself is recovered."""
    view, P = View(monkeypatch, "secure", length), packed_size(D, "packed")
    rng = np.random.default_rng(0)
    attacks, guesses, sums = [], [], []
    for i, (h, uploads) in enumerate(view.seen):
        truth = view.visits[i // H][:, h - 1]
        words = np.stack([upload.words[:P] for upload in uploads])
        sums.append(recovered(solve(decode(add(words), view.bits), M * length), truth.sum(axis=0)))
        for site in range(M):
            pairs = [words[site], *(words[site] + words[o] for o in range(M) if o != site)]
            for combined in pairs:
                noise = rng.integers(2**64, size=P, dtype=np.uint64)
                attacks.append(recovered(solve(decode(combined, view.bits), length), truth[site]))
                guesses.append(recovered(solve(decode(noise, view.bits), length), truth[site]))
    assert np.mean(sums) > 0.99
    spread = np.hypot(np.std(attacks), np.std(guesses)) / np.sqrt(len(attacks))
    assert np.mean(attacks) <= np.mean(guesses) + 4 * spread
    assert np.mean(attacks) < 0.6
