"""What the server of a study asks, which every site knows beforehand.

    Start → (keys, and whose they are) → Explore T → Stop T

There is one round, and its answer to `Stop` is all that a site sends. A site plays the server
against itself, so that what it sends, and what its masks are bound to, is what it would answer over
a network.
"""

from __future__ import annotations

from collections.abc import Iterator

from fedlsvi.protocol.messages import Explore, Request, Start, Stop
from fedlsvi.protocol.server import Server
from fedlsvi.remote.mail.study import Study

ROUND = 1
"""The round of all requests."""


def start_of(study: Study) -> Start:
    """The first broadcast: nothing is known yet."""
    p = study.parameters
    return Server(study.layout, p.lam, p.gamma, p.signed_beta, p.episodes).parameters()


def requests(study: Study) -> Iterator[Request]:
    """After `Start`, and the keys of secure sums: read all records, and add them up."""
    T = study.episodes
    yield Explore(T)
    yield Stop(T)
