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
from dataclasses import dataclass
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
    world = worlds[0]
    H, M, T = world.horizon, len(worlds), max(own.log.episodes for own in worlds)
    beta = beta_pessimistic(features.dim, H, M, T, confidence)
    plain, most, *bounds = Pass(), Pass(most=True), Pass(-beta), Pass(beta)
    drawn = [(Pass(draw=k), Pass(most=True, draw=k)) for k in range(repeats)]
    evaluation = Evaluation(
        policy, features, M, T, H, features.one_hot and hasattr(world, "n_states"), lam,
        value_range, stationary, seed,
        (plain, most, *bounds, *(one for both in drawn for one in both)),
    )  # fmt: skip
    site = EvaluationSite(evaluation, worlds)
    placed: Placed = _Here(site)
    if transport != "inprocess":
        placed = _place(transport)(evaluation, worlds, cohorts)
    try:
        ledgers, found = dict[Pass, Ledger](), dict[Pass, float]()
        for one in evaluation.passes:
            found[one], ledgers[one] = _evaluate(evaluation, one, placed)
    finally:
        placed.close()
    paid = [site.drawn_return(k) for k in range(repeats)]
    own = world.original
    earned = np.concatenate([log.earned for log in site.logs])
    importance, effective = _importance(site.logs)
    low = np.quantile([found[one] for one, _ in drawn], 0.025) if repeats else None
    high = np.quantile([found[one] for _, one in drawn], 0.975) if repeats else None
    below, above = np.quantile(paid, [0.025, 0.975]) if repeats else (None, None)
    return Estimate(
        value=float(own(found[plain])),
        low=None if low is None else float(own(low)),
        high=None if high is None else float(own(high)),
        unseen=float(own(found[most]) - own(found[plain])),
        pessimistic=float(own(found[bounds[0]])),
        optimistic=float(own(found[bounds[1]])),
        behaviour=float(own(earned.mean())),
        behaviour_low=None if below is None else float(own(below)),
        behaviour_high=None if above is None else float(own(above)),
        importance=None if importance is None else float(own(importance)),
        effective=effective,
        episodes=len(earned),
        ledger=ledgers[plain],
    )


def _evaluate(evaluation: Evaluation, one: Pass, placed: Placed) -> tuple[float, Ledger]:
    """The estimate of one pass, and what it sent."""
    p, transport = evaluation.parameters(one), placed.begin(one)
    server = Server(layout(p), p.lam, p.gamma, p.bonus, p.episodes)
    server.start(transport)
    server.round(transport)
    first = server.gram[0, 0] if evaluation.one_hot else server.gram[0, 0, 0]
    # the ridge of the step before the episode is taken off again: it is a mean
    return float(server.w[0, 0] * first / (first - p.lam)), transport.ledger


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
