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
to the upper one of the second, so that it holds both noise and what was not seen. Of B repeats the
p-quantile is the one of rank p(B + 1), which a new draw is below with probability p ("weibull");
of fewer than 39 repeats, Student's t times their standard deviation.
Draws from n of a site's own episodes vary less than new ones by (n − 1)/n; over M sites with N
episodes together this is (N − M)/N, so distances from the estimate are multiplied by √(N/(N − M)).
The bounds from Λ are the recursion with −β and with +β: they hold with probability 1 − p at the
theorem's β, and are wide. Nothing leaves [0, c₁], in the logs' own units.

`stationary=True` lets the transitions of all steps count for each, where laws and rewards are the
same at every step; far less is then unseen.

Where the log has the chance with which the behaviour chose each action, weighted importance
sampling is a check that needs no features, and the doubly robust estimate (`doubly_robust`)
corrects the first recursion by what the logs say of its errors. Their intervals come from the same
repeats, and hold noise alone; where neither can be used, the estimate says why.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.special import stdtrit

from fedlsvi.algorithms.shared.evaluation_site import Evaluation, EvaluationSite, Pass
from fedlsvi.algorithms.shared.policy_log import Decides
from fedlsvi.checks import integer, number, plural
from fedlsvi.config import cohort_count
from fedlsvi.core.blas import one_blas_thread
from fedlsvi.core.privacy_settings import check_privacy
from fedlsvi.core.theory import beta_pessimistic
from fedlsvi.errors import InvalidSetting, UnknownName
from fedlsvi.features.base import FeatureMap
from fedlsvi.groups import PRACTICAL_LAM, Aggregation
from fedlsvi.logs.world import LoggedWorld
from fedlsvi.protocol.ledger import Ledger
from fedlsvi.protocol.passes import connect, in_process
from fedlsvi.protocol.private_steps import PrivateSteps
from fedlsvi.protocol.transport import Transport
from fedlsvi.registry import resolve

ENGINES = {"ray": "fedlsvi.remote.ray.evaluation:on_ray"}
"""Name → the function that places the sites of an evaluation."""

REPEATS = 500
"""Repeats of the bootstrap; with fewer the interval is of another width every time."""

