"""What a run of Fed-LSVI will send, said before it plays; and a warning where that is much.

Two things defeat the purpose of sending statistics: more scalars than the trajectories themselves
have, and an upload that sums up a single episode, from which that episode can be read. Each is
warned of once: before the run where it is certain, else at the round in which it happens. The
second is nobody's loss in a simulation, where no upload leaves the process that played it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from fedlsvi.checks import plural
from fedlsvi.config import Parameters
from fedlsvi.core import theory
from fedlsvi.errors import TrafficWarning, warn
from fedlsvi.protocol.records import RoundRecord

log = logging.getLogger("fedlsvi.traffic")
"""Told, at level INFO, what each run is expected to send."""


@dataclass(frozen=True)
class Traffic:
    """What can be said of a run before it is played.

    Attributes:
        rounds: The fewest and the most rounds.
        scalars: The fewest and the most scalars in Fed-LSVI's messages, both ways.
        raw: What sharing every trajectory would take, one way (on average, where agents are away
            at random); None where ρ is not known.
        budget: Whether the most rounds are a budget, and not only a bound.
        paid: The most rounds that send no more than the raw data; 0 where even one sends more.
        floor: An example of a floor on rounds.
        single: Whether the first upload is certain to sum up a single episode.
        hidden: Whether masks or noise hide what short rounds would show.
        anytime: Whether γ grows with the episode, so that no floor or budget can be set.
    """

    rounds: tuple[int, int]
    scalars: tuple[int, int]
    raw: int | None
    budget: bool
    paid: int
    floor: int
    single: bool
    anytime: bool
    hidden: bool = False

    @classmethod
    def of(cls, p: Parameters, raw_per_step: int) -> Traffic:
        """The traffic of these numbers in force; `raw_per_step` is ρ, 0 where nobody knows it."""
        most = math.floor(p.most_rounds(p.episodes))
        fewest = min(fewest_rounds(p), most)
        low, high = _scalars(p, fewest), _scalars(p, most, most=True)
        raw = _raw(p, raw_per_step)
        if p.some_away:  # one agent in every round, or all of them new in every round
            asked = int(p.participation) if p.participation > 1.0 else p.n_agents
            there = replace(p, n_agents=asked)
            least = asked if asked < p.n_agents and p.present is None else 1
            low = _scalars(replace(p, n_agents=least), fewest)
            high = _scalars(there, most, most=True) + (most - 1) * _scalars(there, 0, most=True)
            raw = round(raw * p.share)
        return cls(
            rounds=(fewest, most),
            scalars=(low, high),
            raw=raw or None,
            budget=p.rounds is not None and most == p.rounds,
            paid=rounds_paid_for(p, raw_per_step),
            floor=min(10, p.episodes),
            single=_single(p),
            anytime=p.growth > 0.0,
            hidden=p.privacy is not None or p.aggregation == "secure",
        )

    @property
    def above_raw(self) -> bool:
        """Whether it is certain to send more than the raw data."""
        return self.raw is not None and self.scalars[0] > self.raw

    def sentence(self) -> str:
        """Rounds and scalars to expect, and the raw data."""
        (few, most), (low, high) = self.rounds, self.scalars
        kind = "the budget" if self.budget else "a bound"
        rounds = (
            f"{few:,} to {plural(most, 'round')} ({kind})" if few < most else plural(few, "round")
        )
        close = few == most and high < 1.1 * low  # they differ in who signals
        said = f"{rounds} and {f'about {high:,}' if close else f'{low:,} to {high:,}'} scalars"
        raw = "" if self.raw is None else f"; sharing every trajectory would take {self.raw:,}"
        return f"expect {said}{raw}"

    def too_much(self, sent: int, will: str = "will send at least") -> str:
        """The warning of more scalars than the raw data."""
        assert self.raw is not None
        times = sent / self.raw
        how_much = f"{times:.1f}" if times < 10.0 else f"{times:,.0f}"
        change = (
            f"fewer rounds send less and learn more slowly: {self._change(f'rounds={self.paid}')}"
        )
        if not self.paid:
            change = (
                "one model is larger than all the data, so play more episodes or use fewer features"
            )
        return (
            f"this run {will} {plural(sent, 'scalar')}, {how_much} times what sharing every "
            f"trajectory would take: {change}"
        )

    def too_few(self, will: str = "will sum up") -> str:
        """The warning of uploads of a single episode."""
        return (
            f"uploads {will} a single episode, so they reveal it: "
            f"set {self._change(f'min_round={self.floor}')}"
        )

    def _change(self, setting: str) -> str:
        """What to change, in words that Python and --set share."""
        other = ', with gamma="auto" instead of "anytime"' if self.anytime else ""
        return f"{setting}, for example{other}"


def rounds_paid_for(p: Parameters, raw_per_step: int) -> int:
    """The most rounds of Fed-LSVI whose scalars are no more than those of the raw data."""
    first = _scalars(p, 0, most=True)
    return max(0, (_raw(p, raw_per_step) - first) // (_scalars(p, 1, most=True) - first))


def _raw(p: Parameters, raw_per_step: int) -> int:
    return theory.scalars_raw(p.horizon, p.n_agents, p.episodes, raw_per_step)


def _scalars(p: Parameters, rounds: int, most: bool = False) -> int:
    """The fewest scalars of so many rounds, or the most: each agent signals and is a site of its
    own, and a table of next states has no zeros."""
    parties = p.n_agents if most else 1
    sites = parties if p.aggregation == "secure" else None
    both = rounds + (p.logged > 0)  # and the round of the logs, in which nobody signals
    sent = (p.dim, p.horizon, p.n_agents, p.packing, both, rounds * parties)
    size, trip = (p.dim, p.horizon, p.n_agents), p.exchange == "one-trip"
    last = theory.scalars_exploit(*size, sites, trip, p.fits) if p.exploit else 0
    kind = (p.stationary, p.noisy)
    if not trip:
        return theory.scalars_total(*sent, sites, *kind) + last
    tables = 1 if p.stationary else p.horizon - 1
    rows = p.dim + 2 * p.noisy
    following = rounds * p.n_agents * tables * rows * p.columns if most else 0
    return theory.scalars_one_trip(*sent, following, sites, p.columns, *kind) + last


def fewest_rounds(p: Parameters) -> int:
    """A number of rounds that no run has fewer of, because no round is longer than it may be."""
    trigger, t, k = p.trigger, 0, 0
    if trigger.is_fixed:
        return theory.rounds_floor(p.episodes, p.gamma)
    if p.rounds is None and not p.growth:
        longest = max(math.ceil(min(p.gamma, p.episodes)), p.min_round)
        return max(1, p.episodes // longest - 1)  # the last two may be merged
    while t < p.episodes:
        t, k = t + trigger.longest(t), k + 1
    return k


def _single(p: Parameters) -> bool:
    """Whether the first round ends with its first episode, whatever happens in it: γ is 1, or
    features are unit vectors and det(Λ + φφᵀ)/det Λ = 1 + 1/λ fires."""
    rule = p.trigger.rule(0)
    if p.episodes == 1 or rule.floor > 1:
        return False
    new = p.packing == "diagonal" and not (p.logged or p.prior)  # nothing was seen before
    ratio = math.log1p(1.0 / p.lam) if new else 0.0
    return ratio >= min(rule.log_gamma, rule.log_cap)


class TrafficWatch:
    """Observer that warns once of each, at the latest when it happens.

    Args:
        traffic: What is expected of the run.
        federated: Whether a server receives the uploads: only then does it learn single episodes.
        say: What is called with each warning; by default it is a `TrafficWarning`.
    """

    def __init__(
        self,
        traffic: Traffic,
        federated: bool = False,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.traffic = traffic
        self._say = say or partial(warn, category=TrafficWarning)
        self._above = traffic.above_raw
        self._look = federated and not traffic.hidden

    def before(self) -> None:
        """Warn of what is certain, before the run."""
        known = []
        if self._above:
            known.append(self.traffic.too_much(self.traffic.scalars[0]))
        if self._look and self.traffic.single:
            known.append(self.traffic.too_few())
            self._look = False
        if known:
            self._say(". Also, ".join(known))

    def __call__(self, record: RoundRecord) -> None:
        """A round has ended."""
        if self._look and record.length == 1:
            self._look = False
            self._say(self.traffic.too_few("sum up"))
        raw = self.traffic.raw
        if not self._above and raw is not None and (sent := sum(record.scalars.values())) > raw:
            self._above = True
            said = self.traffic.too_much(sent, f"has sent, after {plural(record.last, 'episode')},")
            self._say(said)
