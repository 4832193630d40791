"""What a policy would have earned, from decisions that another one made and logged.

With π(a|x) the policy, μ_i the propensity of the action taken and ρ_i = π(a_i|x_i)/μ_i:

    ips      mean of ρ_i r_i
    snips    Σρ_i r_i / Σρ_i: a little bias, and often much less variance
    dr       mean of Σ_a π(a|x_i) q̂(x_i, a) + ρ_i (r_i − q̂(x_i, a_i)): right where μ or q̂ is

Dudík, Langford, Li (2011), "Doubly robust policy evaluation and learning", arXiv 1103.4601.

`replay` is for policies that learn as they go. It runs through the log and shows the learner a
reward only where it takes the logged action, which is as good as playing if the log was made by
chance: Li, Chu, Langford, Wang (2011), "Unbiased offline evaluation of contextual-bandit-based news
article recommendation algorithms", arXiv 1003.5956.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import ndtri

from fedlsvi.bandits.contexts import Arms
from fedlsvi.bandits.learner import FedLinUCB
from fedlsvi.bandits.log import LoggedDecisions
from fedlsvi.checks import check_seed, choice, integer, number
from fedlsvi.core.random import uniforms
from fedlsvi.errors import InvalidInput

Method = Literal["ips", "snips", "dr"]

FOLDS = 5
"""A row's q̂ is learned from the other folds."""

ACCEPT = 66
"""Stream of the keyed generator, beside those of `choice`: which rows a replay may use."""


class Estimate(NamedTuple):
    """The mean reward of a policy.

    Attributes:
        value: The estimate.
        low, high: Ends of its interval, by a normal approximation.
        effective: (Σρ)²/Σρ²: as many decisions of the policy itself would say about as much.
    """

    value: float
    low: float
    high: float
    effective: float


class Replayed(NamedTuple):
    """What a learner earned in a replay.

    Attributes:
        value: Mean reward of the rows that were used.
        low, high: Ends of its interval, by a normal approximation.
        rows: (m,) which rows those were.
        rewards: (m,) their rewards, in the order in which the learner met them.
    """

    value: float
    low: float
    high: float
    rows: np.ndarray
    rewards: np.ndarray


def estimate_value(
    log: LoggedDecisions,
    policy: FedLinUCB | np.ndarray,
    method: Method = "dr",
    *,
    arms: Any = None,
    predicted: np.ndarray | None = None,
    confidence: float = 0.95,
) -> Estimate:
    """The mean reward of a policy that stays as it is, from logged decisions.

    The interval takes rows to be independent. It is too narrow where `effective` is small, and
    means nothing for a policy that was chosen with the same rows.

    Args:
        log: Decisions of another policy that could take every arm that this one takes.
        policy: A learner, or the probabilities (n, K) with which arms would be taken.
        method: "ips", "snips" or "dr".
        arms: Labels of the columns of `policy`; None is 0, 1, …, or those of the learner.
        predicted: (n, K) q̂(x, a), not learned from these rows; None is ridge regression across
            five folds.
        confidence: Of the interval.
    """
    choice("method", method, ("ips", "snips", "dr"))
    number("confidence", confidence, 0.0, most=1.0, strict=True)
    if isinstance(policy, FedLinUCB):
        p = policy.probabilities(log.contexts, log.sites)
        columns = Arms(policy.arms_)
    else:
        p = _rows_of("policy", policy, log)
        columns = Arms(p.shape[1] if arms is None else arms)
        if len(columns) != p.shape[1] or not np.allclose(p.sum(axis=1), 1.0) or (p < 0.0).any():
            raise InvalidInput(
                f"policy must be probabilities that sum to 1, a column for each of "
                f"{len(columns)} arms",
                code="bad-policy",
            )
    at = np.array([columns.position(a) if a in columns else -1 for a in log.actions.tolist()])
    taken = np.where(at >= 0, p[np.arange(len(log)), at], 0.0)
    ratio, rewards = taken / log.propensities, log.rewards
    if not ratio.any():
        raise InvalidInput(
            "the policy never takes a logged action, so the log says nothing about it",
            code="no-overlap",
        )
    effective = float(ratio.sum() ** 2 / (ratio**2).sum())
    if method == "ips":
        found = _mean(ratio * rewards, confidence)
    elif method == "snips":
        value = float(ratio @ rewards / ratio.sum())
        error = math.sqrt(float((ratio**2) @ (rewards - value) ** 2)) / float(ratio.sum())
        found = _around(value, error, confidence)
    else:
        q = (
            _fitted(log, columns, at)
            if predicted is None
            else _rows_of("predicted", predicted, log)
        )
        if q.shape != p.shape:
            raise InvalidInput(
                f"predicted has {q.shape[1]} columns: give one for each of {len(columns)} arms",
                code="bad-predicted",
            )
        expected = (p * q).sum(axis=1)
        found = _mean(expected + ratio * (rewards - q[np.arange(len(log)), at]), confidence)
    return Estimate(*found, effective)


