"""What a run will take, before it is played: rounds, scalars, memory and time.

The run's own first rounds are played, and short runs of long rounds, for a few seconds together.
From them come what an episode, a round and an episode of history cost on this machine, and the mean
Gram matrix of an episode, with which the trigger is carried on to the end
(`core.expected_rounds`). A run that is over by then is known exactly.
"""

from __future__ import annotations

import gc
import resource
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from fedlsvi.checks import plural
from fedlsvi.config import Parameters
from fedlsvi.core import theory
from fedlsvi.core.blas import one_blas_thread
from fedlsvi.core.expected_rounds import expected_ends, mean_spectra
from fedlsvi.envs.base import Environment
from fedlsvi.experience.experience import Experience
from fedlsvi.experience.finite_kernels import FEW
from fedlsvi.experience.present_together import PresentTogether
from fedlsvi.experience.state_round import StateRound
from fedlsvi.observers.progress import duration
from fedlsvi.observers.traffic import Traffic
from fedlsvi.protocol.messages import SCALAR_BYTES
from fedlsvi.protocol.plan import Plan
from fedlsvi.protocol.session import Session

SECONDS = 1.5
"""For the first rounds of the run, and at most about twice as much for runs of long rounds."""

LONG_ROUNDS = 3
"""Rounds of a run that shows what long ones cost."""

RECORD_BYTES = 2500
"""What is kept of a round: its record."""

PHASES = ("explore", "synchronise", "evaluate", "other")


@dataclass(frozen=True)
class Forecast:
    """What a run will take.

    Attributes:
        episodes: T.
        rounds: Rounds to expect.
        rounds_bound: The fewest and the most.
        scalars: Scalars to expect in all messages, both ways.
        scalars_bound: The fewest and the most.
        bytes: Of these scalars.
        raw: Scalars of all trajectories, one way; None where that is not known.
        memory: Bytes of this process at its peak.
        program: Bytes of it that the program and the environments take.
        seconds: By phase: explore, synchronise, evaluate (regret), other.
        halved: What of these ("seconds", "scalars", "memory") which setting would halve.
        ends: The last episode of each round, as expected.
        times: Seconds from the start to the end of each.
        calibration: Seconds that the forecast itself took.
    """

    episodes: int
    rounds: int
    rounds_bound: tuple[int, int]
    scalars: int
    scalars_bound: tuple[int, int]
    bytes: int
    raw: int | None
    memory: int
    program: int
    seconds: dict[str, float]
    halved: dict[str, str]
    ends: np.ndarray
    times: np.ndarray
    calibration: float

    @property
    def total_seconds(self) -> float:
        """Of all phases."""
        return sum(self.seconds.values())

    @property
    def slowest(self) -> str:
        """The phase that takes most of the time."""
        return max(self.seconds, key=lambda phase: self.seconds[phase])

    def to_dict(self) -> dict[str, Any]:
        """A JSON form, without the single rounds."""
        fields = asdict(self)
        del fields["ends"], fields["times"]
        return fields | {"total_seconds": self.total_seconds, "slowest": self.slowest}

    def left(self, t: int) -> float:
        """Which share of the time is left after episode t."""
        done = np.interp(t, [0, *self.ends], [0.0, *self.times])
        return float(1.0 - done / max(self.total_seconds, 1e-9))

    def sentence(self) -> str:
        """Rounds, time, memory and scalars in one sentence."""
        return (
            f"expect {plural(self.rounds, 'round')}, {duration(self.total_seconds)}, "
            f"{size(self.memory)} of memory and {plural(self.scalars, 'scalar')} "
            f"({size(self.bytes)})"
        )

    def __str__(self) -> str:
        few, most = self.rounds_bound
        low, high = self.scalars_bound
        spent = ", ".join(
            f"{phase} {duration(seconds)}"
            for phase, seconds in sorted(self.seconds.items(), key=lambda item: -item[1])
        )
        raw = "" if self.raw is None else f"; all trajectories would be {self.raw:,}"
        rows = [
            ("rounds", f"{self.rounds:,} (at least {few:,}, at most {most:,})"),
            ("time", f"{duration(self.total_seconds)}: {spent}"),
            ("memory", f"{size(self.memory)}, of which the program has {size(self.program)}"),
            ("scalars", f"{self.scalars:,} ({size(self.bytes)}; {low:,} to {high:,}){raw}"),
        ]
        rows += [(f"half the {what.replace('seconds', 'time')}", how)
                 for what, how in self.halved.items()]  # fmt: skip
        return "\n".join(f"{name:<17}{text}" for name, text in rows)

    __repr__ = sentence


