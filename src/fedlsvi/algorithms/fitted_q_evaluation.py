"""What a policy is worth, from logs alone: linear fitted-Q evaluation, federated.

The regression is Fed-LSVI's with the maximum replaced by the policy π that is evaluated:

    w_h = Λ_h⁻¹ Σ φ(r + V_{h+1}(x')),
    V_h(x) = clip(φ(x, π_h(x))ᵀw_h + β‖φ(x, π_h(x))‖_{Λ_h⁻¹}, 0, H − h + 1)

with β = 0. Server, agents and messages are Fed-LSVI's with one round of H + 1 steps: the first is a
step before the episode whose only feature is e₁, so that its regression is the mean of V₁ over the
logged first states. What leaves a site are Gram matrices and response vectors, as ever.

What the logs do not show: the share λ‖φ‖²_{Λ⁻¹} of a feature was not seen (with one-hot features
λ/(n + λ) after n visits: 1 at none), and ridge regression gives it 0, the least that it can be
worth. A second recursion gives it the most,

    V_h(x) = clip(φᵀw_h + c_h·λ‖φ‖²_{Λ_h⁻¹}, 0, c_h),   c_h = H − h + 1 or the value range,

and the value lies between the two, up to noise. With one-hot features that is exact.

Two intervals. The bootstrap repeats both rounds with episodes drawn again at every site; each
repeat sends the same statistics. Its interval goes from the lower quantile of the first recursion
to the upper one of the second, so that it holds both noise and what was not seen. The bounds from Λ
are the recursion with −β and with +β: they hold with probability 1 − p at the theorem's β, and are
wide.

`stationary=True` lets the transitions of all steps count for each, where laws and rewards are the
same at every step; far less is then unseen.

Where the log has the chance with which the behaviour chose each action, weighted importance
sampling is a check that needs no features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from fedlsvi.algorithms.shared.evaluation_site import Evaluation, EvaluationSite, Pass, PolicyLog
from fedlsvi.checks import integer, number
from fedlsvi.config import PRACTICAL_LAM
from fedlsvi.core.theory import beta_pessimistic
from fedlsvi.envs.logged.world import LoggedWorld
from fedlsvi.errors import UnknownName
from fedlsvi.features.base import FeatureMap
from fedlsvi.policy import Policy
from fedlsvi.protocol.ledger import Ledger
from fedlsvi.protocol.server import Server
from fedlsvi.protocol.transport import InProcess, Transport, layout
from fedlsvi.registry import resolve

ENGINES = {"ray": "fedlsvi.remote.ray.evaluation:on_ray"}
"""Name → the function that places the sites of an evaluation."""


class Placed(Protocol):
    """The sites of an evaluation, wherever they are."""

    def begin(self, one: Pass) -> Transport:
        """A transport to them for one pass, with a ledger of its own."""
        ...

    def close(self) -> None:
        """Release what they hold."""
        ...


Place = Callable[[Evaluation, Sequence[LoggedWorld], int | None], Placed]
"""Places the sites: of an evaluation, with these logs, in so many cohorts."""


@dataclass(frozen=True)
class Estimate:
    """What a policy is worth, estimated from logs, in their own units.

    Attributes:
        value: Fitted-Q evaluation of the policy, with nothing for what was not seen.
        low, high: The 95 % bootstrap interval, with what was not seen at its least and at its most;
            None without repeats.
        unseen: How much higher the estimate is where what was not seen is worth the most.
        pessimistic, optimistic: Its bounds from Λ at the theorem's β.
        behaviour: Mean return of the logged episodes.
        behaviour_low, behaviour_high: Its 95 % interval, likewise.
        importance: Weighted importance sampling; None where the behaviour is not known.
        effective: Episodes that importance sampling effectively uses, (Σρ)²/Σρ².
        episodes: Logged episodes.
        ledger: What one evaluation sends.
    """

    value: float
    low: float | None
    high: float | None
    unseen: float
    pessimistic: float
    optimistic: float
    behaviour: float
    behaviour_low: float | None
    behaviour_high: float | None
    importance: float | None
    effective: float | None
    episodes: int
    ledger: Ledger

    def row(self) -> dict[str, Any]:
        """The numbers, ready for JSON."""
        return {key: own for key, own in vars(self).items() if key != "ledger"} | {
            "scalars": self.ledger.total
        }


def estimate_value(
    policy: Policy,
    worlds: Sequence[LoggedWorld],
    features: FeatureMap,
    *,
    lam: float = PRACTICAL_LAM,
    confidence: float = 0.05,
    value_range: float | None = None,
    stationary: bool = False,
    repeats: int = 100,
    seed: int = 0,
    transport: str | Place = "inprocess",
    cohorts: int | None = None,
) -> Estimate:
    """Evaluate a policy on logs that others recorded.

    Args:
        policy: The policy, of the logs' horizon.
        worlds: The logs, one for each agent.
        features: The bound feature map.
        lam: Ridge λ.
        confidence: p of the bounds from Λ.
        value_range: The largest return, where it is known to be below H.
        stationary: Use the transitions of all steps for each.
        repeats: Repeats of the bootstrap; 0 leaves it out.
        seed: Seed of the bootstrap.
        transport: "inprocess", "ray", or what places the sites. The passes travel as frames then;
            what the behaviour earned and importance sampling are computed here.
        cohorts: Number of shares of the agents, each in a process; None is the transport's.
    """
    integer("repeats", repeats, 0, "the bootstrap's repeats")
    number("lam", lam, 0.0, strict=True)
    world, T = worlds[0], max(own.log.episodes for own in worlds)
    evaluation = agreed(
        policy=policy, features=features, n_agents=len(worlds), episodes=T, horizon=world.horizon,
        dim=features.dim, one_hot=features.one_hot and hasattr(world, "n_states"),
        nonnegative=features.nonnegative, lam=lam, value_range=value_range, stationary=stationary,
        seed=seed, confidence=confidence, repeats=repeats,
    )  # fmt: skip
    site = EvaluationSite(evaluation, worlds)
    placed: Placed = _Here(site)
    if transport != "inprocess":
        placed = _place(transport)(evaluation, worlds, cohorts)
    try:
        found = {one: _evaluate(evaluation, one, placed) for one in evaluation.passes}
    finally:
        placed.close()
    for k in range(repeats):
        found[Pass(draw=k, behaviour=True)] = Found(site.drawn_return(k))
    earned = np.concatenate([log.earned for log in site.logs])
    found[Pass(behaviour=True)] = Found(float(earned.mean()), len(earned))
    importance, effective = _importance(site.logs)
    return _summary(found, repeats, world.original, importance, effective)


def agreed(*, confidence: float, repeats: int, **sizes: Any) -> Evaluation:
    """What all parties agree on before a policy is evaluated.

    Args:
        confidence: p of the bounds from Λ.
        repeats: Repeats of the bootstrap.
        sizes: The other fields of `Evaluation`.
    """
    d, H, M, T = (sizes[key] for key in ("dim", "horizon", "n_agents", "episodes"))
    beta = beta_pessimistic(d, H, M, T, confidence)
    passes = [Pass(), Pass(most=True), Pass(-beta), Pass(beta)]
    for k in range(repeats):
        passes += [Pass(draw=k), Pass(most=True, draw=k)]
    return Evaluation(**sizes, passes=tuple(passes))


def with_behaviour(evaluation: Evaluation) -> Evaluation:
    """The same with what the behaviour earned, where nobody has all the logs."""
    draws = sorted({one.draw for one in evaluation.passes if one.draw is not None})
    asked = [Pass(behaviour=True), *(Pass(draw=k, behaviour=True) for k in draws)]
    return replace(evaluation, passes=(*evaluation.passes, *asked))


def estimate_at_sites(
    evaluation: Evaluation, placed: Placed, original: Callable[[Any], Any]
) -> Estimate:
    """Evaluate a policy that the sites have, on logs that the sites have.

    Args:
        evaluation: What was agreed on, `with_behaviour`.
        placed: The sites.
        original: A return in the logs' own units.
    """
    found = {one: _evaluate(evaluation, one, placed) for one in evaluation.passes}
    repeats = sum(one.behaviour for one in found) - 1
    return _summary(found, repeats, original)


@dataclass(frozen=True)
class Found:
    """The mean that a pass ends with, over how many episodes, and what the pass sent."""

    mean: float
    episodes: int = 0
    ledger: Ledger | None = None


def _summary(
    found: dict[Pass, Found],
    repeats: int,
    original: Callable[[Any], Any],
    importance: float | None = None,
    effective: float | None = None,
) -> Estimate:
    """All passes in one."""

    def own(mean: float | None) -> float | None:
        return None if mean is None else float(original(mean))

    def quantile(level: float, **which: bool) -> float | None:
        means = [found[Pass(draw=k, **which)].mean for k in range(repeats)]
        return own(np.quantile(means, level)) if means else None

    beta = max(one.beta for one in found)
    plain, behaved = found[Pass()], found[Pass(behaviour=True)]
    assert plain.ledger is not None
    value = float(original(plain.mean))
    return Estimate(
        value=value,
        low=quantile(0.025),
        high=quantile(0.975, most=True),
        unseen=float(original(found[Pass(most=True)].mean)) - value,
        pessimistic=float(original(found[Pass(-beta)].mean)),
        optimistic=float(original(found[Pass(beta)].mean)),
        behaviour=float(original(behaved.mean)),
        behaviour_low=quantile(0.025, behaviour=True),
        behaviour_high=quantile(0.975, behaviour=True),
        importance=own(importance),
        effective=effective,
        episodes=behaved.episodes,
        ledger=plain.ledger,
    )


def _evaluate(evaluation: Evaluation, one: Pass, placed: Placed) -> Found:
    """The estimate of one pass, and what it sent."""
    p, transport = evaluation.parameters(one), placed.begin(one)
    server = Server(layout(p), p.lam, p.gamma, p.bonus, p.episodes)
    server.start(transport)
    server.round(transport)
    first = server.gram[0, 0] if evaluation.one_hot else server.gram[0, 0, 0]
    # the ridge of the step before the episode is taken off again: it is a mean
    seen = float(first - p.lam)
    return Found(float(server.w[0, 0] * first / seen), round(seen), transport.ledger)


def _place(transport: str | Place) -> Place:
    """What places the sites; imported when it is needed."""
    if not isinstance(transport, str):
        return transport
    if transport not in ENGINES:
        raise UnknownName("transport of an evaluation", transport, ["inprocess", *ENGINES])
    found: Place = resolve(ENGINES[transport])
    return found


class _Here:
    """All sites in this process."""

    def __init__(self, site: EvaluationSite) -> None:
        self.site = site

    def begin(self, one: Pass) -> Transport:
        cohort = self.site.cohort(one)
        return InProcess([cohort], cohort.trigger)

    def close(self) -> None:
        """Nothing is held."""


def _importance(logs: Sequence[PolicyLog]) -> tuple[float | None, float | None]:
    """Σρ·return/Σρ and (Σρ)²/Σρ² over all episodes."""
    ratio = np.concatenate([log.ratio for log in logs])
    if not all(log.known for log in logs) or not ratio.any():
        return None, (0.0 if all(log.known for log in logs) else None)
    earned = np.concatenate([log.earned for log in logs])
    return float(ratio @ earned / ratio.sum()), float(ratio.sum() ** 2 / (ratio @ ratio))
