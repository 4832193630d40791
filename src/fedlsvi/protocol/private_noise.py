"""Noise that goes into uploads of a private run, before any mask: whole numbers, the same for the
same round.

The server adds up what arrives, so after round k the noise of its sums must be that of the nodes
that make up 1 … k (`core.prefix_tree`). An upload therefore brings the noise of the nodes that the
prefix of k has and that of k − 1 had not, and takes the others' away. Each party draws the noise of
a node from its own key, so that it can be made again at any time and is the same then. Where agents
answer step by step, every step has a tree of its own for Λ, and b_h, which is not added up but
replaced, has noise of its own in every round.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from secrets import token_bytes
from typing import Protocol

import numpy as np

from fedlsvi.core import fixed_point
from fedlsvi.core.discrete_gaussian import KEY_BYTES, discrete_gaussian
from fedlsvi.core.prefix_tree import Node, changed, nodes
from fedlsvi.core.private_release import PrivateRelease
from fedlsvi.core.stepwise_release import StepwiseRelease
from fedlsvi.errors import InvalidSetting, MessageRefused
from fedlsvi.protocol.messages import Increments, NextStates, Upload

_LABEL = struct.Struct("<24sqqq")
_PURPOSE = b"fedlsvi noise of nodes 1"
_STEP_LABEL = struct.Struct("<24sqqqq")
_STEP_NODES, _RESPONSES = b"fedlsvi nodes of steps 1", b"fedlsvi responses 1"


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
        key: The party's secret.
        party: Its number, where one secret serves several: its first agent's.
    """

    key: bytes
    party: int

    def words(self, k: int, h: int = 1) -> np.ndarray:
        """(words,) uint64: what to add to the upload of round k and step h, modulo 2^64."""
        ...


def _refuse_spent(k: int, rounds: int) -> None:
    """Refuse a round that the run does not have: its budget is spent."""
    if not 1 <= k <= rounds:
        raise MessageRefused(
            f"round {k} of {rounds}: the privacy budget of this run is spent, so nothing more is "
            "sent: start a new run",
            code="budget-spent",
        )


class NodeNoise:
    """The noise of one party.

    Args:
        key: The party's secret.
        party: Its number, where one secret serves several: its first agent's.
        sigma: (words,) int64, of one node.
        rounds: N. Nothing is released after it.
        step: The step whose Λ it is for; None is all that is sent at once.
    """

    def __init__(
        self, key: bytes, party: int, sigma: np.ndarray, rounds: int, step: int | None = None
    ) -> None:
        self.key, self.party, self.sigma, self.rounds = key, party, sigma, rounds
        self.step = step
        self._live: dict[Node, np.ndarray] = {}

    def words(self, k: int, h: int = 1) -> np.ndarray:
        """(words,) uint64: what to add to the upload of round k, modulo 2^64.

        Raises:
            MessageRefused: The run has no round k: its budget is spent.
        """
        _refuse_spent(k, self.rounds)
        fresh, gone = changed(k)
        total = np.zeros(self.sigma.size, np.int64)
        for node in fresh:
            total += self._node(node)
        for node in gone:
            total -= self._node(node)
        self._live = {node: self._live[node] for node in nodes(k) if node in self._live}
        return total.view(np.uint64)

    def _node(self, node: Node) -> np.ndarray:
        if node not in self._live:
            label = _LABEL.pack(_PURPOSE, self.party, *node)
            if self.step is not None:
                label = _STEP_LABEL.pack(_STEP_NODES, self.party, self.step, *node)
            self._live[node] = discrete_gaussian(self.key, label, self.sigma)
        return self._live[node]


