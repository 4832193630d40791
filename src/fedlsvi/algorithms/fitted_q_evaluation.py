"""What a policy is worth, from logs alone: linear fitted-Q evaluation, federated.

The regression is Fed-LSVI's with the maximum replaced by the policy π that is evaluated:

    w_h = Λ_h⁻¹ Σ φ(r + V_{h+1}(x')),
    V_h(x) = clip(φ(x, π_h(x))ᵀw_h + β‖φ(x, π_h(x))‖_{Λ_h⁻¹}, 0, H − h + 1)

with β = 0. Server, agents and messages are Fed-LSVI's with one round of H + 1 steps: the first is a
step before the episode whose only feature is e₁, so that its regression is the mean of V₁ over the
logged first states. What leaves a site are Gram matrices and response vectors, as ever.

Two intervals. The bootstrap repeats the round with episodes drawn again at every site; each repeat
sends the same statistics. The bounds from Λ are the same recursion with −β and with +β: they hold
with probability 1 − p at the theorem's β, and are wide.

Where the log has the chance with which the behaviour chose each action, weighted importance
sampling is a check that needs no features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedlsvi.checks import integer, number
from fedlsvi.config import PRACTICAL_LAM
from fedlsvi.core.ridge import DiagonalFactor, factorise
from fedlsvi.core.statistics import Packing, pack
from fedlsvi.core.theory import beta_pessimistic
from fedlsvi.core.trigger import Trigger
from fedlsvi.core.value import ceilings, upper
from fedlsvi.envs.logged.transitions import CUT, ON, Transitions
from fedlsvi.envs.logged.world import LoggedWorld, transitions_of
from fedlsvi.experience.logged import LoggedExperience
from fedlsvi.experience.workers import Workers
from fedlsvi.features.base import FeatureMap
from fedlsvi.policy import Policy
from fedlsvi.protocol.agent import Cohort
from fedlsvi.protocol.ledger import Ledger
from fedlsvi.protocol.messages import Layout
from fedlsvi.protocol.server import Server
from fedlsvi.protocol.transport import InProcess

ROWS = 1 << 14
"""Transitions whose features are computed at a time."""


@dataclass(frozen=True)
class Estimate:
    """What a policy is worth, estimated from logs, in their own units.

    Attributes:
        value: Fitted-Q evaluation of the policy.
        low, high: Its 95 % bootstrap interval; None without repeats.
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
    repeats: int = 100,
    seed: int = 0,
) -> Estimate:
    """Evaluate a policy on logs that others recorded.

    Args:
        policy: The policy, of the logs' horizon.
        worlds: The logs, one for each agent.
        features: The bound feature map.
        lam: Ridge λ.
        confidence: p of the bounds from Λ.
        value_range: The largest return, where it is known to be below H.
        repeats: Repeats of the bootstrap; 0 leaves it out.
        seed: Seed of the bootstrap.
    """
    integer("repeats", repeats, 0, "the bootstrap's repeats")
    number("lam", lam, 0.0, strict=True)
    world = worlds[0]
    H = world.horizon
    logs = [PolicyLog(policy, own) for own in worlds]
    for i, seen in transitions_of(worlds):
        logs[i].append(seen)
    for log in logs:
        log.close()
    M, T = len(worlds), max(own.log.episodes for own in worlds)
    one_hot = features.one_hot and hasattr(world, "n_states")
    packing: Packing = "diagonal" if one_hot else "packed"
    values = PolicyValues(features, ceilings(H, value_range, "practical"))
    experience = EvaluationExperience(logs, worlds, values, packing)
    cohort = Cohort(np.arange(M), H + 1, packing, values, experience, _trigger(T))
    layout = Layout(M, H + 1, features.dim, packing)

    def evaluate(beta: float = 0.0) -> tuple[float, Ledger]:
        transport = InProcess([cohort], cohort.trigger)
        server = Server(layout, lam, 1.0, beta, T)
        server.start(transport)
        server.round(transport)
        first = server.gram[0, 0] if one_hot else server.gram[0, 0, 0]
        # the ridge of the step before the episode is taken off again: it is a mean
        return float(server.w[0, 0] * first / (first - lam)), transport.ledger

    found, ledger = evaluate()
    beta = beta_pessimistic(features.dim, H, M, T, confidence)
    bounds = [evaluate(sign * beta)[0] for sign in (-1.0, 1.0)]
    drawn, paid = np.empty(repeats), np.empty(repeats)
    for k in range(repeats):
        for m, log in enumerate(logs):
            log.draw(np.random.default_rng([seed, k, m]))
        drawn[k] = evaluate()[0]
        weights = [log.weights for log in logs]
        total = sum(float(w @ log.earned) for w, log in zip(weights, logs, strict=True))
        paid[k] = total / sum(float(w.sum()) for w in weights)
    experience.workers.close()
    own = world.original
    earned = np.concatenate([log.earned for log in logs])
    importance, effective = _importance(logs)
    low, high = np.quantile(drawn, [0.025, 0.975]) if repeats else (None, None)
    below, above = np.quantile(paid, [0.025, 0.975]) if repeats else (None, None)
    return Estimate(
        value=float(own(found)),
        low=None if low is None else float(own(low)),
        high=None if high is None else float(own(high)),
        pessimistic=float(own(bounds[0])),
        optimistic=float(own(bounds[1])),
        behaviour=float(own(earned.mean())),
        behaviour_low=None if below is None else float(own(below)),
        behaviour_high=None if above is None else float(own(above)),
        importance=None if importance is None else float(own(importance)),
        effective=effective,
        episodes=len(earned),
        ledger=ledger,
    )


