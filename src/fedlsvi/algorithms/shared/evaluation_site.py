"""A site's part in the evaluation of a policy from logs: its sums under a model that is broadcast.

One evaluation takes several passes of the same messages: as logged, with what was not seen worth
the most, with ±β, of episodes drawn again, and of the behaviour itself. A `Pass` says which; it is
agreed on before, so that a message says no more than in any other run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedlsvi.config import Parameters
from fedlsvi.core.statistics import DiagonalFactor, Packing, factorise, pack
from fedlsvi.core.value import ceilings, upper
from fedlsvi.envs.logged.transitions import CUT, ON, Transitions
from fedlsvi.envs.logged.world import LoggedWorld, transitions_of
from fedlsvi.experience.logged import LoggedExperience
from fedlsvi.experience.workers import Workers
from fedlsvi.features.base import FeatureMap
from fedlsvi.policy import Policy
from fedlsvi.protocol.agent import Cohort

ROWS = 1 << 14
"""Transitions whose features are computed at a time."""


@dataclass(frozen=True)
class Pass:
    """One round of H + 1 steps.

    Attributes:
        beta: What ‖φ‖ is multiplied by.
        most: Whether what was not seen is worth the most, in place of nothing.
        draw: Which repeat of the bootstrap it belongs to; None is the episodes as they are.
        behaviour: Whether it is the mean return of the episodes that is asked for; only the first
            step says anything then.
    """

    beta: float = 0.0
    most: bool = False
    draw: int | None = None
    behaviour: bool = False

    @property
    def number(self) -> int:
        """Of this pass in every evaluation, whatever else is asked for."""
        kinds = (self.most, self.behaviour, self.beta < 0.0, self.beta > 0.0)
        repeat = 0 if self.draw is None else self.draw + 1
        return 5 * repeat + (kinds.index(True) + 1 if any(kinds) else 0)


@dataclass(frozen=True)
class Evaluation:
    """What all sites agree on before a policy is evaluated.

    Attributes:
        policy, features: What is evaluated, and the bound feature map; None at a server that has
            neither.
        n_agents, episodes, horizon, dim: M, episodes that count of each log at most, H and d.
        one_hot: Whether Λ is diagonal.
        nonnegative: Whether no feature is negative.
        lam, value_range, stationary, seed: As in `estimate_value`.
        passes: All that will be asked for.
    """

    policy: Policy | None
    features: FeatureMap | None
    n_agents: int
    episodes: int
    horizon: int
    dim: int
    one_hot: bool
    nonnegative: bool
    lam: float
    value_range: float | None
    stationary: bool
    seed: int
    passes: tuple[Pass, ...]

    @property
    def packing(self) -> Packing:
        """How Gram matrices travel."""
        return "diagonal" if self.one_hot else "packed"

    def parameters(self, one: Pass) -> Parameters:
        """The numbers in force in a pass: those of one round of logs with H + 1 steps."""
        return Parameters(
            n_agents=self.n_agents, episodes=self.episodes, horizon=self.horizon + 1,
            dim=self.dim, gamma=1.0, beta=-one.beta, lam=self.lam, xi=0.0,
            value_range=self.value_range, preset="practical", overshoot="cut",
            packing=self.packing, confidence=0.05, rounds=1, pessimistic=True,
        )  # fmt: skip


class EvaluationSite:
    """Agents lo, lo + 1, … with their logs, which are read once for all passes."""

    def __init__(self, evaluation: Evaluation, worlds: Sequence[LoggedWorld], lo: int = 0) -> None:
        assert evaluation.policy is not None
        self.evaluation, self.worlds, self.lo = evaluation, list(worlds), lo
        about = evaluation.stationary, evaluation.episodes
        self.logs = [PolicyLog(evaluation.policy, own, *about) for own in worlds]
        for i, seen in transitions_of(self.worlds):
            self.logs[i].append(seen)
        for log in self.logs:
            log.close()

    def cohort(self, one: Pass) -> Cohort:
        """The agents before the first message of a pass."""
        own = self.evaluation
        assert own.features is not None
        self._draw(one.draw)
        values = PolicyValues(
            own.features, ceilings(own.horizon, own.value_range, "practical"), own.lam
        )
        values.most = one.most
        experience = EvaluationExperience(self.logs, self.worlds, values, own.packing, self.lo)
        experience.behaviour = one.behaviour
        trigger = own.parameters(one).trigger
        return Cohort(experience.agents, own.horizon + 1, own.packing, values, experience, trigger)

    def drawn_return(self, k: int) -> float:
        """The mean return of the episodes in repeat k of the bootstrap."""
        self._draw(k)
        total = sum(float(log.weights @ log.earned) for log in self.logs)
        return total / sum(float(log.weights.sum()) for log in self.logs)

    def _draw(self, k: int | None) -> None:
        for m, log in enumerate(self.logs, start=self.lo):
            if k is None:
                log.as_logged()
            else:
                log.draw(np.random.default_rng([self.evaluation.seed, k, m]))


class PolicyLog:
    """One agent's transitions with what the policy would do, step by step.

    Attributes:
        steps: For each step, (state, action, reward, following, on, π(following), episode).
        first: First states, and π there.
        earned: (n,) return of each episode, in rewards of [0, 1].
        weights: (n,) how often each episode counts.
    """

    def __init__(self, policy: Policy, world: LoggedWorld, stationary: bool, episodes: int) -> None:
        n, self.stationary = min(world.log.episodes, episodes), stationary
        self.policy, self.world, self.H = policy, world, world.horizon
        self._parts: list[list[Transitions]] = [[] for _ in range(self.H)]
        self.earned, self.weights, self.ratio = np.zeros(n), np.ones(n), np.ones(n)
        self.known = True

    def append(self, seen: Transitions) -> None:
        """Take in some transitions; of episodes beyond those that count, nothing."""
        if int(seen.episode[-1]) >= len(self.earned):
            seen = seen.where(seen.episode < len(self.earned))
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

    def as_logged(self) -> None:
        """Every episode counts once."""
        self.weights = np.ones(len(self.weights))

    def draw(self, rng: np.random.Generator) -> None:
        """Draw as many episodes again as there are."""
        n = len(self.weights)
        self.weights = np.bincount(rng.integers(n, size=n), minlength=n).astype(np.float64)


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
        first: int = 0,
    ) -> None:
        agents = np.arange(first, first + len(worlds))
        super().__init__(worlds, agents, values, 0, packing, Workers(1))
        self.dim, self._logs = values.features.dim, list(logs)
        self.behaviour = False  # whether the mean return of the episodes is asked for

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
                own = log.earned[episode] if self.behaviour else self.values.at(1, state, actions)
                b[i, 0] = weight @ own
            elif not self.behaviour and log.steps[h - 2]:
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