class Sample(NamedTuple):
    """A round that was played."""

    length: int
    last: int
    seconds: dict[str, float]
    scalars: int


class Watched(NamedTuple):
    """A session that was played for a while.

    Attributes:
        samples: Its rounds.
        opening: Scalars before the first round.
        closing: Seconds and scalars of the pass after the last round; 0 where it was not reached.
        held: Bytes of its arrays.
        room: The round under way.
        gram: Λ at its end.
        finished: Whether it came to its end.
    """

    samples: list[Sample]
    opening: int
    closing: tuple[float, int]
    held: int
    room: Room
    gram: np.ndarray
    finished: bool


def forecast(plan: Plan, begin: Callable[[Plan], Session], budget: float = SECONDS) -> Forecast:
    """What a run of this plan will take.

    Args:
        plan: Of the run.
        begin: Makes a session of a plan.
        budget: Seconds for its first rounds.
    """
    began, p = perf_counter(), plan.parameters
    _watch(begin(_short(plan, min(p.episodes, 2))), 0.1)  # compiles
    program = resident()
    first = _watch(begin(plan), budget)
    long = [] if first.finished else list(_long_rounds(plan, begin, budget))
    costs = Costs(first, long, plan)
    ends = costs.ends(p)
    traffic = Traffic.of(p, plan.raw_scalars_per_step)
    scalars, seconds, memory = costs.scalars(ends), costs.seconds(ends), costs.memory(ends)
    return Forecast(
        episodes=p.episodes,
        rounds=len(ends),
        rounds_bound=traffic.rounds,
        scalars=scalars,
        scalars_bound=traffic.scalars,
        bytes=SCALAR_BYTES * scalars,
        raw=traffic.raw,
        memory=program + memory,
        program=program,
        seconds=seconds,
        halved=costs.halves(p, ends, program),
        ends=ends,
        times=np.cumsum(costs.each(ends)),
        calibration=perf_counter() - began,
    )


