"""A transport over frames that loses messages of one cohort, and what must be true after a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedlsvi.core import fixed_point
from fedlsvi.privacy.noise import noise_of
from fedlsvi.protocol.cohorts import cohorts_of
from fedlsvi.protocol.messages import Keep, Reply, Request, Upload, gram_of
from fedlsvi.remote.codec import run_id
from fedlsvi.remote.endpoint_factory import endpoint_factories, guard_for
from fedlsvi.remote.frame_transport import ThreadTransport
from fedlsvi.remote.retry_policy import RetryPolicy

KEY = bytes(range(32))
"""The secret of all noise in such tests."""

Silence = Callable[[int], str | None]
"""Of the n-th exchange: whether the request to cohort 1 is lost, or its reply, or neither."""


class Lossy(ThreadTransport):
    """Loses messages of cohort 1; a deadline passes with each exchange, and nobody has to wait.

    Attributes:
        agents: M.
        exchanges: How many there were.
        said: What was asked in each.
        broadcasts: What the server said to all.
    """

    silence: Silence = staticmethod(lambda n: None)
    said: list[type]

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.exchanges, self.said = 0, []
        self.agents = self.layout.n_agents
        self.broadcasts: list[Request] = []
        self.clock = lambda: self.exchanges * self.retry.deadline

    def broadcast(self, message: Request) -> Sequence[Reply]:
        self.broadcasts.append(message)
        return super().broadcast(message)

    def exchange(self, frames: Any, deadline: float) -> Iterator[tuple[int, bytes]]:
        self.exchanges += 1
        self.said.append(type(self.request))
        lost = self.silence(self.exchanges) if 1 in frames else None
        kept = {c: frame for c, frame in frames.items() if c != 1 or lost != "request"}
        # cohort 1 first, so that what it says without being waited for is heard
        for c, data in sorted(super().exchange(kept, deadline), key=lambda come: come[0] != 1):
            if c != 1 or lost is None:
                yield c, data


def lossy(silence: Silence, folder: Path, retry: RetryPolicy, cohorts: int = 2) -> Any:
    """A function that makes such a transport for a plan."""

    def make(plan: Any) -> Lossy:
        run = run_id(plan.parameters, plan.seed)
        made = endpoint_factories(plan, cohorts, folder, durable=False, threads=1)
        transport = Lossy(plan.parameters, made, run, retry, guard_for(plan))
        transport.silence = silence
        return transport

    return make


def between(first: int, last: int, kind: str = "request") -> Silence:
    """What is lost from one exchange to another."""
    return lambda n: kind if first <= n <= last else None


def replayed(transport: Lossy, plan: Any) -> list[list[Upload]]:
    """The uploads of each agent, without noise, when all are told once more, in cohorts of their
    own, what the server said."""
    asked = [message for message in transport.broadcasts if not isinstance(message, Keep)]
    replies = [
        [c.receive(message) for message in asked] for c in cohorts_of(plan, transport.agents)
    ]
    return [[reply for reply in of if isinstance(reply, Upload)] for of in replies]


def check_increments(transport: Lossy, plan: Any, gone: Sequence[int] = ()) -> None:
    """What the server has of each agent's Λ, and in one trip of u and N, is every episode of it
    once, and nothing of those that are gone for good. Noise is that of all of its releases."""
    p, size = plan.parameters, transport.layout
    slack = 1e-9 if p.aggregation == "float" else p.episodes * 2.0**-p.scale_bits
    for m, uploads in enumerate(replayed(transport, plan)):
        gram = np.zeros((size.matrices, size.packed))
        u, following = np.zeros((size.matrices, size.responses)), np.zeros(size.cells)
        for upload in uploads if m not in gone else ():
            if upload.every_step:
                gram += upload.gram[0]
                u += upload.b[0]
                following[upload.following[0].places] += upload.following[0].values
            else:
                rows = gram_of(gram, upload.h, size.horizon)
                rows += upload.gram[0] if upload.gram.size else 0.0
        noise = np.zeros(size.upload_words(1) if size.states else size.packed)
        for i in range(size.matrices):
            counted = transport.guard.gram[i, m]
            if p.privacy is not None and m not in gone:
                noise = prefix_noise(transport, p, m, size.horizon if size.stationary else i + 1)
                at = i * size.packed if size.states else 0
                counted = counted - noise[at : at + size.packed]
            np.testing.assert_allclose(counted, gram[i], atol=slack)
        if size.states:
            c = next(c for c, (a, n) in enumerate(transport.cuts) if a <= m < a + n)
            check_tables(transport, c, m - transport.cuts[c][0], u, following, noise, slack)


def check_tables(
    transport: Lossy,
    c: int,
    row: int,
    u: np.ndarray,
    following: np.ndarray,
    noise: np.ndarray,
    slack: float,
) -> None:
    """u and N of one agent, which has this position in its cohort."""
    of = transport.reachability.contributed.of.get(c)
    if of is None:
        assert not u.any()
        return
    size = transport.layout
    _, on_u, on_following = np.split(
        noise, [size.matrices * size.packed, size.upload_words(1) - size.cells]
    )
    np.testing.assert_allclose(of.b[row] - on_u.reshape(u.shape), u, atol=slack)
    whole = np.zeros(size.cells)
    whole[of.following[row].places] = of.following[row].values
    np.testing.assert_allclose(whole - on_following, following, atol=slack)


def prefix_noise(transport: Lossy, p: Any, m: int, h: int) -> np.ndarray:
    """The noise of all releases of an agent up to its last, and nothing else."""
    attendance = transport.membership.attendance
    last = p.episodes if attendance is None else int(attendance.last[m])
    k = p.release_number(last)
    if k == 0:
        return np.zeros(transport.layout.upload_words(1))
    words = noise_of(p.release, KEY, m, 1).words(k, h, since=0)
    return fixed_point.decode(words, p.release.bits)
