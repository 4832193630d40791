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
from typing import TYPE_CHECKING, Any

import numpy as np

from fedlsvi.checks import integer, plural
from fedlsvi.core import theory
from fedlsvi.core.factorisation import MOST_ROUNDS
from fedlsvi.core.fixed_point import FEWEST_BITS, rounding, scale_bits
from fedlsvi.core.heads import Head
from fedlsvi.core.participation_schedule import deserted, expected_share
from fedlsvi.core.privacy_settings import (
    FIRST_SHARE,
    PRIVATE_ROUNDS,
    check_privacy,
    check_users,
)
from fedlsvi.core.statistics import Packing
from fedlsvi.core.trigger import Trigger, schedule
from fedlsvi.core.value import ceilings
from fedlsvi.errors import InvalidSetting
from fedlsvi.groups import (
    FEWEST_ROUNDS,
    TABLE_ROUNDS,
    Aggregation,
    Bonus,
    BonusSettings,
    CommonSettings,
    Exchange,
    ExchangeSettings,
    Overshoot,
    OwnFeaturesSettings,
    PresenceSettings,
    Preset,
    PrivacySettings,
    ProblemSize,
    StationarySettings,
    TriggerSettings,
)
from fedlsvi.incompatible import refuse

if TYPE_CHECKING:
    from fedlsvi.core.private_release import PrivateRelease

SYMBOLS = {"gamma": "γ", "beta": "β", "lam": "λ", "xi": "ξ", "n_agents": "M", "episodes": "T",
           "horizon": "H", "dim": "d"}  # fmt: skip

PUBLIC_ROUNDS = 320
"""Rounds of a public schedule, at most, where their number was not chosen: with more, regret is the
same (`studies/ends.py`)."""

FINE = 0.1
"""How far the rounding of a whole run may move Λ, as a share of λ, before a finer grid is used."""

FEWEST_SITES = 3
"""With two sites each could subtract its own share from the sum and would have the other's."""


