"""How should agents differ, and by how much? (`diversity=`, docs/diversity.md)

`python -m studies.diversity ways` compares variants in a small simulation: counts, one model for
all steps, 40 rounds, the pass without a bonus at the end.
`python -m studies.diversity sizes FILE` runs Fed-LSVI with several σ on the seven families,
FrozenLake and empty rooms, and prints both tables; FILE keeps every run, so the study can be
stopped and resumed.

Everything in capitals was fixed before the first run of `sizes`, and so was the rule. The preset's
σ is the one with the lowest mean score on deterministic worlds (tuning instances) among those whose
mean score on stochastic worlds is at most `HARMLESS` times that of σ = 0. It is on for stochastic
tables too only if it lowers the mean score there below `USEFUL` times that of σ = 0.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from fedlsvi import FedLSVI
from fedlsvi.core.trigger import schedule
from fedlsvi.envs import as_environment
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.experiments.runner import uniform
from fedlsvi.features import OneHot
from studies.practical import FAMILIES

TUNE, TEST = range(10, 14), range(1000, 1004)
"""Instances to choose on, and to report on; the number also seeds the run."""

AGENTS, EPISODES = 4, 500
SIZES = (0.0, 0.1, 0.2, 0.4, 0.8)
HARMLESS, USEFUL = 1.05, 0.95


def room(side: int, horizon: int) -> FiniteMDP:
    """MiniGrid's empty room as a table: place and direction; left, right, forward; the far corner
    pays 1 and ends the episode."""
    inner = side - 2
    n = inner * inner * 4
    P, r = np.zeros((n + 1, 3, n + 1)), np.zeros((n + 1, 3))
    P[n, :, n] = 1.0
    for x in range(n):
        place, way = divmod(x, 4)
        column, row = place % inner, place // inner
        P[x, 0, 4 * place + (way - 1) % 4] = P[x, 1, 4 * place + (way + 1) % 4] = 1.0
        right, down = ((1, 0), (0, 1), (-1, 0), (0, -1))[way]
        column = min(max(column + right, 0), inner - 1)
        row = min(max(row + down, 0), inner - 1)
        goal = column == row == inner - 1
        P[x, 2, n if goal else 4 * (row * inner + column) + way] = 1.0
        r[x, 2] = float(goal)
    return FiniteMDP(P, r, horizon=horizon, initial=0, name=f"room {side}x{side}")


def lake(_: int = 0) -> FiniteMDP:
    """FrozenLake, slippery."""
    env = as_environment("FrozenLake-v1", horizon=50)
    assert isinstance(env, FiniteMDP)
    return env


WORLDS: dict[str, Callable[[int], FiniteMDP]] = {
    **FAMILIES,
    "FrozenLake": lake,
    "room 5x5": lambda _: room(5, 30),
    "room 6x6": lambda _: room(6, 60),
    "room 8x8": lambda _: room(8, 60),
}


# ── ways ────────────────────────────────────────────────────────────────────────────────────────

FROZEN, PER_ROUND, PER_EPISODE, EPSILON, REFRESH = range(5)
WAYS: dict[str, tuple[int, float]] = {
    "one policy per round": (FROZEN, 0.0),
    "bonus ±20 %, per agent and round": (PER_ROUND, 0.2),
    "bonus ±50 %, per agent and round": (PER_ROUND, 0.5),
    "bonus ±20 %, per agent and episode": (PER_EPISODE, 0.2),
    "bonus ±50 %, per agent and episode": (PER_EPISODE, 0.5),
    "ε = .05": (EPSILON, 0.05),
    "own counts in the bonus": (REFRESH, 0.0),
}


@njit(cache=True)
def simulate_way(to, p, r, x0, M, points, horizon, way, size, rng):  # type: ignore[no-untyped-def]
    """Earned per episode while learning, and the greedy policy (H, S) at the end.

    to and p, (S, A, B), are the next states and their probabilities; r is (S, A).
    """
    S, A, B = to.shape
    beta, lam = 0.2, 0.001
    N, C = np.full((S, A), lam), np.zeros((S, A, B))
    w, V = np.zeros((horizon, S, A)), np.ones((horizon + 1, S))
    V[horizon] = 0.0
    policy = np.zeros((horizon, S), np.int64)
    t, earned = 0, 0.0
    for end in points:
        seen = np.zeros((S, A, B))
        for _ in range(M):
            own, zeta = np.zeros((S, A)), np.zeros((S, A))
            for e in range(end - t):
                if way == PER_EPISODE or (way == PER_ROUND and e == 0):
                    zeta = size * (2.0 * rng.random((S, A)) - 1.0)
                x = x0
                for h in range(horizon):
                    best, a = -np.inf, 0
                    for b in range(A):
                        n = N[x, b] + (own[x, b] if way == REFRESH else 0.0)
                        score = w[h, x, b] + beta * (1.0 + zeta[x, b]) / np.sqrt(n)
                        if score > best + 1e-9 * abs(best) or b == 0:
                            best, a = score, b
                    if way == EPSILON and rng.random() < size:
                        a = int(rng.random() * A)
                    u, k = rng.random(), 0
                    while k < B - 1 and u >= p[x, a, k]:
                        u -= p[x, a, k]
                        k += 1
                    seen[x, a, k] += 1.0
                    own[x, a] += 1.0
                    earned += r[x, a]
                    x = to[x, a, k]
        t = end
        C += seen
        for x in range(S):
            for a in range(A):
                N[x, a] += seen[x, a].sum()
        for bonus in (beta, 0.0 if end == points[-1] else beta):
            for h in range(horizon - 1, -1, -1):
                for x in range(S):
                    top, best = -np.inf, -np.inf
                    for a in range(A):
                        target = 0.0
                        for k in range(B):
                            target += C[x, a, k] * (r[x, a] + V[h + 1, to[x, a, k]])
                        w[h, x, a] = target / N[x, a]
                        score = w[h, x, a] + bonus / np.sqrt(N[x, a])
                        top = max(top, score)
                        if score > best + 1e-9 * abs(best) or a == 0:
                            best, policy[h, x] = score, a
                    V[h, x] = min(max(top, 0.0), 1.0)
    return earned / (M * points[-1]), policy


def successors(P: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Next states and their probabilities (S, A, B) of P (S, A, S)."""
    most = int((P > 0.0).sum(axis=-1).max())
    to = np.argsort(-P, axis=-1, kind="stable")[..., :most]
    return to, np.take_along_axis(P, to, axis=-1)


