"""Secure sums in one process: each cohort plays a site, with real keys and real masks.

The server of such a run sees what a server of sites would see. Nothing is kept from anybody, since
all parties share one memory; keys are made again whenever the run is resumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from secrets import randbits

from fedlsvi.config import Parameters
from fedlsvi.protocol.agent import Cohort
from fedlsvi.protocol.aggregation import FixedPointSums
from fedlsvi.protocol.masks import MaskStreams, check_sites, new_private_key, public_key
from fedlsvi.protocol.messages import (
    KEY_SCALARS,
    Exploit,
    Increments,
    MaskedUpload,
    Member,
    Reply,
    Request,
    Start,
    Stop,
    Upload,
)
from fedlsvi.protocol.transport import InProcess, layout


class SimulatedSites(InProcess):
    """Cohorts that mask what they upload.

    Args:
        cohorts: The sites, at least three.
        parameters: The numbers in force.
    """

    def __init__(self, cohorts: Sequence[Cohort], parameters: Parameters) -> None:
        p = parameters
        super().__init__(cohorts, p.trigger, p.overshoot)
        check_sites(len(cohorts))
        self.sums, self.round = FixedPointSums(layout(p), p.scale_bits), 0
        run, private = randbits(64), [new_private_key() for _ in cohorts]
        members = [
            Member(int(cohort.agents[0]), len(cohort.agents), public_key(key), b"")
            for cohort, key in zip(cohorts, private, strict=True)
        ]
        self.streams = [
            MaskStreams(key, member.first, run, members)
            for key, member in zip(private, members, strict=True)
        ]

    def deliver(self, message: Request) -> Sequence[Reply]:
        """Deliver, and mask what the cohorts upload; `Start` is followed by the keys."""
        if isinstance(message, Start):
            self.enter_sites("init", KEY_SCALARS * (1 + len(self.cohorts)))
        self.round += isinstance(message, Stop | Exploit)  # no stream serves two rounds
        return [
            self._masked(streams, reply) if isinstance(reply, Upload | Increments) else reply
            for streams, reply in zip(self.streams, super().deliver(message), strict=True)
        ]

    def _masked(self, streams: MaskStreams, upload: Upload | Increments) -> MaskedUpload:
        h = upload.h if isinstance(upload, Upload) else 1
        return MaskedUpload(h, streams.masked(self.sums.words(upload), self.round, h))


def in_process(cohorts: Sequence[Cohort], p: Parameters) -> InProcess:
    """The transport to cohorts in this process."""
    if p.aggregation == "secure":
        return SimulatedSites(cohorts, p)
    return InProcess(cohorts, p.trigger, p.overshoot)
