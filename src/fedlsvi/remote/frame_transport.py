"""The server's end of a transport that carries bytes.

An engine implements `exchange`: hand frames to cohorts, yield whatever arrives until the deadline.
Everything else stands here: numbering, asking again, recognising what is late, doubled or foreign,
and the guard. `attendance` says what happens when an agent stays away or sends what no honest agent
could.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from time import monotonic, sleep, time_ns
from typing import Any

import numpy as np

from fedlsvi.config import Parameters
from fedlsvi.errors import FedLSVIError, InvalidSetting, MessageRefused, TransportError
from fedlsvi.protocol.messages import Keep, Model, Reply, Request, Signal, Start, Stop, Upload
from fedlsvi.protocol.transport import layout
from fedlsvi.remote.codec import Address, Failure, decode_reply, encode, encode_all, split
from fedlsvi.remote.guard import Facts, Guard, Refusal
from fedlsvi.remote.membership import Attendance
from fedlsvi.remote.retry_policy import Patience

KEEP_ROUNDS = 100
"""Without checkpoints agents are asked to keep what they hold every so many rounds, so that one
that is started again has little to do again."""


class Wired(Attendance):
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
        self.layout, self.run = layout(parameters), run
        guard = guard or Guard(self.layout, facts(parameters))
        super().__init__(parameters, cuts, patience or Patience(), guard)
        self.epoch, self.number = time_ns(), 0
        self.ignored = 0
        """Replies that were late, doubled or foreign, and had no effect."""
        self.wire_bytes = {"down": 0, "up": 0}
        self.clock = monotonic
        self._checkpoints = False
        self._turns = [(self.epoch, 0)] * len(self.cuts)  # epoch and number of the last request

    @abstractmethod
    def exchange(self, frames: Mapping[int, bytes], deadline: float) -> Iterator[tuple[int, bytes]]:
        """Hand each cohort its frame; yield (cohort, bytes) as they arrive, until the deadline."""

    def deliver(self, message: Request) -> Sequence[Reply]:
        """Ask every cohort, as often as patience allows; a reply has passed all checks."""
        self.number += 1
        self.guard.sends(message)
        if self._carries:
            self.carried.sends(message, self.guard.round - 1, self.guard.t)
        self._asked, self._round = message, self.guard.round
        replies: dict[int, Reply] = {}
        waiting = set(self._present())
        self._turn(waiting)
        attempt = 0
        while waiting:
            attempt += 1
            began = self.clock()
            trouble = self._ask(waiting, replies)
            for c in sorted(waiting):
                self._lost_patience(c, trouble.get(c), attempt)
            waiting &= set(self._present())
            if waiting:  # who answers at once, and wrongly, is not asked at once again
                sleep(max(0.0, began + self.patience.pause(attempt) - self.clock()))
        if not replies:
            raise TransportError("every agent is excluded or away: nobody is left to learn from")
        return self._complete(message, replies)

    def _turn(self, cohorts: Iterable[int]) -> None:
        """Number the next request to these cohorts."""
        for c in cohorts:
            epoch, number = self._turns[c]
            self._turns[c] = (epoch, number + 1)

    def _ask(self, waiting: set[int], replies: dict[int, Reply]) -> dict[int, FedLSVIError]:
        """One attempt; answers move a cohort from `waiting` to `replies`."""
        trouble: dict[int, FedLSVIError] = {}
        asked = sorted(waiting)
        addresses = [self._address(c) for c in asked]
        frames = dict(zip(asked, encode_all(self._asked, addresses), strict=True)) | self._calls()
        self.wire_bytes["down"] += sum(map(len, frames.values()))
        for c, data in self.exchange(frames, self.patience.deadline):
            for frame in split(data) if isinstance(data, bytes) else (b"",):  # refused
                if c not in waiting:
                    self._overhear(c, frame)
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
        return Address(self.run, *self._turns[c], self._round, *self.cuts[c])

    def _open(self, c: int, frame: bytes) -> tuple[bool, Reply]:
        """Read and check a reply; (False, None) for one that answers something else."""
        address, reply = decode_reply(frame, self.layout)
        if address != self._address(c):
            return False, None
        if isinstance(reply, Failure):
            raise TransportError(
                f"{type(self._asked).__name__} was answered with {reply.name}; the log at their "
                "side has the text"
            )
        if isinstance(reply, Upload):
            reply = self.carried.whole(c, reply)
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
            h = self._step()
            if c in self.carried.away:  # coming back: its sum is checked with its next upload
                self.guard.form(first, agents, h, reply)
            elif c in self.carried.upto:
                late = self.guard.since(int(self.carried.upto[c][h - 1]))
                late.upload(first, agents, h, reply)
            else:
                self.guard.upload(first, agents, h, reply)
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

    def _complete(self, message: Request, replies: dict[int, Reply]) -> Sequence[Reply]:
        """Replies in agent order; an excluded cohort is represented by its withdrawal, one that is
        away by its last response."""
        if self._carries and isinstance(message, Keep):
            self.carried.kept(list(replies))
        if self._expected() is not Upload:
            return [replies[c] for c in sorted(replies)]
        h = self._step()
        uploads = [
            reply if isinstance(reply := replies.get(c), Upload)
            else self.carried.substitute(c, h) if c in self.carried.away
            else self.guard.withdrawal(*self.cuts[c], h)
            for c in self._everyone
        ]  # fmt: skip
        for (first, _), upload in zip(self.cuts, uploads, strict=True):
            self.guard.accept(first, upload)
        b = np.concatenate([upload.b for upload in uploads])
        self.carried.accept(h, b, self.guard.t + self.guard.length)
        return uploads

    # cohorts that are away

    def _calls(self) -> dict[int, bytes]:
        """What goes to cohorts that are away, beside a request to the others. Nobody waits for
        their answer; each is called again when a deadline has passed."""
        frames = {}
        for c in self.carried.due(self.clock(), self.patience.deadline):
            self._turns[c] = (self._turns[c][0] + 1, 1)
            frames[c] = encode(self.carried.start(c), self._call(c))
        return frames

    def _call(self, c: int) -> Address:
        return Address(self.run, *self._turns[c], self.carried.base[c] + 1, *self.cuts[c])

    def _overhear(self, c: int, frame: bytes) -> None:
        """A reply that nobody waits for: of a cohort that was called, or to be ignored."""
        with suppress(FedLSVIError):
            address, reply = decode_reply(frame, self.layout)
            if c in self.carried.away and address == self._call(c) and reply is None:
                self.carried.awake.add(c)
                return
        self.ignored += 1

    def _take_back(self) -> None:
        """Between two rounds: who has answered carries out what it missed; who has been away for
        too long is excluded."""
        for c, lost in sorted(self.carried.away.items()):
            if c in self.carried.awake:
                travelled = self.carried.take_back(c, partial(self._ask_again, c))
                for category, scalars in travelled.items():
                    self._count(c, category, scalars)
                if travelled:
                    self._note(f"{self._who(c)} taken back, away since round {lost}")
            elif self.guard.round - lost >= self.patience.carry:
                self._exclude(c, f"away for {self.patience.carry} rounds")

    def _ask_again(self, c: int, message: Request, k: int) -> tuple[bool, Reply]:
        """Ask a cohort what it missed in round k: whether an answer came, and the answer."""
        self._asked, self._round = message, k
        self._turn([c])
        replies: dict[int, Reply] = {}
        error = self._ask({c}, replies).get(c)
        if c not in replies and isinstance(error, MessageRefused):
            self._lost_patience(c, error, self.patience.attempts)
        return c in replies, replies.get(c)

    def wait(self, t: int, left: int) -> Signal:
        self._take_back()
        signal = super().wait(t, left)
        self.guard.stops(signal)
        return signal

    def keep(self, t: int) -> None:
        """Have every agent make what it holds after episode t survive a restart."""
        self.broadcast(Keep(t))

    def rest(self, k: int, t: int) -> None:
        # once checkpoints are taken, agents must keep what those need and nothing in between
        if not self._checkpoints and (self._carries or k % KEEP_ROUNDS == 0):
            self.keep(t)

    def state(self, t: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        self._checkpoints = True
        self.keep(t)
        # a run that was begun with another policy may be resumed with absent="carry"
        arrays = self.guard.state() | {"carry.b": self.carried.b}
        plain: dict[str, Any] = {
            "excluded": {str(c): why for c, why in self.excluded.items()},
            "epoch": max(epoch for epoch, _ in self._turns),
            "cuts": [list(cut) for cut in self.cuts],
            "notes": self.notes.state(),
        }
        if self._carries:
            own, plain["carried"] = self.carried.state()
            arrays |= own
        return arrays, plain

    def restore(
        self, arrays: Mapping[str, np.ndarray], plain: Mapping[str, Any], t: int, k: int
    ) -> None:
        self._checkpoints = True
        began = [tuple(cut) for cut in plain.get("cuts", self.cuts)]
        if began != self.cuts:
            raise InvalidSetting(
                f"the agents of this run are in {len(began)} cohorts, each with its journal, and "
                f"not in {len(self.cuts)}: resume it with cohorts={len(began)}"
            )
        self.guard.restore(arrays, t, k)
        self.carried.b[:] = arrays["carry.b"]
        self.excluded = {int(c): why for c, why in plain["excluded"].items()}
        self.notes.restore(plain.get("notes", []))
        # later than the server before this one, even where the clock was set back
        self.begin_at(plain.get("epoch", 0) + 1)
        carried = plain.get("carried", {"away": {}})
        if carried["away"] and not self._carries:
            raise InvalidSetting(
                f"{len(carried['away'])} cohorts of this run are away: resume it with "
                'absent="carry"'
            )
        if self._carries and "past" in carried:
            self.carried.restore(arrays, carried)

    def begin_at(self, epoch: int) -> None:
        """Speak as a server process of this epoch at least."""
        self.epoch = max(self.epoch, epoch)
        self._turns = [(self.epoch, 0)] * len(self.cuts)


def facts(p: Parameters, nonnegative: bool = False, simplex: bool = False) -> Facts:
    """What a server knows of the problem from the numbers in force."""
    y_max = 1.0 + np.append(p.ceilings[1:], 0.0)
    return Facts(p.gamma, p.episodes, y_max, nonnegative, simplex, p.overshoot)


def run_name(p: Parameters, seed: int) -> int:
    """The number that the messages of a run carry: the same whenever it is resumed."""
    return int.from_bytes(blake2b(f"{p}|{seed}".encode(), digest_size=8).digest(), "little")
