"""Fed-LSVI on Gymnasium environments is the literal loop, with the paper's trigger and every other:
a table, numbered observations and vectors, with episodes that end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from worlds import Corridor, Tiny, walk_features

from agreement import assert_agrees, assert_ledger_is_the_formula
from fedlsvi import FedLSVI
from fedlsvi.core.statistics import packed_size
from fedlsvi.envs import as_environment
from fedlsvi.protocol.records import returns_between
from literal import literal_fed_lsvi, tapered
from literal_gym import BlackBox
from literal_participation import assert_ledger_counts_who_was_there, there
from problems import Setting, one_hot_table
from recorded import recorded
from repeats import repeats
from transports_over_frames import over_frames
from variants import MIXED, VARIANTS, assert_kept, literal_options, paid

OWN: list[dict[str, Any]] = [
    {},
    {"participation": 0.5, "present": [[1, 4, 30]]},
    {"diversity": 0.4},
    {"diversity": 0.4, "cap": 1.5, "min_round": 2},
    *(VARIANTS if repeats(0, 1) else MIXED),
]


class Ending(gymnasium.Env[Any, Any]):
    """Three numbered states without a table; the last may end the episode."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = spaces.Discrete(3), spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x = int(self.np_random.integers(3))
        return self.x, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        lucky = self.np_random.random() < (0.7 if action == self.x % 2 else 0.2)
        over = self.x == 2 and not lucky
        self.x = (self.x + 1 + int(lucky)) % 3
        return self.x, float(lucky), over, False, {}


def uneven(states: np.ndarray) -> np.ndarray:
    """The features of the walk, another length for each action: no ties."""
    return walk_features(states) * np.array([1.0, 0.8])[:, None]


@dataclass(frozen=True)
class Case:
    """A problem as the library gets it, and as the reference does."""

    env: Any
    box: Any
    phi: Any
    features: Any = None


def cases() -> dict[str, Case]:
    table: Any = as_environment(lambda: Tiny(), horizon=4, reward_range=(0.0, 3.0))
    ending = as_environment(lambda: Ending(), horizon=4, reward_range=(-1.0, 1.0))
    walk = as_environment(lambda: Corridor(), horizon=4, reward_range=(-1.0, 1.0))
    return {
        "table": Case(table, table, one_hot_table(table.n_states, 2)),
        "numbered": Case(ending, BlackBox(Ending, (-1.0, 1.0), 3), one_hot_table(4, 2)),
        "vectors": Case(walk, BlackBox(Corridor, (-1.0, 1.0)), uneven, uneven),
    }


@pytest.mark.parametrize("own", OWN, ids=str)
@pytest.mark.parametrize("kind", list(cases()))
def test_it_is_the_literal_loop(kind: str, own: dict[str, Any]) -> None:
    case, s = cases()[kind], Setting(M=3, T=30, gamma=9.0, seed=5, lam=0.5)
    learner = FedLSVI(s.M, preset="paper", beta=s.beta, lam=s.lam)
    p = learner.prepare(case.env, s.T, features=case.features).plan.parameters
    size, H = packed_size(p.dim, p.packing), p.horizon
    given = {"gamma": s.gamma, "beta": s.beta, "lam": s.lam, "preset": "paper"}
    learner = FedLSVI(s.M, **given | paid(own, s.M, H, size + p.dim))
    run = learner.learn(
        case.env, s.T, s.seed, features=case.features, progress=False, keep_models=True
    )
    options = literal_options(s, p.dim, own)
    options["diversity"] = own.get("diversity", 0.0)
    if "participation" in own:
        options["there"] = there(own, s.M, s.seed)
    beta = tapered(s.beta, H) if "taper" in own else s.beta
    literal = literal_fed_lsvi(
        case.box, case.phi, s.M, s.T, H, s.seed, s.lam, beta, s.gamma, **options
    )
    assert_agrees(run, literal)
    assert_kept(run, own)
    if "participation" in own:
        assert_ledger_counts_who_was_there(run, options["there"])
    else:
        assert_ledger_is_the_formula(run, s.M, H, p.dim, size)
    if kind != "table":
        short = [len(path) < H for row in literal.trajectories for path in row if path]
        assert any(short) == (kind == "vectors")


@pytest.mark.parametrize("kind", list(cases()))
def test_agents_that_were_away_go_on_in_a_longer_run(kind: str) -> None:
    """Their memories and what they earned, as if nothing had stopped in between."""
    case, options = cases()[kind], dict[str, Any](progress=False)
    learner = FedLSVI(3, gamma="anytime", participation=0.5)
    half = learner.learn(case.env, 13, 5, features=case.features, **options)
    whole = learner.learn(case.env, 30, 5, features=case.features, **options)
    longer = half.learn_more(17, progress=False)
    assert longer.taus == whole.taus
    assert longer.w.tobytes() == whole.w.tobytes()
    if kind != "table":
        assert np.array_equal(longer.mean_returns, whole.mean_returns)
        counts = [(r.present or 0) * r.length for r in whole.records]
        mean = np.average(whole.mean_returns, weights=counts)
        assert returns_between(whole.records, np.array([0, 30])) == pytest.approx(mean)


@pytest.mark.parametrize("kind", list(cases()))
def test_a_run_that_begins_with_logs_is_the_literal_loop(kind: str) -> None:
    """What follows the end of a logged episode is known, whatever the state after it is worth."""
    case, s = cases()[kind], Setting(M=3, T=20, gamma=9.0, seed=5, lam=0.5)
    H, span = case.env.horizon, case.env.reward_range
    data, steps = recorded(case.box, [9, 0, 6], H, 2, span)
    given = {"gamma": s.gamma, "beta": s.beta, "lam": s.lam, "preset": "paper"}
    learner = FedLSVI(s.M, **given)
    options: dict[str, Any] = {"features": case.features, "progress": False, "data": data}
    some = [case.env, case.env, None]
    run = learner.learn(some, s.T, s.seed, keep_models=True, **options)
    sizes = (s.M, s.T, H, s.seed, s.lam, s.beta, s.gamma)
    known: dict[str, Any] = {"logs": steps, "only_logged": [2]}
    assert_agrees(run, literal_fed_lsvi(case.box, case.phi, *sizes, **known))
    frames = learner.learn(some, s.T, s.seed, transport=over_frames(2), **options)
    assert run.w.tobytes() == frames.w.tobytes()
    assert (run.regret is None) == (kind != "table")
