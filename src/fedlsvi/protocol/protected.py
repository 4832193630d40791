"""Protected uploads in one process: each cohort plays a site, with real keys, masks and noise.

The server of such a run sees what a server of sites would see. Nothing is kept from anybody, since
all parties share one memory; keys of masks are made again whenever the run is resumed. The secret
of a private run's noise is kept beside its checkpoints, so that it goes on with the same noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from secrets import randbits
from typing import Any

import numpy as np

from fedlsvi.config import Parameters
from fedlsvi.errors import InvalidInput
from fedlsvi.privacy.masks import MaskStreams, check_sites, new_private_key, public_key
from fedlsvi.privacy.noise import new_noise_key
from fedlsvi.privacy.protections import Protections, Stage, releases_since
from fedlsvi.privacy.transcript import Transcript
from fedlsvi.protocol.messages import (
    KEY_SCALARS,
    Exploit,
    Member,
    Reply,
    Request,
    Start,
    Stop,
    Upload,
)
from fedlsvi.protocol.transport import Answering, InProcess, layout


class ProtectedInProcess(InProcess):
    """Cohorts that are all here, and protect what they upload as sites do.

    Args:
        cohorts: All agents; with secure sums at least three sites.
        parameters: The numbers in force.

    Attributes:
        protections: Of each cohort.
    """

    def __init__(self, cohorts: Sequence[Answering], parameters: Parameters) -> None:
        p = self.parameters = parameters
        super().__init__(cohorts, p.trigger, p.overshoot)
        self.private, self.secure = p.privacy is not None, p.aggregation == "secure"
        # however agents are cut into cohorts, without secure sums each has noise of its own
        self.parties = len(cohorts) if self.secure else 1
        self.round = self.release = 0
        # one for all sites, which are asked the same here and have one plan
        self.transcript = Transcript()
        self._streams = _streams(cohorts) if self.secure else []
        self._arm(new_noise_key())

    def _arm(self, key: bytes) -> None:
        self.key = key
        secret = key if self.private else None
        agents = [(int(cohort.agents[0]), len(cohort.agents)) for cohort in self.cohorts]
        size = layout(self.parameters)
        self.protections = [Protections(self.parameters, size, own, secret) for own in agents]
        for protections, streams in zip(self.protections, self._streams, strict=False):
            protections.join(streams, self.parties)

    @property
    def noise_key(self) -> bytes | None:
        """The secret of the noise; None if the run is not private."""
        return self.key if self.private else None

    def use_noise_key(self, key: bytes) -> None:
        """Go on with the noise of this secret."""
        self._arm(key)

    def deliver(self, message: Request) -> Sequence[Reply]:
        """Deliver, and protect what the cohorts upload; with secure sums `Start` is followed by the
        keys."""
        if self.secure and isinstance(message, Start):
            self.enter_sites("init", KEY_SCALARS * (1 + len(self.cohorts)))
        self.round += isinstance(message, Stop | Exploit)  # no stream serves two rounds
        match message:
            case Stop(t=t) if self.private:
                self.release = self.parameters.release_number(t)
            case Exploit() if self.private:
                self.release = self.parameters.last_release
        self.transcript.follow(message, self.round)
        replies, at = (
            super().deliver(message),
            Stage(self.round, self.release, self.transcript.digest),
        )
        return [
            own.leaving(reply, own.words(reply), at._replace(since=self._since(cohort)))
            if isinstance(reply, Upload)
            else reply
            for own, cohort, reply in zip(self.protections, self.cohorts, replies, strict=True)
        ]

    def _since(self, cohort: Answering) -> list[int] | None:
        """The release that each agent of a private run took part in before this one."""
        return releases_since(cohort.since, self.parameters) if self.private else None

    def state(self, t: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """How many parties add noise, if any do."""
        arrays, plain = super().state(t)
        return arrays, plain | ({"noise": self.parties} if self.private else {})

    def restore(
        self, arrays: Mapping[str, np.ndarray], plain: Mapping[str, Any], t: int, k: int
    ) -> None:
        """Continue after round k with as many parties."""
        super().restore(arrays, plain, t, k)
        if self.private and plain["noise"] != self.parties:
            raise InvalidInput(
                "a private run must keep the sites it started with: give "
                f"cohorts={plain['noise']}, not {self.parties}",
                code="other-sites",
            )


def _streams(cohorts: Sequence[Answering]) -> list[MaskStreams]:
    """The masks of cohorts that play sites, with new keys."""
    check_sites(len(cohorts))
    run, private = randbits(64), [new_private_key() for _ in cohorts]
    members = [
        Member(int(cohort.agents[0]), len(cohort.agents), public_key(key), b"")
        for cohort, key in zip(cohorts, private, strict=True)
    ]
    return [
        MaskStreams(key, member.first, run, members)
        for key, member in zip(private, members, strict=True)
    ]
