"""Slow, literal codes of the tabular comparators and of LSVI-UCB++, with the papers' own sums.

The Q-learning steps are written with θ_t^i = α_i Π_{j>i}(1 − α_j) and α_agg, never as a loop of
updates; value iteration and regressions run over explicit lists of transitions.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from literal import Array, World, greedy_table, worlds

Cell = tuple[int, int]  # (h, x), h from 0


@dataclass
class Outcome:
    """What a literal run did."""

    taus: list[int] = field(default_factory=lambda: [1])
    policies: list[Array] = field(default_factory=list)  # of each round
    Q: Array = field(default_factory=lambda: np.empty(0))


def play_round(
    agents: Sequence[World], pi: Array, t: int, T: int, limit: Callable[[int, int, int], float]
) -> tuple[int, list[list[Any]]]:
    """Episodes t + 1, … until some agent's visits of some (h, x) reach limit(m, h, x)."""
    H = len(pi)
    paths: list[list[Any]] = [[] for _ in agents]
    visits: list[dict[Cell, int]] = [defaultdict(int) for _ in agents]
    while t < T:
        t += 1
        over = False
        for m, agent in enumerate(agents):
            path = agent.play(t, lambda h, x: int(pi[h - 1, x]), H)
            paths[m].append(path)
            for h, (x, _, _, _) in enumerate(path):
                visits[m][h, x] += 1
                over |= visits[m][h, x] >= limit(m, h, x)
        if over:
            break
    return t, paths


def by_cell(paths: list[Any], V: Array) -> dict[Cell, list[tuple[float, float, int]]]:
    """(reward, V_{h+1}(x'), x') of every visit of (h, x)."""
    found: dict[Cell, list[tuple[float, float, int]]] = defaultdict(list)
    for path in paths:
        for h, (x, _, r, y) in enumerate(path):
            found[h, x].append((r, float(V[h + 1, y]) if h + 1 < len(path) else 0.0, y))
    return found


def rate(t: int, H: int) -> float:
    return (H + 1.0) / (H + t)


def theta(i: int, t: int, H: int) -> float:
    """α_i Π_{i<j≤t}(1 − α_j)."""
    return rate(i, H) * math.prod(1.0 - rate(j, H) for j in range(i + 1, t + 1))


