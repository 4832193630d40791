"""The relatives of Fed-LSVI that it must reduce to, each written on its own and without rounds.

LSVI-UCB (Jin et al. 2020) for one agent; the same on the pooled data of M agents; and Fed-LSVI on
one-hot features as a code that only ever counts. None of them calls `literal_fed_lsvi`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from literal import (
    Array,
    Bonus,
    Features,
    Greedy,
    LiteralRun,
    Model,
    State,
    advice_for,
    at_step,
    feature_lookup,
    follow,
    freeze,
    literal_regret,
    upper_bounds,
    value,
    worlds,
)

Sample = tuple[Array, float, State]  # φ(x, a), r, x′


def ridge_by_least_squares(rows: Array, targets: Array, lam: float) -> Array:
    """argmin_w Σ(wᵀφ − y)² + λ‖w‖² as one stacked least-squares problem: no Gram matrix at all."""
    d = rows.shape[1]
    design = np.vstack([rows, math.sqrt(lam) * np.eye(d)])
    w: Array = np.linalg.lstsq(design, np.concatenate([targets, np.zeros(d)]), rcond=None)[0]
    return w


def pooled_backup(
    samples: Sequence[Sequence[Sample]],
    features: Features,
    d: int,
    lam: float,
    beta: Bonus,
    upper: Sequence[float],
) -> Model:
    """LSVI's backward pass over samples[h − 1]: regress, build Q_h and V_h, go to h − 1."""
    phi, H = feature_lookup(features), len(samples)
    w, gram = np.zeros((H, d)), np.zeros((H, d, d))
    for i in reversed(range(H)):
        rows = np.array([f for f, _, _ in samples[i]]).reshape(-1, d)
        gram[i] = lam * np.eye(d) + rows.T @ rows
        targets = [r for _, r, _ in samples[i]]
        for j, (_, _, y) in enumerate(samples[i] if i + 1 < H else []):
            targets[j] += value(phi(y), w[i + 1], gram[i + 1], at_step(beta, i + 2), upper[i + 1])
        if targets:
            w[i] = ridge_by_least_squares(rows, np.array(targets), lam)
    return w, gram


def literal_pooled_lsvi_ucb(
    envs: Any,
    features: Features,
    M: int,
    T: int,
    H: int,
    seed: int,
    lam: float,
    beta: Bonus,
    clip: Sequence[float] | None = None,
    *,
    advice: Sequence[Array] | None = None,
) -> LiteralRun:
    """Before episode t: LSVI-UCB on everything that all agents have seen; then all play it."""
    agents = worlds(envs, M, seed)
    phi, upper, run = feature_lookup(features), upper_bounds(clip, H), LiteralRun()
    d = phi(agents[0].first(1)).shape[1]
    samples: list[list[Sample]] = [[] for _ in range(H)]
    model = pooled_backup(samples, features, d, lam, beta, upper)
    for t in range(1, T + 1):
        greedy = Greedy(phi, model, beta, run, advice_for(advice, t - 1))
        policy = freeze(run, greedy, agents[0], H)
        run.trajectories.append([agent.play(t, policy, H) for agent in agents])
        for path in run.trajectories[-1]:
            for i, (x, a, r, y) in enumerate(path):
                samples[i].append((phi(x)[a], r, y))
        model = pooled_backup(samples, features, d, lam, beta, upper)
        run.models.append(model)
        run.taus.append(t + 1)
    run.regret = literal_regret(run, agents)
    return run


