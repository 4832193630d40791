"""Noise that goes into uploads of a private run, before any mask: whole numbers, the same for the
same round.

The server adds up what arrives, so after round k the noise of its sums must be that of the nodes
that make up 1 … k (`core.prefix_tree`). An upload therefore brings the noise of the nodes that the
prefix of k has and that of k − 1 had not, and takes the others' away. Each party draws the noise of
a node from its own key, so that it can be made again at any time and is the same then.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from secrets import token_bytes

import numpy as np

from fedlsvi.core import fixed_point
from fedlsvi.core.discrete_gaussian import KEY_BYTES, discrete_gaussian
from fedlsvi.core.prefix_tree import Node, changed, nodes
from fedlsvi.core.private_release import PrivateRelease
from fedlsvi.errors import InvalidSetting, MessageRefused
from fedlsvi.protocol.messages import Increments, NextStates

_LABEL = struct.Struct("<24sqqq")
_PURPOSE = b"fedlsvi noise of nodes 1"


def new_noise_key() -> bytes:
    """A secret from the operating system's entropy. No seed makes it again."""
    return token_bytes(KEY_BYTES)


def honest_sites(sites: int, colluders: int) -> int:
    """How many sites' noise counts: all but so many, at least two."""
    if sites - colluders < 2:
        raise InvalidSetting(
            f"colluders = {colluders} leaves fewer than two of {sites} sites whose noise counts: "
            "give a smaller number, or more sites",
            code="bad-colluders",
        )
    return sites - colluders


class NodeNoise:
    """The noise of one party.

    Args:
        key: The party's secret.
        party: Its number, where one secret serves several: its first agent's.
        sigma: (words,) int64, of one node.
        rounds: N. Nothing is released after it.
    """

    def __init__(self, key: bytes, party: int, sigma: np.ndarray, rounds: int) -> None:
        self.key, self.party, self.sigma, self.rounds = key, party, sigma, rounds
        self._live: dict[Node, np.ndarray] = {}

    def words(self, k: int) -> np.ndarray:
        """(words,) uint64: what to add to the upload of round k, modulo 2^64.

        Raises:
            MessageRefused: The run has no round k: its budget is spent.
        """
        if not 1 <= k <= self.rounds:
            raise MessageRefused(
                f"round {k} of {self.rounds}: the privacy budget of this run is spent, so nothing "
                "more is sent",
                code="budget-spent",
            )
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
            self._live[node] = discrete_gaussian(self.key, label, self.sigma)
        return self._live[node]


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
        sigma = release.shares(1)
        self.bits, self.n_agents = release.bits, n_agents
        self._noise = [NodeNoise(key, first + i, sigma, release.rounds) for i in range(agents)]

    def blurred(self, k: int, reply: Increments) -> Increments:
        """The increments of round k with noise on every cell, on the grid of fixed point."""
        gram, u = np.empty_like(reply.gram), np.empty_like(reply.u)
        following = []
        for i, (noise, table) in enumerate(zip(self._noise, reply.following, strict=True)):
            size = gram[i].size + u[i].size
            row = np.zeros(noise.sigma.size)
            row[:size] = np.concatenate([reply.gram[i].ravel(), reply.u[i].ravel()])
            row[size:][table.places] = table.values
            words = fixed_point.encode(row, self.bits, self.n_agents) + noise.words(k)
            made = fixed_point.decode(words, self.bits)
            gram[i] = made[: gram[i].size].reshape(gram[i].shape)
            u[i] = made[gram[i].size : size].reshape(u[i].shape)
            following.append(NextStates(np.empty(0, np.int64), made[size:].copy()))
        return replace(reply, gram=gram, u=u, following=tuple(following))
