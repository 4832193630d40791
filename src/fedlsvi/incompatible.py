"""The one table of settings that cannot be combined, and why.

`refuse` is called wherever more of a run is known: when settings are given, when the problem is,
and when a federation says how absent sites are treated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from fedlsvi.errors import InvalidSetting


@dataclass(frozen=True)
class Combination:
    """What a run combines. What is not known yet keeps its default, with which nothing is refused.

    Attributes:
        gamma, cap, overshoot, min_round, rounds, scalars, policy, aggregation, exchange,
            participation, present, privacy, own_features: As in `FedLSVI`.
        data: Whether agents begin with logs.
        warm_start: Whether the run begins with an earlier model.
        allowed: Which actions are allowed: "all"; masks that some states have, "same" for all
            agents or not, "differ"; "reported" with each observation.
        state_space: "finite", "continuous", or "stepped": vectors that a black box gives.
        by_mail: Whether sites send one file each, and an episode has more than one step.
        absent, refused, suspicious: As in `remote.retry_policy`.
        trigger: As in `fedlsvi.bandits`.
    """

    gamma: Any = "auto"
    cap: Any = None
    overshoot: str = "cut"
    min_round: int = 1
    rounds: Any = None
    scalars: Any = None
    policy: str = "auto"
    aggregation: str = "float"
    exchange: str = "stepwise"
    participation: float = 1.0
    present: Any = None
    privacy: Any = None
    own_features: int = 0
    data: bool = False
    warm_start: bool = False
    allowed: Literal["all", "same", "differ", "reported"] = "all"
    state_space: Literal["finite", "continuous", "stepped"] = "finite"
    by_mail: bool = False
    absent: str = "fail"
    refused: str = "refuse"
    suspicious: str = "note"
    trigger: str = "det"

    @classmethod
    def of(cls, settings: Any, **facts: Any) -> Combination:
        """What these settings combine (other algorithms have fewer), and what else is known."""
        names = {own.name for own in fields(cls)}
        asked = {name: value for name, value in vars(settings).items() if name in names}
        return cls(**asked | facts)

    @property
    def away(self) -> bool:
        """Whether agents may be absent in a simulation."""
        return self.participation != 1.0 or self.present is not None

    @property
    def needs_all(self) -> bool:
        """Whether only the sum over all agents means anything."""
        return self.aggregation == "secure" or self.privacy is not None

    @property
    def carries_on(self) -> bool:
        """Whether a federation continues without a site that does not answer properly."""
        return self.absent not in ("wait", "fail") or self.refused != "refuse"

    @property
    def exploits(self) -> bool:
        """Whether a last pass for the policy to deploy was asked for."""
        return self.policy == "exploit"

    @property
    def one_trip(self) -> bool:
        """Whether a synchronisation is one upload."""
        return self.exchange == "one-trip"


@dataclass(frozen=True)
class Incompatibility:
    """A row of the table.

    Attributes:
        settings: What cannot be combined; alternatives are separated by a bar.
        when: Whether a run combines them.
        reason: Why not, as a clause.
        instead: What to do, as an imperative.
        code: The error's code.
        codes: Codes of single alternatives, where these have others.
    """

    settings: tuple[str, str]
    when: Callable[[Combination], Any]
    reason: str
    instead: str
    code: str
    codes: Mapping[str, str] = field(default_factory=dict)

    def error(self, run: Combination) -> InvalidSetting:
        """The refusal of this run, which names the alternatives that it has."""
        first, second = (self._given(names, run) for names in self.settings)
        code = self.codes.get(second[0], self.code)
        pair = " and ".join(_shown(run, names) for names in (first, second))
        return InvalidSetting(
            f"{pair} cannot be combined: {self.reason}. {self.instead[0].upper()}"
            f"{self.instead[1:]}",
            code=code,
        )

    def _given(self, names: str, run: Combination) -> list[str]:
        several = names.split("|")
        usual = {own.name: own.default for own in fields(run)}
        return [name for name in several if vars(run)[name] != usual[name]] or several


def _shown(run: Combination, names: list[str]) -> str:
    values = {name: vars(run)[name] for name in names}
    return ", ".join(
        f"{name}={value!r}".replace("'", '"') if type(value) in (str, int, float) else name
        for name, value in values.items()
    )


TABLE = (
    Incompatibility(
        ("gamma", "rounds|scalars|min_round"),
        lambda run: (
            run.gamma == "anytime"
            and (run.rounds not in (None, "off") or run.scalars is not None or run.min_round > 1)
        ),
        'gamma="anytime" does not use T, and a budget or a shortest round is spread over T',
        "leave out one or the other",
        "bad-gamma",
    ),
    Incompatibility(
        ("exchange", "scalars"),
        lambda run: run.one_trip and run.scalars is not None,
        'the messages of exchange="one-trip" hold the next states that were seen, so their size '
        "is not known beforehand",
        "use rounds= instead",
        "bad-scalars",
    ),
    Incompatibility(
        ("aggregation", "participation|present|absent|refused"),
        lambda run: run.aggregation == "secure" and (run.away or run.carries_on),
        "masks cancel only in the sum over all agents, so every agent is needed in every round",
        'use absent="wait" or "fail" and refused="refuse", leave out participation and present, '
        'or use aggregation="float" or "exact"',
        "bad-participation",
        {"absent": "bad-absent", "refused": "bad-absent"},
    ),
    Incompatibility(
        ("aggregation|privacy", "suspicious"),
        lambda run: run.needs_all and run.suspicious != "note",
        "masks and noise hide the differences between sites, so they cannot be compared",
        'use suspicious="note"',
        "bad-suspicious",
    ),
    Incompatibility(
        ("privacy", "aggregation"),
        lambda run: run.privacy is not None and run.aggregation == "float",
        "the low bits of floating-point numbers reveal what the noise hides",
        'use aggregation="secure" (sites share the noise), or "exact" (each agent adds all of it)',
        "privacy-needs-integers",
    ),
    Incompatibility(
        ("privacy", "gamma|cap|overshoot"),
        # γ = 1 is what is in force then: all agents end a round where the schedule allows it
        lambda run: (
            run.privacy is not None
            and (run.gamma not in ("auto", 1.0) or run.cap is not None or run.overshoot != "cut")
        ),
        "a private run ends its rounds on a public schedule, and these let the data decide",
        "leave them out, and set the number of rounds with rounds=",
        "privacy-needs-schedule",
    ),
    Incompatibility(
        ("privacy", "warm_start|own_features"),
        lambda run: run.privacy is not None and (run.warm_start or run.own_features),
        "a private run accounts for what one episode can change in the sums of its rounds: an "
        "earlier model was released besides, and where an agent eliminates coefficients of its "
        "own, one episode can change its sums by almost as much as all its others",
        "leave out one or the other",
        "bad-privacy",
    ),
    Incompatibility(
        ("trigger", "aggregation|privacy"),
        lambda run: run.trigger == "own" and run.needs_all,
        "a site that synchronises alone sends sums that no other site's hide, when its data decide",
        'use trigger="det" or "log-det", or aggregation="float" or "exact" without privacy',
        "bad-trigger",
    ),
    Incompatibility(
        ("data", "allowed"),
        lambda run: run.data and run.allowed == "reported",
        "V of a next state is the largest over its allowed actions, and an environment that gives "
        "a mask with each observation says none of the next states in a log",
        'leave out data, or allowed="env"',
        "masks-and-logs",
    ),
    Incompatibility(
        ("by_mail", "state_space"),
        lambda run: run.by_mail and run.state_space != "finite",
        "responses of step h contain V_{h+1}, which is known once the sums of step h + 1 of all "
        "sites are added. Where states are finite a table of next states takes their place; "
        "vectors take H exchanges, and a file is one",
        "number the states or cut them into bins, take horizon = 1, or run a federation",
        "mail-needs-states",
    ),
    Incompatibility(
        ("exchange", "state_space"),
        lambda run: run.one_trip and run.state_space != "finite",
        'exchange="one-trip" sends a table of next states, with a column for each state, so their '
        "number must be finite (n_states in federation.toml)",
        'give it, or use exchange="stepwise"',
        "one-trip-needs-states",
    ),
    Incompatibility(
        ("exchange", "allowed|own_features"),
        lambda run: run.one_trip and (run.allowed in ("differ", "reported") or run.own_features),
        'with exchange="one-trip" one V_{h+1} is applied to the next states of all agents '
        "together, so all must have the same: be allowed the same actions, and the server must "
        "know which, and keep no coefficients of their own",
        'give all agents the same mask and own_features=0, or use exchange="stepwise"',
        "one-trip-masks",
        {"own_features": "one-trip-own-features"},
    ),
)
"""Rows in the order in which they are checked."""


def rows() -> list[dict[str, str]]:
    """The table as text: what cannot be combined, why not, what to do instead, the error's code."""
    return [
        {
            "settings": " with ".join(names.replace("|", ", ") for names in row.settings),
            "reason": row.reason,
            "instead": row.instead,
            "code": row.code,
        }
        for row in TABLE
    ]


def refuse(settings: Any, **facts: Any) -> None:
    """Refuse what cannot be combined.

    Args:
        settings: Of the run: any object with fields of `Combination`.
        **facts: Other fields of `Combination`.

    Raises:
        InvalidSetting: With the code of the first row that applies.
    """
    run = Combination.of(settings, **facts)
    for row in TABLE:
        if row.when(run):
            raise row.error(run)