class Costs:
    """What rounds cost, from some that were played.

    Args:
        first: The run's own first rounds.
        long: Short runs of long rounds, each several times as long as the one before.
        plan: Of the run.
    """

    def __init__(self, first: Watched, long: list[Watched], plan: Plan) -> None:
        self.first, self.long, self.plan = first, long, plan
        self.history = not plan.world.finite  # is relabelled in every round
        known = [*first.samples, *(s for run in long[-2:] for s in run.samples)]
        self._known = known
        # episodes that the world ends may stay as short as they are, or become as long as H
        self._longer = (long[-1] if long else first).room.share ** -0.5
        self._fits = {phase: self._fit(phase, known) for phase in PHASES}

    def _fit(self, phase: str, samples: list[Sample]) -> np.ndarray:
        """Seconds per round, per episode of it and per episode of history, none below 0."""
        spent = np.array([s.seconds[phase] for s in samples])
        terms = self._terms(
            np.array([s.length for s in samples]), np.array([s.last for s in samples]), phase
        )
        weights = 1.0 / np.sqrt(np.maximum(spent, 1e-5))
        scale = terms.max(axis=0)
        scale[scale == 0.0] = 1.0
        found, _ = nnls(terms / scale * weights[:, None], spent * weights)
        return np.asarray(found / scale)

    def _terms(self, lengths: np.ndarray, lasts: np.ndarray, phase: str) -> np.ndarray:
        """What a phase may depend on, (rounds, 4). Short rounds of tables are folded in a way of
        their own."""
        few = np.zeros(len(lengths)) if self.history else np.minimum(lengths, FEW)
        grows = lasts if self.history and phase == "synchronise" else np.zeros(len(lengths))
        return np.column_stack([np.ones(len(lengths)), lengths, grows, few]).astype(np.float64)

    def ends(self, p: Parameters) -> np.ndarray:
        """The last episode of each round of a run with these numbers: those that were played, and
        those to expect."""
        played = [s.last for s in self.first.samples]
        same = p == self.plan.parameters
        if same and self.first.finished:
            return np.array(played)
        share = p.share if p.some_away else 1.0
        before = float(p.n_agents * (p.logged + p.prior))
        present, known = p.n_agents * share, self.plan.parameters.n_agents
        seen = known * (p.logged + p.prior + share * played[-1])  # by those who played
        spectra = mean_spectra(self.first.gram, p.lam, seen)
        t = played[-1] if same else 0
        rest = expected_ends(p.trigger, spectra, p.lam, present, before, t)
        return np.concatenate([np.array(played if same else [], np.int64), rest])

    def each(self, ends: np.ndarray) -> np.ndarray:
        """Seconds of every round, (K,)."""
        return sum((self._of(phase, ends) for phase in PHASES), np.zeros(len(ends)))

    def _over(self, ends: np.ndarray) -> bool:
        """Whether these are the rounds of a run that is over."""
        return self.first.finished and ends.tolist() == [s.last for s in self.first.samples]

    def _of(self, phase: str, ends: np.ndarray) -> np.ndarray:
        """Seconds of a phase in every round; those of a run that is over are known."""
        if self._over(ends):
            return np.array([s.seconds[phase] for s in self.first.samples])
        found: np.ndarray = self._terms(np.diff(ends, prepend=0), ends, phase) @ self._fits[phase]
        return found if phase in ("evaluate", "other") else self._longer * found

    def seconds(self, ends: np.ndarray) -> dict[str, float]:
        """By phase, with the last pass, which takes as long as there is to relabel."""
        found = {phase: float(self._of(phase, ends).sum()) for phase in PHASES}
        run = self.long[-1] if self.long else self.first
        if run.finished:
            times = ends[-1] / run.samples[-1].last if self.history else 1.0
            found["synchronise"] += run.closing[0] * times
        return found

    def scalars(self, ends: np.ndarray) -> int:
        """Of the whole run; a round sends what rounds of about its length did."""
        known = sorted({s.length: s.scalars for s in self._known}.items())
        lengths, sent = np.array(known, np.float64).T
        each = np.interp(np.diff(ends, prepend=0), lengths, sent)
        if self._over(ends):
            each = np.array([s.scalars for s in self.first.samples])
        closing = (self.long[-1] if self.long else self.first).closing[1]
        return round(self.first.opening + closing + float(each.sum()))

    def memory(self, ends: np.ndarray) -> int:
        """Bytes beyond the program: what is held, what grows with the history, and the longest
        round."""
        T, longest = int(ends[-1]), int(np.diff(ends, prepend=0).max())
        if self.first.finished or len(self.long) < 2:
            last, slope = self.first if not self.long else self.long[-1], 0.0
        else:
            before, last = self.long[-2:]
            more = last.samples[-1].last - before.samples[-1].last
            slope = max(0.0, (last.held - before.held) / more) if more else 0.0
        held = last.held + self._longer * slope * (T - last.samples[-1].last)
        log = last.room.each * min(longest, last.room.most)
        if longest > last.room.most:
            log += last.room.spilled
        return int(held + log + RECORD_BYTES * len(ends))

    def halves(self, p: Parameters, ends: np.ndarray, program: int) -> dict[str, str]:
        """Which setting would halve what: fewer rounds where that does, else fewer episodes; what
        holds whatever their number is each agent's."""
        changed = {f"episodes={p.episodes // 2}": self._shorter(p)}
        if p.privacy is None:
            changed = {f"rounds={n}": replace(p, rounds=n) for n in _fewer(len(ends))} | changed
        planned = {name: self.ends(other) for name, other in changed.items()}
        measures: dict[str, Callable[[np.ndarray], float]] = {
            "seconds": lambda e: sum(self.seconds(e).values()),
            "scalars": self.scalars,
        }
        if self.memory(ends) > program / 4:  # else there is little to save
            measures["memory"] = self.memory
        found = {}
        for what, measure in measures.items():
            enough = 0.55 * measure(ends)
            fit = (name for name, other in planned.items() if measure(other) <= enough)
            if (name := next(fit, None)) is not None:
                found[what] = name
            elif self._of_fewer(what, p) <= enough:
                found[what] = f"n_agents={p.n_agents // 2}"
        return found

    def _of_fewer(self, what: str, p: Parameters) -> float:
        """Seconds, scalars or memory of half as many agents, at the same γ: of every round half of
        what the agents take, but all of what the server does."""
        if p.n_agents < 2:
            return np.inf
        ends = self.ends(replace(p, n_agents=p.n_agents // 2))
        if what == "seconds":
            seconds = self.seconds(ends)
            return 0.5 * (sum(seconds.values()) + seconds["other"])
        return 0.5 * (self.scalars(ends) if what == "scalars" else self.memory(ends))

    def _shorter(self, p: Parameters) -> Parameters:
        """The same run of half as many episodes."""
        T = max(1, p.episodes // 2)
        return replace(p, episodes=T, rounds=None if p.rounds is None else min(p.rounds, T))


def _fewer(rounds: int) -> Iterator[int]:
    """A half of them, a quarter, and so on."""
    while rounds > 3:
        rounds //= 2
        yield rounds


def _short(plan: Plan, episodes: int) -> Plan:
    """The same agents for a few episodes in long rounds."""
    p = replace(
        plan.parameters, episodes=episodes, gamma=1.0, growth=0.0, cap=None, min_round=1,
        rounds=min(LONG_ROUNDS, episodes),
    )  # fmt: skip
    return replace(plan, parameters=p)


def _long_rounds(plan: Plan, begin: Callable[[Plan], Session], budget: float) -> Iterator[Watched]:
    """Runs of ever longer rounds, until one takes a good part of the budget."""
    episodes, T = min(8, plan.parameters.episodes), plan.parameters.episodes
    while True:
        began = perf_counter()
        yield _watch(begin(_short(plan, episodes)), np.inf)
        spent = perf_counter() - began
        if spent > budget / 3.0 or episodes == T:
            return
        episodes = min(T, episodes * (4 if spent > budget / 50.0 else 16))


def _watch(session: Session, budget: float) -> Watched:
    """Play a session, at most about so many seconds."""
    samples: list[Sample] = []
    player = session.player
    sent, opening, closing, p = 0, 0, (0.0, 0), player.parameters
    try:
        with one_blas_thread():
            began = before = perf_counter()
            for record in session.rounds():
                other = perf_counter() - before - sum(record.seconds.values())
                scalars = sum(record.scalars.values()) - sent
                sent += scalars
                if not samples:
                    opening = record.scalars["init"]
                    scalars -= opening
                if record.last == p.episodes and p.exploit:  # the last pass is in this record
                    closing = (other, _last_pass(session))
                    other, scalars = 0.0, scalars - closing[1]
                seconds = record.seconds | {"other": other}
                samples.append(Sample(record.length, record.last, seconds, scalars))
                if perf_counter() - began >= budget:
                    break
                before = perf_counter()
        gram = player.gram[: p.matrices].copy()
        room, over = Room.of(session), samples[-1].last == p.episodes
        return Watched(samples, opening, closing, held(session) - room.bytes, room, gram, over)
    finally:
        session.close()


def _last_pass(session: Session) -> int:
    """Scalars of the pass after the last round."""
    p = session.player.parameters
    sites = session.player.counts.get("sites")
    how = (sites, p.exchange == "one-trip", p.fits)
    return theory.scalars_exploit(p.dim, p.horizon, p.n_agents, *how)


class Room(NamedTuple):
    """The round under way.

    Attributes:
        bytes: What it takes now.
        each: Bytes of an episode of it.
        most: Episodes that are kept at most.
        spilled: Bytes of the counts into which a longer round spills.
        share: Of H, how long episodes were in the end, where the world ends them.
    """

    bytes: int = 0
    each: float = 0.0
    most: float = np.inf
    spilled: int = 0
    share: float = 1.0

    @classmethod
    def of(cls, session: Session) -> Room:
        """That of all cohorts here."""
        size, each, most, spilled, share = cls()
        t, horizon = session.player.t, session.player.parameters.horizon
        for cohort in session.player.cohorts:
            experience: Any = cohort.experience
            if isinstance(experience, PresentTogether):
                experience = experience.here
            state = experience.source.round if isinstance(experience, Experience) else None
            if not isinstance(state, StateRound):  # a round is kept like the history
                kept = cohort.experience.history(0, t)
                each += sum(part.nbytes for part in kept.values()) / t
                if "lengths" in kept:
                    share = min(share, float(kept["lengths"][:, t // 2 :].mean()) / horizon)
                continue
            own = state.states.nbytes + state.rewards.nbytes + state.pairs.nbytes
            size, each = size + own, each + own / state.states.shape[2]
            most = state.capacity or most
            spilled += state.spilled_bytes * len(state.states)
        return cls(size, each, most, spilled, share)


def held(root: object) -> int:
    """Bytes of the arrays that an object of ours reaches, each once; environments are not its."""
    seen, stack, total = set[int](), [root], 0
    while stack:
        item = stack.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, np.ndarray):
            while isinstance(item.base, np.ndarray):
                item = item.base
                if id(item) in seen:
                    break
                seen.add(id(item))
            else:
                total += item.nbytes
            continue
        ours = type(item).__module__.startswith("fedlsvi")
        if isinstance(item, Plan | Environment) or not (
            ours or isinstance(item, dict | list | tuple)
        ):
            continue
        stack += [one for one in gc.get_referents(item) if not isinstance(one, type)]
    return total


def resident() -> int:
    """Bytes of this process in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def size(n: float) -> str:
    """Bytes in words."""
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if n < 1000.0 or unit == "TB":
            break
        n /= 1000.0
    return f"{n:.0f} {unit}" if n >= 10.0 or unit == "bytes" else f"{n:.1f} {unit}"