def replay(
    learner: FedLinUCB,
    log: LoggedDecisions,
    *,
    batch: int = 1,
    least: float | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> Replayed:
    """Let a learner decide for logged contexts in their order, and learn where it agrees.

    The log must have been made by chance, not by a policy that learned. A row is used if the
    learner takes its action and, where propensities differ, with probability least/propensity.

    Args:
        learner: It learns; give a clone to keep it as it is.
        log: The decisions, at sites that the learner has.
        batch: Decisions between two updates.
        least: The smallest propensity of the policy that logged; None is that in the log.
        confidence: Of the interval.
        seed: Of which rows are used, where propensities differ.
    """
    integer("batch", batch, 1)
    number("confidence", confidence, 0.0, most=1.0, strict=True)
    smallest = float(log.propensities.min(initial=1.0))
    if least is None:
        least = smallest
    number("least", least, math.ulp(0.0), "the smallest propensity in the log", most=smallest)
    u = uniforms(check_seed(seed), [0], 1, len(log), 1, ACCEPT)[0, :, 0]
    usable = u < least / log.propensities
    used = []
    for first in range(0, len(log), batch):
        some = np.arange(first, min(first + batch, len(log)))
        decided = learner.decide(log.contexts[some], log.sites[some])
        agrees = usable[some] & (decided.actions == log.actions[some])
        learner.forget(decided.tokens[~agrees])
        if agrees.any():
            learner.reward(decided.tokens[agrees], log.rewards[some[agrees]])
            used.append(some[agrees])
    if not used:
        raise InvalidInput(
            "the learner never took a logged action, so the log says nothing about it",
            code="no-overlap",
        )
    rows = np.concatenate(used)
    return Replayed(*_mean(log.rewards[rows], confidence), rows, log.rewards[rows])


def _fitted(log: LoggedDecisions, columns: Arms, at: np.ndarray) -> np.ndarray:
    """(n, K) rewards that ridge regression predicts from the other folds."""
    q = np.zeros((len(log), len(columns)))
    fold = np.arange(len(log)) % FOLDS
    for k in range(FOLDS):
        learned, asked = np.flatnonzero((fold != k) & (at >= 0)), fold == k
        if len(learned) and asked.any():
            model = FedLinUCB(arms=len(columns), alpha=0.0)
            model.fit(log.contexts[learned], at[learned], log.rewards[learned])
            q[asked] = model.decision_function(log.contexts[asked])
    return q


def _rows_of(name: str, given: Any, log: LoggedDecisions) -> np.ndarray:
    """Finite numbers (n, K), a row for each decision."""
    array = np.asarray(given, np.float64)
    if array.ndim != 2 or len(array) != len(log) or not np.isfinite(array).all():
        raise InvalidInput(
            f"{name} has shape {array.shape}: give finite numbers, a row for each of {len(log)} "
            "decisions and a column for each arm",
            code=f"bad-{name}",
        )
    return array


def _mean(terms: np.ndarray, confidence: float) -> tuple[float, float, float]:
    """The mean of independent terms (n,), and its interval."""
    error = float(terms.std(ddof=1)) / math.sqrt(len(terms)) if len(terms) > 1 else math.inf
    return _around(float(terms.mean()), error, confidence)


def _around(value: float, error: float, confidence: float) -> tuple[float, float, float]:
    half = float(ndtri(0.5 + confidence / 2.0)) * error
    return value, value - half, value + half
