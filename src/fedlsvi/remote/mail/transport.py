"""A transport whose sites have answered already: their files are read in place of asking them.

It is the frame transport of every federation, so replies are checked by the same guard, counted in
the same ledger and added up alike. What a site would only acknowledge is acknowledged for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn

import numpy as np

from fedlsvi.errors import InvalidInput, MessageRefused
from fedlsvi.protocol.messages import (
    KeyRequest,
    MaskedUpload,
    Reply,
    Signal,
    SiteKey,
    Stop,
    Upload,
)
from fedlsvi.remote.codec import Failure, decode_reply, encode
from fedlsvi.remote.frame_transport import FrameTransport
from fedlsvi.remote.guard import Guard
from fedlsvi.remote.mail.letter import Letter
from fedlsvi.remote.mail.requests import ROUND
from fedlsvi.remote.mail.study import Study


class MailTransport(FrameTransport):
    """Files in place of sites.

    Args:
        study: The study.
        letters: The contributions of all sites, checked, in the order of their agents.
    """

    def __init__(self, study: Study, letters: Sequence[Letter]) -> None:
        p = study.parameters
        guard = Guard(study.layout, study.federation.bounds(p))
        super().__init__(p, study.cuts, study.run, guard=guard, sites=study.names)
        self.answers = [answers(study, m, letter) for m, letter in enumerate(letters)]

    def exchange(self, frames: Mapping[int, bytes], deadline: float) -> Iterator[tuple[int, bytes]]:
        """What the sites' files say; a file says it once."""
        for c in frames:
            yield c, encode(self._reply(c), self.address(c))

    def _reply(self, c: int) -> Reply:
        expected = self.layout.reply_to(self.request)
        if expected is Signal:  # all have read their records to the end
            return Signal(self.trigger.episodes, np.array([self.cuts[c][0]]), np.zeros(1, np.int64))
        if isinstance(self.request, KeyRequest | Stop):
            return self.answers[c][expected]
        return None


def answers(
    study: Study, first: int, letter: Letter, kinds: Sequence[type] = ()
) -> dict[type, Reply]:
    """What a site's file answers, by the kind of message: these, or all of a contribution."""
    found: dict[type, Reply] = {}
    for frame in letter.frames:
        try:
            address, reply = decode_reply(frame, study.layout)
        except MessageRefused as error:
            raise MessageRefused(f"the file of {letter.site}: {error}", code=error.code) from None
        if (address.run, address.round, address.first, address.agents) != (
            study.run, ROUND, first, 1
        ) or isinstance(reply, Failure | None) or type(reply) in found:  # fmt: skip
            _refuse(letter.site)
        found[type(reply)] = reply
    every = {MaskedUpload, SiteKey} if study.secure else {Upload}
    if found.keys() != set(kinds or every):
        _refuse(letter.site)
    return found


def _refuse(site: str) -> NoReturn:
    raise InvalidInput(
        f"the file of {site} does not hold what the study asks for: ask the site to write it again",
        code="other-contents",
    )
