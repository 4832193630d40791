"""A cohort that its journal can bring back, with the model that it was sent last.

A server that begins at episode 0 may reuse the journal of other agents or of another run, which is
put aside then; no other server is answered from it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from fedlsvi.errors import MessageRefused, TransportError
from fedlsvi.protocol.agent import Cohort
from fedlsvi.protocol.heads import deploy
from fedlsvi.protocol.messages import Exploit, Layout, Model, Models, Start, gram_of
from fedlsvi.remote.codec import Address, decode_request
from fedlsvi.remote.journal import Journal, Snapshot
from fedlsvi.storage.schema import suspect


class RecordedCohort:
    """One cohort and what its snapshots hold of it.

    Args:
        make: Builds the cohort as it is before its first message.
        run: The number of the run.
        pessimism: β of the pass after the last round, with the sign changed.
        journal: Where snapshots are written; None keeps nothing.

    Attributes:
        cohort: As it is now.
        agents: The number of the first agent, and how many there are.
        kept: The episode of the last snapshot that it made or was restored from.
        start: The message that began the run, or resumed it.
        dim: d of the models that it is sent.
        deployed: (H, d), the w of the pass after the last round; (0, 0) before it.
    """

    start: Start

    def __init__(
        self, make: Callable[[], Cohort], run: int, pessimism: float, journal: Journal | None
    ) -> None:
        self.run, self.journal = run, journal
        self._make, self._pessimism = make, pessimism
        self.cohort, self.kept, self._foreign = make(), 0, ""
        self.agents = int(self.cohort.agents[0]), len(self.cohort.agents)
        own, d = self.cohort.own, self.cohort.experience.dim
        self.dim = d if own is None else own.shared
        self.deployed = np.empty((0, 0))

    def recover(self, journal: Journal, layout: Layout) -> tuple[Snapshot | None, list[bytes]]:
        """Restore the last snapshot, if there is one; returns it, and the requests since."""
        snapshot, frames = journal.newest()
        with suspect(journal.folder):
            self._foreign = self._other_owner(snapshot, frames, layout)
            if self._foreign:
                return None, []
            if snapshot is not None:
                self._restore(snapshot)
        return snapshot, frames

    def _other_owner(self, snapshot: Snapshot | None, frames: list[bytes], layout: Layout) -> str:
        """Whose journal it is, if not that of these agents in this run."""
        mine = (self.run, *self.agents)
        run, first, agents = mine
        if snapshot is not None:
            run, first, agents = snapshot.plain["whose"]
        elif frames:
            with suppress(MessageRefused):  # damage is noticed when it is carried out
                address, _ = decode_request(frames[0], layout)
                run, first, agents = address.run, address.first, address.agents
        if (run, first, agents) == mine:
            return ""
        return (
            f"the journal belongs to agents {first} to {first + agents - 1} of run {run:x}, not to "
            f"{self.agents[0]} to {sum(self.agents) - 1} of run {self.run:x}: put each journal "
            "back where it was"
        )

    def go_back(self, start: Start, round_: int) -> Snapshot | None:
        """A server begins, or resumes after a snapshot of this round with the model that was in
        force there; the snapshot that was restored, if any."""
        t = start.t
        if self._foreign and t > 0:
            raise TransportError(self._foreign, code="foreign-journal")
        if self.journal is None and t > 0:
            raise TransportError(
                f"there is no snapshot after episode {t} to resume from", code="no-snapshot"
            )
        snapshot = None
        if self.journal is not None:
            if t > 0:
                with suspect(self.journal.folder):
                    _refuse_another(self.journal.snapshot_at(t), start, round_)
            snapshot = self.journal.back_to(t)
        self.end_threads()
        self.cohort, self.kept, self._foreign = self._make(), 0, ""
        if snapshot is not None and self.journal is not None:
            with suspect(self.journal.folder):
                self._restore(snapshot)
        return snapshot

    def follow(self, message: Start | Exploit | Model | Models) -> None:
        """The cohort was sent this."""
        match message:
            case Start(w=w, gram=gram):
                self.start, self._w, self._gram = message, w.copy(), gram.copy()
                self.deployed = np.empty((0, 0))
            case Exploit():
                self.deployed = np.zeros((len(self._w), self.dim))
            case Models(w=w) if self.deployed.size:
                self.deployed[:] = w
            case Models(w=w, gram=gram):
                self._w, self._gram = w.copy(), gram.copy()
            case Model(h=h, w=w) if self.deployed.size:
                self.deployed[h - 1] = w
            case Model(h=h, w=w, gram=gram):
                self._w[h - 1] = w
                gram_of(self._gram, h, len(self._w))[:] = gram

    def keep(self, t: int, address: Address, transcript: bytes | None = None) -> None:
        """Make a snapshot after episode t, as the request at this address asks; where uploads are
        protected it holds what was asked until then."""
        if self.journal is None or t == self.kept:
            return
        experience, start = self.cohort.experience, self.start
        arrays = {**self.cohort.state(), "model.w": self._w, "model.gram": self._gram}
        if self.deployed.size:
            arrays["exploit.w"] = self.deployed
        plain: dict[str, Any] = {
            "whose": [self.run, *self.agents],
            "gamma": start.gamma,
            "beta": start.beta,
            "episodes": start.episodes,
            "last": [address.epoch, address.number, address.round],
        }
        if transcript is not None:
            plain["transcript"] = transcript.hex()
        history = [(self.kept, experience.history(self.kept, t))] if t > self.kept else []
        self.journal.keep(Snapshot(t, arrays, plain, history))
        self.kept = t

    def _restore(self, snapshot: Snapshot) -> None:
        arrays, plain = dict(snapshot.arrays), snapshot.plain
        w, gram = arrays.pop("model.w"), arrays.pop("model.gram")
        deployed = arrays.pop("exploit.w", None)
        for first, part in snapshot.history:
            self.cohort.experience.extend(first, part)
        self.cohort.restore(arrays)
        start = Start(w, gram, plain["gamma"], plain["beta"], plain["episodes"], snapshot.t)
        self.cohort.start(start)
        self.follow(start)
        if deployed is not None:
            self.deployed = deployed
            deploy(self.cohort, deployed, -self._pessimism)
        self.kept = snapshot.t

    def end_threads(self) -> None:
        """End the cohort's threads."""
        self.cohort.experience.workers.close()


def _refuse_another(snapshot: Snapshot, start: Start, round_: int) -> None:
    """Refuse to resume with another round or another model than a snapshot has."""
    known = snapshot.plain["last"][2]
    if round_ != known:
        raise MessageRefused(
            f"a Start at episode {start.t} in round {round_}, but round {known} begins there",
            code="other-round",
        )
    for name, sent in (("model.w", start.w), ("model.gram", start.gram)):
        if snapshot.arrays[name].tobytes() != sent.tobytes():
            raise MessageRefused(
                f"a Start at episode {start.t} with another model than the one in force there",
                code="other-model",
            )