def literal_lsvi_ucb(
    env: Any,
    features: Features,
    T: int,
    H: int,
    seed: int,
    lam: float,
    beta: Bonus,
    clip: Sequence[float] | None = None,
    *,
    m: int = 0,
    advice: Sequence[Array] | None = None,
) -> LiteralRun:
    """LSVI-UCB, agent m alone: Λ_h = λI + Σφφᵀ, w_h = Λ_h⁻¹Σφ(r + V_{h+1}(x′)), act greedily."""
    agent = worlds(env, m + 1, seed)[m]
    phi, upper, run = feature_lookup(features), upper_bounds(clip, H), LiteralRun()
    d = phi(agent.first(1)).shape[1]
    w, gram = np.zeros((H, d)), np.stack([lam * np.eye(d)] * H)
    for t in range(1, T + 1):
        greedy = Greedy(phi, (w, gram), beta, run, advice_for(advice, t - 1))
        run.trajectories.append([agent.play(t, freeze(run, greedy, agent, H), H)])
        w, gram = np.zeros((H, d)), np.stack([lam * np.eye(d)] * H)
        for h in range(H, 0, -1):
            b = np.zeros(d)
            for (path,) in run.trajectories:
                x, a, r, y = path[h - 1]
                v = value(phi(y), w[h], gram[h], at_step(beta, h + 1), upper[h]) if h < H else 0.0
                b += phi(x)[a] * (r + v)
                gram[h - 1] += np.outer(phi(x)[a], phi(x)[a])
            w[h - 1] = np.linalg.solve(gram[h - 1], b)
        run.models.append((w, gram))
        run.taus.append(t + 1)
    run.regret = literal_regret(run, [agent])
    return run


def literal_counting(
    envs: Any,
    M: int,
    T: int,
    seed: int,
    lam: float,
    beta: float,
    gamma: float,
    clip: Sequence[float] | None = None,
    *,
    advice: Sequence[Array] | None = None,
) -> LiteralRun:
    """Fed-LSVI on one-hot features with integer counts only (oracle 6):

    Q_h(x, a) = Π[(Σr + Σ_y C(x, a, y)V_{h+1}(y))/(λ + N) + β/√(λ + N)],
    agent m fires when Δt·Π_{x,a}(1 + n_m/(λ + N)) ≥ γ.
    """
    agents = worlds(envs, M, seed)
    S, A, H = (getattr(agents[0].env, name) for name in ("n_states", "n_actions", "horizon"))
    upper, run = upper_bounds(clip, H), LiteralRun()
    seen = np.zeros((H, S, A, S), dtype=int)  # C: every transition of every agent
    earned = np.zeros((H, S, A))
    mean = np.zeros((H, S, A))
    known = np.zeros((H, S, A), dtype=int)  # N: what the server knew at its last synchronisation
    t = 0
    while t < T:
        score = mean + beta / np.sqrt(lam + known)
        table = counting_policy(score, run, advice_for(advice, len(run.signals)))
        run.policies.append(table)
        mine = np.zeros((M, H, S, A), dtype=int)
        firing: set[tuple[int, int]] = set()
        dt = 0
        while not firing and t < T:
            t, dt = t + 1, dt + 1
            run.trajectories.append([agent.play(t, follow(table), H) for agent in agents])
            for m, path in enumerate(run.trajectories[-1]):
                for i, (x, a, r, y) in enumerate(path):
                    seen[i, x, a, y] += 1
                    earned[i, x, a] += r
                    mine[m, i, x, a] += 1
            ratio = np.prod(1.0 + mine / (lam + known), axis=(2, 3))  # (M, H)
            if t < T:
                above = np.argwhere((dt >= gamma) | (dt * ratio >= gamma * (1.0 - 1e-9)))
                firing = {(int(m), int(i) + 1) for m, i in above}
        run.firing.append(firing)
        run.signals.append(set(range(M)) if t == T else {m for m, _ in firing})
        run.taus.append(t + 1)
        known = seen.sum(axis=3)
        v = np.zeros(S)
        for i in reversed(range(H)):
            mean[i] = (earned[i] + seen[i] @ v) / (lam + known[i])
            q = mean[i] + beta / np.sqrt(lam + known[i])
            v = np.clip(q, 0.0, upper[i]).max(axis=1)
        gram = np.stack([np.diag((lam + n).ravel()) for n in known])
        run.models.append((mean.reshape(H, S * A).copy(), gram))
    run.regret = literal_regret(run, agents)
    return run


def counting_policy(score: Array, run: LiteralRun, advised: Array | None) -> Array:
    """argmax with the lowest index, deferring to the advised action at near-ties as `Greedy`."""
    table: Array = score.argmax(axis=2)
    run.decisions += table.size
    if advised is not None:
        best = score.max(axis=2)
        named = np.take_along_axis(score, advised[..., None].astype(int), axis=2)[..., 0]
        defer = (table != advised) & (best - named < 1e-9)
        run.deferred += int(defer.sum())
        table = np.where(defer, advised, table)
    return table
