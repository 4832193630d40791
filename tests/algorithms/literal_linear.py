"""Slow, literal codes of the linear comparators: explicit histories, no sums, no blocks.

Every decision is made one at a time by `Greedy`, which defers to the run under test at near-ties
only. None of these calls the library.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from literal import Array, Greedy, LiteralRun, World, advice_for, backward_values, worlds
from literal_lsvi import Sample, pooled_backup

Policies = list[list[Array]]  # [t − 1][m], each (H, S)


def table(greedy: Greedy, world: World, H: int) -> Array:
    states = range(world.env.n_states)
    return np.array([[greedy(h, x) for x in states] for h in range(1, H + 1)])


def regret_of(policies: Policies, agents: Sequence[World]) -> Array:
    """Cumulative group regret where every agent has a policy of its own."""
    best = [backward_values(a.env, None) for a in agents]
    gaps = []
    for t, row in enumerate(policies, start=1):
        values = [backward_values(a.env, pi) for a, pi in zip(agents, row, strict=True)]
        starts = [a.first(t) for a in agents]
        gaps.append(sum(best[m][x] - values[m][x] for m, x in enumerate(starts)))
    return np.cumsum(gaps)


class Learner:
    """LSVI-UCB on an explicit list of samples per step."""

    def __init__(self, phi: Array, H: int, lam: float, beta: float, clip: Sequence[float]) -> None:
        self.phi, self.H, self.lam, self.beta, self.clip = phi, H, lam, beta, clip
        self.samples: list[list[Sample]] = [[] for _ in range(H)]

    def add(self, path: list[Any]) -> None:
        for i, (x, a, r, y) in enumerate(path):
            self.samples[i].append((self.phi[x, a], r, y))

    def model(self) -> tuple[Array, Array]:
        d = self.phi.shape[2]
        return pooled_backup(self.samples, self.phi, d, self.lam, self.beta, self.clip)

    def policy(self, world: World, run: LiteralRun, advised: Array | None) -> Array:
        greedy = Greedy(lambda x: self.phi[x], self.model(), self.beta, run, advised)
        return table(greedy, world, self.H)

    def grams(self) -> Array:
        return self.model()[1]


def logdets(grams: Array) -> Array:
    return np.array([np.linalg.slogdet(g)[1] for g in grams])


def literal_coop(
    envs: Any, phi: Array, M: int, T: int, seed: int, lam: float, beta: float,
    clip: Sequence[float], threshold: float, advice: Policies,
) -> tuple[list[int], Policies, LiteralRun, list[Learner]]:  # fmt: skip
    """Coop-LSVI as its box: (episodes of synchronisations, policies, near-ties, learners)."""
    agents, H, run = worlds(envs, M, seed), len(clip), LiteralRun()
    learners = [Learner(phi, H, lam, beta, clip) for _ in range(M)]
    synced = [logdets(lr.grams()) for lr in learners]
    unsent: list[list[Any]] = [[] for _ in range(M)]
    syncs: list[int] = []
    policies: Policies = []
    last = 0
    for t in range(1, T + 1):
        row = []
        for m in range(M):
            pi = learners[m].policy(agents[m], run, advice[t - 1][m])
            path = agents[m].play(t, lambda h, x, pi=pi: int(pi[h - 1, x]), H)
            learners[m].add(path)
            unsent[m].append(path)
            row.append(pi)
        policies.append(row)
        grown = [logdets(learners[m].grams()) - synced[m] for m in range(M)]
        if any((g > threshold / (t - last)).any() for g in grown):
            for m in range(M):
                for other in range(M):
                    for path in unsent[other] if other != m else []:
                        learners[m].add(path)
            unsent = [[] for _ in range(M)]
            synced = [logdets(lr.grams()) for lr in learners]
            syncs.append(t)
            last = t
    return syncs, policies, run, learners


def literal_low_switching(
    env: Any, phi: Array, T: int, seed: int, lam: float, beta: float, clip: Sequence[float],
    eta: float, advice: Sequence[Array],
) -> tuple[list[int], list[Array], LiteralRun]:  # fmt: skip
    """One agent; a new policy when det Λ_h > η·det Λ_h(last): first episodes of the policies."""
    (agent,), H, run = worlds(env, 1, seed), len(clip), LiteralRun()
    learner, firsts, policies = Learner(phi, H, lam, beta, clip), [1], []
    base = logdets(learner.grams())
    pi = learner.policy(agent, run, advice_for(advice, 0))
    for t in range(1, T + 1):
        policies.append(pi)
        learner.add(agent.play(t, lambda h, x, pi=pi: int(pi[h - 1, x]), H))
        now = logdets(learner.grams())
        if t < T and (now - base > math.log(eta) + 1e-9).any():
            base = now
            pi = learner.policy(agent, run, advice_for(advice, len(firsts)))
            firsts.append(t + 1)
    return firsts, policies, run


def literal_async(
    envs: Any, phi: Array, M: int, T: int, seed: int, lam: float, beta: float,
    clip: Sequence[float], alpha: float, turns: Sequence[int],
) -> tuple[list[tuple[int, int]], list[Array], Learner]:  # fmt: skip
    """Async-Coop-LSVI-UCB: [(k, agent) of messages], the policy of every global episode, server."""
    agents, H, run = worlds(envs, M, seed), len(clip), LiteralRun()
    server = Learner(phi, H, lam, beta, clip)
    empty = server.model()
    models, played = [empty] * M, [0] * M
    unsent: list[list[Any]] = [[] for _ in range(M)]
    events, policies = [], []
    for k, m in enumerate(turns):
        played[m] += 1
        pi = table(Greedy(lambda x: phi[x], models[m], beta, run), agents[m], H)
        policies.append(pi)
        unsent[m].append(agents[m].play(played[m], lambda h, x, pi=pi: int(pi[h - 1, x]), H))
        local = models[m][1].copy()
        for path in unsent[m]:
            for i, (x, a, _, _) in enumerate(path):
                local[i] += np.outer(phi[x, a], phi[x, a])
        if (logdets(local) - logdets(models[m][1]) > math.log1p(alpha) + 1e-9).any():
            for path in unsent[m]:
                server.add(path)
            unsent[m], models[m] = [], server.model()
            events.append((k, m))
    return events, policies, server
