"""What a run's own numbers say against its settings: a sentence each, with the setting to change.

A sentence appears where the numbers leave no reasonable doubt, and once: in the summary, in its
JSON and on the report's page (docs/troubleshooting.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedlsvi.core.model_fit import Shift, explained, shifted_agent, shifted_step
from fedlsvi.policy import Worth

SURE = 3.0
"""Standard errors by which measured returns must differ."""

LITTLE = 0.05
"""Share of the variance of targets that any features worth having explain."""

ONE_IN = 10
"""Episodes in which at least one reward was clipped on average, for it to be worth a word."""


@dataclass(frozen=True)
class Advice:
    """One sentence.

    Attributes:
        code: Stable, for programs.
        sentence: What was seen, and which setting to change.
    """

    code: str
    sentence: str


def below_random(worth: Mapping[str, Worth]) -> Advice | None:
    """Whether the learned policy earns less than random actions."""
    learned = worth.get("learned")
    reference = worth.get("uniform") or worth.get("random")
    if learned is None or reference is None or not _below(learned, reference):
        return None
    return Advice(
        "below-random",
        f"the learned policy is worse than random actions ({learned} against {reference} an "
        "episode), so do not use it: give features that tell good states from bad, set "
        "value_range= to the most that an episode can earn, or hold actions with repeat=",
    )


def above_value_range(
    worth: Mapping[str, Worth], value_range: float | None, ends: tuple[float, float]
) -> Advice | None:
    """Whether some policy earns more than `value_range` says that an episode can.

    Args:
        worth: Of policies, in the environment's own units.
        value_range: As set; None sets none.
        ends: What episodes of value 0 and 1 earn in these units.
    """
    if value_range is None:
        return None
    low, unit = ends[0], ends[1] - ends[0]
    most = Worth(low + unit * value_range * (1.0 + 1e-9))
    above = {name: value for name, value in worth.items() if _below(most, value)}
    if not above:
        return None
    name, best = max(above.items(), key=lambda item: item[1].mean)
    earned = (best.mean - low) / unit
    return Advice(
        "value-range-too-small",
        f"value_range is {value_range:g}, but an episode of the {name} policy earns {earned:.4g} "
        "in rewards mapped into [0, 1], and values above the range are cut off: set it to at "
        f"least {_rounded_up(earned):g}, or leave it out",
    )


def time_matters(fit: np.ndarray, ceilings: np.ndarray, one_hot: bool) -> Advice | None:
    """Whether one model of all steps misses the targets of some step.

    Args:
        fit: (M, H, 5) as in `core.model_fit`.
        ceilings: (H,) the largest values.
        one_hot: Whether every state and action has a coordinate of its own, so that nothing but
            time is left that a step may have and the model not.
    """
    shift = shifted_step(fit, ceilings)
    if shift is None:
        return None
    remedy = "set stationary=False, or put the time into the observation"
    if one_hot:
        remedy = f"time matters and the state does not show it, so {remedy}"
    else:
        remedy = (
            f"if time matters and the state does not show it, {remedy}; else give richer features"
        )
    off = _away(shift, "one model of all steps")
    return Advice("steps-differ", f"targets at step {shift.group} lie {off}: {remedy}")


def agents_differ(fit: np.ndarray, ceilings: np.ndarray) -> Advice | None:
    """Whether the common model misses the targets of some agent, likewise."""
    shift = shifted_agent(fit, ceilings)
    if shift is None:
        return None
    return Advice(
        "agents-differ",
        f"the targets of agent {shift.group} lie {_away(shift, 'the common model')}, so the "
        "agents' worlds differ: put what differs into the observation, let each agent have "
        "coefficients of its own for it (own_features=), or let such agents learn apart",
    )


def features_say_little(fit: np.ndarray, worth: Mapping[str, Worth]) -> Advice | None:
    """Whether the model explains next to nothing, and its policy is no better than random."""
    share, learned = explained(fit), worth.get("learned")
    reference = worth.get("uniform") or worth.get("random")
    if share is None or share >= LITTLE:
        return None
    if learned is not None and reference is not None and _below(reference, learned):
        return None
    return Advice(
        "features-say-little",
        f"the features explain {max(0.0, share):.1%} of how targets vary: unless outcomes are "
        "chance, they do not tell states apart, so try wider or narrower ones (bandwidth=, tiles=, "
        "order=) or others",
    )


def rewards_clipped(steps: int | None, clipped: int | None, horizon: int) -> Advice | None:
    """Whether so many rewards lay outside `reward_range` that a goal may be among them."""
    if not steps or not clipped or ONE_IN * clipped * horizon < steps:
        return None
    return Advice(
        "rewards-clipped",
        f"{clipped:,} of {steps:,} rewards lay outside reward_range and were clipped, so that what "
        "was learned may not be what you want: give a reward_range= that holds them all",
    )


def _away(shift: Shift, model: str) -> str:
    """How far from what a model expects, and how surely."""
    side = "above" if shift.mean > 0.0 else "below"
    return (
        f"{abs(shift.mean):.2g} {side} what {model} expects (values are at most {shift.most:.3g}; "
        f"{abs(shift.z):.0f} standard errors)"
    )


def _below(one: Worth, other: Worth) -> bool:
    """Whether one earns less, beyond what the episodes that measured them leave open."""
    if any(value.episodes == 1 for value in (one, other)):
        return False
    error = math.hypot(one.standard_error or 0.0, other.standard_error or 0.0)
    rounding = 1e-9 * max(1.0, abs(one.mean), abs(other.mean))
    return other.mean - one.mean > SURE * error + rounding


def _rounded_up(value: float) -> float:
    """The value with two digits, and not below it."""
    digits = 1 - math.floor(math.log10(value))
    scale = 10.0**digits
    return math.ceil(value * scale) / scale
