"""A site's protections (`privacy.protections`): its secrets, what has left, and what was asked.

A floor under rounds (`min_round`) needs no secret, but the record of what has left all the same: a
server that goes back and ends a round one episode later would subtract two sums of n episodes, and
have the one between them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import numpy as np

from fedlsvi.config import Parameters
from fedlsvi.errors import DamagedFile, InvalidInput, MessageRefused
from fedlsvi.privacy.protections import Protections, Stage, releases_since
from fedlsvi.privacy.transcript import Transcript
from fedlsvi.protocol.agent import Cohort, Experience
from fedlsvi.protocol.messages import (
    Explore,
    KeyRequest,
    Model,
    Models,
    Reply,
    Request,
    Roster,
    Start,
    Upload,
)
from fedlsvi.protocol.transport import layout
from fedlsvi.remote.identity import SiteIdentity
from fedlsvi.remote.journal import Journal
from fedlsvi.remote.masking import Masking
from fedlsvi.remote.model_check import GrowthCheck
from fedlsvi.remote.release_log import RELEASES, ReleaseLog
from fedlsvi.remote.site_noise import NoiseSecret
from fedlsvi.storage import files


def remembers(p: Parameters) -> bool:
    """Whether a site answers each sum once: where something hides it, or rounds have a floor."""
    return p.aggregation == "secure" or p.privacy is not None or p.min_round > 1


class SitePrivacy:
    """A site's noise and its part in secure sums, as its journal has them, and what has left it.

    Args:
        parameters: The numbers that were agreed on.
        run: The run's number.
        agents: The site's first agent, and how many it has.
        identity: Signs this site's key and verifies those of others; needed for secure sums.
        journal: What secrets and the log of releases are kept beside; None keeps them in memory.
        agreed: Hash of the job that this site was given (`privacy.transcript`).

    Attributes:
        transcript: What this site was asked so far; a snapshot holds it.
    """

    def __init__(
        self,
        parameters: Parameters,
        run: int,
        agents: tuple[int, int],
        identity: SiteIdentity | None,
        journal: Journal | None,
        agreed: bytes = b"",
    ) -> None:
        self.transcript = Transcript(agreed)
        self._journal = journal
        self._folder = None if journal is None else _made(journal.secrets)
        durable = journal is None or journal.durable
        self.parameters, self._agents = parameters, agents
        self._log = ReleaseLog(run, agents, self._folder, durable, self._other_names())
        self._growth: GrowthCheck | None = None
        # without secure sums a model may lack a site that was excluded
        if parameters.aggregation == "secure" and parameters.privacy is None:
            self._growth = GrowthCheck(parameters)
        self._masking: Masking | None = None
        self._noise: NoiseSecret | None = None
        if parameters.aggregation == "secure":
            if identity is None:
                raise InvalidInput(
                    'aggregation="secure" needs a SiteIdentity for each endpoint, so that the '
                    "server cannot substitute its own keys: give identity=",
                    code="no-identity",
                )
            self._masking = Masking(parameters, run, agents, identity, self._folder)
        if parameters.privacy is not None:
            self._noise = NoiseSecret(run, self._folder, len(self._log) > 0)
        self._arm()

    def _other_names(self) -> list[Path]:
        """Where else this site may have answered the same run. A private one is booked for each
        name, with noise of its own."""
        if self._journal is None or self._folder is None or self.parameters.privacy is not None:
            return []
        found = self._folder.parent.glob(f"*/{RELEASES}") if self._journal.of_a_site else ()
        return sorted(path.parent for path in found if path.parent != self._folder)

    def _arm(self) -> None:
        """The stack of what is agreed so far."""
        key, masking = None if self._noise is None else self._noise.key or None, self._masking
        self._protections = Protections(self.parameters, layout(self.parameters), self._agents, key)
        if masking is not None and masking.streams is not None:
            self._protections.join(masking.streams, masking.sites)

    def begin(self) -> None:
        """A server begins at episode 0."""
        if self._masking is not None:
            self._masking.begin()
            self._arm()

    def resume(self, transcript: str | None, start: Start, round_: int) -> None:
        """A snapshot was restored, which was made before this round: what was asked until then, and
        the model in force. None where the snapshot is of a version that did not remember it: its
        history begins here.

        Raises:
            DamagedFile: It was made after sums had left, but what left is not known any more.
        """
        if transcript is None:
            self.transcript = Transcript(self.transcript.agreed)
            return
        if start.t > 0 and round_ - 1 not in self._log.rounds:
            raise DamagedFile(
                f"{self._folder} does not say what has left this site in round {round_ - 1}, but "
                f"its journal is at episode {start.t:,}. A sum that is sent again with other noise "
                "or masks would reveal more than one: put the folder back if it is still there, "
                "and never from a backup; else give the federation another name, and begin again",
                code="releases-lost",
            )
        self.transcript.digest = bytes.fromhex(transcript)
        if self._growth is not None:
            self._growth.follow(start)

    def check(self, message: Request, world: Experience) -> None:
        """Refuse a model that cannot follow the one in force."""
        if self._growth is not None and isinstance(message, Model | Models):
            self._growth.check(message, world.t + world.length, world.length)

    def answer(
        self, cohort: Cohort, k: int, message: Request, until: Callable[[int], int] | None
    ) -> Reply:
        """What the site answers to a request of round k; `until` is for `Cohort.explore`."""
        masking = self._masking
        if masking is not None and isinstance(message, KeyRequest):
            return masking.offer()
        if masking is not None and isinstance(message, Roster):
            masking.agree(message)
            self._arm()
            self._draw(message, cohort.experience.t)
            return None
        self.transcript.follow(message, k)
        self._draw(message, cohort.experience.t)
        reply = cohort.receive(message, until)
        if self._growth is not None:
            self._growth.follow(message)
        if not isinstance(reply, Upload):
            return reply
        played = cohort.experience.t + cohort.experience.length
        step = 0 if reply.every_step else reply.h
        asked = self.transcript.digest
        if masking is None and self._noise is None:
            self._log.use(k, step, asked, _content(reply))
            return reply
        if masking is not None:  # a sum over other sites, or noise shared by more, is another one
            asked = sha256(asked + masking.who).digest()
        release = self.release_of(played)
        if release and cohort.second is not None:
            release = self.parameters.last_release
        since = releases_since(cohort.experience.since, self.parameters)
        at = Stage(k, release, self.transcript.digest, since)
        self._protections.check()
        words = self._protections.words(reply)
        self._log.use(k, step, asked, sha256(words.data).digest())
        return self._protections.leaving(reply, words, at)

    def _draw(self, message: Request, t: int) -> None:
        """The round after episode t begins, or that of the logs: draw its noise, so that no upload
        waits for it."""
        logs = self.parameters.logged > 0 and t == 0 and isinstance(message, Start | Roster)
        if not logs and not isinstance(message, Explore):
            return
        release, noise = self.parameters.release, self._protections.noise
        k = 1 if logs else self.parameters.release_number(t) + 1
        if noise is not None and release is not None and k <= release.rounds:
            noise.draw(k)

    def release_of(self, t: int) -> int:
        """The release of a private run that belongs to the round that ended with episode t.

        Raises:
            MessageRefused: None does, or the run has ended.
        """
        if self._noise is None:
            return 0
        if not self._noise.key:
            raise MessageRefused(
                "this run has ended here, and its noise was deleted: give the federation another "
                "seed",
                code="run-ended",
            )
        k = self.parameters.release_number(t)
        if k == 0:
            raise MessageRefused(
                f"no round of the public schedule ends after episode {t}, so nothing is sent",
                code="off-schedule",
            )
        return k

    def end(self) -> None:
        """The run has ended: delete the secrets that its uploads were hidden with."""
        for secret in (self._masking, self._noise):
            if secret is not None:
                secret.end()
        self._arm()

    def close(self) -> None:
        """Delete what was only needed while the process ran."""
        if self._folder is not None and self._journal is not None and self._journal.scratch:
            shutil.rmtree(self._folder, ignore_errors=True)


def _content(upload: Upload) -> bytes:
    """(32,) hash of the numbers of an upload that leaves as it is."""
    held = sha256()
    tables = [part for table in upload.following for part in (table.cells, table.values)]
    for array in (upload.gram, upload.b, upload.fit, *tables):
        held.update(str(array.shape).encode())
        held.update(np.ascontiguousarray(array).data)
    return held.digest()


def _made(folder: Path) -> Path:
    """A folder that nobody else can read."""
    files.make_private(folder)
    return folder
