"""The server's end of a transport that carries bytes.

An engine implements `exchange`: hand frames to cohorts, yield whatever arrives until the deadline.
Everything else stands here: numbering, asking again, recognising what is late, doubled or foreign,
the guard, and what happens when an agent stays away or sends what no honest agent could.

A cohort is one process, so it is excluded as a whole: whoever answers for one of its agents answers
for all. Excluding it takes back every increment that it ever contributed, so that the model is from
then on the one the other agents would have learned from those episodes alone.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from time import time_ns
from typing import Any, Literal

import numpy as np

from fedlsvi.config import Parameters
from fedlsvi.errors import FedLSVIError, InvalidSetting, MessageRefused, TransportError
from fedlsvi.guard import Facts, Guard, Refusal
from fedlsvi.messages import Keep, Layout, Model, Reply, Request, Signal, Start, Stop, Upload
from fedlsvi.transports.base import Transport
from fedlsvi.transports.wire import Address, Failure, decode_reply, encode, split

KEEP_ROUNDS = 100
"""Without checkpoints agents are asked to keep what they hold every so many rounds, so that one
that is started again has little to do again."""

Refused = Literal["refuse", "exclude"]
Absent = Literal["wait", "fail", "exclude"]


@dataclass(frozen=True)
class Patience:
    """How long the server waits, and what it does then.

    deadline   seconds for one exchange
    attempts   how often it asks the same again
    refused    after a message that fails the checks: "refuse" stops the run, "exclude" goes on
               without that cohort
    absent     after silence or an error at the agent: "wait" asks on and on, "fail" stops the run,
               "exclude" goes on without that cohort
    """

    deadline: float = 60.0
    attempts: int = 2
    refused: Refused = "refuse"
    absent: Absent = "fail"

    def __post_init__(self) -> None:
        if not self.deadline > 0.0:
            raise InvalidSetting(f"deadline must be above 0 seconds, got {self.deadline!r}")
        if self.attempts < 1:
            raise InvalidSetting(f"attempts must be at least 1, got {self.attempts!r}")
        for name, known in (("refused", ("refuse", "exclude")),
                            ("absent", ("wait", "fail", "exclude"))):  # fmt: skip
            if getattr(self, name) not in known:
                raise InvalidSetting(f"{name} must be one of {known}, got {getattr(self, name)!r}")


class Wired(Transport):
    """A transport of frames between one server and cohorts of agents, `cuts` = (first, agents)."""

    asks = True

    def __init__(
        self,
        parameters: Parameters,
        cuts: Sequence[tuple[int, int]],
        run: int,
        patience: Patience | None = None,
        guard: Guard | None = None,
    ) -> None:
        p = parameters
        super().__init__(p.n_agents, p.gamma, p.overshoot)
        self.layout = Layout(p.n_agents, p.horizon, p.dim, p.packing)
        self.cuts, self.run, self.patience = list(cuts), run, patience or Patience()
        self.guard = guard or Guard(self.layout, facts(p))
        self.epoch, self.number = time_ns(), 0
        self.excluded: dict[int, str] = {}
        """Cohorts that the run goes on without, and why."""
        self.notes: list[str] = []
        """What was out of the ordinary since the last record."""
        self.ignored = 0
        """Replies that were late, doubled or foreign, and had no effect."""
        self.wire_bytes = {"down": 0, "up": 0}
        self._checkpoints = False

    @abstractmethod
    def exchange(self, frames: Mapping[int, bytes], deadline: float) -> Iterator[tuple[int, bytes]]:
        """Hand each cohort its frame; yield (cohort, bytes) as they arrive, until the deadline."""

    def deliver(self, message: Request) -> Sequence[Reply]:
        """Ask every cohort, as often as patience allows; a reply has passed all checks."""
        self.number += 1
        self.guard.sends(message)
        self._asked = message
        replies: dict[int, Reply] = {}
        waiting = {c for c in range(len(self.cuts)) if c not in self.excluded}
        attempt = 0
        while waiting:
            attempt += 1
            trouble = self._ask(waiting, replies)
            for c in sorted(waiting):
                self._lost_patience(c, trouble.get(c), attempt)
            waiting -= set(self.excluded)
        if len(self.excluded) == len(self.cuts):
            raise TransportError("every agent is excluded: nobody is left to learn from")
        return self._complete(message, replies)

    def _ask(self, waiting: set[int], replies: dict[int, Reply]) -> dict[int, FedLSVIError]:
        """One attempt; answers move a cohort from `waiting` to `replies`."""
        trouble: dict[int, FedLSVIError] = {}
        frames = {c: encode(self._asked, self._address(c)) for c in sorted(waiting)}
        self.wire_bytes["down"] += sum(map(len, frames.values()))
        for c, data in self.exchange(frames, self.patience.deadline):
            for frame in split(data) if isinstance(data, bytes) else [data]:
                if c not in waiting:
                    self.ignored += 1
                    continue
                self.wire_bytes["up"] += len(frame)
                try:
                    known, reply = self._open(c, frame)
                except FedLSVIError as error:
                    trouble[c] = error
                    continue
                if known:
                    replies[c] = reply
                    waiting.discard(c)
                else:
                    self.ignored += 1
            if not waiting:
                break
        return trouble

    def _address(self, c: int) -> Address:
        return Address(self.run, self.epoch, self.number, self.guard.round, *self.cuts[c])

    def _open(self, c: int, frame: bytes) -> tuple[bool, Reply]:
        """Read and check a reply; (False, None) for one that answers something else."""
        address, reply = decode_reply(frame, self.layout)
        if address != self._address(c):
            return False, None
        if isinstance(reply, Failure):
            first, agents = self.cuts[c]
            raise TransportError(
                f"agents {first} to {first + agents - 1} answered {type(self._asked).__name__} "
                f"with {reply.name}; the log at their side has the text"
            )
        self._check(c, reply)
        return True, reply

    def _check(self, c: int, reply: Reply) -> None:
        """The right kind of reply, lawful."""
        first, agents = self.cuts[c]
        expected = self._expected()
        if type(reply) is not expected:
            found = type(reply).__name__
            raise Refusal(first, self.guard.round, 0, "kind of reply", found, expected.__name__)
        if isinstance(reply, Upload):
            self.guard.upload(first, agents, self._step(), reply)
        elif isinstance(reply, Signal):
            self.guard.signal(first, agents, reply)

    def _expected(self) -> type:
        match self._asked:
            case Stop():
                return Upload
            case Model(h=h):
                return Upload if h > 1 else type(None)
            case Start() | Keep():
                return type(None)
        return Signal

    def _step(self) -> int:
        return self._asked.h - 1 if isinstance(self._asked, Model) else self.layout.horizon

    def _lost_patience(self, c: int, error: FedLSVIError | None, attempt: int) -> None:
        """A cohort has not given a usable answer: ask again (return), exclude it, or stop."""
        first, agents = self.cuts[c]
        who = f"agent {first}" if agents == 1 else f"agents {first} to {first + agents - 1}"
        refused = isinstance(error, MessageRefused)
        policy = self.patience.refused if refused else self.patience.absent
        if error is None:
            error = TransportError(
                f"{who}: no answer to {type(self._asked).__name__} in round {self.guard.round} "
                f"within {self.patience.deadline:g} s"
            )
        if policy == "wait" or attempt < self.patience.attempts:
            return
        if policy != "exclude":
            raise (
                error
                if isinstance(error, Refusal)
                else type(error)(f"{who}, round {self.guard.round}: {error}")
            )
        self.excluded[c] = str(error)
        self.notes.append(f"round {self.guard.round}: {who} excluded ({error})")

    def _complete(self, message: Request, replies: dict[int, Reply]) -> Sequence[Reply]:
        """Replies in agent order; an excluded cohort is represented by its withdrawal."""
        if self._expected() is not Upload:
            return [replies[c] for c in sorted(replies)]
        h = self._step()
        uploads = [
            reply if isinstance(reply := replies.get(c), Upload)
            else self.guard.withdrawal(*self.cuts[c], h)
            for c in range(len(self.cuts))
        ]  # fmt: skip
        gram = np.concatenate([u.gram for u in uploads])
        b = np.concatenate([u.b for u in uploads])
        self.guard.accept(h, gram, b)
        return [Upload(h, gram, b)]

    def wait(self, t: int, left: int) -> Signal:
        signal = super().wait(t, left)
        self.guard.stops(signal)
        return signal

    def enter(self, category: str, scalars: int) -> None:
        if not self.excluded:
            self.ledger.each(category, scalars)
            return
        for c, (first, agents) in enumerate(self.cuts):
            if c not in self.excluded:
                self.ledger.some(category, np.arange(first, first + agents), scalars)

    def keep(self, t: int) -> None:
        """Have every agent make what it holds after episode t survive a restart."""
        self.broadcast(Keep(t))

    def rest(self, k: int, t: int) -> None:
        # once checkpoints are taken, agents must keep what those need and nothing in between
        if not self._checkpoints and k % KEEP_ROUNDS == 0:
            self.keep(t)

    def told(self) -> list[str]:
        notes, self.notes = self.notes, []
        return notes

    def state(self, t: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        self._checkpoints = True
        self.keep(t)
        return self.guard.state(), {"excluded": {str(c): why for c, why in self.excluded.items()}}

    def restore(
        self, arrays: Mapping[str, np.ndarray], plain: Mapping[str, Any], t: int, k: int
    ) -> None:
        self._checkpoints = True
        self.guard.restore(arrays, t, k)
        self.excluded = {int(c): why for c, why in plain["excluded"].items()}


def facts(p: Parameters, nonnegative: bool = False, simplex: bool = False) -> Facts:
    """What a server knows of the problem from the numbers in force."""
    y_max = 1.0 + np.append(p.ceilings[1:], 0.0)
    return Facts(p.gamma, p.episodes, y_max, nonnegative, simplex, p.overshoot)


def run_name(p: Parameters, seed: int) -> int:
    """The number that the messages of a run carry: the same whenever it is resumed."""
    return int.from_bytes(blake2b(f"{p}|{seed}".encode(), digest_size=8).digest(), "little")
