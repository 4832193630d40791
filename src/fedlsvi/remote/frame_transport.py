"""The server's side of a transport that carries bytes.

An engine implements `exchange`: hand frames to cohorts and yield whatever arrives until the
deadline. Everything else is here: numbering requests, retrying, recognising replies that are late,
duplicate or foreign, and checking the rest with the guard. `Reachability` decides what happens when
a cohort stays away or sends what no honest agent could. The simplest engine is here too: threads.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from time import monotonic, sleep, time_ns
from typing import Any, Protocol

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.config import Parameters
from fedlsvi.core.participation_schedule import NEVER
from fedlsvi.errors import FedLSVIError, InvalidSetting, MessageRefused, TransportError
from fedlsvi.privacy.masks import check_sites
from fedlsvi.privacy.sums import sums_of
from fedlsvi.protocol.ledger import Ledger
from fedlsvi.protocol.membership import Membership
from fedlsvi.protocol.messages import (
    Keep,
    KeyRequest,
    MaskedUpload,
    Member,
    Reply,
    Request,
    Roster,
    Signal,
    SiteKey,
    Start,
    Upload,
)
from fedlsvi.protocol.transport import Transport, layout
from fedlsvi.remote.bounds import Bounds
from fedlsvi.remote.codec import (
    MOST_FRAMES,
    Address,
    Failure,
    decode_reply,
    encode,
    encode_all,
    longest_reply,
    split_answer,
)
from fedlsvi.remote.contacts import Contacts
from fedlsvi.remote.contributed import Ahead
from fedlsvi.remote.contribution import Contribution, contributions, summed
from fedlsvi.remote.guard import Guard, Refusal
from fedlsvi.remote.reachability import Reachability
from fedlsvi.remote.retry_policy import RetryPolicy
from fedlsvi.remote.waiting import Waiting

KEEP_ROUNDS = 100
"""In a run without checkpoints agents make a snapshot every so many rounds, so that one that is
restarted has little to repeat."""


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
        membership: Who is there, away or excluded.
        reachability: Finds out who is.
        request: The request under way.
        waiting: Who has not answered it yet.
        turns: (epoch, number) of the last request to each cohort. The epoch names the server
            process, or the attempt to call an absent cohort back.
        ignored: How many replies were late, duplicate or foreign, and had no effect.
        contacts: When each cohort was last heard, and what went to and fro.
        leaving: Cohorts that a resumed run goes on without for good, and why.
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
        self.retry, self.guard = retry or RetryPolicy(), guard or Guard(self.layout, Bounds.of(p))
        self.membership = Membership(p.n_agents, self.cuts)
        self.reachability = Reachability(self.membership, self.retry, self.guard, sites)
        self.epoch, self.number = time_ns(), 0
        self.turns = [(self.epoch, 0)] * len(self.cuts)
        self.waiting = Waiting()
        self.ignored = 0
        self.contacts = Contacts(len(self.cuts))
        self.leaving: Mapping[int, str] = {}
        self.clock = monotonic
        self._ahead: Ahead | None = None
        self._checkpoints = False
        self._round = 0  # of the request under way
        self._lam, self._xi = p.lam, p.xi
        self._sums = sums_of(p, self.layout)
        self._sent: dict[int, list[int]] = {}  # scalars of N of each agent, in the last upload
        self.retry.check(p)
        if self.layout.secure:
            check_sites(len(self.cuts))

    def change_run(self, run: int, guard: Guard) -> None:
        """The next request is the first of another run of the same agents and sizes.

        Args:
            run: The number that its frames carry.
            guard: Checks that have seen nothing of it.
        """
        self.run, self.guard, self.last = run, guard, 0
        self.ledger = Ledger(self.layout.n_agents)
        self.membership = Membership(self.layout.n_agents, self.cuts)
        sites = self.reachability.sites
        self.reachability = Reachability(self.membership, self.retry, guard, sites)

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
        self._round = self.guard.round  # which the last model of a round ends
        self.guard.sends(message)
        if self.reachability.carries:
            self.reachability.absentees.follow(message, self.guard.round - 1, self.guard.t)
        self.request = message
        replies: dict[int, Reply] = {}
        waiting = set(self.membership.cohorts_there())
        self.next_request(waiting)
        self.waiting.begin(waiting, type(message).__name__, k)
        attempt = 0
        while waiting:
            attempt += 1
            began = self.clock()
            errors = self._ask(waiting, replies)
            for c in sorted(waiting):
                self.waiting.failed(c, attempt, str(errors.get(c, "")))
                self.reachability.failed(c, errors.get(c), message, k, attempt)
            gone = waiting - set(self.membership.cohorts_there())
            for c in gone:
                self.waiting.heard(c)
            waiting -= gone
            if waiting:  # an immediate error is not followed by an immediate retry
                sleep(max(0.0, began + self.retry.pause(attempt) - self.clock()))
        if not replies:
            raise TransportError(
                "every agent is excluded or absent, so there is no one left to learn from",
                code="nobody-left",
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
        self.contacts.asked(frames)
        for c, data in self.exchange(frames, self.retry.deadline):
            try:
                came = split_answer(data, self.longest_answer(c))
            except MessageRefused as error:
                self.contacts.refused(c, error)
                self.ignored += c not in waiting
                errors |= {c: error} if c in waiting else {}
                continue
            for frame in came:
                if c not in waiting:
                    self._unexpected(c, frame)
                    continue
                self.contacts.heard(c, len(frame), self._round)
                try:
                    known, reply = self._open(c, frame)
                except FedLSVIError as error:
                    self.contacts.refused(c, error)
                    errors[c] = error
                    continue
                if known:
                    replies[c] = reply
                    waiting.discard(c)
                    self.waiting.heard(c)
                else:
                    self.ignored += 1
            if not waiting:
                break
        return errors

    def longest_answer(self, c: int) -> int:
        """Bytes that a cohort may send in one piece; what is longer is not read."""
        return MOST_FRAMES * longest_reply(self.layout, self.cuts[c][1])

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
                f"{type(self.request).__name__} was answered with {reply.name}: see the agents' "
                "own log for the details",
                code="agent-failed",
            )
        absentees = self.reachability.absentees
        if isinstance(reply, Upload):
            self._sent[c] = [table.scalars for table in reply.following]
            if c not in self.membership.away:  # who is coming back answers for an earlier round
                reply = self.membership.carried(self.cuts[c][0], reply)
            if c in absentees.owed and not self.guard.exploiting:
                reply = absentees.with_owed(c, reply)
        self.check_reply(c, reply)
        return True, reply

    def check_reply(self, c: int, reply: Reply) -> None:
        """Refuse a reply of the wrong kind or with impossible content."""
        first, agents = self.cuts[c]
        expected = self.layout.reply_to(self.request)
        if type(reply) is not expected:
            came = type(reply).__name__
            raise Refusal(first, self.guard.round, 0, "kind of reply", came, expected.__name__)
        h = self.layout.step_after(self.request)
        if isinstance(reply, Upload | MaskedUpload) and reply.h != h:
            raise Refusal(first, self.guard.round, h, "step", reply.h, f"{h}")
        if isinstance(reply, Upload):
            for part in contributions(reply, self.layout):
                self._check_part(c, part)
            self.guard.check_fit(first, reply)
        elif isinstance(reply, Signal):
            self.guard.signal(first, agents, reply)

    def _check_part(self, c: int, part: Contribution) -> None:
        first, absentees = self.cuts[c][0], self.reachability.absentees
        if c in self.membership.away:  # coming back: its sum is checked with its next upload
            self.guard.form(first, part)
        elif c in absentees.upto:
            self.guard.since(int(absentees.upto[c][part.h - 1])).check(first, part)
        else:
            self.guard.check(first, part)

    def _complete(self, message: Request, replies: dict[int, Reply]) -> Sequence[Reply]:
        """Replies in agent order, with what represents cohorts that are excluded or away."""
        if self.reachability.carries and isinstance(message, Keep):
            self.reachability.absentees.snapshots_made(list(replies))
        expected, h = self.layout.reply_to(message), self.layout.step_after(message)
        if expected is Upload:
            if self.guard.bounds.noise is None:
                self.reachability.compare(h, replies, self._lam, self._xi, self._ahead)
            return self.reachability.completed(h, replies, self._lam)
        every = [replies[c] for c in sorted(replies)]
        if expected is MaskedUpload:
            size = self.guard.gram_size(h)
            for part in summed(every, h, size, self.layout, self._sums):
                self.guard.check(0, part)
                self.guard.accept(0, part)
        return every

    # the ledger and the records

    def sites(self) -> np.ndarray:
        return np.array([first for first, _ in self.cuts])

    def with_carried(self, replies: Sequence[Reply]) -> Sequence[Reply]:
        return replies  # `_complete` has put them in, after the guard's checks

    def next_states_sent(self, replies: Sequence[Reply]) -> np.ndarray:
        # without what a cohort that is just back owed, which was counted when it was sent
        if not any(isinstance(reply, Upload) and reply.every_step for reply in replies):
            return np.empty(0, np.int64)
        none = {c: [0] * agents for c, (_, agents) in enumerate(self.cuts)}
        sent = none | {c: self._sent[c] for c in self.membership.cohorts_there()}
        return np.array([scalars for c in sorted(sent) for scalars in sent[c]], np.int64)

    def _count(self, c: int, category: str, scalars: int | np.ndarray) -> None:
        first, agents = self.cuts[c]
        self.ledger.some(category, np.arange(first, first + agents), scalars)

    def take_notes(self) -> list[str]:
        return self.reachability.take_notes()

    # cohorts that are away

    def last_releases(self, p: Parameters, k: int, h: int) -> list[int]:
        last, gone = super().last_releases(p, k, h), self.membership
        if not gone.away and not gone.excluded:
            return last
        last = last * self.layout.n_agents if len(last) == 1 else last
        for c in (*gone.away, *gone.excluded):
            first, agents = self.cuts[c]
            heard = np.full(agents, NEVER)  # nothing of who is excluded
            if c in gone.away:
                heard = self.reachability.absentees.heard[c][h - 1]
            last[first : first + agents] = [p.release_number(t) for t in heard.tolist()]
        return last

    def use_values(self, ahead: Ahead) -> None:
        self._ahead = ahead

    def _calls(self) -> dict[int, bytes]:
        """Frames that call absent cohorts back, sent along with a request to the others. Nobody
        waits for their answer; each is called again after a deadline."""
        frames = {}
        absentees = self.reachability.absentees
        for c in absentees.due(self.clock(), self.retry.deadline) if self.membership.away else ():
            self.turns[c] = (self.turns[c][0] + 1, 1)
            frames[c] = encode(absentees.start(c), self._call(c))
        return frames

    def _call(self, c: int) -> Address:
        base = self.reachability.absentees.base[c]
        return Address(self.run, *self.turns[c], base + 1, *self.cuts[c])

    def _unexpected(self, c: int, frame: bytes) -> None:
        """A reply that nobody waits for: an absent cohort answers the call, or it is ignored."""
        absentees = self.reachability.absentees
        with suppress(FedLSVIError):
            address, reply = decode_reply(frame, self.layout)
            if c in self.membership.away and address == self._call(c) and reply is None:
                absentees.answering.add(c)
                return
        self.ignored += 1

    def _ask_again(self, c: int, message: Request, k: int) -> tuple[bool, Reply]:
        """Ask a cohort what it missed in round k: whether an answer came, and the answer."""
        self.request, self._round = message, k
        self.next_request([c])
        replies: dict[int, Reply] = {}
        error = self._ask({c}, replies).get(c)
        if c not in replies and isinstance(error, MessageRefused):
            self.reachability.failed(c, error, message, self.guard.round, self.retry.attempts)
        return c in replies, replies.get(c)

    # rounds, checkpoints and restarts

    def wait(self, t: int, left: int) -> Signal:
        for c, travelled in self.reachability.take_back(self._ask_again):
            for category, scalars in travelled.items():
                self._count(c, category, scalars)
        signal = super().wait(t, left)
        self.guard.stops(signal)
        return signal

    def keep(self, t: int) -> None:
        """Have every agent make what it holds after episode t survive a restart."""
        self.broadcast(Keep(t))

    def rest(self, k: int, t: int) -> None:
        # once checkpoints are taken, agents must keep what those need and nothing in between
        if not self._checkpoints and (self.reachability.carries or k % KEEP_ROUNDS == 0):
            self.keep(t)

    def state(self, t: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        self._checkpoints = True
        self.keep(t)
        arrays, plain = self.reachability.state()
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
                f"this run has {plural(len(began), 'cohort')}, each with its own journal, but got "
                f"cohorts={len(self.cuts)}: resume it with cohorts={len(began)}",
                code="other-cohorts",
            )
        self.guard.restore(arrays, t, k)
        self.reachability.restore(arrays, plain)
        for c, why in self.leaving.items():
            if c not in self.membership.excluded:
                self.reachability.exclude(c, why, k)
        # later than the server before this one, even if the clock was set back
        self.begin_at(plain["epoch"] + 1)

    def begin_at(self, epoch: int) -> None:
        """Speak as a server process of at least this epoch."""
        self.epoch = max(self.epoch, epoch)
        self.turns = [(self.epoch, 0)] * len(self.cuts)


class FrameHandler(Protocol):
    """What answers frames for a cohort: an `Endpoint`, or a stand-in for tests."""

    @property
    def agents(self) -> tuple[int, int]:
        """The number of the first agent, and how many there are."""
        ...

    def handle(self, frame: bytes) -> bytes:
        """The reply to a request."""
        ...

    def end(self) -> bool:
        """The last model is written down: whether what hid uploads is deleted now."""
        ...

    def close(self) -> None:
        """Release threads and files."""
        ...


class ThreadTransport(FrameTransport):
    """Each cohort answers in a thread of its own, in this process.

    It needs no engine, so the conformance suite and the tests of recovery use it. For speed use
    `InProcess`.

    Args:
        factories: One for each cohort, in agent order; each makes what answers for it.
        parameters, run, retry, guard: See `FrameTransport`.
    """

    def __init__(
        self,
        parameters: Parameters,
        factories: Sequence[Callable[[], FrameHandler]],
        run: int,
        retry: RetryPolicy | None = None,
        guard: Guard | None = None,
    ) -> None:
        self.handlers = [make() for make in factories]
        super().__init__(parameters, [h.agents for h in self.handlers], run, retry, guard)
        self._pool = ThreadPoolExecutor(len(self.handlers))
        self._late: dict[Future[bytes], int] = {}

    def exchange(self, frames: Mapping[int, bytes], deadline: float) -> Iterator[tuple[int, bytes]]:
        end = monotonic() + deadline
        for c, frame in frames.items():
            self._late[self._pool.submit(self.handlers[c].handle, frame)] = c
        while self._late and (left := end - monotonic()) > 0.0:
            done, _ = wait(self._late, left, FIRST_COMPLETED)
            for future in done:
                yield self._late.pop(future), future.result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        for handler in self.handlers:
            handler.close()