@dataclass(frozen=True)
class Settings(
    PrivacySettings, PresenceSettings, ExchangeSettings, OwnFeaturesSettings, BonusSettings,
    StationarySettings, TriggerSettings, CommonSettings,
):  # fmt: skip
    """What a user asks of Fed-LSVI: the settings of all groups. None means the preset's."""

    def check(self) -> None:
        """Each group by itself, then what they say of one another."""
        super().check()
        for agent, *_ in self.present or ():
            integer("present", agent, 0, "agents are numbered from 0", most=self.n_agents - 1)
        if self.participation > max(self.n_agents, 1.0):
            raise InvalidSetting(
                f"participation is {self.participation:g}, but n_agents is {self.n_agents}: ask "
                "no more agents than there are, or give a probability of at most 1",
                code="bad-participation",
            )
        if self.aggregation == "secure" and self.n_agents < FEWEST_SITES:
            raise InvalidSetting(
                f'aggregation="secure" needs at least {FEWEST_SITES} sites, but n_agents is '
                f"{self.n_agents}: with two sites, each could subtract its own share from the sum",
                code="too-few-sites",
            )
        if self.privacy is not None:
            check_privacy(self.privacy, self.n_agents)
            if not isinstance(self.privacy, dict):  # what was given is kept, if files can hold it
                object.__setattr__(self, "privacy", dict(self.privacy))
        refuse(self)

    def resolve(self, problem: ProblemSize) -> Parameters:
        """The numbers in force on a problem of this size."""
        tabular = self.exchange != "one-trip" or problem.states > 0
        refuse(
            self, data=problem.logged > 0, warm_start=problem.prior > 0.0,
            state_space="finite" if tabular else "continuous",
        )  # fmt: skip
        self._check_length(problem.episodes)
        shared, problem = problem.dim - self.own_features, self.pooled_size(self, problem)
        packing, stationary = self.packed(problem), self.pools(self, problem)
        numbers = self.width(self, problem) | self.threshold(self.n_agents, problem)
        p = Parameters(
            n_agents=self.n_agents,
            episodes=problem.episodes,
            horizon=problem.horizon,
            dim=shared,
            own_features=self.own_features,
            **numbers,
            value_range=self.value_range,
            preset=self.preset,
            overshoot=self.overshoot,
            packing=packing,
            cap=self.largest_growth(self),
            min_round=self.min_round,
            stationary=stationary,
            exploit=self._exploits,
            pessimism=self.pessimism,
            diversity=self.varied(self, problem),
            aggregation=self.aggregation,
            exchange=self.exchange,
            states=problem.states if self.exchange == "one-trip" else 0,
            participation=float(self.participation),
            present=self.present,
            logged=problem.logged,
            prior=problem.prior,
            after=problem.after if self.exchange == "one-trip" and problem.logged else 0.0,
            bonus="noise" if self._hears_noise(problem) else "constant",
        )
        if self.privacy is not None:
            return self._private(p, problem)
        tables = problem.states > 0 and not self.ends_are_public
        least = TABLE_ROUNDS if tables else FEWEST_ROUNDS
        p = replace(p, rounds=self.budget(self, p, least))
        if self.ends_are_public:
            unsaid = self.rounds is None and self.scalars is None
            most = min(p.rounds or PUBLIC_ROUNDS, PUBLIC_ROUNDS) if unsaid else p.rounds
            cap = None if self.gamma == "auto" else p.cap  # with γ = 1 it ends no round sooner
            p = replace(p, gamma=1.0, cap=cap, rounds=most)
        if p.aggregation != "float" and p.scale_bits < FEWEST_BITS:
            raise InvalidSetting(
                f'aggregation="{p.aggregation}" would leave {p.scale_bits} fractional bits '
                f"for {plural(p.n_agents, 'agent')}, {plural(p.episodes, 'episode')} and values "
                f"up to {p.largest_target:g}, but {FEWEST_BITS} are needed: use "
                'aggregation="float", or reduce one of these',
                code="too-few-bits",
            )
        return p

    def _hears_noise(self, problem: ProblemSize) -> bool:
        """Whether the bonus knows the noise of the targets. The noise of a private run, and targets
        of a model that was learned before, would pass for that of the world. A width that was
        asked for stays as it is."""
        if self.privacy is not None or problem.prior:
            return False
        own = self.beta is None and self.xi == 0.0 and not self.paper
        return self.bonus == "noise" or (self.bonus == "auto" and own)

    @property
    def ends_are_public(self) -> bool:
        """Whether rounds end on a schedule that is public before the run. With secure sums a signal
        would be all that a single site tells, so they do unless something else was chosen."""
        if self.privacy is not None:
            return True
        if self.overshoot != "cut" or (self.rounds == "off" and self.scalars is None):
            return False
        if self.gamma == 1.0:
            return isinstance(self.rounds, int) or self.scalars is not None
        unchosen = self.gamma == "auto" and self.cap is None and not self.paper
        return self.aggregation == "secure" and unchosen

    @property
    def _exploits(self) -> bool:
        """Whether a last pass makes the policy to use; "auto" where it costs nothing else."""
        usual = self.exchange == "stepwise" and not self.some_away and self.privacy is None
        return usual and not self.paper if self.policy == "auto" else self.policy == "exploit"

    def _check_length(self, episodes: int) -> None:
        """Refuse a run in which no round could end, or an episode that nobody would play."""
        if self.min_round > episodes:
            raise InvalidSetting(
                f"min_round = {self.min_round} is above episodes = {episodes}, so no round could "
                "end: give a smaller min_round",
                code="bad-min_round",
            )
        empty = None
        if self.present is not None:
            empty = deserted(self.n_agents, self.present, episodes)
        if empty is not None:
            raise InvalidSetting(
                f"present leaves no agent to play episode {empty:,}: every episode needs at least "
                "one",
                code="bad-present",
            )

    def floor(self, episodes: int) -> int:
        """The fewest episodes of a round; rounds of a private run begin longer."""
        if self.privacy is None:
            return self.min_round
        return max(self.min_round, math.ceil(episodes / FIRST_SHARE))

    def _private(self, p: Parameters, problem: ProblemSize) -> Parameters:
        """What a private run has in place of a trigger: rounds of public lengths."""
        privacy = check_privacy(self.privacy, self.n_agents)
        check_users(privacy, p.n_agents, p.episodes)
        rounds = self.rounds if isinstance(self.rounds, int) else PRIVATE_ROUNDS
        first = self.floor(p.episodes)
        p = replace(
            p, gamma=1.0, growth=0.0, cap=None, min_round=first, privacy=privacy,
            rounds=len(schedule(p.episodes, rounds, first)),
            nonnegative=problem.nonnegative or problem.one_hot,
        )  # fmt: skip
        p.check_release()
        release = p.release
        if release is None or not self.uses_theory(self):
            return p
        return replace(p, beta=p.beta + release.theory_width(p.lam, p.noise_times, p.confidence))


