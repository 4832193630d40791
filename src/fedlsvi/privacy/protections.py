"""What a party does to its uploads before they leave: fixed point, then noise, then masks.

The same stack hides what leaves a site and what leaves a cohort of this process. Its layers work on
words, integers modulo 2^64 (`privacy.sums`), with a row for each agent, or one for all of them
where sums are secure:

    upload ── FixedPointSums ──► words ── Noise ──► words ── MaskStreams ──► what leaves

- Noise of a private run (`privacy.noise`): without secure sums each agent adds all of it, with
  them a party's share of it is in the row of its agents.
- Masks of secure sums (`privacy.masks`): only the sum over all parties can be read.

What comes in is added by `privacy.sums.sums_of`; which bounds remain for the server to check is in
`remote.bounds`. The secrets, and that no stage is answered twice, are the business of whoever holds
the stack: `protocol.protected` in one process, `remote.site_privacy` at a site.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedlsvi.config import Parameters
from fedlsvi.core.participation_schedule import NOT_THERE
from fedlsvi.core.private_release import PrivateRelease
from fedlsvi.errors import MessageRefused
from fedlsvi.privacy.masks import MaskStreams
from fedlsvi.privacy.noise import honest_sites, noise_of
from fedlsvi.privacy.sums import FixedPointSums
from fedlsvi.protocol.messages import Layout, MaskedUpload, Upload

AWAY = -1
"""In place of a release of an agent that is away."""


class Stage(NamedTuple):
    """Where in a run an upload leaves.

    Attributes:
        round: The party's own count: no mask serves two of them.
        release: Which release of a private run it belongs to.
        asked: (32,) digest of what the party was asked.
        since: Where agents come and go, the release that each took part in before this one; −1 for
            those that are away, of whom nothing leaves. None where all take part in all.
    """

    round: int
    release: int
    asked: bytes
    since: Sequence[int] | None = None


def releases_since(since: np.ndarray | None, p: Parameters) -> list[int] | None:
    """`Stage.since` of the episodes that an experience names."""
    if since is None:
        return None
    return [AWAY if t == NOT_THERE else p.release_number(t) for t in since.tolist()]


class Noise:
    """Noise on each row of words.

    Args:
        release: The noise of the run.
        key: The secret of whoever holds these agents.
        rows: The number of each row's agent, or of the first of them.
        parties: How many parties' noise is enough together.
    """

    def __init__(
        self, release: PrivateRelease, key: bytes, rows: Sequence[int], parties: int
    ) -> None:
        self.rows = [noise_of(release, key, row, parties) for row in rows]

    def draw(self, release: int) -> None:
        """Draw what a release needs before it is due, as `PartyNoise.draw`."""
        for row in self.rows:
            row.draw(release)

    def added(
        self, words: np.ndarray, release: int, h: int, since: Sequence[int] | None = None
    ) -> np.ndarray:
        """The words with the noise of this release and step; `since` as in `Stage`. The sums of an
        agent that was away have the noise of its last release, which is replaced when it is back:
        so they are always those of a first k rounds."""
        before = [None] * len(self.rows) if since is None else since
        noise = [
            np.zeros_like(word) if last == AWAY else row.words(release, h, last)
            for row, word, last in zip(self.rows, words, before, strict=True)
        ]
        noisy: np.ndarray = words + np.stack(noise)
        return noisy


class Protections:
    """The stack of one party.

    Args:
        p: The numbers in force.
        size: The sizes.
        agents: The party's first agent, and how many it has.
        key: The secret of its noise; None where the run is not private.

    Attributes:
        noise, masks: Layers; None where there are none, or parties are not known yet.
    """

    def __init__(
        self, p: Parameters, size: Layout, agents: tuple[int, int], key: bytes | None
    ) -> None:
        self._p, self._agents, self._key = p, agents, key
        self._grid = FixedPointSums(size, p.scale_bits)
        self.noise: Noise | None = None
        self.masks: MaskStreams | None = None
        if p.release is not None and key is not None and not size.secure:
            first, m = agents
            self.noise = Noise(p.release, key, range(first, first + m), 1)

    def join(self, masks: MaskStreams, parties: int) -> None:
        """Take part in secure sums with so many parties, this one included."""
        self.masks, p = masks, self._p
        if p.release is not None and p.privacy is not None and self._key is not None:
            enough = honest_sites(parties, p.privacy["colluders"])
            self.noise = Noise(p.release, self._key, self._agents[:1], enough)

    def check(self) -> None:
        """Refuse to let anything leave that would not be hidden as was agreed.

        Raises:
            MessageRefused: The parties are not known, or there is no noise.
        """
        if self._p.aggregation == "secure" and self.masks is None:
            raise MessageRefused(
                "no sites were agreed on, so nothing can be masked", code="no-membership"
            )
        if self._p.privacy is not None and self.noise is None:
            raise MessageRefused("the noise of this run was deleted", code="run-ended")

    def words(self, upload: Upload) -> np.ndarray:
        """(rows, words) what an upload is before anything hides it."""
        if self._p.aggregation == "secure":
            return self._grid.words(upload)[None]
        return self._grid.rows(upload)

    def leaving(self, upload: Upload, words: np.ndarray, at: Stage) -> Upload | MaskedUpload:
        """What leaves in place of an upload, given its words.

        Raises:
            MessageRefused: The budget of a private run is spent, or parties are not known.
        """
        self.check()
        if self.noise is not None:
            words = self.noise.added(words, at.release, upload.h, at.since)
        if self.masks is None:
            return self._grid.upload(upload, words)
        masked = self.masks.masked(words[0], at.round, upload.h, at.asked)
        return MaskedUpload(upload.h, masked)
