"""Do coefficients of its own help a site that differs from the others, and cost little elsewhere?

Eight sites have one law of states, ⟨ψ(x, a), μ_h⟩ with ψ on the simplex. Rewards are
⟨ψ(x, a), θ_h⟩ plus the site's offset, drawn from [−s, s]: one for each action ("treatments": what
an action does differs by site), or one for the site ("level": all is better or worse there, and
sites begin in different states). Features are (ψ, e_a)/√2, or (ψ, 1)/√2. The arms:

    one w     the same coefficients for all sites
    ξ         the same with ξ = s, for which β is wider (Theorem 2)
    own       the coefficients of e_a, or of 1, are each site's own (`own_features=`)
    alone     every site learns by itself

Online: regret of Fed-LSVI at its defaults after 1,000 episodes at each site, divided by that of
uniform play. Offline: PEVI at its defaults on 200 episodes of uniform play at each site; the loss
V* − V^π of its policy, averaged over sites, divided by that of uniform play; and, with β = 0, the
error of the estimate, |V̂₁ − V^π₁| at first states, averaged likewise and divided by the same.

Limits, fixed before the first run: at s = 0.25 own coefficients have at most half the regret, loss
and error of one w with treatments, and half the error with levels; at s = 0 they have at most 0.02
more of each. Offsets of one level do not change which action is best: regret is not judged there.

`python -m studies.own_features [instances]` prints the table of own_features.md; the instances are
used for nothing else.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np

from fedlsvi import PEVI, FedLSVI
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.errors import TrafficWarning
from fedlsvi.experiments.verdicts import below, markdown
from fedlsvi.logs.recording import record_episodes
from fedlsvi.logs.world import logged_worlds
from fedlsvi.report.intervals import median
from fedlsvi.run import Run

SITES, STATES, ACTIONS, SHARED, HORIZON = 8, 15, 4, 5, 5
EPISODES, LOGGED = 1_000, 200
SIZES = (0.25, 0.05, 0.0)
KINDS = {"treatments": ACTIONS, "level": 1}
"""How many features are own."""
FACTOR, SLACK = 0.5, 0.02
FIRST = 12_000
"""Instances are numbered from here, apart from those of other studies."""
ARMS = ("one w", "ξ", "own", "alone")

Scores = dict[str, float]


def sites(kind: str, size: float, instance: int) -> list[FiniteMDP]:
    """Sites with offsets of this size; those of another size differ in nothing else."""
    rng = np.random.default_rng([FIRST, instance])
    psi = rng.dirichlet(np.full(SHARED, 0.3), (STATES, ACTIONS))
    mu = rng.dirichlet(np.full(STATES, 0.2), (HORIZON, SHARED))
    theta = rng.random((HORIZON, SHARED))
    own = KINDS[kind]
    offsets = size * (2.0 * rng.random((SITES, own)) - 1.0)
    P = np.einsum("xai,hiy->hxay", psi, mu)
    r = 0.25 + 0.5 * np.einsum("xai,hi->hxa", psi, theta)
    other = np.eye(ACTIONS) if own == ACTIONS else np.ones((ACTIONS, 1))
    other = np.broadcast_to(other, (STATES, ACTIONS, own))
    phi = np.concatenate([psi, other], axis=2) / np.sqrt(2.0)
    starts = np.full((SITES, STATES), 1.0 / STATES)
    if kind == "level":
        starts = np.eye(STATES)[np.arange(SITES) % STATES]
    return [
        FiniteMDP(P, np.clip(r + offset, 0.0, 1.0), initial=start, phi=phi)
        for offset, start in zip(offsets, starts, strict=True)
    ]


def loss(envs: list[FiniteMDP], policies: list[np.ndarray]) -> float:
    """V*₁ − V^π₁ at first states, the mean over sites."""
    gaps = [
        env.initial_law(0) @ (env.optimal_values()[0] - env.policy_values(policy)[0])
        for env, policy in zip(envs, policies, strict=True)
    ]
    return float(np.mean(gaps))


def estimated(envs: list[FiniteMDP], run: Run) -> float:
    """|V̂₁ − V^π₁| at first states, the mean over sites."""
    found = []
    for env, policy in zip(envs, run.agent_policies or (run.policy,) * len(envs), strict=True):
        error = policy.values.values[0] - env.policy_values(policy.table)[0]  # type: ignore[union-attr]
        found.append(float(env.initial_law(0) @ np.abs(error)))
    return float(np.mean(found))


def scores(kind: str, size: float, arm: str, instance: int) -> Scores:
    """One arm on one instance, in units of uniform play."""
    envs = sites(kind, size, instance)
    uniform = loss(envs, [env.uniform_policy() for env in envs])
    groups = [[env] for env in envs] if arm == "alone" else [envs]
    own: dict[str, Any] = {"own_features": KINDS[kind]} if arm == "own" else {}
    regret, lost, error = 0.0, 0.0, 0.0
    for first, group in enumerate(groups):
        M, share, seed = len(group), len(group) / SITES, 100 * instance + first
        width = size if arm == "ξ" else 0.0
        played = FedLSVI(M, xi=width, **own).learn(group, EPISODES, seed, progress=False)
        assert played.regret is not None
        regret += float(played.regret[-1]) / (SITES * EPISODES)
        if arm == "ξ":  # which pevi does not have
            continue
        logs = [record_episodes(env, LOGGED, seed=seed, agent=m) for m, env in enumerate(group)]
        worlds = logged_worlds(logs, like=group[0])
        about: dict[str, Any] = {"features": group[0].default_features(), "progress": False}
        careful = PEVI(M, **own).learn(worlds, **about)
        greedy = PEVI(M, beta=0.0, **own).learn(worlds, **about)
        policies = [p.table for p in careful.agent_policies or (careful.policy,) * M]
        lost += share * loss(group, policies)
        error += share * estimated(group, greedy)
    found = {"regret": regret / uniform}
    return found if arm == "ξ" else found | {"loss": lost / uniform, "error": error / uniform}


def verdict(kind: str, size: float, what: str, own: list[float], one: list[float]) -> str:
    """What the limits say of own coefficients; nothing where there is no limit."""
    if size == 0.0:
        more = median([a - b for a, b in zip(own, one, strict=True)])
        return str(below(more, SLACK))
    if size < max(SIZES) or (kind == "level" and what != "error"):
        return ""
    ratio = median([a / b for a, b in zip(own, one, strict=True)])
    return str(below(ratio, FACTOR))


def rows_of(kind: str, size: float, instances: int) -> list[list[str]]:
    """The table's rows of one kind and size: one for each arm."""
    arms = [arm for arm in ARMS if arm != "ξ" or size > 0.0]
    found = {arm: [scores(kind, size, arm, i) for i in range(instances)] for arm in arms}
    rows = []
    for arm, several in found.items():
        row, said = [kind, f"{size:g}", arm], []
        for what in ("regret", "loss", "error"):
            values = [one[what] for one in several if what in one]
            row.append(median(values).text(".4f") if values else "")
            if arm == "own":
                said.append(verdict(kind, size, what, values, [o[what] for o in found["one w"]]))
        rows.append([*row, ", ".join(filter(None, said))])
    return rows


def main(instances: int = 8) -> None:
    """Print the table."""
    warnings.simplefilter("ignore", TrafficWarning)  # what is sent is not the question
    header = ["offsets", "s", "coefficients", "regret", "loss", "error", "limits"]
    lines = [line for kind in KINDS for size in SIZES for line in rows_of(kind, size, instances)]
    print(markdown(header, lines))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8)
