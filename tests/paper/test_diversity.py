"""diversity=: every agent and episode has a policy of its own; the literal loop, on every path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlsvi
from agreement import assert_agrees
from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.config import Settings
from fedlsvi.core.perturbation import directions
from fedlsvi.envs import FiniteMDP, RiverSwim
from fedlsvi.envs.allowed import restrict
from fedlsvi.errors import InvalidSetting
from fedlsvi.groups import PRACTICAL_DIVERSITY
from fedlsvi.protocol.plan import make_plan
from fedlsvi.remote.federation import Federation
from literal import tapered
from problems import (
    Problem,
    Setting,
    chain,
    continuous,
    deterministic,
    heterogeneous,
    masks_of_their_own,
    one_hot,
    starts_per_agent,
    transition_rewards,
)
from transports_over_frames import assert_same, over_frames

S = Setting(3, 40, 12.0, 5, 0.5)
PROBLEMS = [
    chain(),
    deterministic(0),
    transition_rewards(1),
    starts_per_agent(2),
    heterogeneous(M=3),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
def test_it_is_the_literal_loop(problem: Problem) -> None:
    """Same rounds, signals, models and regret of every agent's own policies."""
    run = problem.learn(S, diversity=0.4)
    assert_agrees(run, problem.literal(S, diversity=0.4, advice=run.policies))
    assert run.bounds["scalars"].holds
    assert run.bounds["theorem_3"].holds
    assert not run.bounds["theorem_1"].applies


@pytest.mark.parametrize("problem", [chain(), deterministic(0)], ids=lambda p: p.name)
def test_with_one_model_for_all_steps(problem: Problem) -> None:
    run = problem.learn(S, diversity=0.4, stationary=True)
    literal = problem.literal(S, diversity=0.4, stationary=True, advice=run.policies)
    assert_agrees(run, literal)


def test_with_a_bonus_that_tapers() -> None:
    """σβ_h follows β_h."""
    for problem in (chain(), deterministic(0)):
        run = problem.learn(S, diversity=0.4, taper=True)
        betas = tapered(S.beta, problem.horizon)
        literal = problem.literal(S, beta=betas, diversity=0.4, advice=run.policies)
        assert_agrees(run, literal)


def test_agents_do_not_all_do_the_same() -> None:
    """In a corridor without chance, a policy is one trajectory; with diversity a round has many."""
    for diversity, several in ((0.0, False), (0.5, True)):
        run = chain().literal(S.but(beta=3.0, lam=0.1), diversity=diversity)
        tried = [
            {tuple(map(tuple, path)) for row in run.trajectories[a - 1 : b - 1] for path in row}
            for a, b in zip(run.taus[:-1], run.taus[1:], strict=True)
        ]
        assert (max(map(len, tried)) > 1) == several


@pytest.mark.parametrize("packing", ["dense", "packed"])
def test_every_packing_is_the_same(packing: str) -> None:
    run = one_hot(3).learn(S, diversity=0.4, packing=packing)
    assert_agrees(run, one_hot(3).literal(S, diversity=0.4, advice=run.policies))


@pytest.mark.parametrize("problem", PROBLEMS[:3], ids=lambda p: p.name)
def test_the_same_bits_over_frames(problem: Problem) -> None:
    """Draws are keyed: nothing depends on cohorts, blocks, threads or the transport."""
    s = Setting(5, 60, 6.0, 3, 0.5)
    here = problem.learn(s, diversity=0.3)
    assert_same(here, problem.learn(s, diversity=0.3, transport=over_frames(2)))
    assert_same(here, problem.learn(s, diversity=0.3, cohorts=3, block=7, threads=1))


@pytest.mark.parametrize("stationary", [False, True])
def test_agents_with_masks_of_their_own(stationary: bool) -> None:
    """Each is measured by what it may do; on every path."""
    problem, tables = masks_of_their_own()
    if stationary:
        problem, tables = chain(), [np.array([[0, 1], [1, 1], [1, 0], [1, 1]], bool)] * 3
        problem = Problem("masked", restrict(problem.envs, tables[0]), problem.phi)
    allowed = [lambda h, x, t=table: np.flatnonzero(t[x]).tolist() for table in tables]
    own = {"diversity": 0.4, "stationary": stationary}
    run = problem.learn(S, **own)
    assert_agrees(run, problem.literal(S, allowed=allowed, **own))
    assert_same(run, problem.learn(S, transport=over_frames(3), **own))


