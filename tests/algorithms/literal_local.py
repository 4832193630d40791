"""Slow, literal codes of the algorithms that learn locally, of PSRL and of pooled UCBVI's relative.

One agent, one episode, one step at a time; every random action is drawn on arrival, from the draw
that is keyed by (seed, agent, episode) and by (h, x).
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from literal import Array, greedy_table, uniform, worlds

STREAM = 5


@dataclass
class Local:
    """What a literal run did."""

    tables: list[Array] = field(default_factory=list)  # of agent 0, after every episode
    actions: list[list[list[int]]] = field(default_factory=list)  # [t − 1][m][h − 1]
    rounds: int = 0
    switches: list[int] = field(default_factory=list)


def best(scores: Array) -> int:
    return int(greedy_table(np.asarray(scores)[None, None])[0, 0])


def literal_q_avg(
    envs: Any, M: int, T: int, seed: int, rate: float, epsilon: float, period: int,
    importance: bool, first: Array,
) -> Local:  # fmt: skip
    """Local Q-learning; ε-greedy; averages weighted equally or by (1 − η)^{−N}."""
    agents, out = worlds(envs, M, seed), Local()
    env = agents[0].env
    H, S, A = env.horizon, env.n_states, env.n_actions
    Q = [np.repeat(first, S * A).reshape(H, S, A) for _ in range(M)]
    visits = [np.zeros((H, S, A), int) for _ in range(M)]
    for t in range(1, T + 1):
        row = []
        for m in range(M):
            q = Q[m]

            def act(h: int, x: int, m: int = m, q: Array = q, t: int = t) -> int:
                at = 2 * ((h - 1) * S + x)
                if uniform(seed, m, t, at, STREAM) < epsilon:
                    return int(uniform(seed, m, t, at + 1, STREAM) * A)
                return best(q[h - 1, x])

            path = agents[m].play(t, act, H)
            row.append([a for _, a, _, _ in path])
            for h, (x, a, r, y) in enumerate(path):
                ahead = max(q[h + 1, y]) if h + 1 < H else 0.0
                q[h, x, a] += rate * (r + ahead - q[h, x, a])
                visits[m][h, x, a] += 1
        out.actions.append(row)
        if period and (t % period == 0 or t == T):
            out.rounds += 1
            mean = np.zeros((H, S, A))
            for h in range(H):
                for x in range(S):
                    for a in range(A):
                        n = [int(v[h, x, a]) for v in visits]
                        w = [(1.0 - rate) ** -k if importance else 1.0 for k in n]
                        mean[h, x, a] = sum(
                            wi / sum(w) * q[h, x, a] for wi, q in zip(w, Q, strict=True)
                        )
            Q = [mean.copy() for _ in range(M)]
            visits = [np.zeros((H, S, A), int) for _ in range(M)]
        out.tables.append(Q[0].copy())
    return out


def literal_sarsa(
    envs: Any, phi: Array, M: int, T: int, seed: int, rate: float, temperatures: Array, period: int
) -> Local:
    """θ_h += α φ (r + θ_{h+1}ᵀφ' − θ_hᵀφ), actions by a softmax, averages of θ."""
    agents, out = worlds(envs, M, seed), Local()
    env = agents[0].env
    H, (S, A, d) = env.horizon, phi.shape
    theta = [np.zeros((H, d)) for _ in range(M)]
    for t in range(1, T + 1):
        row = []
        for m in range(M):
            w = theta[m]
            frozen = w.copy()  # the softmax of an episode is that of its beginning

            def act(h: int, x: int, m: int = m, w: Array = frozen, t: int = t) -> int:
                scores = []
                for a in range(A):
                    u = uniform(seed, m, t, ((h - 1) * S + x) * A + a, STREAM)
                    scores.append(
                        float(phi[x, a] @ w[h - 1]) / temperatures[h - 1] - math.log(-math.log(u))
                    )
                return int(np.argmax(scores))

            path = agents[m].play(t, act, H)
            row.append([a for _, a, _, _ in path])
            for h, (x, a, r, _) in enumerate(path):
                ahead = 0.0
                if h + 1 < H:
                    x2, a2, _, _ = path[h + 1]
                    ahead = float(phi[x2, a2] @ w[h + 1])
                w[h] += rate * (r + ahead - float(phi[x, a] @ w[h])) * phi[x, a]
        out.actions.append(row)
        if period and (t % period == 0 or t == T):
            out.rounds += 1
            mean = sum(theta) / M
            theta = [np.array(mean) for _ in range(M)]
        out.tables.append(theta[0].copy())
    return out


def literal_ucb2(
    envs: Any, M: int, T: int, seed: int, c: float, p: float, top: Array
) -> list[Local]:
    """Q-learning with UCB2 exploration; the sequence of renewals as a set."""
    agents, found = worlds(envs, M, seed), []
    env = agents[0].env
    H, S, A = env.horizon, env.n_states, env.n_actions
    iota = math.log(2 * S * A * H * M * T / p)
    eta = 1.0 / (2 * H * (H + 1))
    star = math.ceil(math.log(10 * H**2) / math.log(1 + eta))
    tau = [math.ceil((1 + eta) ** r) for r in range(star, star + 400)]
    due = set(range(1, tau[0] + 1)) | set(tau)
    for m in range(M):
        out = Local()
        Q = np.repeat(top, S * A).reshape(H, S, A)
        running, N = Q.copy(), np.zeros((H, S, A), int)
        switches = 0
        for t in range(1, T + 1):
            acting = greedy_table(Q)
            path = agents[m].play(t, lambda h, x, pi=acting: int(pi[h - 1, x]), H)
            for h, (x, a, r, y) in enumerate(path):
                N[h, x, a] += 1
                n = int(N[h, x, a])
                alpha = (H + 1) / (H + n)
                ahead = min(top[h + 1], running[h + 1, y].max()) if h + 1 < H else 0.0
                bonus = c * math.sqrt(H**3 * iota / n)
                running[h, x, a] = (1 - alpha) * running[h, x, a] + alpha * (r + ahead + bonus)
                if n in due:
                    Q[h, x] = running[h, x]
            switches += not np.array_equal(acting, greedy_table(Q))
            out.tables.append(Q.copy())
            out.switches.append(switches)
        found.append(out)
    return found


def posterior_counts(envs: Any, tables: list[Array], taus: list[int], seed: int) -> dict[Any, Any]:
    """Rewards and next states of every (h, x, a), of agents that follow tables[k][m] in round k."""
    M = len(tables[0])
    agents, data = worlds(envs, M, seed), defaultdict(list)
    for k, (first, after) in enumerate(pairwise(taus)):
        for t in range(first, after):
            for m in range(M):
                pi = tables[k][m]
                path = agents[m].play(t, lambda h, x, pi=pi: int(pi[h - 1, x]), len(pi))
                for h, (x, a, r, y) in enumerate(path):
                    data[h, x, a].append((r, y))
    return data
