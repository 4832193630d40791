"""Noise that goes into uploads of a private run, before any mask: whole numbers, the same for the
same round.

The server adds up what arrives, so that noise of all rounds adds up too. An upload of round k
brings w_k = Σ_{j ≤ k} D_kj z_j, rounded at random to the grid: z_j is new in round j, and D takes
back part of what earlier rounds brought (`core.factorisation`). Each party draws z_j from its own
key, so that it can be made again at any time and is the same then. Where agents answer step by
step, every step has such noise of its own for Λ, and b_h, which is not added up but replaced, has
new noise in every round.
"""

from __future__ import annotations

import struct
from secrets import token_bytes
from typing import Protocol

import numpy as np

from fedlsvi.core.discrete_gaussian import KEY_BYTES, discrete_gaussian, randomly_rounded
from fedlsvi.core.private_release import PrivateRelease
from fedlsvi.core.stepwise_release import StepwiseRelease
from fedlsvi.errors import InvalidSetting, MessageRefused

NOISE_KIND = "factorised-1"
"""What a secret makes noise of: written down beside it, because a run that went on with noise of
another kind would spend its budget twice."""

_LABEL = struct.Struct("<24sqqq")
_NEW, _ROUNDED, _RESPONSES = b"fedlsvi new noise 2", b"fedlsvi rounding 2", b"fedlsvi responses 2"


def new_noise_key() -> bytes:
    """A secret from the operating system's entropy. No seed makes it again."""
    return token_bytes(KEY_BYTES)


def honest_sites(sites: int, colluders: int) -> int:
    """How many sites' noise counts: all but so many, at least two."""
    if sites - colluders < 2:
        raise InvalidSetting(
            f"colluders = {colluders} leaves fewer than two honest sites out of {sites}: give a "
            "smaller number, or more sites",
            code="bad-colluders",
        )
    return sites - colluders


class PartyNoise(Protocol):
    """What one party adds to its uploads.

    Attributes:
        party: Its number, where one secret serves several: its first agent's.
    """

    party: int

    def draw(self, k: int) -> None:
        """Draw what round k needs, when it begins: how long the sampler takes depends on what it
        draws, and nobody shall see that in the time of an upload."""
        ...

    def words(self, k: int, h: int = 1, since: int | None = None) -> np.ndarray:
        """(words,) uint64: what to add to the upload of round k and step h, modulo 2^64, where the
        last one was of round `since`; None is the round before."""
        ...


def _refuse_spent(k: int, rounds: int) -> None:
    """Refuse a round that the run does not have: its budget is spent."""
    if not 1 <= k <= rounds:
        raise MessageRefused(
            f"round {k} of {rounds}: the privacy budget of this run is spent, so nothing more is "
            "sent: start a new run",
            code="budget-spent",
        )


class PrefixNoise:
    """The noise of one party in uploads that the server adds up.

    Args:
        key: The party's secret.
        party: Its number, where one secret serves several: its first agent's.
        sigma: (words,) int64, of z.
        release: The noise of the run.
        step: The step whose Λ it is for; 0 is all that is sent at once.
    """

    def __init__(
        self, key: bytes, party: int, sigma: np.ndarray, release: PrivateRelease, step: int = 0
    ) -> None:
        self.key, self.party, self.sigma, self.step = key, party, sigma, step
        self.rounds, self._mixing = release.rounds, release.factors.mixing
        self._rounding = release.rounding
        self._new: list[np.ndarray] = []
        self._drawn: tuple[int, int, np.ndarray] | None = None

    def words(self, k: int, h: int = 1, since: int | None = None) -> np.ndarray:
        """(words,) uint64: what to add to the upload of round k, modulo 2^64: the noise of all
        rounds after `since`.

        Raises:
            MessageRefused: The run has no round k: its budget is spent.
        """
        since = k - 1 if since is None else since
        if self._drawn is None or self._drawn[:2] != (k, since):
            self.draw(k, since)
        assert self._drawn is not None
        return self._drawn[2]

    def draw(self, k: int, since: int | None = None) -> None:
        _refuse_spent(k, self.rounds)
        since = k - 1 if since is None else since
        assert 0 <= since < k  # or nothing would hide what is new
        if self._drawn is not None and self._drawn[:2] == (k, since):
            return  # nor could anybody measure again how long it takes
        total = np.zeros(self.sigma.size, np.int64)
        for j in range(since + 1, k + 1):
            total += self._of_round(j)
        self._drawn = k, since, total.view(np.uint64)

    def _of_round(self, k: int) -> np.ndarray:
        """(words,) int64: w_k."""
        for j in range(len(self._new) + 1, k + 1):
            # σ is at most 2^24 units, and nothing is 128 standard deviations away
            self._new.append(
                discrete_gaussian(self.key, self._label(_NEW, j), self.sigma).astype(np.int32)
            )
        mixed = np.zeros(self.sigma.size, np.int64)
        for share, new in zip(self._mixing[k - 1, :k].tolist(), self._new, strict=False):
            mixed += share * new.astype(np.int64)
        return randomly_rounded(self.key, self._label(_ROUNDED, k), mixed, self._rounding)

    def _label(self, purpose: bytes, k: int) -> bytes:
        return _LABEL.pack(purpose, self.party, self.step, k)


class StepNoise:
    """The noise of one party that answers step by step.

    Args:
        key: The party's secret.
        party: Its number, where one secret serves several: its first agent's.
        release: The noise of the run.
        parties: How many parties' noise is enough together.
    """

    def __init__(self, key: bytes, party: int, release: StepwiseRelease, parties: int) -> None:
        self.key, self.party = key, party
        self.rounds, self.answers = release.rounds, release.answers
        shares = [release.step_shares(h, parties) for h in range(1, release.horizon + 1)]
        self.responses = [b for _, b in shares]
        self.grams = [
            PrefixNoise(key, party, gram, release, h) for h, (gram, _) in enumerate(shares, start=1)
        ]
        self._drawn: dict[int, list[np.ndarray]] = {}

    def draw(self, k: int) -> None:
        _refuse_spent(k, self.answers)
        for gram in self.grams if k <= self.rounds else ():
            gram.draw(k)
        # a pass after the last round follows it at once
        due = range(k, self.answers + 1) if k >= self.rounds else (k,)
        every = range(1, len(self.grams) + 1)
        self._drawn = {n: self._drawn.get(n) or [self._response(n, h) for h in every] for n in due}

    def words(self, k: int, h: int = 1, since: int | None = None) -> np.ndarray:
        """(P + d,) uint64: what to add to the upload of round k and step h, modulo 2^64; (d,) in a
        pass after the last round.

        Raises:
            MessageRefused: The run has no round k: its budget is spent.
        """
        response = self.response(k, h).view(np.uint64)
        if k > self.rounds:
            return response
        return np.concatenate([self.grams[h - 1].words(k, h, since), response])

    def response(self, k: int, h: int) -> np.ndarray:
        """(d,) int64: the noise on b_h of round k."""
        if k not in self._drawn:
            self.draw(k)
        return self._drawn[k][h - 1]

    def _response(self, k: int, h: int) -> np.ndarray:
        label = _LABEL.pack(_RESPONSES, self.party, h, k)
        return discrete_gaussian(self.key, label, self.responses[h - 1])


def noise_of(release: PrivateRelease, key: bytes, party: int, parties: int) -> PartyNoise:
    """The noise of one of so many parties whose noise is enough together."""
    if isinstance(release, StepwiseRelease):
        return StepNoise(key, party, release, parties)
    return PrefixNoise(key, party, release.shares(parties), release)