def test_on_continuous_states_returns_are_measured_in_place_of_regret() -> None:
    run = continuous().learn(S, diversity=0.4)
    assert_agrees(run, continuous().literal(S, diversity=0.4))
    assert run.regret is None
    assert run.mean_returns.shape == (run.rounds,)


def test_other_ways_to_send() -> None:
    """One trip, secure sums and agents that are away."""
    s = Setting(3, 40, 8.0, 3, 0.5)
    here = chain().learn(s, diversity=0.3, policy="explore")
    once = chain().learn(s, diversity=0.3, policy="explore", exchange="one-trip")
    assert list(once.taus) == list(here.taus)
    assert np.allclose(once.w, here.w, atol=1e-9)
    assert np.allclose(once.regret, here.regret, atol=1e-9)
    exact = chain().learn(s, diversity=0.3, aggregation="exact")
    secure = chain().learn(s, diversity=0.3, aggregation="secure")
    assert exact.w.tobytes() == secure.w.tobytes()
    assert np.array_equal(exact.regret, secure.regret)
    away = [[0, 1, 40], [1, 1, 10], [2, 9, 40]]
    run = chain().learn(s, diversity=0.3, present=away, policy="explore")

    def there(k: int, t: int) -> list[int]:
        return [m for m, first, last in away if first <= t + 1 <= last]

    assert_agrees(run, chain().literal(s, diversity=0.3, there=there, advice=run.policies))


class Killed(Exception):
    """Stands for a process that ends."""


def kill(record: Any) -> None:
    if record.k == 4:
        raise Killed


def test_a_killed_run_goes_on_to_the_same_end(tmp_path: Path) -> None:
    s = Setting(3, 60, 8.0, 3, 0.5)
    for problem in (chain(), deterministic(0)):
        whole, folder = problem.learn(s, diversity=0.3), tmp_path / problem.name
        with pytest.raises(Killed):
            problem.learn(s, diversity=0.3, folder=folder, checkpoint_seconds=0.0, observers=[kill])
        resumed = fedlsvi.resume(folder, progress=False)
        assert_same(whole, resumed)
        loaded = fedlsvi.load(folder)
        assert loaded.parameters.diversity == 0.3
        assert np.array_equal(loaded.policy.table, whole.policy.table)


def test_directions_by_hand() -> None:
    """ζ is 2u − 1, of a stream of its own."""
    from literal import DIVERSITY, uniform

    found = directions(7, np.array([2]), 5, 1, 3)[0, 0]
    assert found.tolist() == [2.0 * uniform(7, 2, 5, i, DIVERSITY) - 1.0 for i in range(3)]


def test_auto_asks_the_environment_and_the_preset() -> None:
    def resolved(env: Any, **own: Any) -> float:
        return make_plan(Settings(2, **own), env, 10, 0).parameters.diversity

    assert resolved(chain().one) == PRACTICAL_DIVERSITY
    assert resolved(chain().one, preset="paper") == 0.0
    assert resolved(chain().one, diversity=0) == 0.0
    assert resolved(RiverSwim(horizon=5)) == 0.0
    assert resolved(RiverSwim(horizon=5), diversity=0.1) == 0.1


def test_a_federation_agrees_on_it() -> None:
    """Its server knows no environment, so that what it says holds."""
    sizes = {"name": "wards", "episodes": 60, "horizon": 5, "dim": 8, "one_hot": True}
    for own, found in (({}, 0.0), ({"diversity": "auto"}, 0.0), ({"diversity": 0.2}, 0.2)):
        agreed = Federation(**sizes, settings=own)
        assert agreed.plan(chain().one, 3).parameters == agreed.parameters(3)
        assert agreed.parameters(3).diversity == found


def test_what_is_refused() -> None:
    for wrong in (-0.1, 1.5, "often", True):
        with refused(InvalidSetting, "bad-diversity", "diversity"):
            FedLSVI(2, diversity=wrong)  # type: ignore[arg-type]


def test_by_default_it_is_off_where_it_was_not_studied() -> None:
    one, mask = chain().one, np.ones((4, 2), bool)
    mask[0, 0] = False
    masked = FiniteMDP(one.P, one.r, horizon=5, initial=0, allowed=mask)
    assert make_plan(Settings(2), masked, 10, 0).parameters.diversity == 0.0
    assert continuous().learn(S, preset="practical").parameters.diversity == 0.0


def test_random_tables_are_not_slowed_down() -> None:
    """Where the world is random the default is one policy for all, with the old experience."""
    P = np.full((2, 2, 2), 0.5)
    env = FiniteMDP(P, np.eye(2), horizon=3, initial=0)
    assert not env.repeats
    assert chain().one.repeats
