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
    """
    integer("repeats", repeats, 0, "the bootstrap's repeats")
    number("lam", lam, 0.0, strict=True)
    world = worlds[0]
    H = world.horizon
    logs = [PolicyLog(policy, own, stationary) for own in worlds]
    for i, seen in transitions_of(worlds):
        logs[i].append(seen)
    for log in logs:
        log.close()
    M, T = len(worlds), max(own.log.episodes for own in worlds)
    one_hot = features.one_hot and hasattr(world, "n_states")
    packing: Packing = "diagonal" if one_hot else "packed"
    values = PolicyValues(features, ceilings(H, value_range, "practical"), lam)
    experience = EvaluationExperience(logs, worlds, values, packing)
    cohort = Cohort(np.arange(M), H + 1, packing, values, experience, _trigger(T))
    layout = Layout(M, H + 1, features.dim, packing)

    def evaluate(beta: float = 0.0, most: bool = False) -> tuple[float, Ledger]:
        values.most = most
        transport = InProcess([cohort], cohort.trigger)
        server = Server(layout, lam, 1.0, beta, T)
        server.start(transport)
        server.round(transport)
        first = server.gram[0, 0] if one_hot else server.gram[0, 0, 0]
        # the ridge of the step before the episode is taken off again: it is a mean
        return float(server.w[0, 0] * first / (first - lam)), transport.ledger

    found, ledger = evaluate()
    highest = evaluate(most=True)[0]
    beta = beta_pessimistic(features.dim, H, M, T, confidence)
    bounds = [evaluate(sign * beta)[0] for sign in (-1.0, 1.0)]
    drawn, most, paid = np.empty((3, repeats))
    for k in range(repeats):
        for m, log in enumerate(logs):
            log.draw(np.random.default_rng([seed, k, m]))
        drawn[k], most[k] = evaluate()[0], evaluate(most=True)[0]
        weights = [log.weights for log in logs]
        total = sum(float(w @ log.earned) for w, log in zip(weights, logs, strict=True))
        paid[k] = total / sum(float(w.sum()) for w in weights)
    experience.workers.close()
    own = world.original
    earned = np.concatenate([log.earned for log in logs])
    importance, effective = _importance(logs)
    low = np.quantile(drawn, 0.025) if repeats else None
    high = np.quantile(most, 0.975) if repeats else None
    below, above = np.quantile(paid, [0.025, 0.975]) if repeats else (None, None)
    return Estimate(
        value=float(own(found)),
        low=None if low is None else float(own(low)),
        high=None if high is None else float(own(high)),
        unseen=float(own(highest) - own(found)),
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

    def __init__(self, policy: Policy, world: LoggedWorld, stationary: bool = False) -> None:
        n, self.stationary = world.log.episodes, stationary
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
        if self.stationary:
            self._pool([part for parts in self._parts for part in parts])
        self._parts = []

    def _pool(self, parts: Sequence[Transitions]) -> None:
        """Every transition after which it is known what follows is one of each step."""
        state, action, reward, following, fate, episode = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("state", "action", "reward", "following", "fate", "episode")
        )
        known = fate != CUT
        state, action, reward, following, fate, episode = (
            part[known] for part in (state, action, reward, following, fate, episode)
        )
        self.steps = []
        for h in range(1, self.H + 1):
            on = (fate == ON) & (h < self.H)
            ahead = np.zeros(len(on), np.int64)
            if on.any():
                ahead[on] = self.policy.actions(h + 1, following[on])
            self.steps.append((state, action, reward, following, on, ahead, episode))

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

    def __init__(self, features: Any, top: np.ndarray, lam: float) -> None:
        self.features, self.ceilings, self.lam = features, top, lam
        self.most = False  # whether what was not seen is worth the most
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
            norms2 = 1.0 / factor.entries[place]
            score: np.ndarray = upper(w[place], norms2, self.beta) + self._unseen(h, norms2)
            clipped: np.ndarray = np.clip(score, 0.0, top)
            return clipped
        found = np.empty(len(states))
        for at in range(0, len(states), ROWS):
            cut = slice(at, at + ROWS)
            phi = self.features.chosen(states[cut], actions[cut])
            wide = self.beta or self.most
            norms2 = (factor.whiten(phi) ** 2).sum(axis=1) if wide else np.zeros(len(phi))
            found[cut] = upper(phi @ w, norms2, self.beta) + self._unseen(h, norms2)
        return np.clip(found, 0.0, top)

    def _unseen(self, h: int, norms2: np.ndarray) -> np.ndarray | float:
        """What the shares of features that were not seen may add."""
        return self.ceilings[h - 1] * self.lam * norms2 if self.most else 0.0


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