class StepNoise:
    """The noise of one party that answers step by step.

    Args:
        key: The party's secret.
        party: Its number, where one secret serves several: its first agent's.
        release: The noise of the run.
        parties: How many parties' noise is enough together.
    """

    def __init__(self, key: bytes, party: int, release: StepwiseRelease, parties: int) -> None:
        self.party, self.rounds = party, release.rounds
        shares = [release.step_shares(h, parties) for h in range(1, release.horizon + 1)]
        self.responses = [b for _, b in shares]
        self.trees = [
            NodeNoise(key, party, gram, release.rounds, h)
            for h, (gram, _) in enumerate(shares, start=1)
        ]

    @property
    def key(self) -> bytes:
        """The party's secret."""
        return self.trees[0].key

    @key.setter
    def key(self, key: bytes) -> None:
        for tree in self.trees:
            tree.key = key

    def words(self, k: int, h: int = 1) -> np.ndarray:
        """(P + d,) uint64: what to add to the upload of round k and step h, modulo 2^64.

        Raises:
            MessageRefused: The run has no round k: its budget is spent.
        """
        gram = self.trees[h - 1].words(k)
        return np.concatenate([gram, self.response(k, h).view(np.uint64)])

    def response(self, k: int, h: int) -> np.ndarray:
        """(d,) int64: the noise on b_h of round k."""
        _refuse_spent(k, self.rounds)
        label = _STEP_LABEL.pack(_RESPONSES, self.party, h, k, 0)
        return discrete_gaussian(self.key, label, self.responses[h - 1])


def noise_of(release: PrivateRelease, key: bytes, party: int, parties: int) -> PartyNoise:
    """The noise of one of so many parties whose noise is enough together."""
    if isinstance(release, StepwiseRelease):
        return StepNoise(key, party, release, parties)
    return NodeNoise(key, party, release.shares(parties), release.rounds)


class NoisyAgents:
    """Agents of which each adds all the noise by itself (no secure sums: the local model).

    Args:
        key: The secret of whoever holds these agents.
        first, agents: The first agent's number, and how many there are.
        release: The noise of the run.
        n_agents: M of the whole run, which bounds one agent's numbers.
    """

    def __init__(
        self, key: bytes, first: int, agents: int, release: PrivateRelease, n_agents: int
    ) -> None:
        self.bits, self.n_agents = release.bits, n_agents
        self._noise = [noise_of(release, key, first + i, 1) for i in range(agents)]

    def blurred(self, k: int, reply: Increments | Upload) -> Increments | Upload:
        """What agents send of round k with noise on every cell, on the grid of fixed point."""
        return self._step(k, reply) if isinstance(reply, Upload) else self._trip(k, reply)

    def _noisy(self, row: np.ndarray, noise: np.ndarray) -> np.ndarray:
        words = fixed_point.encode(row, self.bits, self.n_agents) + noise
        return fixed_point.decode(words, self.bits)

    def _step(self, k: int, upload: Upload) -> Upload:
        gram, b, size = np.empty_like(upload.gram), np.empty_like(upload.b), upload.gram.shape[1]
        for i, noise in enumerate(self._noise):
            row = np.concatenate([upload.gram[i], upload.b[i]])
            made = self._noisy(row, noise.words(k, upload.h))
            gram[i], b[i] = made[:size], made[size:]
        return Upload(upload.h, gram, b)

    def _trip(self, k: int, reply: Increments) -> Increments:
        gram, u = np.empty_like(reply.gram), np.empty_like(reply.u)
        following = []
        for i, (noise, table) in enumerate(zip(self._noise, reply.following, strict=True)):
            size, drawn = gram[i].size + u[i].size, noise.words(k)
            row = np.zeros(drawn.size)
            row[:size] = np.concatenate([reply.gram[i].ravel(), reply.u[i].ravel()])
            row[size:][table.places] = table.values
            made = self._noisy(row, drawn)
            gram[i] = made[: gram[i].size].reshape(gram[i].shape)
            u[i] = made[gram[i].size : size].reshape(u[i].shape)
            following.append(NextStates(np.empty(0, np.int64), made[size:].copy()))
        return replace(reply, gram=gram, u=u, following=tuple(following))
