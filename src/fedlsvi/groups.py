"""The settings of Fed-LSVI in groups, each of which documents, checks and resolves itself.

A group is a frozen dataclass. `config.Settings` has the fields of all of them, and the settings of
other algorithms those of some, so each setting is written once. `FedLSVI` takes a group as an
object (`trigger=TriggerSettings(gamma=50, min_round=10)`) or its fields as keywords.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Literal, get_args

from fedlsvi.checks import boolean, choice, finite, integer, number, plain
from fedlsvi.core import theory
from fedlsvi.core.statistics import PACKINGS, Packing
from fedlsvi.docstrings import parameter_texts
from fedlsvi.errors import InvalidSetting

Preset = Literal["practical", "paper"]
Overshoot = Literal["cut", "keep"]
Rounds = int | Literal["off"] | None
"""The most rounds of a run; None is what the preset makes of it."""
Aggregation = Literal["float", "exact", "secure"]
Exchange = Literal["stepwise", "one-trip"]
Bonus = Literal["noise", "constant"]

PRACTICAL_LAM = 0.001
"""λ of the practical preset: an unvisited direction is worth β/√λ ≈ 32β, six value ranges."""

ANYTIME = 8.0
"""κ of gamma="anytime": γ(t) = max(κt/(Md), 1)."""

PRACTICAL_DIVERSITY = 0.2
"""σ of the practical preset, where the world may repeat itself."""

FEWEST_ROUNDS = 40
"""Rounds that the practical preset allows at the least, whatever they send."""

TABLE_ROUNDS = 320
"""The same where states are finite and determinants end rounds: with fewer, what is seen in one
round is not used in time, and large tables are not learned (studies/grid.md). Elsewhere a round
takes a pass over the whole history."""

PRACTICAL_BETA = 0.25
"""β_h of the practical preset, in units of the value range that is left at step h."""


@dataclass(frozen=True)
class ProblemSize:
    """What the numbers in force depend on beside the settings.

    Attributes:
        episodes: T, per agent.
        horizon: H.
        dim: d, the dimension of the features.
        one_hot: Whether every φ(x,a) is a unit vector.
        pooled: How many agents' episodes one model is learned from; None is all of them. Only these
            can differ from one another, so only they widen β where ξ > 0.
        steady: Whether the environments say that nothing in them depends on the step; decides
            stationary="auto" of the practical preset.
        states: S, where states are finite; 0 elsewhere.
        repeats: Whether the environments say that episodes may repeat; decides diversity="auto" of
            the practical preset.
        logged: Episodes of the longest log that an agent begins with; 0 where none does.
        prior: ρ of a model that was learned before; 0 where there is none.
        nonnegative: Whether no feature is negative; private runs need less noise then.
        after: What every step after the end of a logged episode is worth, in [0, 1] as rewards.
    """

    episodes: int
    horizon: int
    dim: int
    one_hot: bool
    pooled: int | None = None
    steady: bool = False
    states: int = 0
    repeats: bool = False
    logged: int = 0
    prior: float = 0.0
    nonnegative: bool = False
    after: float = 0.0

    def __post_init__(self) -> None:
        integer("episodes", self.episodes, 1, "the number of episodes per agent")
        object.__setattr__(self, "episodes", int(self.episodes))


class SettingGroup:
    """The base of groups: making one checks it and every group that it consists of."""

    def __post_init__(self) -> None:
        for name, value in list(vars(self).items()):
            object.__setattr__(self, name, plain(value))
        self.check()

    def check(self) -> None:
        """Refuse values out of their range."""

    @classmethod
    def documented(cls) -> list[dict[str, Any]]:
        """Name, default and meaning of each of its settings."""
        texts: dict[str, str] = {}
        for documents in cls.__mro__:
            texts = parameter_texts(documents.__doc__) | texts
        return [
            {
                "name": own.name,
                "default": None if own.default is MISSING else own.default,
                "text": texts.get(own.name, ""),
            }
            for own in fields(cls)  # type: ignore[arg-type]
        ]


@dataclass(frozen=True)
class CommonSettings(SettingGroup):
    """What every algorithm has.

    Attributes:
        n_agents: M, the number of agents that learn together.
        value_range: The largest return of an episode, where it is known to be below H; in rewards
            that are mapped to [0, 1], not in the environment's own units.
        preset: "practical" learns, "paper" is the theorems' λ = 1, β and clip.
    """

    n_agents: int = 1
    value_range: float | None = None
    preset: Preset = "practical"

    def check(self) -> None:
        """The number of agents is positive, and so is the range."""
        super().check()
        integer("n_agents", self.n_agents, 1, "the number of agents")
        if self.value_range is not None:
            hint = "give the largest return of an episode, in rewards mapped to [0, 1]"
            number("value_range", self.value_range, 0.0, hint, strict=True)
        choice("preset", self.preset, get_args(Preset))

    @property
    def paper(self) -> bool:
        """Whether the preset is the paper's."""
        return self.preset == "paper"


