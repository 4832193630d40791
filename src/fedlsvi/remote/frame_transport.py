"""The server's side of a transport that carries bytes.

An engine implements `exchange`: hand frames to cohorts and yield whatever arrives until the
deadline. Everything else is here: numbering requests, retrying, recognising replies that are late,
duplicate or foreign, and checking the rest with the guard. `Membership` decides what happens when a
cohort stays away or sends what no honest agent could.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from time import monotonic, sleep, time_ns
from typing import Any

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.config import Parameters
from fedlsvi.errors import FedLSVIError, InvalidSetting, MessageRefused, TransportError
from fedlsvi.protocol.ledger import Ledger
from fedlsvi.protocol.masks import check_sites
from fedlsvi.protocol.messages import (
    Exploit,
    Increments,
    Keep,
    KeyRequest,
    MaskedUpload,
    Member,
    Model,
    Models,
    Reply,
    Request,
    Roster,
    Signal,
    SiteKey,
    Start,
    Stop,
    Upload,
)
from fedlsvi.protocol.transport import Transport, layout
from fedlsvi.remote.codec import (
    Address,
    Failure,
    decode_reply,
    encode,
    encode_all,
    longest_reply,
    split,
)
from fedlsvi.remote.guard import Facts, Guard, Refusal
from fedlsvi.remote.membership import Membership
from fedlsvi.remote.noisy_guard import NoisyGuard
from fedlsvi.remote.retry_policy import RetryPolicy
from fedlsvi.remote.sum_guard import SumGuard
from fedlsvi.remote.suspicion import FEWEST, compare
from fedlsvi.remote.trip_guard import TripGuard

KEEP_ROUNDS = 100
"""In a run without checkpoints agents make a snapshot every so many rounds, so that one that is
restarted has little to repeat."""


MOST_FRAMES = 8
"""Frames that may arrive in one piece: the reply, and a few that were late."""


class FrameTransport(Transport):
    """Frames between one server and cohorts of agents.

    Args:
        parameters: The numbers in force.
        cuts: (first agent, number of agents) of each cohort, in agent order.
        run: The number that this run's frames carry (`codec.run_id`).
        retry: How long to wait and what to do then; None is the default policy.
        guard: The checks of replies; None is those that need nothing but the parameters.
        sites: The name of each cohort's site, where sites have names.

    Attributes:
        membership: Who is present, away or excluded.
        request: The request under way.
        turns: (epoch, number) of the last request to each cohort. The epoch names the server
            process, or the attempt to call an absent cohort back.
        ignored: How many replies were late, duplicate or foreign, and had no effect.
        wire_bytes: Bytes sent "down" and received "up".
    """

    asks = True
    request: Request

    def __init__(
        self,
        parameters: Parameters,
        cuts: Sequence[tuple[int, int]],
        run: int,
        retry: RetryPolicy | None = None,
        guard: Guard | None = None,
        sites: Sequence[str] | None = None,
    ) -> None:
        p = parameters
        super().__init__(p.n_agents, p.trigger, p.overshoot)
        self.layout, self.run, self.cuts = layout(p), run, list(cuts)
        self.retry, self.guard = retry or RetryPolicy(), guard or Guard(self.layout, Facts.of(p))
        self.membership = Membership(self.cuts, self.retry, self.guard, sites)
        self.epoch, self.number = time_ns(), 0
        self.turns = [(self.epoch, 0)] * len(self.cuts)
        self.ignored = 0
        self.wire_bytes = {"down": 0, "up": 0}
        self.clock = monotonic
        if p.logged:
            self.retry.refuse_carrying()
        self._checkpoints = False
        self._round = 0  # of the request under way
        self._lam, self._xi = p.lam, p.xi
        self._sum_guard: SumGuard | NoisyGuard | None = None
        self._trip_guard: TripGuard | NoisyGuard | None = None
        self._noisy_guard: NoisyGuard | None = None  # of uploads of single steps
        if self.layout.secure:
            check_sites(len(self.cuts))
            self.retry.refuse_absence('aggregation="secure"')
            self._sum_guard = SumGuard(self.layout, self.guard.facts, p)
            if p.privacy is not None:
                self._sum_guard = NoisyGuard(p, len(self.cuts))
        elif self.layout.states:
            self.retry.refuse_absence('exchange="one-trip"')
            self._trip_guard = TripGuard(self.layout, self.guard.facts)
            if p.privacy is not None:
                self._trip_guard = NoisyGuard(p, len(self.cuts))
        elif p.privacy is not None:
            self.retry.refuse_absence("privacy")
            self._noisy_guard = NoisyGuard(p, len(self.cuts))

    def change_run(self, run: int, guard: Guard) -> None:
        """The next request is the first of another run of the same agents and sizes.

        Args:
            run: The number that its frames carry.
            guard: Checks that have seen nothing of it.
        """
        self.run, self.guard, self.last = run, guard, 0
        self.ledger = Ledger(self.layout.n_agents)
        self.membership = Membership(self.cuts, self.retry, guard, self.membership.sites)

    @abstractmethod
    def exchange(self, frames: Mapping[int, bytes], deadline: float) -> Iterator[tuple[int, bytes]]:
        """Send each cohort its frame; yield (cohort, bytes) as they arrive, until the deadline.

        Args:
            frames: Cohort → frame.
            deadline: Seconds from now.
        """

    def deliver(self, message: Request) -> Sequence[Reply]:
        """Ask every cohort that is present, retrying as the policy says; replies are checked."""
        replies = self._deliver(message)
        if self.layout.secure and isinstance(message, Start):
            self._pass_keys_on()
        return replies

    def _pass_keys_on(self) -> None:
        """Every site gives its key and receives those of all; it verifies them by itself."""
        keys = [key for key in self._deliver(KeyRequest()) if isinstance(key, SiteKey)]
        members = [
            Member(*c, key.public, key.proof) for c, key in zip(self.cuts, keys, strict=True)
        ]
        roster = Roster(tuple(members))
        self._deliver(roster)
        self.enter_sites("init", keys[0].scalars + roster.scalars)

    def _deliver(self, message: Request) -> Sequence[Reply]:
        self.number += 1
        k = self.guard.round - isinstance(message, Keep)  # the round that the request belongs to
        self.guard.sends(message)
        for guard in (self._sum_guard, self._trip_guard, self._noisy_guard):
            if guard is not None:
                guard.sends(message)
        if self.membership.carries:
            self.membership.absentees.follow(message, self.guard.round - 1, self.guard.t)
        self.request, self._round = message, self.guard.round
        replies: dict[int, Reply] = {}
        waiting = set(self.membership.present())
        self.next_request(waiting)
        attempt = 0
        while waiting:
            attempt += 1
            began = self.clock()
            errors = self._ask(waiting, replies)
            for c in sorted(waiting):
                self.membership.failed(c, errors.get(c), message, k, attempt)
            waiting &= set(self.membership.present())
            if waiting:  # an immediate error is not followed by an immediate retry
                sleep(max(0.0, began + self.retry.pause(attempt) - self.clock()))
        if not replies:
            raise TransportError(
                "every agent is excluded or away: nobody is left to learn from", code="nobody-left"
            )
        return self._complete(message, replies)

    def next_request(self, cohorts: Iterable[int]) -> None:
        """Number the next request to these cohorts."""
        for c in cohorts:
            epoch, number = self.turns[c]
            self.turns[c] = (epoch, number + 1)

    def _ask(self, waiting: set[int], replies: dict[int, Reply]) -> dict[int, FedLSVIError]:
        """One attempt; an answer moves a cohort from `waiting` to `replies`."""
        errors: dict[int, FedLSVIError] = {}
        asked = sorted(waiting)
        encoded = encode_all(self.request, [self.address(c) for c in asked])
        frames = dict(zip(asked, encoded, strict=True)) | self._calls()
        self.wire_bytes["down"] += sum(map(len, frames.values()))
        for c, data in self.exchange(frames, self.retry.deadline):
            try:
                came = self._frames(c, data)
            except MessageRefused as error:
                self.ignored += c not in waiting
                errors |= {c: error} if c in waiting else {}
                continue
            for frame in came:
                if c not in waiting:
                    self._unexpected(c, frame)
                    continue
                self.wire_bytes["up"] += len(frame)
                try:
                    known, reply = self._open(c, frame)
                except FedLSVIError as error:
                    errors[c] = error
                    continue
                if known:
                    replies[c] = reply
                    waiting.discard(c)
                else:
                    self.ignored += 1
            if not waiting:
                break
        return errors

    def longest_answer(self, c: int) -> int:
        """Bytes that a cohort may send in one piece; what is longer is not read."""
        return MOST_FRAMES * longest_reply(self.layout, self.cuts[c][1])

    def _frames(self, c: int, data: bytes) -> list[bytes]:
        """What arrived from a cohort, frame by frame, unless it is more than any answer."""
        if not isinstance(data, bytes):
            raise MessageRefused(
                f"an answer is bytes, not {type(data).__name__}", code="answer-not-bytes"
            )
        if len(data) > (bound := self.longest_answer(c)):
            raise MessageRefused(
                f"an answer of {len(data)} bytes, expected at most {bound}", code="answer-too-long"
            )
        frames = list(islice(split(data), MOST_FRAMES + 1))
        if len(frames) > MOST_FRAMES:
            raise MessageRefused(
                f"more than {MOST_FRAMES} frames in an answer", code="too-many-frames"
            )
        return frames

    def address(self, c: int) -> Address:
        """The address of the request under way to a cohort, and of its reply."""
        return Address(self.run, *self.turns[c], self._round, *self.cuts[c])

    def _open(self, c: int, frame: bytes) -> tuple[bool, Reply]:
        """Read and check a reply; (False, None) if it answers another request."""
        address, reply = decode_reply(frame, self.layout)
        if address != self.address(c):
            return False, None
        if isinstance(reply, Failure):
            raise TransportError(
                f"{type(self.request).__name__} was answered with {reply.name}; the agents' own "
                "log has the details",
                code="agent-failed",
            )
        if isinstance(reply, Upload) and not self.guard.exploiting:
            reply = self.membership.absentees.with_owed(c, reply)
        self.check_reply(c, reply)
        return True, reply

    def check_reply(self, c: int, reply: Reply) -> None:
        """Refuse a reply of the wrong kind or with impossible content."""
        (first, agents), absentees = self.cuts[c], self.membership.absentees
        expected = self._expected()
        if type(reply) is not expected:
            came = type(reply).__name__
            raise Refusal(first, self.guard.round, 0, "kind of reply", came, expected.__name__)
        if isinstance(reply, Upload):
            h = self._step()
            if self._noisy_guard is not None:
                self.guard.form(first, h, reply)
                self._noisy_guard.check(first, reply)
            elif c in absentees.away:  # coming back: its sum is checked with its next upload
                self.guard.form(first, h, reply)
            elif c in absentees.upto:
                self.guard.since(int(absentees.upto[c][h - 1])).upload(first, agents, h, reply)
            else:
                self.guard.upload(first, agents, h, reply)
        elif isinstance(reply, MaskedUpload):
            if reply.h != (h := self._step()):
                raise Refusal(first, self.guard.round, h, "step", reply.h, f"{h}")
        elif isinstance(reply, Increments) and self._trip_guard is not None:
            self._trip_guard.check(first, reply)
        elif isinstance(reply, Signal):
            self.guard.signal(first, agents, reply)

    def _expected(self) -> type:
        upload: type = Increments if self.layout.states else Upload
        if self.layout.secure:
            upload = MaskedUpload
        match self.request:
            case Stop() | Exploit():
                return upload
            case Model(h=h):
                return upload if h > 1 else type(None)
            case Start() | Keep() | Roster() | Models():
                return type(None)
            case KeyRequest():
                return SiteKey
        return Signal

    def _step(self) -> int:
        if self.layout.states:  # all steps at once
            return 1
        return self.request.h - 1 if isinstance(self.request, Model) else self.layout.horizon

    def _complete(self, message: Request, replies: dict[int, Reply]) -> Sequence[Reply]:
        """Replies in agent order; an excluded cohort is represented by its withdrawal, an absent
        one by its last response."""
        absentees = self.membership.absentees
        if self.membership.carries and isinstance(message, Keep):
            absentees.snapshots_made(list(replies))
        if self._expected() is not Upload or self._noisy_guard is not None:
            every = [replies[c] for c in sorted(replies)]
            if self._sum_guard is not None and self._expected() is MaskedUpload:
                self._sum_guard.check_sum(self.guard.round, self._step(), every)
            if self._trip_guard is not None and self._expected() is Increments:
                for c, reply in sorted(replies.items()):
                    assert isinstance(reply, Increments)
                    self._trip_guard.accept(self.cuts[c][0], reply)
            return every
        h, uploads = self._step(), list[Upload]()
        if self.guard.exploiting:
            return [self._without_gram(c, h, replies.get(c)) for c in range(len(self.cuts))]
        if len(self.cuts) >= FEWEST:
            self._compare(h, replies)
        for c, (first, agents) in enumerate(self.cuts):
            upload = replies.get(c)
            if not isinstance(upload, Upload):
                away = c in absentees.away
                upload = (
                    absentees.substitute(c, h) if away else self.guard.withdrawal(first, agents, h)
                )
            self.guard.accept(first, upload)
            uploads.append(upload)
        b = np.concatenate([upload.b for upload in uploads])
        absentees.accept(h, b, self.guard.t + self.guard.length)
        return uploads

    def _without_gram(self, c: int, h: int, reply: Reply) -> Upload:
        """What a cohort adds to the pass after the last round: of one that is away the response
        that it gave last, of an excluded one nothing."""
        if isinstance(reply, Upload):
            return reply
        agents = self.cuts[c][1]
        b = np.zeros((agents, self.layout.dim))
        if c in self.membership.absentees.away:
            b = self.membership.absentees.substitute(c, h).b
        return Upload(h, np.empty((agents, 0)), b)

    def _compare(self, h: int, replies: dict[int, Reply]) -> None:
        """Look for a cohort whose data contradict those of all others; the uploads of one that is
        excluded for it are dropped. One that is just back has responses to other values."""
        fresh = {c: upload for c, upload in replies.items() if isinstance(upload, Upload)
                 and c not in self.membership.absentees.upto}  # fmt: skip
        found = compare(self.guard, self.cuts, h, fresh, self._lam, self._xi)
        if found is not None:
            self.membership.contradicts(found, h)
            if found.site in self.membership.excluded:
                del replies[found.site]

    # the ledger and the records

    def sites(self) -> np.ndarray:
        return np.array([first for first, _ in self.cuts])

    def enter(self, category: str, scalars: int) -> None:
        present = self.membership.present()
        if len(present) == len(self.cuts):
            self.ledger.each(category, scalars)
            return
        for c in present:
            self._count(c, category, scalars)

    def _count(self, c: int, category: str, scalars: int) -> None:
        first, agents = self.cuts[c]
        self.ledger.some(category, np.arange(first, first + agents), scalars)

    def told(self) -> list[str]:
        return self.membership.take_notes()

    # cohorts that are away

    def _calls(self) -> dict[int, bytes]:
        """Frames that call absent cohorts back, sent along with a request to the others. Nobody
        waits for their answer; each is called again after a deadline."""
        frames = {}
        for c in self.membership.absentees.due(self.clock(), self.retry.deadline):
            self.turns[c] = (self.turns[c][0] + 1, 1)
            frames[c] = encode(self.membership.absentees.start(c), self._call(c))
        return frames

    def _call(self, c: int) -> Address:
        base = self.membership.absentees.base[c]
        return Address(self.run, *self.turns[c], base + 1, *self.cuts[c])

    def _unexpected(self, c: int, frame: bytes) -> None:
        """A reply that nobody waits for: an absent cohort answers the call, or it is ignored."""
        absentees = self.membership.absentees
        with suppress(FedLSVIError):
            address, reply = decode_reply(frame, self.layout)
            if c in absentees.away and address == self._call(c) and reply is None:
                absentees.answering.add(c)
                return
        self.ignored += 1

    def _take_back(self) -> None:
        """Between two rounds: cohorts that answered the call repeat what they missed; those that
        have been away for too long are excluded."""
        members, k = self.membership, self.guard.round
        for c, lost in sorted(members.absentees.away.items()):
            if c in members.absentees.answering:
                travelled = members.absentees.take_back(c, partial(self._ask_again, c))
                for category, scalars in travelled.items():
                    self._count(c, category, scalars)
                if travelled:
                    members.notes.add(f"{members.name(c)} taken back, away since round {lost}", k)
            elif k - lost >= self.retry.carry:
                members.exclude(c, f"away for {plural(self.retry.carry, 'round')}", k)

    def _ask_again(self, c: int, message: Request, k: int) -> tuple[bool, Reply]:
        """Ask a cohort what it missed in round k: whether an answer came, and the answer."""
        self.request, self._round = message, k
        self.next_request([c])
        replies: dict[int, Reply] = {}
        error = self._ask({c}, replies).get(c)
        if c not in replies and isinstance(error, MessageRefused):
            self.membership.failed(c, error, message, self.guard.round, self.retry.attempts)
        return c in replies, replies.get(c)

    # rounds, checkpoints and restarts

    def wait(self, t: int, left: int) -> Signal:
        self._take_back()
        signal = super().wait(t, left)
        self.guard.stops(signal)
        if self._trip_guard is not None:
            self._trip_guard.stops(signal)
        return signal

    def keep(self, t: int) -> None:
        """Have every agent make what it holds after episode t survive a restart."""
        self.broadcast(Keep(t))

    def rest(self, k: int, t: int) -> None:
        # once checkpoints are taken, agents must keep what those need and nothing in between
        if not self._checkpoints and (self.membership.carries or k % KEEP_ROUNDS == 0):
            self.keep(t)

    def state(self, t: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        self._checkpoints = True
        self.keep(t)
        arrays, plain = self.membership.state()
        for guard in (self._sum_guard, self._trip_guard, self._noisy_guard):
            arrays |= {} if guard is None else guard.state()
        plain["epoch"] = max(epoch for epoch, _ in self.turns)
        plain["cuts"] = [list(cut) for cut in self.cuts]
        return arrays | self.guard.state(), plain

    def restore(
        self, arrays: Mapping[str, np.ndarray], plain: Mapping[str, Any], t: int, k: int
    ) -> None:
        self._checkpoints = True
        began = [tuple(cut) for cut in plain["cuts"]]
        if began != self.cuts:
            raise InvalidSetting(
                f"this run has {plural(len(began), 'cohort')}, each with its journal, and not "
                f"{len(self.cuts)}: resume it with cohorts={len(began)}",
                code="other-cohorts",
            )
        self.guard.restore(arrays, t, k)
        for guard in (self._sum_guard, self._trip_guard, self._noisy_guard):
            if guard is not None:
                guard.restore(arrays, t, k)
        self.membership.restore(arrays, plain)
        # later than the server before this one, even if the clock was set back
        self.begin_at(plain["epoch"] + 1)

    def begin_at(self, epoch: int) -> None:
        """Speak as a server process of at least this epoch."""
        self.epoch = max(self.epoch, epoch)
        self.turns = [(self.epoch, 0)] * len(self.cuts)
