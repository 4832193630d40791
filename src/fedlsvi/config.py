"""The numbers of a run: what the user may set, how it is checked, what it becomes.

`Settings` holds what was asked for (`gamma="auto"`, a preset); `Parameters` holds the numbers in
force once the problem is known. There are two presets. `paper` uses the theorems' λ = 1, β and clip
[0, H], lower where a `value_range` is given. `practical` learns faster (docs/defaults.md has the
study behind it).
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from fedlsvi.checks import boolean, choice, finite, integer, number, plain, plural
from fedlsvi.core import theory
from fedlsvi.core.fixed_point import FEWEST_BITS, scale_bits
from fedlsvi.core.participation_schedule import deserted
from fedlsvi.core.privacy_settings import (
    FIRST_SHARE,
    PRIVATE_ROUNDS,
    check_company,
    check_privacy,
    check_users,
)
from fedlsvi.core.statistics import PACKINGS, Packing
from fedlsvi.core.trigger import Trigger, schedule
from fedlsvi.core.value import ceilings
from fedlsvi.errors import InvalidSetting

if TYPE_CHECKING:
    from fedlsvi.core.private_release import PrivateRelease

Preset = Literal["practical", "paper"]
Overshoot = Literal["cut", "keep"]
Aggregation = Literal["float", "exact", "secure"]
Exchange = Literal["stepwise", "one-trip"]

SYMBOLS = {"gamma": "γ", "beta": "β", "lam": "λ", "xi": "ξ", "n_agents": "M", "episodes": "T",
           "horizon": "H", "dim": "d"}  # fmt: skip

PRACTICAL_LAM = 0.001
"""λ of the practical preset: an unvisited direction is worth β/√λ ≈ 32β, six value ranges."""

FEWEST_SITES = 3
"""With two sites each could subtract its own share from the sum and would have the other's."""

ANYTIME = 8.0
"""κ of gamma="anytime": γ(t) = max(κt/(Md), 1)."""

PRACTICAL_DIVERSITY = 0.2
"""σ of the practical preset, where the world may repeat itself."""

PRACTICAL_BETA = 0.25
"""β_h of the practical preset, in units of the value range that is left at step h."""


