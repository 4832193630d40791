"""Agents that are away in some rounds, simulated in one process.

As over a network with absent="carry": who is away neither plays nor sends, a round closes without
it, and its last response is carried; so Λ and Σb keep describing the same episodes of it. Unlike
there, it plays nothing later for the rounds that it missed: when it is back it receives the model
and goes on with its own next episode.

Server and agents know nothing of all this. Every agent is a cohort of its own, and the transport
delivers to those that are there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedlsvi.core.participation_schedule import ParticipationSchedule
from fedlsvi.core.statistics import unpack
from fedlsvi.core.trigger import Rule
from fedlsvi.experience.workers import Workers
from fedlsvi.protocol.agent import Cohort
from fedlsvi.protocol.evaluation import Evaluator
from fedlsvi.protocol.messages import Model, Reply, Request, Start, Upload
from fedlsvi.protocol.plan import Plan
from fedlsvi.protocol.transport import InProcess

PLAYED = "played"
"""Name of the array with the rounds that an agent played, beside its raw episodes."""


class OwnEpisodes:
    """The experience of one agent, which counts its own episodes, on the clock of the federation.

    Attributes:
        own: Episodes that it has played in all rounds that have ended.
        t: Episodes of the federation before the round under way.
        length: Episodes of that round so far.
    """

    def __init__(self, inner: Any) -> None:
        self.inner, self.dim, self.workers = inner, inner.dim, inner.workers
        self.own, self.t, self.length, self.block = 0, 0, 0, inner.block
        self._rounds: list[tuple[int, int]] = []  # (last episode on the clock, own ones so far)
        if hasattr(inner, "returns"):  # a session measures what an experience counts
            self.returns = self._returns
        if hasattr(inner, "fewest"):
            self.fewest = self._fewest

    def begin(self, t: int) -> None:
        """A new round after episode t of the federation."""
        self.t, self.length = t, 0
        self.inner.begin(self.own)

    def explore(self, n: int) -> None:
        """Play n more episodes."""
        self.inner.explore(n)
        self.length += n

    def first_firing(self, rule: Rule, n: int) -> tuple[int, np.ndarray, np.ndarray]:
        """Where in the first n of the last episodes the trigger fires."""
        found: tuple[int, np.ndarray, np.ndarray] = self.inner.first_firing(rule, n)
        return found

    def close(self, length: int) -> None:
        """Keep the round's first `length` episodes."""
        self.inner.close(length)
        self.length = length
        self.own += length
        self._rounds.append((self.t + length, self.own))

    def summarise(self, h: int) -> tuple[np.ndarray, np.ndarray]:
        """Λ_h^loc of the round, and b_h over all that it ever played."""
        found: tuple[np.ndarray, np.ndarray] = self.inner.summarise(h)
        return found

    def _until(self, t: int) -> int:
        """How many own episodes it had played after episode t of the federation."""
        return max((own for last, own in self._rounds if last <= t), default=0)

    def _returns(self, first: int, last: int) -> np.ndarray:
        """(1, n) returns of the round that ended with `last`; (0, n) if it was away."""
        begin, end = self._until(first), self._until(last)
        if end == begin:
            return np.empty((0, last - first))
        found: np.ndarray = self.inner.returns(begin, end)
        return found

    def _fewest(self, first: int, last: int) -> int:
        """See `GymExperience.fewest`; the whole round if it was away."""
        begin, end = self._until(first), self._until(last)
        return int(self.inner.fewest(begin, end)) if end > begin else last - first

    def state(self) -> dict[str, np.ndarray]:
        """What it remembers, and how much it has played until when."""
        last = max((last for last, _ in self._rounds), default=0)
        return {**self.inner.state(), "own": np.array([last, self.own])}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Continue from `state`."""
        last, self.own = (int(value) for value in state["own"])
        if not 0 <= self.own <= last:
            raise ValueError("an agent that played more episodes than there were")
        if self.own and not self._rounds:  # without raw episodes, earlier rounds are not needed
            self._rounds = [(last, self.own)]
        self.inner.restore({name: array for name, array in state.items() if name != "own"})

    def history(self, first: int, last: int) -> dict[str, np.ndarray]:
        """Its raw episodes between two of the federation, where they are kept, and its rounds."""
        parts: dict[str, np.ndarray] = self.inner.history(self._until(first), self._until(last))
        if not parts:
            return {}
        rounds = [pair for pair in self._rounds if first < pair[0] <= last]
        return {**parts, PLAYED: np.array(rounds, np.int64).reshape(-1, 2)}

    def extend(self, first: int, part: dict[str, np.ndarray]) -> None:
        """Put back what `history` gave."""
        self.inner.extend(self._until(first), {k: a for k, a in part.items() if k != PLAYED})
        self._rounds += [(int(last), int(own)) for last, own in part.get(PLAYED, ())]


class RenewedElsewhere:
    """Stands for the values of an agent that shares them with all others."""

    beta = 0.0

    def update(self, h: int, w: np.ndarray, gram: np.ndarray) -> None:
        """Nothing: the transport renews them once for everybody."""


class PartialParticipation(InProcess):
    """Delivers to the agents that are there, and carries the others.

    Attributes:
        there: Numbers of the agents that play the round under way, or played the last one.
        firsts: For each of them, the number of its own first episode of the round.
        b: (M, H, d), each agent's responses as they were last sent.
    """

    def __init__(self, plan: Plan, cohorts: Sequence[Cohort]) -> None:
        p = plan.parameters
        super().__init__(cohorts, p.trigger, p.overshoot)
        self.layout, self.values = plan.layout, cohorts[0].values
        self.schedule = ParticipationSchedule(p.n_agents, plan.seed, p.participation, p.present)
        self.b = np.zeros((p.n_agents, p.horizon, p.dim))
        self.there = self.firsts = np.empty(0, np.int64)
        self._informed: set[int] = set()  # who has the model in force
        self._k = 0

    @property
    def present(self) -> int:
        """How many agents played the last round."""
        return len(self.there)

    def measuring(self, evaluator: Evaluator | None) -> Evaluator | None:
        return None if evaluator is None else ParticipationEvaluator(evaluator, self)

    def broadcast(self, message: Request) -> Sequence[Reply]:
        if not isinstance(message, Start):
            return super().broadcast(message)
        # each agent hears of it when it is first there
        self._start, self._informed = message, set()
        self._w, self._gram = message.w.copy(), message.gram.copy()
        self.values.beta = message.beta
        for h in range(self.layout.horizon, 0, -1):
            self._renew(h, *message.model(h))
        return []

    def wait(self, t: int, left: int) -> Any:
        self._assemble(t)
        return super().wait(t, left)

    def _assemble(self, t: int) -> None:
        """Find out who is there, and give the model to those who do not have it."""
        before, self.there = self.there, self.schedule.during(self._k + 1, t)
        model = replace(self._start, w=self._w.copy(), gram=self._gram.copy(), t=t)
        for m in self.there.tolist():
            if m not in self._informed:
                self.cohorts[m].receive(model)
        # who was there all along heard of it in the last round; a restart is not part of the run
        self.ledger.some("init", np.setdiff1d(self.there, before), model.scalars)
        self.firsts = np.array([self._experience(m).own + 1 for m in self.there.tolist()])

    def deliver(self, message: Request) -> Sequence[Reply]:
        if isinstance(message, Model):
            self._w[message.h - 1] = message.w
            if message.gram.size > 0:  # steps may share one
                self._gram[min(message.h, len(self._gram)) - 1] = message.gram
            if 0 not in self.there:  # agent 0's values are everybody's
                self._renew(message.h, message.w, message.gram)
            if message.h == 1:
                self._informed = set(self.there.tolist())
        replies = [self.cohorts[m].receive(message) for m in self.there.tolist()]
        uploads = [reply for reply in replies if isinstance(reply, Upload)]
        return [self._completed(uploads)] if uploads else replies

    def _completed(self, uploads: Sequence[Upload]) -> Upload:
        """The uploads of all agents: no increment and the last response for who is away."""
        h = uploads[0].h
        gram = np.zeros((len(self.b), self.layout.gram_size(h)))
        gram[self.there] = np.concatenate([upload.gram for upload in uploads])
        self.b[self.there, h - 1] = np.concatenate([upload.b for upload in uploads])
        return Upload(h, gram, self.b[:, h - 1].copy())

    def _renew(self, h: int, w: np.ndarray, gram: np.ndarray) -> None:
        self.values.update(h, w, unpack(gram, self.layout.dim, self.layout.packing))

    def _experience(self, m: int) -> OwnEpisodes:
        experience = self.cohorts[m].experience
        assert isinstance(experience, OwnEpisodes)
        return experience

    def enter(self, category: str, scalars: int) -> None:
        self.ledger.some(category, self.there, scalars)

    def rest(self, k: int, t: int) -> None:
        self._k = k

    def state(self, t: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        return {"carry.b": self.b}, {"there": self.there.tolist()}

    def restore(
        self, arrays: Mapping[str, np.ndarray], plain: Mapping[str, Any], t: int, k: int
    ) -> None:
        self.b[:], self._k = arrays["carry.b"], k
        self.there = np.array(plain["there"], np.int64)


class ParticipationEvaluator:
    """The regret of those who played."""

    def __init__(self, inner: Evaluator, transport: PartialParticipation) -> None:
        self.inner, self.transport = inner, transport

    def begin(self) -> None:
        """A round begins."""
        self.inner.begin()

    def regret(self, first: int, n: int) -> np.ndarray:
        """Their regret in each of the round's n episodes."""
        return self.inner.regret_of(self.transport.there, self.transport.firsts, n)

    def regret_of(self, agents: np.ndarray, firsts: np.ndarray, n: int) -> np.ndarray:
        """See `Evaluator`."""
        return self.inner.regret_of(agents, firsts, n)


def partial_participation(plan: Plan) -> tuple[PartialParticipation, list[Cohort]]:
    """The agents of a plan, each a cohort of its own, and the transport to those that are there."""
    values, workers = plan.values(), Workers(plan.threads)
    cohorts = [plan.cohort(m, m + 1, values, workers) for m in range(plan.parameters.n_agents)]
    for cohort in cohorts:
        cohort.experience = OwnEpisodes(cohort.experience)
    for cohort in cohorts[1:]:
        cohort.values = RenewedElsewhere()
    return PartialParticipation(plan, cohorts), cohorts
