"""Off-policy evaluation the slow way: pooled transitions, one regression for each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from literal_pevi import transitions

Q = Callable[[int, int, int], float]


def value_of(q: Q, table: np.ndarray | None, n_actions: int, h: int, x: int) -> float:
    """Q of the table's action; without a table, the mean of all."""
    each = range(n_actions) if table is None else [table[h - 1, x]]
    return float(np.mean([q(h, x, a) for a in each]))


def literal_q(
    logs: list[dict[str, Any]], table: np.ndarray | None, phi: Any, H: int, d: int, lam: float,
    stationary: bool = False, most: bool = False, n_actions: int = 3,
) -> Q:  # fmt: skip
    """(h, x, a) ↦ Q_h(x, a): pooled transitions, one regression per step; `most` adds the most that
    what was not seen may be worth."""
    read = [transitions(log, H, stationary) for log in logs]
    w, grams = np.zeros((H + 1, d)), np.stack([lam * np.eye(d)] * (H + 1))

    def q(h: int, x: int, a: int) -> float:
        f, top = phi(x, a), H - h + 1
        share = lam * f @ np.linalg.solve(grams[h - 1], f) if most else 0.0
        return float(np.clip(f @ w[h - 1] + top * share, 0.0, top))

    for h in range(H, 0, -1):
        gram, b = grams[h - 1], np.zeros(d)
        steps = range(H) if stationary else [h - 1]
        for x, a, r, y in (row for log in read for step in steps for row in log[step]):
            f = phi(x, a)
            gram += np.outer(f, f)
            b += f * (
                r + (value_of(q, table, n_actions, h + 1, y) if y is not None and h < H else 0.0)
            )
        w[h - 1] = np.linalg.solve(gram, b)
    return q


def literal_value(
    logs: list[dict[str, Any]], table: np.ndarray | None, phi: Any, H: int, d: int, lam: float,
    stationary: bool = False, most: bool = False, n_actions: int = 3,
) -> float:  # fmt: skip
    """The mean of V₁ over first states."""
    q = literal_q(logs, table, phi, H, d, lam, stationary, most, n_actions)
    first = [x for log in logs for x, h in zip(log["observation"], log["step"], strict=True)
             if h == 1]  # fmt: skip
    return float(np.mean([value_of(q, table, n_actions, 1, x) for x in first]))


def literal_doubly_robust(
    logs: list[dict[str, Any]], table: np.ndarray | None, phi: Any, H: int, d: int, lam: float,
    stationary: bool = False, n_actions: int = 3,
) -> float:  # fmt: skip
    """That, and at every step the mean of r + V(x') − Q(x, a) over episodes, weighted by ρ: one
    episode after the other. One that is over counts with 0, and not where nobody knows x'."""
    q = literal_q(logs, table, phi, H, d, lam, stationary)
    off, total = np.zeros(H), np.zeros(H)
    for log in logs:
        for episode in np.unique(log["episode"]):
            rows, ratio = np.flatnonzero(log["episode"] == episode), 1.0
            for h, i in enumerate(rows, start=1):
                x, a = log["observation"][i], log["action"][i]
                share = 1.0 / n_actions if table is None else a == table[h - 1, x]
                ratio *= share / log["probability"][i]
                ahead: Any = 0.0
                if h < H and not log["terminated"][i]:
                    y: Any = None
                    if i < rows[-1]:
                        y = log["observation"][i + 1]
                    elif "next_observation" in log:
                        y = log["next_observation"][i]
                    ahead = None if y is None else value_of(q, table, n_actions, h + 1, y)
                if ahead is None:
                    break
                off[h - 1] += ratio * (log["reward"][i] + ahead - q(h, x, a))
                total[h - 1] += ratio
                if log["terminated"][i]:
                    total[h:] += ratio
    corrected = sum(o / t for o, t in zip(off, total, strict=True) if t > 0.0)
    return literal_value(logs, table, phi, H, d, lam, stationary) + corrected


def literal_importance(logs: list[dict[str, Any]], table: np.ndarray) -> float:
    """Σρ·return/Σρ, one episode after the other."""
    ratios, returns = [], []
    for log in logs:
        for episode in np.unique(log["episode"]):
            rows = log["episode"] == episode
            same = log["action"][rows] == table[log["step"][rows] - 1, log["observation"][rows]]
            ratios.append(np.prod(same / log["probability"][rows]))
            returns.append(log["reward"][rows].sum())
    return float(np.dot(ratios, returns) / np.sum(ratios))