def literal_fedq(
    envs: Any, M: int, T: int, seed: int, c: float, p: float, top: Sequence[float], bernstein: bool
) -> Outcome:
    """FedQ-Hoeffding and FedQ-Bernstein."""
    agents, out = worlds(envs, M, seed), Outcome()
    env = agents[0].env
    H, S, A = env.horizon, env.n_states, env.n_actions
    iota = math.log(2 * S * A * H * M * T / p)
    Q = np.repeat(np.asarray(top), S * A).reshape(H, S, A)
    N = np.zeros((H, S, A), int)
    W1, W2, beta = np.zeros((H, S, A)), np.zeros((H, S, A)), np.zeros((H, S, A))
    extra = math.sqrt(H**7 * S * A) + math.sqrt(M * S * A * H**6)
    t = 0
    while t < T:
        V = np.minimum(Q.max(axis=2), np.asarray(top)[:, None])
        pi = greedy_table(Q)
        out.policies.append(pi)
        frozen = N.copy()

        def limit(m: int, h: int, x: int, pi: Array = pi, N: Array = frozen) -> float:
            return max(1, N[h, x, pi[h, x]] // (M * H * (H + 1)))

        t, paths = play_round(agents, pi, t, T, limit)
        out.taus.append(t + 1)
        seen = [by_cell(paths[m], V) for m in range(M)]
        for h in range(H):
            for x in range(S):
                mine = [seen[m].get((h, x), []) for m in range(M)]
                n = [len(v) for v in mine]
                if sum(n) == 0:
                    continue
                a = pi[h, x]
                t0, t1 = int(N[h, x, a]), int(N[h, x, a]) + sum(n)
                kept = math.prod(1.0 - rate(s, H) for s in range(t0 + 1, t1 + 1))
                r = [np.mean([r for r, _, _ in v]) if v else 0.0 for v in mine]
                v = [np.mean([w for _, w, _ in v]) if v else 0.0 for v in mine]
                if t0 < 2 * M * H * (H + 1):
                    order = [m for m in range(M) for _ in range(n[m])]
                    aim = sum(theta(t0 + j + 1, t1, H) * (r[m] + v[m]) for j, m in enumerate(order))
                else:
                    mean = sum(n[m] * (r[m] + v[m]) for m in range(M)) / sum(n)
                    aim = (1.0 - kept) * mean
                if bernstein:
                    for m in range(M):
                        W1[h, x, a] += sum(w * w for _, w, _ in mine[m])
                        W2[h, x, a] += sum(w for _, w, _ in mine[m])
                    W = max(W1[h, x, a] / t1 - (W2[h, x, a] / t1) ** 2, 0.0)
                    now = c * min(
                        math.sqrt(H * iota / t1 * (W + H)) + iota * extra / t1,
                        math.sqrt(H**3 * iota / t1),
                    )
                    bonus = 0.5 * (now - kept * beta[h, x, a])
                    beta[h, x, a] = now
                else:
                    bonus = sum(
                        theta(s, t1, H) * c * math.sqrt(H**3 * iota / s)
                        for s in range(t0 + 1, t1 + 1)
                    )
                Q[h, x, a] = kept * Q[h, x, a] + aim + bonus
                N[h, x, a] = t1
    out.Q = Q
    return out


def literal_advantage(
    envs: Any, M: int, T: int, seed: int, c: float, top: Sequence[float], wanted: int
) -> Outcome:
    """FedQ-Advantage; every cell keeps the list of what it saw, and of what it saw this stage."""
    agents, out = worlds(envs, M, seed), Outcome()
    env = agents[0].env
    H, S, A = env.horizon, env.n_states, env.n_actions
    Q = np.repeat(np.asarray(top), S * A).reshape(H, S, A)
    V = np.vstack([np.repeat(np.asarray(top), S).reshape(H, S), np.zeros(S)])
    ref, settled = V.copy(), np.zeros((H, S), bool)
    ever: dict[Any, list[Any]] = defaultdict(list)
    stage: dict[Any, list[Any]] = defaultdict(list)
    previous: dict[Any, int] = defaultdict(int)
    t = 0
    while t < T:
        pi = greedy_table(Q)
        out.policies.append(pi)
        now = {key: len(v) for key, v in stage.items()}
        past = dict(previous)

        def limit(
            m: int, h: int, x: int, pi: Array = pi, now: Any = now, past: Any = past
        ) -> float:
            key = (h, x, int(pi[h, x]))
            before, current = past.get(key, 0), now.get(key, 0)
            if before == 0:
                return 1
            if current > (1 - 1 / H) * before:
                return max(1, before // (M * H))
            return max(1, math.ceil((before - current) / M))

        t, paths = play_round(agents, pi, t, T, limit)
        out.taus.append(t + 1)
        touched = set()
        for m in range(M):
            for (h, x), visits in by_cell(paths[m], V).items():
                key = (h, x, int(pi[h, x]))
                touched.add(key)
                for r, v, y in visits:
                    entry = (r, v, float(ref[h + 1, y]))
                    ever[key].append(entry)
                    stage[key].append(entry)
        for h, x, a in touched:
            key = (h, x, a)
            n, N, before = len(stage[key]), len(ever[key]), previous[key]
            if n < (M * H if before == 0 else (1 + 1 / H) * before):
                continue
            r = np.mean([r for r, _, _ in ever[key]])
            v = np.array([v for _, v, _ in stage[key]])
            adv = np.array([v - f for _, v, f in stage[key]])
            refs = np.array([f for _, _, f in ever[key]])
            next_range = min(H - 1 - h, top[h + 1]) if h + 1 < H else 0.0
            plain = v.mean() + c * math.sqrt(2 * next_range**2 / n)
            split = refs.mean() + adv.mean()
            split += 2 * c * (math.sqrt(refs.var() / N) + math.sqrt(adv.var() / n))
            Q[h, x, a] = min(Q[h, x, a], r + min(plain, split))
            previous[key], stage[key] = n, []
        V[:H] = np.minimum(Q.max(axis=2), np.asarray(top)[:, None])
        for h in range(H):
            for x in range(S):
                visits_of = sum(len(ever[h, x, a]) - len(stage[h, x, a]) for a in range(A))
                if visits_of >= wanted and not settled[h, x]:
                    ref[h, x], settled[h, x] = V[h, x], True
    out.Q = Q
    return out


def literal_ucbvi(
    envs: Any, M: int, T: int, seed: int, c: float, top: Sequence[float], late: float | None
) -> Outcome:
    """Fed-UCBVI on explicit lists of transitions; UCBVI, where any visit ends a round, if `late` is
    None."""
    agents, out = worlds(envs, M, seed), Outcome()
    env = agents[0].env
    H, S, A = env.horizon, env.n_states, env.n_actions
    data: list[dict[Any, list[Any]]] = [defaultdict(list) for _ in range(M)]
    pi, Q, t = np.zeros((H, S), int), np.zeros((H, S, A)), 0
    while t < T:
        out.policies.append(pi)
        known = [{key: len(v) for key, v in d.items()} for d in data]

        def limit(m: int, h: int, x: int, pi: Array = pi, known: Any = known) -> float:
            key = (h, x, int(pi[h, x]))
            if late is None:
                return 1.0
            N, mine = sum(k.get(key, 0) for k in known), known[m].get(key, 0)
            return max(1.0, mine if late > N else N / M)

        t, paths = play_round(agents, pi, t, T, limit)
        out.taus.append(t + 1)
        for m in range(M):
            for path in paths[m]:
                for h, (x, a, r, y) in enumerate(path):
                    data[m][h, x, a].append((r, y))
        V, Q, pi = np.zeros((H + 1, S)), np.zeros((H, S, A)), np.zeros((H, S), int)
        for h in reversed(range(H)):
            for x in range(S):
                for a in range(A):
                    pooled = [s for d in data for s in d[h, x, a]]
                    N = len(pooled)
                    if N == 0:
                        Q[h, x, a] = top[h]
                        continue
                    next_values = np.array([V[h + 1, y] for _, y in pooled])
                    mean = np.mean([r for r, _ in pooled]) + next_values.mean()
                    bonus = c * (H / N + math.sqrt(next_values.var() / N)) if N >= 2 else H
                    Q[h, x, a] = min(mean + bonus, top[h])
            pi[h], V[h] = greedy_table(Q[h]), Q[h].max(axis=1)
    out.Q = Q
    return out


def literal_plus(
    env: Any, phi: Array, K: int, seed: int, lam: float, radii: Sequence[float],
    factors: Sequence[float], top: Sequence[float],
) -> tuple[list[int], list[Array], Array]:  # fmt: skip
    """LSVI-UCB++: (episodes before which the tables were renewed, policies, Σ)."""
    (agent,), H = worlds(env, 1, seed), env.horizon
    S, A, d = phi.shape
    beta, bar, tilde = radii
    factor_d, factor_sigma = factors
    reward = np.array([env.reward(h) for h in range(1, H + 1)])
    samples: list[list[Any]] = [[] for _ in range(H)]  # (σ̄⁻², φ, x')
    sigma = np.stack([lam * np.eye(d)] * H)
    score, low = np.full((H, S, A), np.inf), np.zeros((H, S, A))
    V, under = np.vstack([np.repeat(top, S).reshape(H, S), np.zeros(S)]), np.zeros((H + 1, S))
    base = [np.linalg.slogdet(s)[1] for s in sigma]
    renewed, policies = [], []

    def regress(h: int, values: Array) -> Array:
        b = sum((w * f * values[y] for w, f, y in samples[h]), np.zeros(d))
        solved: Array = np.linalg.solve(sigma[h], b)
        return solved

    for k in range(1, K + 1):
        if any(np.linalg.slogdet(sigma[h])[1] - base[h] >= math.log(2.0) for h in range(H)):
            renewed.append(k)
            base = [np.linalg.slogdet(s)[1] for s in sigma]
            for h in reversed(range(H)):
                high, floor = regress(h, V[h + 1]), regress(h, under[h + 1])
                for x in range(S):
                    for a in range(A):
                        f = phi[x, a]
                        u = math.sqrt(f @ np.linalg.solve(sigma[h], f))
                        r = reward[h, x, a]
                        score[h, x, a] = min(score[h, x, a], r + f @ high + beta * u)
                        low[h, x, a] = max(low[h, x, a], r + f @ floor - bar * u, 0.0)
                V[h] = np.clip(score[h].max(axis=1), 0.0, top[h])
                under[h] = low[h].max(axis=1)
        pi = greedy_table(score)
        policies.append(pi)
        path = agent.play(k, lambda h, x, pi=pi: int(pi[h - 1, x]), H)
        added = []
        for h, (x, a, _, y) in enumerate(path):
            f = phi[x, a]
            u = math.sqrt(f @ np.linalg.solve(sigma[h], f))
            at_high, at_low = f @ regress(h, V[h + 1]), f @ regress(h, under[h + 1])
            at_square = f @ regress(h, V[h + 1] ** 2)
            variance = max(np.clip(at_square, 0.0, H**2) - np.clip(at_high, 0.0, H) ** 2, 0.0)
            E = min(tilde * u, H**2) + min(2 * H * bar * u, H**2)
            D = min(factor_d * max(at_high - at_low + 2 * bar * u, 0.0), factor_d / 4 * H)
            deviation = max(
                math.sqrt(variance + E + D + H), math.sqrt(H), factor_sigma * math.sqrt(u)
            )
            added.append((deviation**-2.0, f, y))
        for h, sample in enumerate(added):
            samples[h].append(sample)
            sigma[h] += sample[0] * np.outer(sample[1], sample[1])
    return renewed, policies, sigma