def _trigger(episodes: int) -> Trigger:
    """One round."""
    return Trigger(1.0, episodes, rounds=1)


class PolicyLog:
    """One agent's transitions with what the policy would do, step by step.

    Attributes:
        steps: For each step, (state, action, reward, following, on, π(following), episode).
        first: First states, and π there.
        earned: (n,) return of each episode, in rewards of [0, 1].
        weights: (n,) how often each episode counts.
    """

    def __init__(self, policy: Policy, world: LoggedWorld) -> None:
        n = world.log.episodes
        self.policy, self.world, self.H = policy, world, world.horizon
        self._parts: list[list[Transitions]] = [[] for _ in range(self.H)]
        self.earned, self.weights, self.ratio = np.zeros(n), np.ones(n), np.ones(n)
        self.known = True

    def append(self, seen: Transitions) -> None:
        """Take in some transitions."""
        r0 = self.world.absorbing_reward
        left = np.where(seen.fate == ON, 0.0, (self.H - seen.h) * r0)
        left[seen.fate == CUT] = 0.0  # nobody knows what came after
        np.add.at(self.earned, seen.episode, seen.reward + left)
        for h in np.unique(seen.h).tolist():
            own = seen.where(seen.h == h)
            self.known &= own.probability is not None
            if own.probability is not None:
                same = self.policy.actions(h, own.state) == own.action
                self.ratio[own.episode] *= np.where(same, 1.0 / own.probability, 0.0)
            self._parts[h - 1].append(own)

    def close(self) -> None:
        """All are there: look up what the policy does in every next state."""
        self.steps: list[tuple[np.ndarray, ...]] = []
        self.first: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
        for h, parts in enumerate(self._parts, start=1):
            if not parts:
                self.steps.append(())
                continue
            joined = [
                np.concatenate([getattr(part, name) for part in parts])
                for name in ("state", "action", "reward", "following", "fate", "episode")
            ]
            if h == 1:
                state, episode = joined[0], joined[5]
                self.first = (state, self.policy.actions(1, state), episode)
            fate = joined[4]
            usable = np.ones(len(fate), bool) if h == self.H else fate != CUT
            state, action, reward, following, fate, episode = (part[usable] for part in joined)
            on = (fate == ON) & (h < self.H)
            ahead = np.zeros(len(on), np.int64)
            if on.any():
                ahead[on] = self.policy.actions(h + 1, following[on])
            self.steps.append((state, action, reward, following, on, ahead, episode))
        self._parts = []

    def draw(self, rng: np.random.Generator) -> None:
        """Draw as many episodes again as there are."""
        n = len(self.weights)
        self.weights = np.bincount(rng.integers(n, size=n), minlength=n).astype(np.float64)


