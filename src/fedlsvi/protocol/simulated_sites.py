"""Secure sums in one process: each cohort plays a site, with real keys and real masks.

The server of such a run sees what a server of sites would see. Nothing is kept from anybody, since
all parties share one memory; keys are made again whenever the run is resumed. The secret of a
private run's noise is kept in its checkpoints, so that it goes on with the same noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from secrets import randbits
from typing import Any

import numpy as np

from fedlsvi.config import Parameters
from fedlsvi.errors import InvalidInput
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
from fedlsvi.protocol.private_noise import (
    NoisyAgents,
    PartyNoise,
    honest_sites,
    new_noise_key,
    noise_of,
)
from fedlsvi.protocol.transport import InProcess, layout


class PrivateInProcess(InProcess):
    """Cohorts of a private run that are all here; subclasses add the noise.

    Args:
        cohorts: All agents.
        parameters: The numbers in force.
    """

    def __init__(self, cohorts: Sequence[Cohort], parameters: Parameters) -> None:
        super().__init__(cohorts, parameters.trigger, parameters.overshoot)
        self.release, self.n_agents = parameters.release, parameters.n_agents
        self.parties, self.number = len(cohorts), 0
        self._arm(new_noise_key())

    def _arm(self, key: bytes) -> None:
        self.key = key

    def deliver(self, message: Request) -> Sequence[Reply]:
        """Deliver, and remember which round of the public schedule has ended."""
        if self.release is not None and isinstance(message, Stop):
            self.number = self.trigger.number(message.t)
        return super().deliver(message)

    def state(self, t: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """The secret of the noise, if there is one."""
        arrays, plain = super().state(t)
        if self.release is not None:
            plain = {**plain, "noise": [self.parties, self.key.hex()]}
        return arrays, plain

    def restore(
        self, arrays: Mapping[str, np.ndarray], plain: Mapping[str, Any], t: int, k: int
    ) -> None:
        """Continue after round k with the same noise."""
        super().restore(arrays, plain, t, k)
        if self.release is not None:
            parties, key = plain["noise"]
            if parties != self.parties:
                raise InvalidInput(
                    f"a private run must keep the sites it started with: give cohorts={parties}, "
                    f"not {self.parties}",
                    code="other-sites",
                )
            self._arm(bytes.fromhex(key))


class LocallyPrivate(PrivateInProcess):
    """Agents that add all the noise by themselves, for a server that sees every upload."""

    def _arm(self, key: bytes) -> None:
        super()._arm(key)
        assert self.release is not None
        self.parties = 1  # however agents are cut into cohorts, each has noise of its own
        self._noisy = [
            NoisyAgents(key, int(c.agents[0]), len(c.agents), self.release, self.n_agents)
            for c in self.cohorts
        ]

    def deliver(self, message: Request) -> Sequence[Reply]:
        """Deliver, and add noise to what agents upload."""
        replies = super().deliver(message)
        return [
            noisy.blurred(self.number, reply) if isinstance(reply, Upload | Increments) else reply
            for noisy, reply in zip(self._noisy, replies, strict=True)
        ]


class SimulatedSites(PrivateInProcess):
    """Cohorts that mask what they upload, with noise below the masks where the run is private.

    Args:
        cohorts: The sites, at least three.
        parameters: The numbers in force.
    """

    def __init__(self, cohorts: Sequence[Cohort], parameters: Parameters) -> None:
        p = parameters
        check_sites(len(cohorts))
        self.colluders = p.privacy["colluders"] if p.privacy is not None else 0
        super().__init__(cohorts, p)
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

    def _arm(self, key: bytes) -> None:
        super()._arm(key)
        self.noise: list[PartyNoise] = []
        if self.release is not None:
            enough = honest_sites(len(self.cohorts), self.colluders)
            firsts = [int(cohort.agents[0]) for cohort in self.cohorts]
            self.noise = [noise_of(self.release, key, first, enough) for first in firsts]

    def deliver(self, message: Request) -> Sequence[Reply]:
        """Deliver, and mask what the cohorts upload; `Start` is followed by the keys."""
        if isinstance(message, Start):
            self.enter_sites("init", KEY_SCALARS * (1 + len(self.cohorts)))
        self.round += isinstance(message, Stop | Exploit)  # no stream serves two rounds
        replies = list(super().deliver(message))
        for c, reply in enumerate(replies):
            if isinstance(reply, Upload | Increments):
                words, h = self.sums.words(reply), reply.h if isinstance(reply, Upload) else 1
                if self.noise:
                    words += self.noise[c].words(self.number, h)
                replies[c] = MaskedUpload(h, self.streams[c].masked(words, self.round, h))
        return replies
