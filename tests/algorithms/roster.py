"""The algorithms under test, with the settings with which each solves the small problems."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedlsvi.algorithms import registry
from fedlsvi.envs import FiniteMDP, RandomLinearMDP, RandomMDP
from fedlsvi.learner import drive
from fedlsvi.run import Run

NAMES = [name for name in registry.names() if not registry.entry(name).offline]
AGENTS = 3

SCALES: dict[str, dict[str, Any]] = {
    "periodic": {"period": 20},
    "fedq-hoeffding": {"c": 0.01},
    "fedq-bernstein": {"c": 0.02},
    "fedq-advantage": {"c": 0.3},
    "fed-ucbvi": {"c": 0.3},
    "ucbvi": {"c": 0.3},
    "q-ucb2": {"c": 0.01},
    "ucrl-vtr": {"c": 0.05},
    "fed-ucrl-vtr": {"c": 0.05},
}
ANCHOR = "lsvi-ucb-pp"
"""One agent that stands for all: its agents cannot differ."""

TABULAR = {
    "fedq-hoeffding", "fedq-bernstein", "fedq-advantage", "fed-ucbvi", "ucbvi", "psrl", "q-ucb2",
    "q-avg", "ucrl-vtr", "fed-ucrl-vtr",
}  # fmt: skip
CONTINUOUS = {
    "fed-lsvi", "stale", "periodic", "centralised", "independent", "low-switching", "rare-switch",
}  # fmt: skip


def tabular() -> RandomMDP:
    """A random MDP whose first state is random: features are one-hot."""
    return RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1)


def linear() -> RandomLinearMDP:
    """A linear MDP of dimension 4."""
    return RandomLinearMDP(n_states=6, n_actions=3, dim=4, horizon=3, seed=2)


def strangers(other: int, n_agents: int = AGENTS) -> list[FiniteMDP]:
    """Agent 0 always meets the same MDP; the others meet one that `other` chooses."""
    return [
        RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1 if m == 0 else other)
        for m in range(n_agents)
    ]


def make(name: str, n_agents: int = AGENTS, **settings: Any) -> Any:
    return registry.make(name, n_agents=n_agents, **{**SCALES.get(name, {}), **settings})


def learn(name: str, env: Any, episodes: int, seed: int = 0, **options: Any) -> Any:
    settings = options.pop("settings", {})
    learner = make(name, options.pop("n_agents", AGENTS), **settings)
    return learner.learn(env, episodes, seed, progress=False, **options)


def continued(learner: Any, env: Any, episodes: int, after: int, seed: int = 3) -> Run:
    """A run that was put aside at the first record past `after` episodes, and taken up anew."""
    session, records = learner.prepare(env, episodes, seed), []
    for record in session.rounds():
        records.append(record)
        if record.last >= after:
            break
    last = records[-1].last
    assert last < episodes
    arrays, kept = session.player.state()
    arrays = {key: np.array(array) for key, array in arrays.items()}
    history, regret = session.player.history(0, last), np.array(session.regret[:last])
    session.close()
    again = learner.prepare(env, episodes, seed)
    if history:
        again.player.extend(0, history)
    again.restore(arrays, kept, regret, records)
    drive(again, [])
    return Run.of(again, learner.settings)


def plain(run: Any) -> list[dict[str, Any]]:
    """Records without the wall clock."""
    return [{k: v for k, v in r.to_dict().items() if k != "seconds"} for r in run.records]


def assert_same(one: Any, two: Any) -> None:
    """The same run to the last bit."""
    assert one.regret.tobytes() == two.regret.tobytes()
    assert one.w.tobytes() == two.w.tobytes()
    assert one.gram.tobytes() == two.gram.tobytes()
    assert np.array_equal(one.policy.table, two.policy.table)
    assert one.ledger.scalars == two.ledger.scalars
    assert plain(one) == plain(two)