def ways(seeds: int = 10) -> None:
    """Print what each way earns while learning, and at the end."""
    worlds = {
        "room 5x5": (room(5, 30), 4, 500), "room 6x6": (room(6, 60), 4, 500),
        "room 8x8": (room(8, 60), 4, 500), "room 8x8, M = 16": (room(8, 60), 16, 125),
        "FrozenLake": (lake(), 4, 1000),
    }  # fmt: skip
    print("| variant | " + " | ".join(worlds) + " |\n|---" + "|---" * len(worlds) + "|")
    for name, (way, size) in WAYS.items():
        cells = []
        for env, M, T in worlds.values():
            points, x0 = schedule(T, 40), int(env.first_state(0, 0.0))
            at = (*successors(env.P[0]), env.r[0].copy(), x0, M, points, env.horizon, way, size)
            found = [simulate_way(*at, np.random.default_rng(seed)) for seed in range(seeds)]
            during = np.mean([one[0] for one in found])
            after = [env.policy_values(one[1])[0, x0] for one in found]
            cells.append(f"{during:.2f}, {np.mean(after):.2f}")
        print("| " + " | ".join([name, *cells]) + " |", flush=True)


# ── sizes ───────────────────────────────────────────────────────────────────────────────────────


def score(world: str, instance: int, size: float) -> dict[str, Any]:
    """Regret over that of the uniform policy, and the loss of the policy to deploy over that of
    the uniform one."""
    env = WORLDS[world](instance)
    phi = OneHot().bind(env) if world.endswith("one-hot") else env.default_features()
    top = 1.0 if world.startswith(("room", "Frozen")) else None
    learner = FedLSVI(AGENTS, diversity=size, value_range=top)
    run = learner.learn(env, EPISODES, instance, features=phi, progress=False, threads=1)
    assert run.regret is not None
    law = env.initial_law(0)
    best = law @ env.optimal_values()[0]
    got = law @ env.policy_values(run.policy.table)[0]
    worst = law @ env.uniform_values()[0]
    whole = uniform([env], AGENTS, EPISODES)
    assert whole is not None
    return {
        "world": world, "instance": instance, "size": size, "repeats": env.repeats,
        "regret": float(run.regret[-1] / whole), "loss": float((best - got) / (best - worst)),
    }  # fmt: skip


def sizes(path: Path) -> None:
    """Play what is missing, choose, and print both tables."""
    lines = path.read_text().splitlines() if path.exists() else []
    known = {(r["world"], r["instance"], r["size"]): r for r in map(json.loads, lines)}
    with path.open("a") as file:
        for instance in (*TUNE, *TEST):
            for world in WORLDS:
                for size in SIZES:
                    if (world, instance, size) not in known:
                        made = score(world, instance, size)
                        file.write(json.dumps(made) + "\n")
                        file.flush()
                        known[world, instance, size] = made
    for instances, title in ((TUNE, "chosen on"), (TEST, "held out")):
        print_sizes(known, instances, title)


def print_sizes(
    known: dict[tuple[str, int, float], dict[str, Any]], instances: range, title: str
) -> None:
    """Mean regret and loss of each world and σ, and the means over worlds."""
    print(f"\n| {title} | stochastic | " + " | ".join(f"σ = {s:g}" for s in SIZES) + " |")
    print("|---" * (len(SIZES) + 2) + "|")
    means = {}
    for world in WORLDS:
        rows = [[known[world, i, s] for i in instances] for s in SIZES]
        means[world] = np.array([np.mean([r["regret"] for r in row]) for row in rows])
        loss = [np.mean([r["loss"] for r in row]) for row in rows]
        cells = [f"{a:.3f}, {b:.3f}" for a, b in zip(means[world], loss, strict=True)]
        stochastic = "no" if rows[0][0]["repeats"] else "yes"
        print(f"| {world} | {stochastic} | " + " | ".join(cells) + " |")
    for text, repeats in (("stochastic", False), ("deterministic", True)):
        of = [m for w, m in means.items() if known[w, instances[0], 0.0]["repeats"] == repeats]
        over = np.exp(np.mean(np.log(np.array(of) / np.array(of)[:, :1]), axis=0))
        cells = [f"{value:.3f}" for value in over]
        print(f"| {text} worlds, regret relative to σ = 0 | | {' | '.join(cells)} |")


def main() -> None:
    """Run one part of the study."""
    if sys.argv[1:2] == ["ways"]:
        ways()
    elif sys.argv[1:2] == ["sizes"] and len(sys.argv) == 3:
        sizes(Path(sys.argv[2]))
    else:
        print(__doc__)


if __name__ == "__main__":
    main()