SLACK = 1e-9
"""What rounding may add to a return, of the value range."""


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
            None of fewer than two repeats, where every log has a single episode, and of a private
            estimate.
        unseen: How much higher the estimate is where what was not seen is worth the most.
        pessimistic, optimistic: Its bounds from Λ at the theorem's β; None of a private estimate.
        behaviour: Mean return of the logged episodes.
        behaviour_low, behaviour_high: Its 95 % interval, likewise.
        importance: Weighted importance sampling; None where it cannot be used.
        importance_low, importance_high: Its 95 % bootstrap interval; None where there is none, and
            where some repeats have no episode that does what the policy does.
        robust: The doubly robust estimate; None where importance sampling cannot be used.
        robust_low, robust_high: Its 95 % bootstrap interval, of noise alone.
        effective: Episodes that importance sampling effectively uses, (Σρ)²/Σρ².
        importance_missing: Why neither of the two can be used; None where they can.
        episodes: Logged episodes.
        ledger: What one evaluation sends.
        epsilon, delta: What a private estimate spent; None of others.
    """

    value: float
    low: float | None
    high: float | None
    unseen: float
    pessimistic: float | None
    optimistic: float | None
    behaviour: float
    behaviour_low: float | None
    behaviour_high: float | None
    importance: float | None
    importance_low: float | None
    importance_high: float | None
    robust: float | None
    robust_low: float | None
    robust_high: float | None
    effective: float | None
    importance_missing: str | None
    episodes: int
    ledger: Ledger
    epsilon: float | None = None
    delta: float | None = None

    def row(self) -> dict[str, Any]:
        """The numbers, ready for JSON."""
        numbers = {key: value for key, value in vars(self).items() if key != "ledger"}
        return numbers | {"scalars": self.ledger.total}


def estimate_value(
    policy: Decides,
    worlds: Sequence[LoggedWorld],
    features: FeatureMap,
    *,
    lam: float = PRACTICAL_LAM,
    confidence: float = 0.05,
    value_range: float | None = None,
    stationary: bool = False,
    repeats: int = REPEATS,
    seed: int = 0,
    aggregation: Aggregation = "float",
    privacy: Mapping[str, Any] | None = None,
    min_round: int = 1,
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
        value_range: The largest return, where it is known to be below H; in rewards that are
            mapped to [0, 1]. No estimate is above it.
        stationary: Use the transitions of all steps for each.
        repeats: Repeats of the bootstrap; fewer than 2 leave the interval out.
        seed: Seed of the bootstrap.
        aggregation: How sums are added, as in `FedLSVI`: "float", "exact" or "secure".
        privacy: A budget of differential privacy for all of the estimate, as in `PEVI`. It has no
            interval and no bounds: each would spend as much again. Where the policy was learned
            from the same records, `core.privacy_accountant.composed` has what both spend together.
        min_round: A step that fewer episodes of a log reached is left out of that agent's sums.
        transport: "inprocess", "ray", or what places the sites. The passes travel as frames then;
            what the behaviour earned and importance sampling are computed here.
        cohorts: Number of shares of the agents, each in a process; None is the transport's.
    """
    integer("repeats", repeats, 0, "the bootstrap's repeats")
    number("lam", lam, 0.0, strict=True)
    if value_range is not None:
        number("value_range", value_range, 0.0, strict=True)
    world, T = worlds[0], max(own.log.episodes for own in worlds)
    integer("min_round", min_round, 1, "the fewest episodes behind a step's sums", most=T)
    evaluation = agreed(
        policy=policy, features=features, n_agents=len(worlds), episodes=T, horizon=world.horizon,
        dim=features.dim, one_hot=features.one_hot and world.finite,
        nonnegative=features.nonnegative, lam=lam, value_range=value_range, stationary=stationary,
        seed=seed, confidence=confidence, repeats=repeats, aggregation=aggregation,
        privacy=privacy, min_round=min_round,
    )  # fmt: skip
    with one_blas_thread():
        site = EvaluationSite(evaluation, worlds)
        _check_returns(site.earned, evaluation, world.original)
        draws = evaluation.draws
        drawn = None
        if transport == "inprocess":
            here = InProcessSites(site, cohorts)
            passes = [one for one in evaluation.passes if one.draw is None]
            found = {one: _evaluate(evaluation, one, here) for one in passes}
            drawn = site.repeats(draws)
            for k, least, most in zip(draws, *drawn[:2].tolist(), strict=True):
                found |= {Pass(draw=k): Found(least), Pass("most", k): Found(most)}
        else:
            placed = _place(transport)(evaluation, worlds, cohorts)
            try:
                found = {one: _evaluate(evaluation, one, placed) for one in evaluation.passes}
            finally:
                placed.close()
        if evaluation.privacy is not None:
            return _summary(evaluation, found, world.original, Importance(missing=PRIVATE))
        for k, mean in zip(draws, site.drawn_returns(draws).tolist(), strict=True):
            found[Pass("behaviour", k)] = Found(mean)
        importance = _importance(site, draws, drawn)
    found[Pass("behaviour")] = Found(float(site.earned.mean()), len(site.earned))
    return _summary(evaluation, found, world.original, importance)


def _check_returns(
    earned: np.ndarray, evaluation: Evaluation, original: Callable[[Any], Any]
) -> None:
    """Refuse a value range that the logs themselves leave."""
    top, most = float(evaluation.ceilings[0]), float(earned.max())
    if most > top * (1.0 + SLACK):
        raise InvalidSetting(
            f"value_range is {top:g}, but an episode of the logs earned {most:g} in rewards mapped "
            f"to [0, 1] ({original(most):g} in its own units)",
            code="bad-value_range",
            hint="give a value_range that no return is above, or leave it out",
            shell_hint="give --value-range V that no return is above",
        )