def _importance(logs: Sequence[PolicyLog]) -> tuple[float | None, float | None]:
    """Σρ·return/Σρ and (Σρ)²/Σρ² over all episodes."""
    ratio = np.concatenate([log.ratio for log in logs])
    if not all(log.known for log in logs) or not ratio.any():
        return None, (0.0 if all(log.known for log in logs) else None)
    earned = np.concatenate([log.earned for log in logs])
    return float(ratio @ earned / ratio.sum()), float(ratio.sum() ** 2 / (ratio @ ratio))


class PolicyValues:
    """V_h of the policy under the broadcast model; step 1 of the server is before the episode."""

    def __init__(self, features: Any, top: np.ndarray) -> None:
        self.features, self.ceilings = features, top
        self.beta, self._models = 0.0, dict[int, tuple[np.ndarray, Any]]()

    def update(self, h: int, w: np.ndarray, gram: np.ndarray) -> None:
        """Take the model of the server's step h."""
        self._models[h - 1] = (w, factorise(gram))

    def at(self, h: int, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """V_h (n,) at these states, where the policy takes these actions."""
        w, factor = self._models[h]
        top = self.ceilings[h - 1]
        if isinstance(factor, DiagonalFactor):
            place = self.features.index[states, actions]
            score: np.ndarray = upper(w[place], 1.0 / factor.entries[place], self.beta)
            clipped: np.ndarray = np.clip(score, 0.0, top)
            return clipped
        found = np.empty(len(states))
        for at in range(0, len(states), ROWS):
            cut = slice(at, at + ROWS)
            phi = self.features.chosen(states[cut], actions[cut])
            norms2 = (factor.whiten(phi) ** 2).sum(axis=1) if self.beta else np.zeros(len(phi))
            found[cut] = upper(phi @ w, norms2, self.beta)
        return np.clip(found, 0.0, top)


class EvaluationExperience(LoggedExperience):
    """What sites send: H steps of weighted sums, and before them the mean of V₁."""

    def __init__(
        self,
        logs: Sequence[PolicyLog],
        worlds: Sequence[LoggedWorld],
        values: PolicyValues,
        packing: Packing,
    ) -> None:
        agents = np.arange(len(worlds))
        super().__init__(worlds, agents, values, 0, packing, Workers(1))
        self.dim, self._logs = values.features.dim, list(logs)

    def _read(self, last: int) -> None:
        """The logs are there."""

    def summarise(self, h: int) -> tuple[np.ndarray, np.ndarray]:
        """Λ^loc (m, P) and b (m, d) of the server's step h."""
        m = len(self._logs)
        diagonal = self.packing == "diagonal"
        grams = np.zeros((m, self.dim) if diagonal else (m, self.dim, self.dim))
        b = np.zeros((m, self.dim))
        for i, log in enumerate(self._logs):
            if h == 1:
                state, actions, episode = log.first  # type: ignore[misc]
                weight = log.weights[episode]
                grams[(i, 0) if diagonal else (i, 0, 0)] = weight.sum()
                b[i, 0] = weight @ self.values.at(1, state, actions)
            elif log.steps[h - 2]:
                self._add(i, h - 1, grams, b)
        return pack(grams, self.packing), b

    def _add(self, i: int, h: int, grams: np.ndarray, b: np.ndarray) -> None:
        """Step h of agent i's log."""
        state, action, reward, following, on, ahead, episode = self._logs[i].steps[h - 1]
        for at in range(0, len(action), ROWS):
            cut = slice(at, at + ROWS)
            weight, goes = self._logs[i].weights[episode[cut]], on[cut]
            targets = reward[cut] + np.where(goes, 0.0, self.after(i, h))
            if goes.any():
                targets[goes] += self.values.at(h + 1, following[cut][goes], ahead[cut][goes])
            if self.packing == "diagonal":
                place = self.values.features.index[state[cut], action[cut]]
                grams[i] += np.bincount(place, weight, minlength=self.dim)
                b[i] += np.bincount(place, weight * targets, minlength=self.dim)
                continue
            phi = self.values.features.chosen(state[cut], action[cut])
            grams[i] += (phi.T * weight) @ phi
            b[i] += (weight * targets) @ phi