@dataclass(frozen=True)
class TriggerSettings(SettingGroup):
    """When a round ends.

    Attributes:
        gamma: Trigger threshold γ ≥ 1; "auto" is max(T/(Md), 1), "anytime" grows with the episode,
            max(8t/(Md), 1), and needs no T. With aggregation="secure" and the practical preset
            "auto" is 1: rounds end on the schedule of the budget, so that signals say nothing.
        cap: A determinant that grew by this factor ends a round however short it is; "agents" is
            1 + 1/M, "off" is the paper's trigger. None is "off" for preset="paper" and where
            gamma is a number, and "agents" otherwise.
        min_round: No round has fewer episodes, and so no upload sums up fewer.
        rounds: No run has more rounds: early ones are short and later ones long; "off" sets no
            limit. None is what the raw data would pay for, but at least 320 where states are
            finite and 40 elsewhere, where gamma="auto" and the preset is practical (40 to 320 with
            aggregation="secure"), and "off" otherwise.
        scalars: No run sends more scalars in Fed-LSVI's messages; sets `rounds`.
        overshoot: "cut" drops episodes beyond the signal, "keep" keeps them (a world without undo).
    """

    gamma: float | Literal["auto", "anytime"] = "auto"
    cap: float | Literal["agents", "off"] | None = None
    min_round: int = 1
    rounds: Rounds = None
    scalars: int | None = None
    overshoot: Overshoot = "cut"

    def check(self) -> None:
        """γ and the cap are factors, the budgets are numbers."""
        super().check()
        if self.gamma not in ("auto", "anytime"):
            number("gamma", self.gamma, 1.0, 'gamma="auto" is max(T/(Md), 1)')
        if self.cap not in (None, "agents", "off"):
            hint = '"off" is the paper\'s trigger, "agents" is 1 + 1/M'
            number("cap", self.cap, 1.0, hint, strict=True)
        integer("min_round", self.min_round, 1, "the fewest episodes of a round")
        for name in ("rounds", "scalars"):
            if getattr(self, name) not in (None, "off" if name == "rounds" else None):
                integer(name, getattr(self, name), 1, f"the most {name} of the run")
        choice("overshoot", self.overshoot, get_args(Overshoot))

    def threshold(self, M: int, problem: ProblemSize) -> dict[str, float]:
        """γ, and how it grows."""
        d, growing = problem.dim, self.gamma == "anytime"
        given = isinstance(self.gamma, int | float)
        gamma = float(self.gamma) if given else theory.gamma_auto(M, d, problem.episodes)
        return {"gamma": gamma, "growth": ANYTIME / (M * d) if growing else 0.0}

    def is_eager(self, common: CommonSettings) -> bool:
        """Whether cap and budget are the practical preset's where they are left out: a γ that was
        chosen is the paper's trigger."""
        return not common.paper and self.gamma in ("auto", "anytime")

    def largest_growth(self, common: CommonSettings) -> float | None:
        """c of the trigger; None is the paper's."""
        cap = self.cap
        if cap is None:
            cap = "agents" if self.is_eager(common) else "off"
        known = {"agents": 1.0 + 1.0 / common.n_agents, "off": None}
        return known[cap] if isinstance(cap, str) else cap

    def budget(self, common: CommonSettings, p: Any, least: int) -> int | None:
        """The most rounds that `rounds` and `scalars` allow together, beside the one of the logs;
        without these, of the eager trigger, what the raw data would pay for.

        Args:
            common: Of the run.
            p: `config.Parameters` without a budget.
            least: Rounds that are allowed whatever they send, unless something was set.
        """
        budgets = [self.rounds] if isinstance(self.rounds, int) else []
        eager = self.is_eager(common) and self.gamma == "auto"
        size = (p.dim, p.horizon, p.n_agents)
        how: dict[str, Any] = {"stationary": p.stationary, "noisy": p.noisy}
        if self.rounds is None and self.scalars is None and eager:
            how |= {"exploit": p.exploit, "fits": p.fits}
            return theory.rounds_paid(*size, p.episodes, p.packing, least, **how)
        if self.scalars is not None:
            first = theory.scalars_total(*size, p.packing, int(p.logged > 0), 0, **how)
            if p.aggregation == "secure":  # as if every agent were a site
                first += theory.scalars_keys(p.n_agents)
            first += theory.scalars_exploit(*size, fits=p.fits) if p.exploit else 0
            each = theory.scalars_per_round(*size, p.packing, p.n_agents, **how)
            if p.some_away:  # at worst all agents are new in every round
                model = theory.scalars_total(*size, p.packing, 0, 0, stationary=p.stationary)
                first, each = first if p.logged else first - model, each + model
            if self.scalars < first + each:
                raise InvalidSetting(
                    f"scalars = {self.scalars:,} is too small for one round: the start and the "
                    f"end of a run take {first:,} and a round takes up to {each:,}",
                    code="bad-scalars",
                )
            budgets.append((self.scalars - first) // each)
        return min(budgets, default=None)


@dataclass(frozen=True)
class StationarySettings(SettingGroup):
    """Whether steps share a model.

    Attributes:
        stationary: True learns from the data of all steps together, where laws and rewards are the
            same at every step: one Gram matrix, sent once. "auto" asks the environment, and is
            False in the paper's preset.
    """

    stationary: bool | Literal["auto"] = "auto"

    def check(self) -> None:
        """Yes, no, or the environment's word."""
        super().check()
        if self.stationary != "auto":
            boolean("stationary", self.stationary, '"auto" asks the environment')

    def pools(self, common: CommonSettings, problem: ProblemSize) -> bool:
        """Whether one model has the data of all steps."""
        if self.stationary == "auto":
            return problem.steady and not common.paper
        return self.stationary


@dataclass(frozen=True)
class OwnFeaturesSettings(SettingGroup):
    """Which features agents keep coefficients of their own for.

    Attributes:
        own_features: How many of the last features each agent has coefficients of its own for,
            where agents differ in what these stand for; the other coefficients all share. Own ones
            are eliminated from what an agent sends and never leave it. Run.policy then has the
            shared ones alone, and Run.agent_policies each agent's.
    """

    own_features: int = 0

    def check(self) -> None:
        """A number of features."""
        super().check()
        integer("own_features", self.own_features, 0, "how many of the last features")

    def pooled_size(self, common: CommonSettings, problem: ProblemSize) -> ProblemSize:
        """The problem in the features (φ_s, φ_o ⊗ e_m) of the pooled regression."""
        k = self.own_features
        if k == 0:
            return problem
        if k >= problem.dim:
            raise InvalidSetting(
                f"own_features = {k}, but there are {problem.dim} features: leave at least one "
                "that agents share, or let each learn alone",
                code="bad-own_features",
            )
        return replace(problem, dim=problem.dim - k + common.n_agents * k, one_hot=False)


@dataclass(frozen=True)
class RegressionSettings(SettingGroup):
    """The numbers of the regression and of its confidence.

    Attributes:
        beta: Bonus scale β; None takes the preset's, "theory" the theorems'.
        lam: Ridge λ > 0; None takes the preset's.
        confidence: p of the theorems.
        c_beta: The constant c of the theorems' β.
    """

    beta: float | Literal["theory"] | None = None
    lam: float | None = None
    confidence: float = 0.05
    c_beta: float = 1.0

    def check(self) -> None:
        """β ≥ 0, λ > 0, a probability."""
        super().check()
        if self.beta is not None and self.beta != "theory":
            number("beta", self.beta, 0.0, 'leave it out, or give "theory"')
        if self.lam is not None:
            number("lam", self.lam, 0.0, "lam=1 is the paper's", strict=True)
            if not finite(1.0 / self.lam):
                raise InvalidSetting(
                    f"lam is {self.lam!r}, so 1/lam overflows: use a larger lam", code="bad-lam"
                )
        number("c_beta", self.c_beta, 0.0, "the constant of the theorems' beta", strict=True)
        hint = "the theorems hold with probability 1 − 2·confidence"
        number("confidence", self.confidence, 0.0, hint, most=1.0, strict=True)


@dataclass(frozen=True)
class WidthSettings(RegressionSettings):
    """How wide confidence is at each step, and where agents differ.

    Attributes:
        taper: True makes β shrink with the remaining value range, β_h = β·v_h/v_1 with
            v_h = min(H − h + 1, value_range); False has it the same at every step. "auto" is True
            where β is the practical preset's own.
        xi: How far the agents' MDPs may be from one linear MDP; widens β as in Theorem 2.
    """

    taper: bool | Literal["auto"] = "auto"
    xi: float = 0.0

    def check(self) -> None:
        """ξ is a distance between laws."""
        super().check()
        number("xi", self.xi, 0.0, "xi=0 if all agents share one linear MDP", most=1.0)
        if self.taper != "auto":
            boolean("taper", self.taper, '"auto" is the preset\'s value')

    def uses_theory(self, common: CommonSettings) -> bool:
        """Whether β is the theorems'."""
        return self.beta == "theory" or (self.beta is None and common.paper)

    def width(self, common: CommonSettings, problem: ProblemSize) -> dict[str, Any]:
        """β, λ and whether β is tapered."""
        M, H, d, T = common.n_agents, problem.horizon, problem.dim, problem.episodes
        pooled = M if problem.pooled is None else problem.pooled
        seen, own = T + problem.logged, self.beta is None and not common.paper
        if self.uses_theory(common):
            beta = theory.beta_theory(d, H, M, seen, self.xi, self.confidence, self.c_beta, pooled)
        elif own:
            top = float(H) if common.value_range is None else min(float(H), common.value_range)
            width = theory.misspecification_width(d, H, pooled, seen, self.xi)
            beta = PRACTICAL_BETA * top + width
        else:
            beta = float(self.beta)  # type: ignore[arg-type]
        if not finite(beta):
            raise InvalidSetting(
                f"beta would be {beta} at confidence={self.confidence!r} and "
                f"c_beta={self.c_beta!r}: give a larger confidence or a smaller c_beta",
                code="bad-beta",
            )
        lam = self.lam if self.lam is not None else (1.0 if common.paper else PRACTICAL_LAM)
        return {
            "beta": float(beta),
            "lam": float(lam),
            "taper": own if self.taper == "auto" else self.taper,
            "xi": self.xi,
            "confidence": self.confidence,
        }


@dataclass(frozen=True)
class NoiseSettings(SettingGroup):
    """Whether the bonus knows the noise.

    Attributes:
        bonus: "noise" lowers the bonus where targets scatter less than they may, which two more
            numbers per agent and step tell; it is never more than β times the width. "constant" is
            β times the width, as are runs with privacy or warm_start. "auto" is "noise" where β is
            the practical preset's own and xi is 0.
    """

    bonus: Bonus | Literal["auto"] = "auto"

    def check(self) -> None:
        """One of three words."""
        super().check()
        choice("bonus", self.bonus, ("auto", *get_args(Bonus)))


@dataclass(frozen=True)
class BonusSettings(WidthSettings, NoiseSettings):
    """The bonus: how large it is, whom it is varied for, and when it is left out.

    Attributes:
        diversity: σ: in every episode each agent's bonus varies by this share, by keyed draws, so
            that agents do not all do the same where the world leaves nothing to chance; 0 is one
            policy for all. "auto" is .2 in the practical preset where the environment may repeat
            itself: it is stepped, or its table has no chance in it.
        policy: What `run.policy` is. "exploit": the policy of one more backward pass, without the
            bonus, which ends the run; "explore": the one that agents would follow next. "auto"
            exploits in the practical preset.
        pessimism: b ≥ 0: that pass subtracts b times the width, a lower confidence bound.
    """

    diversity: float | Literal["auto"] = "auto"
    policy: Literal["auto", "exploit", "explore"] = "auto"
    pessimism: float = 0.0

    def check(self) -> None:
        """Shares are shares."""
        super().check()
        choice("policy", self.policy, ("auto", "exploit", "explore"))
        number("pessimism", self.pessimism, 0.0, "0 takes the estimates as they are")
        if self.diversity != "auto":
            hint = "with 0 all agents follow one policy; 0.2 varies the bonus by a fifth"
            number("diversity", self.diversity, 0.0, hint, most=1.0)

    def varied(self, common: CommonSettings, problem: ProblemSize) -> float:
        """σ in force."""
        if self.diversity == "auto":
            return PRACTICAL_DIVERSITY if problem.repeats and not common.paper else 0.0
        return float(self.diversity)


@dataclass(frozen=True)
class PackingSettings(SettingGroup):
    """How Gram matrices travel.

    Attributes:
        packing: How Gram matrices travel: "packed" d(d+1)/2, "dense" d², "diagonal" d; "auto" is
            diagonal for one-hot features and packed otherwise.
    """

    packing: Packing | Literal["auto"] = "auto"

    def check(self) -> None:
        """It is a known one."""
        super().check()
        choice("packing", self.packing, ("auto", *PACKINGS))

    def packed(self, problem: ProblemSize) -> Packing:
        """How Gram matrices travel here."""
        if self.packing == "auto":
            return "diagonal" if problem.one_hot else "packed"
        if self.packing == "diagonal" and not problem.one_hot:
            raise InvalidSetting(
                'packing="diagonal" needs one-hot features that all agents share, but these are '
                'not: use packing="auto"',
                code="bad-packing",
            )
        return self.packing


@dataclass(frozen=True)
class ExchangeSettings(PackingSettings):
    """What agents and server send each other.

    Attributes:
        aggregation: How the server adds what agents send: "float" adds doubles, "exact" integers
            in fixed point, "secure" the same integers behind masks that cancel in the sum, so that
            it learns the sum of at least three sites and nothing else.
        exchange: "stepwise" asks agents once for each step, as the paper does; "one-trip" once for
            each synchronisation, for which they send tables of next states (finite states only).
    """

    aggregation: Aggregation = "float"
    exchange: Exchange = "stepwise"

    def check(self) -> None:
        """Each is one of a few words."""
        super().check()
        choice("aggregation", self.aggregation, get_args(Aggregation))
        choice("exchange", self.exchange, get_args(Exchange))


@dataclass(frozen=True)
class PresenceSettings(SettingGroup):
    """Who takes part in which rounds of a simulation.

    Attributes:
        participation: The probability with which an agent takes part in a round, or from 2 on how
            many agents are asked in each; who is away neither plays nor sends, and its last
            response is carried.
        present: [agent, first, last] for each stay of an agent that joins late, leaves or comes
            back: it takes part in rounds that begin with episodes first to last. Agents without an
            entry are always there.
    """

    participation: float = 1.0
    present: list[list[int]] | None = None

    def check(self) -> None:
        """A probability above 0 or a whole number, and stays that end after they began."""
        super().check()
        hint = "the probability that an agent takes part in a round, or how many are asked, from 2"
        number("participation", self.participation, 0.0, hint)
        if self.participation > 1.0 and self.participation != int(self.participation):
            raise InvalidSetting(
                f"participation is {self.participation!r}: give {hint}", code="bad-participation"
            )
        if self.participation <= 0.0:
            raise InvalidSetting(
                "participation is 0, so no agent would ever play: give a number above 0",
                code="bad-participation",
            )
        if self.present is not None:
            checked = stays(self.present)
            if checked != self.present:
                object.__setattr__(self, "present", checked)

    @property
    def some_away(self) -> bool:
        """Whether agents may be away in some rounds (`core.participation_schedule`)."""
        return self.participation != 1.0 or self.present is not None


def stays(present: Any) -> list[list[int]]:
    """When agents are there, as a list of [agent, first, last]."""
    hint = "give a list of [agent, first episode, last episode], one entry per stay"
    if not isinstance(present, list | tuple) or not present:
        raise InvalidSetting(f"present is {present!r}: {hint}", code="bad-present")
    rows = []
    for stay in present:
        if not isinstance(stay, list | tuple) or len(stay) != 3:
            raise InvalidSetting(f"present has the entry {stay!r}: {hint}", code="bad-present")
        agent, first, last = stay
        integer("present", agent, 0, f"agents are numbered from 0; {hint}")
        integer("present", first, 1, f"episodes are numbered from 1; {hint}")
        integer("present", last, first, f"the last episode must not come before the first; {hint}")
        rows.append([int(agent), int(first), int(last)])
    return rows


@dataclass(frozen=True)
class PrivacySettings(SettingGroup):
    """Differential privacy of all that leaves the agents together; `core.privacy_settings` checks.

    Attributes:
        privacy: {"epsilon": ε, "delta": δ} makes all that leaves the agents together
            (ε, δ)-differentially private: noise inside the sums, rounds of public lengths. "unit"
            is "episode", or "user" with "episodes_per_user"; "colluders" are sites whose noise does
            not count; "public_features" says that fitted features were made from public states.
            Needs aggregation "secure" or "exact"; exchange="one-trip" takes less noise.
    """

    privacy: Mapping[str, Any] | None = None


def flat(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by name, from keywords of which some are groups.

    Raises:
        InvalidSetting: A setting is in a group and among the keywords, with another value.
    """
    settings = {name: value for name, value in given.items() if not _is_group(name, value)}
    for name, group in given.items():
        if not _is_group(name, group) or group is None:
            continue
        for own in fields(group):
            value = getattr(group, own.name)
            if settings.get(own.name, own.default) not in (own.default, value):
                raise InvalidSetting(
                    f"{own.name} is given in {name}= and beside it: give it once",
                    code="setting-twice",
                )
            if value != own.default:
                settings[own.name] = value
    return settings


def _is_group(name: str, value: Any) -> bool:
    return isinstance(value, SettingGroup) or (value is None and name in GROUPS)


GROUPS: dict[str, type[SettingGroup]] = {
    "trigger": TriggerSettings,
    "presence": PresenceSettings,
}
"""Keywords of `FedLSVI` that take nothing but a group; `exchange` and `bonus` take one too."""
