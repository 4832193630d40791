"""How much pessimism? β of `pevi`'s practical preset, in units of the value range.

Ten sites have logs of a behaviour: uniform, or half uniform and half optimal. The score of a
learned policy is (V^π̂ − V^b)/(V* − V^b) with b the behaviour: 0 is what was logged, 1
is optimal. Scores below −1 count as −1, so that no single failure decides.

β is chosen on the tuning instances by the mean over families; the table reports held-out ones too.
λ is that of the practical preset, whose study is `defaults`.

`python -m studies.pessimism`: sweep, choose, report. About two minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from fedlsvi import envs
from fedlsvi.algorithms.pevi import PEVI
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.logs.recording import record_episodes
from fedlsvi.logs.world import logged_worlds

SCALES = (0.0, 0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
EPISODES = (5, 20, 100)
"""Of each site."""

SITES = 10
TUNING, REPORTING = range(4), range(100, 104)
FAMILIES: dict[str, Callable[[int], FiniteMDP]] = {
    "garnet": lambda i: envs.Garnet(n_states=10, n_actions=4, horizon=6, seed=i),
    "random-mdp": lambda i: envs.RandomMDP(n_states=8, n_actions=4, horizon=5, seed=i),
    "random-linear": lambda i: envs.RandomLinearMDP(
        n_states=20, n_actions=4, dim=8, horizon=5, seed=i
    ),
    "river-swim": lambda i: envs.RiverSwim(n_states=4 + i % 3, horizon=10 + i % 2),
    "combination-lock": lambda i: envs.CombinationLock(5, 3, 5, seed=i),
}


@dataclass(frozen=True)
class Score:
    """One learned policy."""

    family: str
    behaviour: str
    episodes: int
    scale: float
    score: float


def sweep(instances: range, scales: tuple[float, ...]) -> Iterator[Score]:
    """Every family, instance, behaviour, number of episodes and β."""
    for family, make in FAMILIES.items():
        for i in instances:
            env = make(i)
            for behaviour, share in (("uniform", 0.0), ("half optimal", 0.5)):
                law = mixture(env, share)
                for episodes in EPISODES:
                    yield from _scores(family, behaviour, env, law, episodes, scales, i)


def mixture(env: FiniteMDP, share: float) -> np.ndarray:
    """Chances of actions (H, S, A): the optimal action with this share, else any."""
    best = env.greedy_policy()
    law = np.full((env.horizon, env.n_states, env.n_actions), (1.0 - share) / env.n_actions)
    h, x = np.ogrid[: env.horizon, : env.n_states]
    law[h, x, best] += share
    return law


def _scores(
    family: str, behaviour: str, env: FiniteMDP, law: np.ndarray, episodes: int,
    scales: tuple[float, ...], seed: int,
) -> Iterator[Score]:  # fmt: skip
    start = env.initial_law(0)
    top, low = float(start @ env.optimal_values()[0]), float(start @ env.policy_values(law)[0])
    logs = [record_episodes(env, episodes, law, seed=seed, agent=m) for m in range(SITES)]
    worlds = logged_worlds(logs, like=env)
    for scale in scales:
        learner = PEVI(SITES, beta=scale * env.horizon)
        run = learner.learn(worlds, features=env.default_features(), progress=False)
        found = float(start @ env.policy_values(run.policy.table)[0])
        yield Score(family, behaviour, episodes, scale, max(-1.0, (found - low) / (top - low)))


def means(scores: list[Score]) -> dict[float, dict[str, float]]:
    """Scale → family → mean score."""
    found: dict[float, dict[str, float]] = {}
    for scale in sorted({one.scale for one in scores}):
        for family in FAMILIES:
            own = [one.score for one in scores if (one.scale, one.family) == (scale, family)]
            found.setdefault(scale, {})[family] = float(np.mean(own))
    return found


def main() -> None:
    """Choose on the tuning instances, report on the others."""
    tuned = means(list(sweep(TUNING, SCALES)))
    best = max(tuned, key=lambda scale: np.mean(list(tuned[scale].values())))
    reported = list(sweep(REPORTING, SCALES))
    rows, few = means(reported), means([one for one in reported if one.episodes == EPISODES[0]])
    print(f"chosen on the tuning instances: beta = {best:g}·H\n")
    head = ["β/H", "tuning mean", "held-out mean", f"with {EPISODES[0]} episodes each", *FAMILIES]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for scale, row in rows.items():
        cells = [np.mean(list(one.values())) for one in (tuned[scale], row, few[scale])]
        text = [f"{cell:.3f}" for cell in (*cells, *row.values())]
        print(f"| {scale:g} | " + " | ".join(text) + " |")


if __name__ == "__main__":
    main()
