"""A site's part in the evaluation of a policy from logs: its sums under a model that is broadcast.

One evaluation takes several passes of the same messages: as logged, with what was not seen worth
the most, with ±β, of episodes drawn again, and of the behaviour itself. A `Pass` says which; it is
agreed on before, so that a message says no more than in any other run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from fedlsvi.algorithms.shared.doubly_robust import correction
from fedlsvi.algorithms.shared.policy_log import Decides, PolicyLog
from fedlsvi.algorithms.shared.policy_values import PolicyValues, Sums
from fedlsvi.config import Parameters, Settings
from fedlsvi.core.heads import Head
from fedlsvi.core.privacy_accountant import share_of
from fedlsvi.core.statistics import Packing, pack
from fedlsvi.core.value import ceilings
from fedlsvi.experience.experience import Experience
from fedlsvi.experience.log_source import LogSource
from fedlsvi.experience.workers import Workers
from fedlsvi.features.base import FeatureMap
from fedlsvi.groups import Aggregation, ProblemSize
from fedlsvi.logs.patients import refuse_frequent
from fedlsvi.logs.world import LoggedWorld, transitions_of
from fedlsvi.privacy.gram_repair import ridge_in_force
from fedlsvi.protocol.agent import Cohort

MODELS = 1 << 20
"""Numbers in the Gram matrices of all repeats of the bootstrap that are computed at a time."""


KINDS = ("value", "most", "behaviour", "lower", "upper")
"""What a pass asks for: the policy's value, with nothing for what was not seen, or the most that it
can be worth; the mean return of the episodes, of which only the first step says anything; and the
value's bounds, with ∓β."""


@dataclass(frozen=True)
class Pass:
    """One round of H + 1 steps.

    Attributes:
        kind: One of `KINDS`.
        draw: Which repeat of the bootstrap it belongs to; None is the episodes as they are.
    """

    kind: str = "value"
    draw: int | None = None

    @property
    def number(self) -> int:
        """Of this pass in every evaluation, whatever else is asked for."""
        repeat = 0 if self.draw is None else self.draw + 1
        return len(KINDS) * repeat + KINDS.index(self.kind)


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
        beta: β of the bounds.
        passes: All that will be asked for.
        aggregation, min_round: As in `PEVI`.
        privacy: What all passes together may spend, as in `PEVI`.
        agreed: Hash of the job, and of what a site was asked while it learned.
    """

    policy: Decides | None
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
    beta: float
    passes: tuple[Pass, ...]
    aggregation: Aggregation = "float"
    privacy: Mapping[str, Any] | None = None
    min_round: int = 1
    agreed: bytes = b""

    @property
    def ceilings(self) -> np.ndarray:
        """(H,) the largest value of each step, in rewards of [0, 1]."""
        return ceilings(self.horizon, self.value_range, "practical")

    @property
    def draws(self) -> list[int]:
        """The repeats of the bootstrap."""
        return sorted({one.draw for one in self.passes if one.draw is not None})

    @property
    def packing(self) -> Packing:
        """How Gram matrices travel."""
        return "diagonal" if self.one_hot else "packed"

    def parameters(self, one: Pass) -> Parameters:
        """The numbers in force in a pass: those of one round of logs with H + 1 steps."""
        return replace(self._parameters, beta=-self._beta(one))

    def head(self, one: Pass) -> Head:
        """What turns the models of a pass into the policy's values."""
        unseen = ridge_in_force(self._parameters) if one.kind == "most" else 0.0
        return Head(self._beta(one), self.ceilings, unseen=unseen)

    def _beta(self, one: Pass) -> float:
        return {"lower": -self.beta, "upper": self.beta}.get(one.kind, 0.0)

    @cached_property
    def _parameters(self) -> Parameters:
        # where all rows of an episode count for each step, it is there H times
        times = self.horizon if self.stationary else 1
        settings = Settings(
            n_agents=self.n_agents, gamma=1.0, rounds=1, beta=0.0, lam=self.lam,
            value_range=self.value_range, packing=self.packing, stationary=False,
            policy="explore", aggregation=self.aggregation, min_round=self.min_round,
            privacy=None if self.privacy is None else self._of_a_pass(self.privacy, times),
        )  # fmt: skip
        size = self.episodes * times, self.horizon + 1, self.dim, self.one_hot
        problem = ProblemSize(*size, nonnegative=self.nonnegative)
        return replace(settings.resolve(problem), pessimistic=True)

    def _of_a_pass(self, privacy: Mapping[str, Any], times: int) -> dict[str, Any]:
        """What one of the passes may spend: squares of μ add up."""
        given = {"unit": "user", "episodes_per_user": privacy.get("episodes_per_user", 1) * times}
        budget = privacy["epsilon"], privacy["delta"]
        return {**privacy, **given, "epsilon": share_of(*budget, 1.0 / len(self.passes))}


