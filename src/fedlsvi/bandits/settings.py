"""Settings of a bandit, and what they become.

Constructors store what they are given, as scikit-learn wants it; `check` is called when learning
begins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Literal, Self

from fedlsvi.bandits.choice import Choice
from fedlsvi.checks import boolean, check_seed, choice, integer, number, refuse_unknown
from fedlsvi.config import FEWEST_SITES, Parameters
from fedlsvi.core.privacy_settings import FIRST_SHARE, PRIVATE_ROUNDS, check_privacy, check_users
from fedlsvi.core.trigger import schedule
from fedlsvi.errors import InvalidSetting
from fedlsvi.groups import Aggregation
from fedlsvi.incompatible import refuse

UNBOUNDED = 2**31
"""Rewards of all sites for which sums in integers have room, where `decisions` is left out."""

When = Literal["det", "log-det", "own"]


@dataclass(eq=False, repr=False)
class BanditSettings:
    """What a user asks of a bandit.

    Args:
        n_sites: M.
        arms: Their number, or their labels; None takes labels as they appear.
        alpha: What the width ‖φ‖_{Λ⁻¹} is multiplied by; of Thompson sampling, the posterior's
            standard deviation.
        lam: λ of the ridge.
        trigger: When to synchronise: "det", "log-det" or "own" (`fedlsvi.bandits.regression`).
        threshold: γ, D or α of the trigger; None is max(t/5, 1), 2 or 1/M², where t is how many
            rewards of a regression a site has sent on average.
        cap: c of "det", above 1: the growth of a determinant that is enough; None is none.
        fresh: Whether a site decides with what it has not sent yet, too.
        choice: "greedy", "softmax" or "thompson".
        temperature: τ of softmax.
        samples: Draws of Thompson sampling for each decision; 1 is the classical one, and more
            give useful propensities.
        least_probability: ε that every allowed arm has.
        aggregation: "float", "exact" (integers: no bit depends on order) or "secure" (the server
            sees sums over sites only).
        privacy: {"epsilon": …, "delta": …} of differential privacy of each decision, as for
            `FedLSVI`. Features need norm ≤ 1, rewards [0, 1], and `decisions` and `arms` are
            needed.
        decisions: T, the most rewards of a site, where sums in integers or privacy need to know.
        rounds: N, the synchronisations of a private run; None is 33.
        seed: The same seed gives the same choices.
    """

    n_sites: int = 1
    arms: int | Sequence[Any] | None = None
    alpha: float = 1.0
    lam: float = 1.0
    trigger: When = "det"
    threshold: float | None = None
    cap: float | None = None
    fresh: bool = False
    choice: Choice = "greedy"
    temperature: float = 0.1
    samples: int = 100
    least_probability: float = 0.0
    aggregation: Aggregation = "float"
    privacy: dict[str, Any] | None = None
    decisions: int | None = None
    rounds: int | None = None
    seed: int = 0

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def set_params(self, **settings: Any) -> Self:
        """Change settings; what was learned stays until the next `fit`."""
        refuse_unknown(f"setting of {type(self).__name__}", settings, self.get_params())
        for name, value in settings.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        usual = {f.name: f.default for f in fields(self) if f.default is not MISSING}
        shown = [f"{k}={v!r}" for k, v in self.get_params().items() if v is not usual.get(k)]
        return f"{type(self).__name__}({', '.join(shown)})"

    def check(self) -> None:
        """Refuse settings that are out of range, or that cannot be combined."""
        integer("n_sites", self.n_sites, 1)
        number("alpha", self.alpha, 0.0)
        number("lam", self.lam, 0.0, strict=True)
        choice("trigger", self.trigger, ("det", "log-det", "own"))
        if self.threshold is not None:
            least = 1.0 if self.trigger == "det" else 0.0
            number("threshold", self.threshold, least, "1 synchronises after every reward")
        if self.cap is not None:
            number("cap", self.cap, 1.0, strict=True)
        boolean("fresh", self.fresh)
        choice("choice", self.choice, ("greedy", "softmax", "thompson"))
        number("temperature", self.temperature, 0.0, strict=True)
        integer("samples", self.samples, 1)
        number("least_probability", self.least_probability, 0.0, most=1.0)
        choice("aggregation", self.aggregation, ("float", "exact", "secure"))
        if self.decisions is not None:
            integer("decisions", self.decisions, 1)
        if self.rounds is not None:
            integer("rounds", self.rounds, 1)
        check_seed(self.seed)
        refuse(self)
        if self.aggregation == "secure" and self.n_sites < FEWEST_SITES:
            raise InvalidSetting(
                f'aggregation="secure" needs at least {FEWEST_SITES} sites, but n_sites is '
                f"{self.n_sites}",
                code="too-few-sites",
            )
        if self.privacy is not None and self.decisions is None:
            raise InvalidSetting(
                "a private run ends its rounds on a public schedule: give decisions=, the most "
                "rewards of a site",
                code="bad-decisions",
            )

    def parameters(self, dim: int) -> Parameters:
        """The numbers in force: those of Fed-LSVI with H = 1."""
        M = self.n_sites
        p = Parameters(
            n_agents=M, episodes=self.decisions or UNBOUNDED // M, horizon=1, dim=dim,
            gamma=1.0, beta=self.alpha, lam=self.lam, xi=0.0, value_range=None, preset="practical",
            overshoot="keep", packing="packed", confidence=0.05,
            cap=self.cap if self.trigger == "det" else None,
            aggregation=self.aggregation, exchange="one-trip",
        )  # fmt: skip
        if self.privacy is None:
            return p
        return private(p, check_privacy(self.privacy, M), self.rounds)


def private(p: Parameters, privacy: dict[str, Any], rounds: int | None) -> Parameters:
    """The numbers of a private run: rounds of public lengths in place of a trigger."""
    check_users(privacy, p.n_agents, p.episodes)
    first = math.ceil(p.episodes / FIRST_SHARE)
    count = len(schedule(p.episodes, rounds or PRIVATE_ROUNDS, first))
    made = replace(p, cap=None, min_round=first, rounds=count, privacy=privacy)
    made.check_release()
    return made