def agreed(
    *, confidence: float, repeats: int, privacy: Mapping[str, Any] | None = None, **sizes: Any
) -> Evaluation:
    """What all parties agree on before a policy is evaluated.

    Args:
        confidence: p of the bounds from Λ.
        repeats: Repeats of the bootstrap.
        privacy: What a private estimate may spend; it takes no more passes than it must.
        sizes: The other fields of `Evaluation`.
    """
    d, H, M, T = (sizes[key] for key in ("dim", "horizon", "n_agents", "episodes"))
    beta = beta_pessimistic(d, H, M, T, confidence)
    if privacy is not None:
        private = check_privacy(privacy, M)
        passes = [Pass(), Pass("most"), Pass("behaviour")]
        return Evaluation(**sizes, beta=beta, passes=tuple(passes), privacy=private)
    passes = [Pass(), Pass("most"), Pass("lower"), Pass("upper")]
    for k in range(repeats):
        passes += [Pass(draw=k), Pass("most", k)]
    return Evaluation(**sizes, beta=beta, passes=tuple(passes))


def with_behaviour(evaluation: Evaluation) -> Evaluation:
    """The same with what the behaviour earned, where nobody has all the logs."""
    asked = [Pass("behaviour"), *(Pass("behaviour", k) for k in evaluation.draws)]
    passes = evaluation.passes
    return replace(evaluation, passes=(*passes, *(one for one in asked if one not in passes)))


def estimate_at_sites(
    evaluation: Evaluation, placed: Placed, original: Callable[[Any], Any]
) -> Estimate:
    """Evaluate a policy that the sites have, on logs that the sites have.

    Args:
        evaluation: What was agreed on, `with_behaviour`.
        placed: The sites.
        original: A return in the logs' own units.
    """
    with one_blas_thread():
        found = {one: _evaluate(evaluation, one, placed) for one in evaluation.passes}
    why = AT_SITES if evaluation.privacy is None else PRIVATE
    return _summary(evaluation, found, original, Importance(missing=why))


NO_DRAWS = np.empty((2, 0))
"""Of an estimate without repeats of the bootstrap."""


@dataclass(frozen=True)
class Found:
    """The mean that a pass ends with, over how many episodes, and what the pass sent."""

    mean: float
    episodes: int = 0
    ledger: Ledger | None = None


class Importance(NamedTuple):
    """What needs ρ of single episodes: Σρ·return/Σρ, (Σρ)²/Σρ² and the doubly robust estimate, both
    estimates in each repeat of the bootstrap too; or why there is none."""

    value: float | None = None
    effective: float | None = None
    robust: float | None = None
    drawn: np.ndarray = NO_DRAWS
    """(2, K) of importance sampling, and doubly robust."""
    missing: str | None = None


AT_SITES = "it needs a number of every single episode, which do not leave the sites"
PRIVATE = "it needs a number of every single episode, and the estimate is private"


def _summary(
    evaluation: Evaluation,
    found: dict[Pass, Found],
    original: Callable[[Any], Any],
    importance: Importance,
) -> Estimate:
    """All passes in one, each within what returns can be, in the logs' own units."""
    top = float(evaluation.ceilings[0])
    draws = evaluation.draws

    def in_range(mean: float) -> float:
        return float(original(min(max(float(mean), 0.0), top)))

    plain, behaved = found[Pass()], found[Pass("behaviour")]
    spare = behaved.episodes - evaluation.n_agents

    def spread(means: np.ndarray, level: float, centre: float | None) -> float | None:
        if centre is None or len(means) < 2 or spare < 1 or not np.isfinite(means).all():
            return None
        away = _drawn_quantile(means, level, centre)
        return in_range(centre + math.sqrt(behaved.episodes / spare) * away)

    def quantile(level: float, kind: str = "value") -> float | None:
        means = np.array([found[Pass(kind, k)].mean for k in draws])
        return spread(means, level, found[Pass(kind)].mean)

    lower, upper = (found.get(Pass(kind)) for kind in ("lower", "upper"))
    privacy = evaluation.privacy
    assert plain.ledger is not None
    value = in_range(plain.mean)
    return Estimate(
        value=value,
        low=quantile(0.025),
        high=quantile(0.975, "most"),
        unseen=in_range(found[Pass("most")].mean) - value,
        pessimistic=None if lower is None else in_range(lower.mean),
        optimistic=None if upper is None else in_range(upper.mean),
        behaviour=in_range(behaved.mean),
        behaviour_low=quantile(0.025, "behaviour"),
        behaviour_high=quantile(0.975, "behaviour"),
        importance=None if importance.value is None else in_range(importance.value),
        importance_low=spread(importance.drawn[0], 0.025, importance.value),
        importance_high=spread(importance.drawn[0], 0.975, importance.value),
        robust=None if importance.robust is None else in_range(importance.robust),
        robust_low=spread(importance.drawn[1], 0.025, importance.robust),
        robust_high=spread(importance.drawn[1], 0.975, importance.robust),
        effective=importance.effective,
        importance_missing=importance.missing,
        episodes=behaved.episodes,
        ledger=plain.ledger,
        epsilon=None if privacy is None else privacy["epsilon"],
        delta=None if privacy is None else privacy["delta"],
    )