class EvaluationSite:
    """Agents lo, lo + 1, … with their logs, which are read once for all passes."""

    def __init__(self, evaluation: Evaluation, worlds: Sequence[LoggedWorld], lo: int = 0) -> None:
        assert evaluation.policy is not None
        self.evaluation, self.worlds, self.lo = evaluation, list(worlds), lo
        refuse_frequent(self.worlds, evaluation.privacy)
        about = evaluation.stationary, evaluation.episodes, evaluation.min_round
        self.logs = [PolicyLog(evaluation.policy, own, *about) for own in worlds]
        for i, seen in transitions_of(self.worlds):
            self.logs[i].append(seen)
        for log in self.logs:
            log.close()

    def cohorts(self, one: Pass, count: int = 1) -> list[Cohort]:
        """The agents before the first message of a pass, in so many cohorts."""
        own, p = self.evaluation, self.evaluation.parameters(one)
        self._draw(None if one.draw is None else [one.draw])
        assert own.features is not None
        found = []
        for lo, hi in pairwise(len(self.worlds) * c // count for c in range(count + 1)):
            values, worlds = PolicyValues(own.features, own.head(one)), self.worlds[lo:hi]
            memory = PolicyMemory(self.logs[lo:hi], own.features.dim, own.packing, one.kind)
            agents = np.arange(self.lo + lo, self.lo + hi)
            source = LogSource(worlds, own.horizon)
            about = (agents, worlds, values, source, memory, own.packing)
            size = (agents, own.horizon + 1, own.packing)
            found.append(Cohort(*size, values, Experience(*about, Workers(1)), p.trigger))
        return found

    def cohort(self, one: Pass) -> Cohort:
        """The same in one."""
        return self.cohorts(one)[0]

    @property
    def earned(self) -> np.ndarray:
        """Return of every episode that counts, in rewards of [0, 1]."""
        return np.concatenate([log.earned for log in self.counted])

    @property
    def counted(self) -> list[PolicyLog]:
        """Logs with as many episodes as the floor asks."""
        return [log for log in self.logs if log.first is not None]

    @property
    def known(self) -> bool:
        """Whether all logs that count say with which probability each action was chosen."""
        return bool(self.counted) and all(log.known for log in self.counted)

    def repeats(self, draws: Sequence[int]) -> np.ndarray:
        """(3, K) what repeats of the bootstrap end with, where all agents are here: the mean of V₁
        with what was not seen worth nothing and the most, with the same sums as one after the
        other, and the doubly robust estimate, which is not a number where a log says no
        probabilities."""
        size = max(1, MODELS // self.evaluation.dim ** (1 if self.evaluation.one_hot else 2))
        some = [draws[at : at + size] for at in range(0, len(draws), size)]
        return np.concatenate([np.empty((3, 0)), *(self._means(own) for own in some)], axis=1)

    def doubly_robust(self) -> float:
        """The doubly robust estimate from the episodes as they are."""
        return float(self._means(None)[2, 0])

    def _means(self, draws: Sequence[int] | None) -> np.ndarray:
        """`repeats` of a few draws at once; None is the episodes as they are."""
        own, H, K = self.evaluation, self.evaluation.horizon, 1 if draws is None else len(draws)
        self._draw(draws)
        both = [PolicyValues(own.features, own.head(Pass(kind))) for kind in ("value", "most")]
        off = np.zeros(K) if self.known else np.full(K, np.nan)
        for h in range(H, 0, -1):
            sums = Sums.empty(K, own.dim, own.packing, len(both))
            for log, world in zip(self.logs, self.worlds, strict=True):
                sums.add(log, h, (H - h) * world.absorbing_reward, both)
            weights, grams = sums.models(own.lam)
            ahead = copy(both[0])
            for values, w in zip(both, weights, strict=True):
                values.take(h, w, grams)
            if self.known:
                off += correction(self.counted, h, ahead, both[0])
        total = np.zeros((2, K))
        for log in self.counted:
            assert log.first is not None
            weights = log.weights[log.first.episode]
            for i, values in enumerate(both):
                at_first = values.at(1, log.first.state, log.first.action)
                total[i] += (weights * at_first).sum(axis=0)
        least, most = total / len(self.earned)
        return np.stack([least, most, least + off])

    def importance(self, draws: Sequence[int] | None = None) -> np.ndarray:
        """(K,) weighted importance sampling, Σρ·return/Σρ, in each draw, or from the episodes as
        they are; not a number where no episode has any weight."""
        self._draw(draws)
        parts = [(log.ratio @ log.weights, (log.ratio * log.earned) @ log.weights)
                 for log in self.counted]  # fmt: skip
        total, earned = np.sum(parts, axis=0)
        found: np.ndarray = np.divide(
            earned, total, out=np.full(len(total), np.nan), where=total > 0.0
        )
        return found

    def drawn_returns(self, draws: Sequence[int]) -> np.ndarray:
        """(K,) the mean return of the episodes in these repeats of the bootstrap."""
        self._draw(draws)
        total: np.ndarray = sum(log.earned @ log.weights for log in self.counted)  # type: ignore[assignment]
        return total / len(self.earned)

    def _draw(self, draws: Sequence[int] | None) -> None:
        for m, log in enumerate(self.logs, start=self.lo):
            if draws is None:
                log.as_logged()
            else:
                log.draw([np.random.default_rng([self.evaluation.seed, k, m]) for k in draws])


class PolicyMemory:
    """What sites send: H steps of weighted sums, and before them the mean of V₁.

    Args:
        logs: One for each agent.
        dim: d.
        packing: How Gram matrices travel.
        kind: What the pass asks for.
    """

    def __init__(self, logs: Sequence[PolicyLog], dim: int, packing: Packing, kind: str) -> None:
        self.logs, self.dim, self.packing = list(logs), dim, packing
        self.behaviour = kind == "behaviour"

    def spill(self, round_: object) -> None:
        """Never."""

    def add(self, round_: object, first: int, length: int) -> None:
        """The logs are there."""

    def upload(self, h: int, values: PolicyValues) -> tuple[np.ndarray, np.ndarray]:
        """Λ^loc (m, P) and b (m, d) of the server's step h."""
        of_each = [
            self._first(log, values) if h == 1 else self._sums(log, h - 1, values)
            for log in self.logs
        ]
        return tuple(np.stack(parts) for parts in zip(*of_each, strict=True))  # type: ignore[return-value]

    def _first(self, log: PolicyLog, values: PolicyValues) -> tuple[np.ndarray, np.ndarray]:
        """The step before the episode: the only feature is e₁, the target V₁ or the return."""
        size = (self.dim,) if self.packing == "diagonal" else (self.dim, self.dim)
        gram, b = np.zeros(size), np.zeros(self.dim)
        if log.first is not None:
            state, actions, episode = log.first
            weight = log.weights[episode, 0]
            gram.flat[0] = weight.sum()
            b[0] = weight @ (
                log.earned[episode] if self.behaviour else values.at(1, state, actions)[:, 0]
            )
        return pack(gram, self.packing), b

    def _sums(self, log: PolicyLog, h: int, values: PolicyValues) -> tuple[np.ndarray, np.ndarray]:
        """Step h of an agent's log."""
        sums = Sums.empty(1, self.dim, self.packing, 1)
        if not self.behaviour:
            sums.add(log, h, (log.H - h) * log.world.absorbing_reward, [values])
        gram = sums.gram[:, 0] if self.packing == "diagonal" else sums.gram[0]
        return pack(gram, self.packing), sums.responses[0][:, 0]

    def responses(self, h: int, values: PolicyValues) -> np.ndarray:
        """b (m, d) of the server's step h."""
        return self.upload(h, values)[1]

    def fewest(self, first: int, last: int) -> None:
        """Nothing: the log knows."""

    def state(self) -> dict[str, np.ndarray]:
        """Nothing: the log is where it was."""
        return {}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Nothing."""

    def history(self, first: int, last: int) -> dict[str, np.ndarray]:
        """Nothing."""
        return {}

    def extend(self, first: int, part: dict[str, np.ndarray]) -> None:
        """Nothing to put back."""