@dataclass(frozen=True)
class Parameters:
    """The numbers in force: M, T, H, d, γ, β, λ, ξ, how values are clipped and sent, what else
    ends a round (`core.trigger.Trigger`), whether β is taken off instead of added, how many
    episodes were logged before the first, what an earlier model counts, and how many features
    agents have coefficients of their own for, beside the d that they share."""

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
    after: float = 0.0
    bonus: Bonus = "constant"
    own_features: int = 0

    @property
    def own_dim(self) -> int:
        """The features of an agent: the d that all share, and its own."""
        return self.dim + self.own_features

    @property
    def pooled_dim(self) -> int:
        """The dimension of the regression: d, and each agent's own coefficients."""
        return self.dim + self.n_agents * self.own_features

    @property
    def fits(self) -> bool:
        """Whether agents say in the pass after the last round how well the model fits: where
        nothing hides what each of them sends, and the sums of a step come by themselves."""
        hidden = self.aggregation == "secure" or self.privacy is not None
        return self.exploit and self.exchange == "stepwise" and not hidden

    @property
    def noisy(self) -> bool:
        """Whether the bonus knows the noise of the targets."""
        return self.bonus == "noise"

    @property
    def columns(self) -> int:
        """Columns of a table of next states in one trip: S, and the end of logged episodes."""
        return self.states + (self.states > 0 and (self.logged > 0 or self.pessimistic))

    @property
    def release(self) -> PrivateRelease | None:
        """The noise of a private run; None elsewhere."""
        return None if self.privacy is None else _release(self)

    def release_number(self, t: int) -> int:
        """Which release of a private run ends with episode t, from 1 on; 0 is none. The round of
        the logs, which ends with t = 0, comes first."""
        k, logs = self.trigger.number(t), self.logged > 0
        return k + logs if k or (logs and t == 0) else 0

    @property
    def last_release(self) -> int:
        """The number of the pass after the last round, where it takes a release."""
        assert self.rounds is not None
        return self.rounds + (self.logged > 0) + 1

    def epsilon_spent(self, rounds: int, passed: bool) -> float | None:
        """ε at the δ that was set, after so many rounds, and the pass after the last one if it
        was there; None where no noise is added."""
        release = self.release
        return None if release is None else release.spent(rounds + (self.logged > 0) + passed)

    def check_release(self) -> None:
        """Refuse a private run that has too many rounds, or whose noise has no room beside its
        sums."""
        if self.rounds is not None and self.rounds > MOST_ROUNDS:
            raise InvalidSetting(
                f"rounds = {self.rounds:,} in a private run, which has at most {MOST_ROUNDS:,}, "
                "because noise of all earlier rounds is part of each: give a smaller number",
                code="bad-rounds",
            )
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
        return self.participation != 1.0 or self.present is not None

    @property
    def share(self) -> float:
        """About which share of MT episodes is played."""
        return expected_share(self.n_agents, self.participation, self.present, self.episodes)

    @property
    def signed_beta(self) -> float:
        """What ‖φ‖_{Λ⁻¹} is multiplied by: β, or −β where what was not seen is to be avoided."""
        return -self.beta if self.pessimistic else self.beta

    @property
    def head(self) -> Head:
        """What turns models into the values that agents follow."""
        return Head(self.signed_beta, self.ceilings, self.taper_factors, 0.0, self.noisy)

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
        Of a private run, its noise says how fine the grid has to be.

        In one trip what is sent is of one round alone, u and N in place of b. With many agents that
        matters: all round the same transition in the same direction, so that in K rounds an entry
        of Λ may be off by KM·2^-(s+1), and Λ by d times that, which must stay far below λ."""
        if self.release is not None:
            return self.release.bits
        usual = self._room_bits
        rounds = self.allowed_rounds(self.episodes)
        off = self.dim * rounds * rounding(usual, self.n_agents)
        if self.exchange != "one-trip" or self.logged or off <= FINE * self.lam:
            return usual
        terms = self.longest_round * (self.horizon // self.matrices)
        return scale_bits(self.n_agents * terms)

    @property
    def _room_bits(self) -> int:
        """The most bits after the point that sums leave room for."""
        seen = self.n_agents * (self.episodes + self.logged)
        terms = seen * (self.horizon // self.matrices)
        return scale_bits(terms * self.largest_target ** (2 if self.noisy else 1))

    @property
    def longest_round(self) -> int:
        """The most episodes of any round."""
        latest, trigger = self.episodes - 1, self.trigger
        most = max(math.ceil(min(trigger.threshold(t), self.episodes)) for t in (0, latest))
        if self.rounds is not None:
            points = schedule(self.episodes, self.rounds, self.min_round)
            most = max(most, int(np.diff(points, prepend=0).max()))
        # what would be left for a round that is too short belongs to the one before it
        return min(self.episodes, max(most, self.min_round) + self.min_round - 1)

    @property
    def trigger(self) -> Trigger:
        """When rounds end."""
        log_cap = math.inf if self.cap is None else math.log(self.cap)
        budget = self.min_round, self.rounds
        return Trigger(
            self.gamma, self.episodes, log_cap, *budget, self.growth, self.ends_are_public
        )

    @property
    def ends_are_public(self) -> bool:
        """Whether rounds end on a schedule that is public before the run: with γ = 1 every agent
        fires as soon as the budget lets a round end, whatever it has seen."""
        on_time = self.gamma == 1.0 and not self.growth and self.overshoot == "cut"
        return self.rounds is not None and on_time

    def proven_rounds(self, episodes: int) -> float:
        """The most rounds of Fed-LSVI's trigger in this many episodes: Theorem 3 and its variants,
        and one round per episode. Where all steps share a Gram matrix, one matrix has the data of
        all of them: (d/log 2)·log(1 + MTH/(λd)) in place of Theorem 3's. What was known before only
        makes ratios of determinants smaller; the round of logs is not counted."""
        each = self.horizon // self.matrices
        size = (self.pooled_dim, self.matrices, self.n_agents * each, episodes)
        if self.growth:
            proven = theory.rounds_bound_anytime(*size, self.growth, self.lam, self.cap)
        else:
            proven = theory.rounds_bound(*size, self.gamma, self.lam, self.cap)
        return max(1.0, min(proven, episodes))

    def most_rounds(self, episodes: int) -> float:
        """The most rounds in this many episodes: those, and what the settings allow."""
        return max(1.0, min(self.proven_rounds(episodes), self.allowed_rounds(episodes)))

    def allowed_rounds(self, episodes: int) -> float:
        """One round per `min_round` episodes, and the budget."""
        return min(episodes // self.min_round, math.inf if self.rounds is None else self.rounds)

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
        p.privacy["epsilon"], p.privacy["delta"], p.privacy["episodes_per_user"], _played_with(p),
        p.horizon, p.dim, p.columns, p.packing, p.stationary, p.nonnegative, p._room_bits,
    )  # fmt: skip
    if p.exchange == "one-trip":
        return _made_release(*known)
    return _made_stepwise(*known, p.targets, int(p.exploit))


def _played_with(p: Parameters) -> tuple[float, ...]:
    """(N,) episodes that are played with the sums of the first k releases; those after the last one
    count as many as were played before it, because a policy may be deployed with them."""
    assert p.rounds is not None
    lengths = np.diff(schedule(p.episodes, p.rounds, p.min_round), prepend=0).tolist()
    return tuple(float(n) for n in (*lengths[0 if p.logged > 0 else 1 :], lengths[-1]))


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
