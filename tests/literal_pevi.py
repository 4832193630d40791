"""Pessimistic value iteration the slow way: one pooled list of transitions, `solve`, no sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Features = Callable[[Any, int], Array]


def transitions(
    log: dict[str, Any], H: int, stationary: bool = False
) -> list[list[tuple[Any, int, float, Any]]]:
    """(x, a, r, x') of each step; x' is None after the end. Rows of one episode stand together.
    Where an episode was cut and nobody knows x', the row is left out. Nothing follows step H,
    unless its data serves other steps too."""
    steps: list[list[tuple[Any, int, float, Any]]] = [[] for _ in range(H)]
    n = len(log["step"])
    for i in range(n):
        h = int(log["step"][i])
        last = i + 1 == n or log["episode"][i + 1] != log["episode"][i]
        following: Any = None
        if not log["terminated"][i] and (h < H or stationary):
            if not last:
                following = log["observation"][i + 1]
            elif "next_observation" in log:
                following = log["next_observation"][i]
            else:
                continue
        here = (log["observation"][i], int(log["action"][i]), float(log["reward"][i]), following)
        steps[h - 1].append(here)
    return steps


def pevi(
    logs: list[dict[str, Any]], phi: Features, n_actions: int, H: int, d: int, lam: float,
    beta: float, after: float = 0.0, stationary: bool = False,
    allowed: list[Callable[[int, Any], list[int]]] | None = None,
) -> tuple[Array, Array, Callable[..., tuple[int, float]]]:  # fmt: skip
    """w (H, d), Λ (H, d, d) and (h, x) ↦ (π̂_h(x), V̂_h(x)) from all logs in one place; the policy
    of log m keeps to allowed[m]."""
    read = [transitions(log, H, stationary) for log in logs]
    steps = [[(*row, m) for m, log in enumerate(read) for row in log[h]] for h in range(H)]
    if stationary:
        steps = [[row for step in steps for row in step]] * H
    w, gram = np.zeros((H, d)), np.zeros((H, d, d))

    def best(h: int, x: Any, m: int = 0) -> tuple[int, float]:
        which = range(n_actions) if allowed is None else allowed[m](h, x)
        scores = []
        for a in range(n_actions):
            f = phi(x, a)
            scores.append(f @ w[h - 1] - beta * np.sqrt(f @ np.linalg.solve(gram[h - 1], f)))
        a = which[0]
        for other in which[1:]:  # the lowest of those that only rounding tells apart
            if scores[other] > scores[a] + 1e-9 * abs(scores[a]):
                a = other
        return a, float(min(max(max(scores[a] for a in which), 0.0), H - h + 1))

    for h in range(H, 0, -1):
        gram[h - 1] = lam * np.eye(d)
        b = np.zeros(d)
        for x, a, r, y, m in steps[h - 1]:
            f = phi(x, a)
            gram[h - 1] += np.outer(f, f)
            ahead = 0.0
            if h < H:
                ahead = best(h + 1, y, m)[1] if y is not None else (H - h) * after
            b += f * (r + ahead)
        w[h - 1] = np.linalg.solve(gram[h - 1], b)
    return w, gram, best
