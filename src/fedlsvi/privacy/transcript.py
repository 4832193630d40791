"""What a site was asked so far, as one hash: sites that were asked the same have the same.

    D ← SHA-256(D, A, kind, round, fields)   for every Start, Stop, Exploit, Model and Models

These must be alike for all sites, whatever the server does, and so must A, a hash of the job that
the site was given: features, rewards and sizes decide what its sums mean. The digest is part of
every mask (`privacy.masks`), so the masks of sites that were asked different things, or work with
different features, do not cancel, and their sum is noise. `Explore` and `Keep` may differ between
sites and in time, and are left out: they decide when an episode is played, not what is sent of it.
The sites and their keys are in the masks anyway.
"""

from __future__ import annotations

import struct
from hashlib import sha256

import numpy as np

from fedlsvi.protocol.messages import Exploit, Model, Models, Request, Start, Stop

DIGEST_BYTES = 32
_LABEL = b"fedlsvi transcript of requests, 2"
_HEAD = struct.Struct("<8sqq")  # kind, round, step


class Transcript:
    """A running digest of the requests that all sites must have been sent alike.

    Args:
        agreed: Hash of the job; part of every step, so that no snapshot of one job goes on in
            another. Empty where nobody else could have given the parties different ones.

    Attributes:
        digest: (32,) of everything so far; zeros before the first `Start`.
    """

    def __init__(self, agreed: bytes = b"") -> None:
        self.agreed, self.digest = agreed, bytes(DIGEST_BYTES)

    def follow(self, message: Request, round_: int) -> None:
        """A request of this round was sent to the site.

        Args:
            message: One that resumes a run, or need not be alike for all sites, changes nothing.
            round_: The site's own count.
        """
        match message:
            case Start(t=0, w=w, gram=gram, gamma=gamma, beta=beta, episodes=episodes):
                self.digest = _LABEL
                numbers = struct.pack("<ddq", gamma, beta, episodes)
                self._add(b"start", round_, 0, numbers, _bytes(w), _bytes(gram))
            case Stop(t=t):
                self._add(b"stop", round_, 0, struct.pack("<q", t))
            case Exploit(beta=beta):
                self._add(b"exploit", round_, 0, struct.pack("<d", beta))
            case Model(h=h, w=w, gram=gram):
                self._add(b"model", round_, h, _bytes(w), _bytes(gram))
            case Models(w=w, gram=gram):
                self._add(b"models", round_, 0, _bytes(w), _bytes(gram))

    def _add(self, kind: bytes, round_: int, step: int, *fields: bytes) -> None:
        running = sha256(self.digest + self.agreed)
        running.update(_HEAD.pack(kind, round_, step))
        for field in fields:  # their lengths are agreed on, but for a Λ that is left out
            running.update(struct.pack("<q", len(field)))
            running.update(field)
        self.digest = running.digest()


def _bytes(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array, "<f8").tobytes()