def _drawn_quantile(means: np.ndarray, level: float, centre: float) -> float:
    """How far a draw is above the estimate at this level; of draws that are too few to have such a
    quantile, Student's."""
    B = len(means)
    if min(level, 1.0 - level) * (B + 1) < 1.0:
        return float(means.std(ddof=1) * stdtrit(B - 1, level))
    return float(np.quantile(means, level, method="weibull")) - centre


def _evaluate(evaluation: Evaluation, one: Pass, placed: Placed) -> Found:
    """The estimate of one pass, and what it sent."""
    p, transport = evaluation.parameters(one), placed.begin(one)
    server, agents, between = connect(p, transport)
    server.start(agents)
    server.round(agents)
    # b = Λw of the step before the episode, over how many episodes there are: the ridge is taken
    # off again, because it is a mean
    gram, w = server.gram[0], server.w[0]
    total = float(gram[0] * w[0] if evaluation.one_hot else gram[0] @ w)
    if isinstance(between, PrivateSteps):
        seen = float(between.repair.noisy[0].flat[0])
    else:
        seen = float(gram.flat[0] - p.lam)
    return Found(total / max(seen, 1.0), max(1, round(seen)), transport.ledger)


def _place(transport: str | Place) -> Place:
    """What places the sites; imported when it is needed."""
    if not isinstance(transport, str):
        return transport
    if transport not in ENGINES:
        raise UnknownName("transport of an evaluation", transport, ["inprocess", *ENGINES])
    found: Place = resolve(ENGINES[transport])
    return found


class InProcessSites:
    """All sites in this process: so many, or with secure sums one for each log."""

    def __init__(self, site: EvaluationSite, count: int | None = None) -> None:
        own = site.evaluation
        each = own.n_agents if own.aggregation == "secure" and count is None else count
        self.site, self.count = site, cohort_count(each, own.n_agents)

    def begin(self, one: Pass) -> Transport:
        return in_process(self.site.cohorts(one, self.count), self.site.evaluation.parameters(one))

    def close(self) -> None:
        """Nothing is held."""


def _importance(site: EvaluationSite, draws: Sequence[int], drawn: np.ndarray | None) -> Importance:
    """Of all episodes, where the logs say with which probability each action was chosen.

    Args:
        site: The logs.
        draws: The repeats of the bootstrap.
        drawn: What `EvaluationSite.repeats` found in them; None where it was not asked.
    """
    n = len(site.earned)
    silent = [log.world.name for log in site.counted if not log.known]
    if silent:
        return Importance(
            missing=f"{silent[0]} does not say with which probability the behaviour chose each "
            "action (column 'probability')"
        )
    ratio = np.concatenate([log.ratio for log in site.counted])
    if not ratio.any():
        return Importance(
            effective=0.0,
            missing=f"in none of {plural(n, 'episode')} did the behaviour do all along what the "
            "policy does",
        )
    effective = float(ratio.sum() ** 2 / (ratio @ ratio))
    drawn = site.repeats(draws) if drawn is None else drawn
    both = np.stack([site.importance(draws), drawn[2]]) if draws else NO_DRAWS
    return Importance(float(site.importance()[0]), effective, site.doubly_robust(), both)
