"""`python -m studies.deep FILE [NAME …] [--seeds N]`: DQN and PPO of Stable-Baselines3 on the
environments of `studies.environments`, with that library's default settings.

Each plays M·T episodes, as many as Fed-LSVI's agents together, with the same horizon, action repeat
and rewards. The learned policy is then evaluated without exploration on the same number of new
episodes. FILE keeps every run, so the study can be stopped and resumed; deep.md has
the table. Needs `pip install stable-baselines3`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from time import process_time
from typing import Any

import gymnasium
import numpy as np

from fedlsvi.envs.gym.episodes import Copies
from fedlsvi.envs.gym.play import evaluate_policy
from fedlsvi.envs.gym.world import GymWorld, naming, reset_seeds
from studies.environments import TABLE, shown, world_of

LEARNERS = ("DQN", "PPO")


class Stepped(gymnasium.Env[Any, Any]):
    """A world as one Gymnasium environment: its states, its own rewards, and an end after H."""

    def __init__(self, world: GymWorld, seed: int) -> None:
        self.world, self.number, self.t, self.h = world, seed, 0, 0
        self.copies, self.row = Copies(world, 1), np.zeros(1, np.int64)
        self.action_space = gymnasium.spaces.Discrete(world.n_actions)
        if world.finite:
            self.observation_space = gymnasium.spaces.Discrete(world.n_states)
        else:
            self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (world.state_dim,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.t, self.h = self.t + 1, 0
        self.where = naming([0], self.t, 1, self.row)
        self.seen = self.copies.begin(reset_seeds(self.number, [0], self.t, 1)[0], self.where)
        return self._observed(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.h += 1
        chosen = np.array([int(action)])
        found, paid, ended, cut = self.copies.advance(self.row, chosen, self.h, self.where)
        if not ended[0]:
            self.seen = found
        over = bool(cut[0]) or self.h == self.world.horizon
        return self._observed(), float(paid[0]), bool(ended[0]), over, {}

    def _observed(self) -> Any:
        return int(self.seen[0]) if self.world.finite else self.seen[0].astype(np.float32)


class Greedy:
    """A learned model without its exploration; `evaluate_policy` plays it."""

    def __init__(self, model: Any, world: GymWorld) -> None:
        self.model, self.horizon = model, world.horizon
        self.table = None
        if world.finite:
            self.table = model.predict(np.arange(world.n_states), deterministic=True)[0]

    def actions(
        self, step: int, states: np.ndarray, allowed: np.ndarray | None = None
    ) -> np.ndarray:
        """What the network would do."""
        if self.table is not None:
            return np.asarray(self.table[np.asarray(states, np.int64)])
        return np.asarray(self.model.predict(states.astype(np.float32), deterministic=True)[0])


def play(learner: str, name: str, seed: int) -> dict[str, Any]:
    """Train on as many episodes as the table has, and measure."""
    import stable_baselines3
    import torch
    from stable_baselines3.common.callbacks import StopTrainingOnMaxEpisodes

    torch.set_num_threads(1)
    entry = TABLE[name]
    world, episodes = world_of(entry, tables=False), entry.agents * entry.episodes
    began = process_time()
    model = getattr(stable_baselines3, learner)("MlpPolicy", Stepped(world, seed), seed=seed)
    model.learn(episodes * entry.horizon, callback=StopTrainingOnMaxEpisodes(episodes))
    seconds = process_time() - began
    earned = evaluate_policy(Greedy(model, world), world, entry.played, seed=1000 + seed).mean
    return {
        "name": name, "learner": learner, "seed": seed, "earned": earned, "seconds": seconds,
        "steps": model.num_timesteps,
    }  # fmt: skip


def main() -> None:
    """Play what is missing, seed after seed, and print the columns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, metavar="FILE", help="keeps every run")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(TABLE)}")
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    lines = given.file.read_text().splitlines() if given.file.exists() else []
    known = {(run["name"], run["learner"], run["seed"]): run for run in map(json.loads, lines)}
    names = given.names or list(TABLE)
    with given.file.open("a") as file:
        for seed in range(given.seeds):
            for name in names:
                for learner in LEARNERS:
                    if (name, learner, seed) not in known:
                        run = known[name, learner, seed] = play(learner, name, seed)
                        file.write(json.dumps(run) + "\n")
                        file.flush()
    head = ("environment", *(f"{learner}{what}" for learner in LEARNERS for what in ("", ": s")))
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for name in names:
        cells = [name]
        for learner in LEARNERS:
            runs = [run for (own, by, _), run in known.items() if (own, by) == (name, learner)]
            cells.append(shown([run["earned"] for run in runs]))
            cells.append(f"{np.median([run['seconds'] for run in runs]):.0f}")
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