@dataclass(frozen=True)
class Settings:
    """What a user asks of Fed-LSVI; `fedlsvi.FedLSVI` explains each. None means the preset's."""

    n_agents: int
    gamma: float | Literal["auto", "anytime"] = "auto"
    beta: float | Literal["theory"] | None = None
    lam: float | None = None
    xi: float = 0.0
    value_range: float | None = None
    preset: Preset = "practical"
    taper: bool | Literal["auto"] = "auto"
    overshoot: Overshoot = "cut"
    packing: Packing | Literal["auto"] = "auto"
    confidence: float = 0.05
    c_beta: float = 1.0
    cap: float | Literal["agents", "off"] | None = None
    min_round: int = 1
    rounds: int | Literal["off"] | None = None
    scalars: int | None = None
    stationary: bool | Literal["auto"] = "auto"
    policy: Literal["auto", "exploit", "explore"] = "auto"
    pessimism: float = 0.0
    diversity: float | Literal["auto"] = "auto"
    aggregation: Aggregation = "float"
    exchange: Exchange = "stepwise"
    participation: float = 1.0
    present: list[list[int]] | None = None
    privacy: dict[str, Any] | None = None

    @property
    def some_away(self) -> bool:
        """Whether agents may be away in some rounds (`core.participation_schedule`)."""
        return self.participation < 1.0 or self.present is not None

    def __post_init__(self) -> None:
        for key, value in list(vars(self).items()):
            object.__setattr__(self, key, plain(value))
        integer("n_agents", self.n_agents, 1, "the number of agents")
        if self.gamma not in ("auto", "anytime"):
            number("gamma", self.gamma, 1.0, 'gamma="auto" is max(T/(Md), 1)')
        if self.cap not in (None, "agents", "off"):
            hint = '"off" is the paper\'s trigger, "agents" is 1 + 1/M'
            number("cap", self.cap, 1.0, hint, strict=True)
        integer("min_round", self.min_round, 1, "the fewest episodes of a round")
        for name in ("rounds", "scalars"):
            if getattr(self, name) not in (None, "off" if name == "rounds" else None):
                integer(name, getattr(self, name), 1, f"the most {name} of the run")
        budget = self.rounds not in (None, "off") or self.scalars is not None
        if self.gamma == "anytime" and (budget or self.min_round > 1):
            raise InvalidSetting(
                'gamma="anytime" does not use T, but rounds=, scalars= and min_round= do: leave '
                "out one or the other",
                code="bad-gamma",
            )
        if self.beta is not None and self.beta != "theory":
            number("beta", self.beta, 0.0, 'leave it out, or give "theory"')
        if self.lam is not None:
            number("lam", self.lam, 0.0, "lam=1 is the paper's", strict=True)
            if not finite(1.0 / self.lam):
                raise InvalidSetting(
                    f"lam is {self.lam!r}, so 1/lam overflows: use a larger lam", code="bad-lam"
                )
        number("xi", self.xi, 0.0, "xi=0 if all agents share one linear MDP", most=1.0)
        if self.value_range is not None:
            hint = "give the largest return of an episode, in rewards mapped to [0, 1]"
            number("value_range", self.value_range, 0.0, hint, strict=True)
        choice("preset", self.preset, ("practical", "paper"))
        if self.taper != "auto":
            boolean("taper", self.taper, '"auto" is the preset\'s value')
        choice("overshoot", self.overshoot, ("cut", "keep"))
        choice("packing", self.packing, ("auto", *PACKINGS))
        choice("policy", self.policy, ("auto", "exploit", "explore"))
        number("pessimism", self.pessimism, 0.0, "0 takes the estimates as they are")
        if self.diversity != "auto":
            hint = "with 0 all agents follow one policy; 0.2 varies the bonus by a fifth"
            number("diversity", self.diversity, 0.0, hint, most=1.0)
        if self.stationary != "auto":
            boolean("stationary", self.stationary, '"auto" asks the environment')
        choice("aggregation", self.aggregation, get_args(Aggregation))
        choice("exchange", self.exchange, get_args(Exchange))
        if self.exchange == "one-trip" and self.scalars is not None:
            raise InvalidSetting(
                'scalars= works only with exchange="stepwise": the messages of "one-trip" grow '
                "with the data, so their size is not known beforehand. Use rounds= instead",
                code="bad-scalars",
            )
        if self.aggregation == "secure" and self.n_agents < FEWEST_SITES:
            raise InvalidSetting(
                f'aggregation="secure" needs at least {FEWEST_SITES} sites, but n_agents is '
                f"{self.n_agents}: with two sites, each could subtract its own share from the sum",
                code="too-few-sites",
            )
        hint = "the probability that an agent takes part in a round; 1 is always"
        number("participation", self.participation, 0.0, hint, most=1.0)
        if self.participation <= 0.0:
            raise InvalidSetting(
                "participation is 0, so no agent would ever play: give a number above 0",
                code="bad-participation",
            )
        if self.present is not None:
            object.__setattr__(self, "present", stays(self.present, self.n_agents))
        if self.aggregation == "secure" and self.some_away:
            raise InvalidSetting(
                'aggregation="secure" needs every agent in every round, because its masks cancel '
                "only in the sum over all agents: with participation= or present=, use "
                'aggregation="float" or "exact"',
                code="bad-participation",
            )
        if self.exchange == "one-trip" and self.some_away:
            raise InvalidSetting(
                'exchange="one-trip" needs every agent in every round, because agents keep no '
                'history to send later: with participation= or present=, use exchange="stepwise"',
                code="bad-participation",
            )
        if self.privacy is not None:
            object.__setattr__(self, "privacy", check_privacy(self.privacy, self.n_agents))
            check_company(self)
        number("c_beta", self.c_beta, 0.0, "the constant of the theorems' beta", strict=True)
        hint = "the theorems hold with probability 1 − 2·confidence"
        number("confidence", self.confidence, 0.0, hint, most=1.0, strict=True)

    def resolve(
        self,
        episodes: int,
        horizon: int,
        dim: int,
        one_hot: bool,
        pooled: int | None = None,
        steady: bool = False,
        states: int = 0,
        repeats: bool = False,
        logged: int = 0,
        prior: float = 0.0,
        nonnegative: bool = False,
    ) -> Parameters:
        """The numbers in force on a problem of this size.

        Args:
            episodes: T, per agent.
            horizon: H.
            dim: d, the dimension of the features.
            one_hot: Whether every φ(x,a) is a unit vector.
            pooled: How many agents' episodes one model is learned from; None is all of them. Only
                these can differ from one another, so only they widen β where ξ > 0.
            steady: Whether the environments say that nothing in them depends on the step; decides
                stationary="auto" of the practical preset.
            states: S, where states are finite; 0 elsewhere.
            repeats: Whether the environments say that episodes may repeat; decides
                diversity="auto" of the practical preset.
            logged: Episodes of the longest log that an agent begins with; 0 where none does.
            prior: ρ of a model that was learned before; 0 where there is none.
            nonnegative: Whether no feature is negative; private runs need less noise then.
        """
        integer("episodes", episodes, 1, "the number of episodes per agent")
        if logged or prior:
            self._check_warm(logged > 0)
        M, T, H, d = self.n_agents, int(episodes), horizon, dim
        packing = self.packing
        if packing == "auto":
            packing = "diagonal" if one_hot else "packed"
        elif packing == "diagonal" and not one_hot:
            raise InvalidSetting(
                'packing="diagonal" needs one-hot features, but these are not one-hot: use '
                'packing="auto"',
                code="bad-packing",
            )
        growth = ANYTIME / (M * d) if self.gamma == "anytime" else 0.0
        given = isinstance(self.gamma, int | float)
        gamma = float(self.gamma) if given else theory.gamma_auto(M, d, T)
        if self.min_round > T:
            raise InvalidSetting(
                f"min_round = {self.min_round} is above episodes = {T}, so no round could end: "
                "give a smaller min_round",
                code="bad-min_round",
            )
        empty = None if self.present is None else deserted(M, self.present, T)
        if empty is not None:
            raise InvalidSetting(
                f"present leaves no agent to play episode {empty:,}: every episode needs at least "
                "one",
                code="bad-present",
            )
        paper = self.preset == "paper"
        lam = self.lam if self.lam is not None else (1.0 if paper else PRACTICAL_LAM)
        beta = self.beta if self.beta is not None else ("theory" if paper else None)
        taper = beta is None if self.taper == "auto" else self.taper
        pooled = M if pooled is None else pooled
        stationary = steady and not paper if self.stationary == "auto" else self.stationary
        diversity = self.diversity
        if diversity == "auto":
            diversity = PRACTICAL_DIVERSITY if repeats and not paper else 0.0
        able = self.exchange == "stepwise" and not self.some_away and self.privacy is None
        exploit = able and not paper if self.policy == "auto" else self.policy == "exploit"
        if exploit and not able:
            raise InvalidSetting(
                'policy="exploit" needs exchange="stepwise" and all agents in every round: use '
                'policy="explore"',
                code="bad-policy",
            )
        widened = beta == "theory" and self.privacy is not None
        if beta == "theory":
            seen = T + logged
            beta = theory.beta_theory(d, H, M, seen, self.xi, self.confidence, self.c_beta, pooled)
        elif beta is None:
            top = float(H) if self.value_range is None else min(float(H), self.value_range)
            width = theory.misspecification_width(d, H, pooled, T + logged, self.xi)
            beta = PRACTICAL_BETA * top + width
        private: dict[str, Any] = {}
        if self.privacy is not None:
            private = self._private(T, nonnegative or one_hot)
            gamma, growth = 1.0, 0.0  # a round ends when the schedule says so
        if not finite(beta):
            raise InvalidSetting(
                f"beta would be {beta} at confidence={self.confidence!r} and "
                f"c_beta={self.c_beta!r}: give a larger confidence or a smaller c_beta",
                code="bad-beta",
            )
        made = Parameters(
            n_agents=M,
            episodes=T,
            horizon=H,
            dim=d,
            gamma=gamma,
            beta=float(beta),
            lam=float(lam),
            xi=self.xi,
            value_range=self.value_range,
            preset=self.preset,
            taper=taper,
            overshoot=self.overshoot,
            packing=packing,
            confidence=self.confidence,
            growth=growth,
            stationary=stationary,
            exploit=exploit,
            pessimism=self.pessimism,
            diversity=float(diversity),
            aggregation=self.aggregation,
            exchange=self.exchange,
            states=states if self.exchange == "one-trip" else 0,
            participation=float(self.participation),
            present=self.present,
            **(private or {
                "cap": self._cap(M),
                "min_round": self.min_round,
                "rounds": self._budget(M, T, H, d, packing, stationary, exploit, logged > 0),
            }),
            logged=logged,
            prior=prior,
        )  # fmt: skip
        if made.exchange == "one-trip" and states < 1:
            raise InvalidSetting(
                'exchange="one-trip" sends a table of next states, so it needs a finite number of '
                'states (n_states in federation.toml): give it, or use exchange="stepwise"',
                code="one-trip-needs-states",
            )
        if made.release is not None:
            made.check_release()
            if widened:
                more = made.release.theory_width(made.lam, made.noise_times, made.confidence)
                made = replace(made, beta=made.beta + more)
        elif made.aggregation != "float" and made.scale_bits < FEWEST_BITS:
            raise InvalidSetting(
                f'aggregation="{made.aggregation}" would leave {made.scale_bits} fractional bits '
                f"for {plural(M, 'agent')}, {plural(T, 'episode')} and values up to "
                f'{made.largest_target:g}, but {FEWEST_BITS} are needed: use aggregation="float", '
                "or reduce one of these",
                code="too-few-bits",
            )
        return made

    def _private(self, episodes: int, nonnegative: bool) -> dict[str, Any]:
        """What a private run has in place of a trigger: rounds of public lengths."""
        assert self.privacy is not None
        check_users(self.privacy, self.n_agents, episodes)
        rounds = self.rounds if isinstance(self.rounds, int) else PRIVATE_ROUNDS
        first = max(self.min_round, math.ceil(episodes / FIRST_SHARE))
        rounds = len(schedule(episodes, rounds, first))
        return {"privacy": self.privacy, "nonnegative": nonnegative, "cap": None,
                "min_round": first, "rounds": rounds}  # fmt: skip

    def _check_warm(self, logs: bool) -> None:
        """Refuse what cannot begin with logs, or with a model that was learned before."""
        if self.privacy is not None:
            raise InvalidSetting(
                "a private run accounts only for what its own rounds release, and a warm start "
                "would release more: leave out data= and warm_start=",
                code="bad-privacy",
            )
        if self.some_away:
            raise InvalidSetting(
                "a warm start needs all agents in every round: leave out participation= and "
                "present=, or data= and warm_start=",
                code="bad-participation",
            )
        if logs and self.exchange == "one-trip":
            raise InvalidSetting(
                'exchange="one-trip" cannot be used with data=: a table of next states does not '
                'show what a logged episode is worth after its end. Use exchange="stepwise"',
                code="bad-exchange",
            )

    @property
    def _eager(self) -> bool:
        """Whether cap and budget are the practical preset's where they are left out: a γ that was
        chosen is the paper's trigger."""
        return self.preset == "practical" and self.gamma in ("auto", "anytime")

    def _cap(self, M: int) -> float | None:
        """c of the trigger; None is the paper's."""
        cap = self.cap
        if cap is None:
            cap = "agents" if self._eager else "off"
        return {"agents": 1.0 + 1.0 / M, "off": None}[cap] if isinstance(cap, str) else cap

    def _budget(
        self, M: int, T: int, H: int, d: int, packing: Packing, stationary: bool, exploit: bool,
        logs: bool,
    ) -> int | None:  # fmt: skip
        """The most rounds that `rounds` and `scalars` allow together, beside the one of the logs;
        without these, of the eager trigger, what the raw data would pay for."""
        budgets = [self.rounds] if isinstance(self.rounds, int) else []
        if self.rounds is None and self.scalars is None and self._eager and self.gamma == "auto":
            return theory.rounds_paid(d, H, M, T, packing, stationary=stationary, exploit=exploit)
        if self.scalars is not None:
            first = theory.scalars_total(d, H, M, packing, int(logs), 0, stationary=stationary)
            if self.aggregation == "secure":  # as if every agent were a site
                first += theory.scalars_keys(M)
            first += theory.scalars_exploit(d, H, M) if exploit else 0
            each = theory.scalars_per_round(d, H, M, packing, M, stationary=stationary)
            if self.some_away:  # at worst all agents are new in every round
                first, each = 0, each + first
            if self.scalars < first + each:
                raise InvalidSetting(
                    f"scalars = {self.scalars:,} is too small for one round: the start and the "
                    f"end of a run take {first:,} and a round takes up to {each:,}",
                    code="bad-scalars",
                )
            budgets.append((self.scalars - first) // each)
        return min(budgets, default=None)


@dataclass(frozen=True)
class Parameters:
    """The numbers in force: M, T, H, d, γ, β, λ, ξ, how values are clipped and sent, what else
    ends a round (`core.trigger.Trigger`), whether β is taken off instead of added, how many
    episodes were logged before the first, and what an earlier model counts."""

    n_agents: int
    episodes: int
    horizon: int
    dim: int
    gamma: float
    beta: float
    lam: float
    xi: float
    value_range: float | None
    preset: Preset
    overshoot: Overshoot
    packing: Packing
    confidence: float
    taper: bool = False
    cap: float | None = None
    min_round: int = 1
    rounds: int | None = None
    growth: float = 0.0
    stationary: bool = False
    exploit: bool = False
    pessimism: float = 0.0
    aggregation: Aggregation = "float"
    participation: float = 1.0
    present: list[list[int]] | None = None
    pessimistic: bool = False
    exchange: Exchange = "stepwise"
    states: int = 0
    diversity: float = 0.0
    logged: int = 0
    prior: float = 0.0
    privacy: dict[str, Any] | None = None
    nonnegative: bool = False

    @property
    def release(self) -> PrivateRelease | None:
        """The noise of a private run; None elsewhere."""
        return None if self.privacy is None else _release(self)

    def check_release(self) -> None:
        """Refuse a private run whose noise has no room beside its sums."""
        release = self.release
        if release is not None and not release.fits(self.n_agents):
            raise InvalidSetting(
                f"epsilon = {release.epsilon:g} needs so much noise that {release.bits} "
                f"fractional bits remain, too few for {plural(self.n_agents, 'agent')} and "
                f"{plural(self.episodes, 'episode')}: use a larger epsilon, or fewer agents or "
                "episodes",
                code="too-few-bits",
            )

    @property
    def some_away(self) -> bool:
        """Whether agents may be away in some rounds (`core.participation_schedule`)."""
        return self.participation < 1.0 or self.present is not None

    @property
    def bonus(self) -> float:
        """What ‖φ‖_{Λ⁻¹} is multiplied by: β, or −β where what was not seen is to be avoided."""
        return -self.beta if self.pessimistic else self.beta

    @property
    def taper_factors(self) -> np.ndarray:
        """β_h/β of every step, (H,): 1, or the share of the value range that is left."""
        if not self.taper:
            return np.ones(self.horizon)
        left = ceilings(self.horizon, self.value_range, "practical")
        found: np.ndarray = left / left[0]
        return found

    @property
    def matrices(self) -> int:
        """Gram matrices of a model: one where all steps share it, else H."""
        return 1 if self.stationary else self.horizon

    @property
    def largest_target(self) -> float:
        """The largest r + V_{h+1} of any step: 1 + the largest ceiling of a later step."""
        return 1.0 + float(max(self.ceilings[1:], default=0.0))

    @property
    def targets(self) -> tuple[float, ...]:
        """y_h of every step: the largest r + V_{h+1}."""
        return tuple((1.0 + np.append(self.ceilings[1:], 0.0)).tolist())

    @property
    def noise_times(self) -> float:
        """How many times the variance that privacy needs the sums may have: without secure sums
        every agent adds all of it, with them C sites what C − c of them need, C ≥ c + 2."""
        assert self.privacy is not None
        if self.aggregation == "secure":
            return 0.5 * float(self.privacy["colluders"] + 2)
        return float(self.n_agents)

    @property
    def scale_bits(self) -> int:
        """s of sums in fixed point, from a bound that all parties know: Σ_m |b| ≤ MT·max(r + V),
        and entries of Λ^loc are smaller. Where steps share their data, an episode has H terms.
        Of a private run, its noise says how fine the grid has to be."""
        return self._room_bits if self.release is None else self.release.bits

    @property
    def _room_bits(self) -> int:
        """The most bits after the point that sums leave room for."""
        seen = self.n_agents * (self.episodes + self.logged)
        terms = seen * (self.horizon // self.matrices)
        return scale_bits(terms * self.largest_target)

    @property
    def trigger(self) -> Trigger:
        """When rounds end."""
        log_cap = math.inf if self.cap is None else math.log(self.cap)
        budget = self.min_round, self.rounds
        public = self.privacy is not None
        return Trigger(self.gamma, self.episodes, log_cap, *budget, self.growth, public)

    def most_rounds(self, episodes: int) -> float:
        """The most rounds of Fed-LSVI in this many episodes: Theorem 3 and its variants, one round
        per `min_round` episodes, and the budget. Where all steps share a Gram matrix, one matrix
        has the data of all of them: (d/log 2)·log(1 + MTH/(λd)) in place of Theorem 3's. What was
        known before only makes ratios of determinants smaller; the round of logs is not counted."""
        each = self.horizon // self.matrices
        size = (self.dim, self.matrices, self.n_agents * each, episodes)
        if self.growth:
            proven = theory.rounds_bound_anytime(*size, self.growth, self.lam, self.cap)
        else:
            proven = theory.rounds_bound(*size, self.gamma, self.lam, self.cap)
        budget = math.inf if self.rounds is None else self.rounds
        return max(1.0, min(proven, episodes // self.min_round, budget))

    @property
    def ceilings(self) -> np.ndarray:
        """The upper clip of each step, (H,)."""
        # pessimism is proved for H − h + 1, whatever the preset
        preset = "practical" if self.pessimistic else self.preset
        return ceilings(self.horizon, self.value_range, preset)


@lru_cache(maxsize=64)
def _made_release(*known: Any) -> PrivateRelease:
    from fedlsvi.core.private_release import PrivateRelease

    return PrivateRelease(*known)


@lru_cache(maxsize=64)
def _made_stepwise(*known: Any) -> PrivateRelease:
    from fedlsvi.core.stepwise_release import StepwiseRelease

    return StepwiseRelease(*known)


def _release(p: Parameters) -> PrivateRelease:
    assert p.privacy is not None
    assert p.rounds is not None
    known = (
        p.privacy["epsilon"], p.privacy["delta"], p.privacy["episodes_per_user"], p.rounds,
        p.horizon, p.dim, p.states, p.packing, p.stationary, p.nonnegative, p._room_bits,
    )  # fmt: skip
    if p.exchange == "one-trip":
        return _made_release(*known)
    return _made_stepwise(*known, p.targets)


def forget_releases() -> None:
    """Forget the cached noise of private runs: a study has changed how it is divided."""
    _made_stepwise.cache_clear()


def stays(present: Any, n_agents: int) -> list[list[int]]:
    """When agents are there, as a list of [agent, first, last]."""
    hint = "give a list of [agent, first episode, last episode], one entry per stay"
    if not isinstance(present, list | tuple) or not present:
        raise InvalidSetting(f"present is {present!r}: {hint}", code="bad-present")
    found = []
    for stay in present:
        if not isinstance(stay, list | tuple) or len(stay) != 3:
            raise InvalidSetting(f"present has the entry {stay!r}: {hint}", code="bad-present")
        agent, first, last = stay
        integer("present", agent, 0, f"agents are numbered from 0; {hint}", most=n_agents - 1)
        integer("present", first, 1, f"episodes are numbered from 1; {hint}")
        integer("present", last, first, f"the last episode must not come before the first; {hint}")
        found.append([int(agent), int(first), int(last)])
    return found


def what_differs(before: Parameters, after: Parameters, played: int) -> str | None:
    """How a continued run differs from one that knew its number of episodes from the start, in a
    sentence; None if they are equal to the last bit.

    Args:
        before: The numbers in force so far.
        after: Those in force from here on, of the longer run.
        played: Episodes per agent so far.
    """
    # of γ(t), only its growth counts
    unlike = ("episodes", "rounds", *(("gamma",) if before.growth and after.growth else ()))
    changed = [
        f"{SYMBOLS.get(name, name)} = {_digits(there)} (before: {_digits(here)})"
        for name, here in vars(before).items()
        if name not in unlike and here != (there := getattr(after, name))
    ]
    if after.episodes != before.episodes and (after.rounds or before.rounds):
        changed.append("rounds that are spread over all its episodes")
    if not changed:
        return None
    return (
        f"this run was extended after episode {played:,}; it differs from a single run of "
        f"{plural(after.episodes, 'episode')}, which would have {', '.join(changed)} from its "
        "first episode"
    )


def _digits(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def cohort_count(cohorts: Any, n_agents: int) -> int:
    """A number of cohorts from 1 to M; None is one."""
    if cohorts is None:
        return 1
    return integer("cohorts", cohorts, 1, "at most one per agent", most=n_agents)


def shown_parameters(settings: Container[str], parameters: Mapping[str, Any]) -> list[str]:
    """γ, β and λ as text, as far as an algorithm with these settings uses them."""
    return [
        f"{SYMBOLS[key]} = {parameters[key]:.4g}"
        + (" (tapered)" if key == "beta" and parameters.get("taper") else "")
        for key in ("gamma", "beta", "lam")
        if key in settings or (key == "beta" and parameters[key] > 0.0)
    ]
