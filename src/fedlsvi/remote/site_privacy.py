"""What a site does to its uploads before they leave: noise where the run is private, then masks
where sums are secure."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from fedlsvi.config import Parameters
from fedlsvi.errors import InvalidInput
from fedlsvi.protocol.agent import Cohort
from fedlsvi.protocol.messages import Increments, KeyRequest, Reply, Request, Roster, Upload
from fedlsvi.remote.identity import SiteIdentity
from fedlsvi.remote.journal import Journal
from fedlsvi.remote.masking import Masking
from fedlsvi.remote.site_noise import SiteNoise, step_of
from fedlsvi.storage import files


class SitePrivacy:
    """A site's noise and its part in secure sums, as its journal has them.

    Args:
        parameters: The numbers that were agreed on.
        run: The run's number.
        agents: The site's first agent, and how many it has.
        identity: Signs this site's key and verifies those of others; needed for secure sums.
        journal: What keys, noise and used masks are kept beside; None keeps them in memory.
    """

    def __init__(
        self,
        parameters: Parameters,
        run: int,
        agents: tuple[int, int],
        identity: SiteIdentity | None,
        journal: Journal | None,
    ) -> None:
        self._masking: Masking | None = None
        self._noise: SiteNoise | None = None
        folder, durable = (None, True) if journal is None else (journal.folder, journal.durable)
        if parameters.aggregation == "secure":
            if identity is None:
                raise InvalidInput(
                    'aggregation="secure" needs a SiteIdentity for each endpoint, so that the '
                    "server cannot substitute its own keys: give identity=",
                    code="no-identity",
                )
            self._masking = Masking(parameters, run, agents, identity, folder, durable)
        if parameters.privacy is not None:
            beside = None if folder is None else _noise_folder(folder)
            self._noise = SiteNoise(parameters, run, agents, beside, durable)

    def begin(self) -> None:
        """A server begins at episode 0."""
        if self._masking is not None:
            self._masking.begin()

    def answer(
        self, cohort: Cohort, k: int, message: Request, until: Callable[[int], int] | None
    ) -> Reply:
        """What the site answers to a request of round k; `until` is for `Cohort.explore`."""
        masking, noise = self._masking, self._noise
        if masking is not None and isinstance(message, KeyRequest):
            return masking.offer()
        if masking is not None and isinstance(message, Roster):
            masking.agree(message)
            return None
        reply = cohort.receive(message, until)
        if not isinstance(reply, Upload | Increments):
            return reply
        played = cohort.experience.t + cohort.experience.length
        if masking is not None:
            blur = None if noise is None else partial(noise.add, played, step=step_of(reply))
            return masking.mask(k, reply, blur)
        return reply if noise is None else noise.blur(played, reply)


def _noise_folder(folder: Path) -> Path:
    """Next to the journal, which is set aside when a server starts over."""
    beside = folder.with_name(f"{folder.name}.noise")
    files.make_private(beside)
    return beside
