"""The extra checks for uploads that are masked, noisy, or bring all steps in one trip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from fedlsvi.config import Parameters
from fedlsvi.protocol.masks import check_sites
from fedlsvi.protocol.messages import Increments, Layout, Reply, Request, Signal, Upload
from fedlsvi.remote.facts import Facts
from fedlsvi.remote.noisy_guard import NoisyGuard
from fedlsvi.remote.retry_policy import RetryPolicy
from fedlsvi.remote.sum_guard import SumGuard
from fedlsvi.remote.trip_guard import TripGuard


class FurtherGuard(Protocol):
    """Checks in addition to `Guard`, which knows the round and judges signals and models."""

    def sends(self, message: Request) -> None:
        """The server sends this."""
        ...

    def stops(self, signal: Signal) -> None:
        """This signal ends the round."""
        ...

    def check(self, first: int, reply: Increments | Upload) -> None:
        """Refuse what no agents from `first` on could have sent; changes nothing."""
        ...

    def complete(self, k: int, h: int, replies: Sequence[tuple[int, Reply]]) -> None:
        """All uploads of step h in round k are here, each with its first agent: check what shows
        only in their sum, and take note of them."""
        ...

    def state(self) -> dict[str, np.ndarray]:
        """What a checkpoint must hold."""
        ...

    def restore(self, arrays: Mapping[str, np.ndarray], t: int, k: int) -> None:
        """Continue after round k, episode t."""
        ...


def further_guard(
    p: Parameters, layout: Layout, facts: Facts, sites: int, retry: RetryPolicy
) -> FurtherGuard | None:
    """The checks that a run needs in addition to `Guard`; None for plain uploads.

    Args:
        p: The numbers in force.
        layout, facts: Of the run.
        sites: How many there are.
        retry: Refused if it lets sites be away where all of them are needed.
    """
    if not layout.secure and not layout.states and p.privacy is None:
        return None
    if layout.secure:
        check_sites(sites)
        retry.refuse_absence('aggregation="secure"')
    elif layout.states:
        retry.refuse_absence('exchange="one-trip"')
    else:
        retry.refuse_absence("privacy")
    if p.privacy is not None:
        return NoisyGuard(p, sites)
    return SumGuard(layout, facts, p) if layout.secure else TripGuard(layout, facts)
