"""Stepping a black box: keyed, cut anywhere without a difference, and equal to the plain sums."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from worlds import Coin, Corridor, Odd, number_features, walk_features

from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.cli.text import number, several_lines, single_lines
from fedlsvi.envs import as_environment
from fedlsvi.envs.gym.episodes import Players
from fedlsvi.envs.gym.play import evaluate_policy
from fedlsvi.envs.gym.world import GymWorld, reset_seeds
from fedlsvi.errors import InvalidEnvironment
from fedlsvi.features import EmbeddingFeatures, FourierFeatures
from fedlsvi.protocol.records import RoundRecord
from fedlsvi.protocol.session import Session
from fedlsvi.report.intervals import aggregate
from fedlsvi.run import Run


def _walk(**options: Any) -> Any:
    return as_environment(lambda: Corridor(**options), horizon=6, reward_range=(-1.0, 1.0))


def _learn(env: Any, episodes: int = 25, **options: Any) -> Run:
    settings = {"n_agents": 3, "gamma": 4.0, "beta": 0.3, "lam": 0.1}
    return FedLSVI(**settings).learn(env, episodes, 7, progress=False, **options)


def _same(a: Run, b: Run) -> None:
    assert a.taus == b.taus
    assert np.array_equal(a.w, b.w)
    assert np.array_equal(a.gram_packed, b.gram_packed)
    assert a.mean_returns is not None
    assert b.mean_returns is not None
    assert np.allclose(a.mean_returns, b.mean_returns)


@pytest.mark.parametrize("kind", ["numbered", "walked"])
@pytest.mark.parametrize("cut", [{"block": 1}, {"cohorts": 3}, {"cohorts": 2, "block": 3}])
def test_no_cut_of_the_work_changes_a_bit(kind: str, cut: dict[str, int]) -> None:
    env: Any = as_environment(lambda: Coin(), horizon=5) if kind == "numbered" else _walk()
    features = None if kind == "numbered" else walk_features
    _same(_learn(env, features=features), _learn(env, features=features, threads=1, **cut))


@pytest.mark.parametrize("kind", ["numbered", "walked"])
def test_a_restored_session_goes_on_to_the_same_bits(kind: str) -> None:
    env: Any = as_environment(lambda: Coin(), horizon=5) if kind == "numbered" else _walk()
    features = None if kind == "numbered" else walk_features
    learner = FedLSVI(3, gamma=4.0, beta=0.3, lam=0.1, stationary=False)

    def fresh() -> Session:
        return learner.prepare(env, 25, 7, features=features)

    whole = fresh()
    records = list(whole.rounds())
    half = fresh()
    rounds = half.rounds()
    kept = [next(rounds) for _ in range(3)]
    arrays, plain = half.player.state()
    arrays = {key: array.copy() for key, array in arrays.items()}
    parts = {
        key: array.copy() for key, array in half.player.history(0, half.player.server.t).items()
    }
    rest = fresh()
    if parts:
        rest.player.extend(0, parts)
    rest.restore(arrays, plain, None, kept)
    assert [r.last for r in rest.rounds()] == [r.last for r in records[3:]]
    assert np.array_equal(rest.player.server.w, whole.player.server.w)


def test_the_two_black_boxes_agree_where_nothing_ends() -> None:
    """States as numbers, counted, and states as vectors, replayed: one and the same regression."""
    numbered = _learn(lambda: Coin(), horizon=5)
    vectors = _learn(lambda: Coin(vector=True), horizon=5, features=number_features)
    assert numbered.taus == vectors.taus
    assert np.allclose(numbered.gram, vectors.gram, atol=1e-12)
    assert np.allclose(numbered.w, vectors.w, atol=1e-10)


def test_the_model_is_the_ridge_regression_on_all_that_was_played() -> None:
    """w_h and Λ_h from the raw episodes of all agents, ends included, one sample at a time."""
    env = _walk()
    learner = FedLSVI(3, gamma=4.0, beta=0.3, lam=0.1, stationary=False)
    session = learner.prepare(env, 25, 7, features=walk_features)
    for _ in session.rounds():
        pass
    p, memory = session.plan.parameters, session.player.cohorts[0].experience.memory.stores  # type: ignore[attr-defined]
    H, after = env.horizon, env.absorbing_reward
    assert after == 0.5
    assert any((m.lengths[: m.episodes] < H).any() for m in memory)

    def value(x: np.ndarray, gram: np.ndarray, w: np.ndarray, top: float) -> float:
        scores = [
            phi @ w + p.beta * np.sqrt(phi @ np.linalg.solve(gram, phi))
            for phi in walk_features(x[None])[0]
        ]
        return float(np.clip(max(scores), 0.0, top))

    following: Any = None
    for h in range(H, 0, -1):
        gram, b = p.lam * np.eye(6), np.zeros(6)
        for m in memory:
            begin = 0
            for length in m.lengths[: m.episodes]:
                if length >= h:
                    at = begin + h - 1
                    phi = walk_features(m.states[at][None])[0, m.actions[at]]
                    v = 0.0
                    if h < H:
                        v = (H - h) * after
                        if length > h:
                            v = value(m.states[at + 1], *following, p.ceilings[h])
                    gram += np.outer(phi, phi)
                    b += phi * (m.rewards[at] + v)
                begin += length
        w = np.linalg.solve(gram, b)
        assert np.allclose(session.player.server.gram[h - 1], gram, atol=1e-10)
        assert np.allclose(session.player.server.w[h - 1], w, atol=1e-8)
        following = (gram, w)


def test_an_episode_is_a_function_of_seed_agent_and_number() -> None:
    env = _walk()
    assert isinstance(env, GymWorld)

    def act(h: int, states: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return (states[:, 0] < 0.3).astype(np.int64)

    many = Players(env, np.arange(3), 5).play(1, 4, act)
    one = Players(env, np.array([2]), 5).play(3, 1, act)
    assert np.array_equal(many.states[2, 2], one.states[0, 0])
    assert np.array_equal(many.rewards[2, 2], one.rewards[0, 0])
    seeds = reset_seeds(5, [0, 1], 1, 100)
    assert len(np.unique(seeds)) == 200
    assert not np.array_equal(seeds, reset_seeds(6, [0, 1], 1, 100))


def test_returns_are_in_the_units_of_the_environment() -> None:
    run = _learn(lambda: Corridor(ends=False, pay=-3.0), horizon=6, reward_range=(-3, 0),
                 features=walk_features)  # fmt: skip
    assert run.mean_returns is not None
    assert ((run.mean_returns <= 0.0) & (run.mean_returns >= -18.0)).all()
    assert run.mean_returns.min() < -1.0
    assert run.original_value(0.0) == -18.0


def test_the_emptiest_gram_matrix_is_counted() -> None:
    """By hand from the lengths: at each step, how many of an agent's episodes reached it."""
    learner = FedLSVI(3, gamma=4.0, beta=0.3, lam=0.1, stationary=False)
    session = learner.prepare(_walk(), 25, 7, features=walk_features, cohorts=2)
    records = list(session.rounds())
    memory = [m for c in session.player.cohorts for m in c.experience.memory.stores]  # type: ignore[attr-defined]
    for record in records:
        lengths = [m.lengths[record.first - 1 : record.last] for m in memory]
        reached = [np.count_nonzero(own >= h) for own in lengths for h in range(1, 7)]
        assert record.smallest == record.fewest == min(n for n in reached if n > 0)
        assert RoundRecord.from_dict(record.to_dict()) == record
    assert any(record.smallest < record.shortest for record in records)


@pytest.mark.parametrize("numbered", [False, True])
def test_a_run_without_regret_is_summed_up_by_its_returns(numbered: bool) -> None:
    env, features = (Coin, None) if numbered else (Corridor, walk_features)
    run = _learn(env, horizon=6, reward_range=(-1, 1), features=features)
    found = run.summary()
    earned = np.repeat(run.mean_returns, np.diff(run.taus))  # type: ignore[arg-type]
    assert found["return"] == pytest.approx(earned[-2:].mean())  # the last tenth of 25 episodes
    for name in ("learned", "exploring", "random"):
        played = evaluate_policy(
            {"learned": run.policy, "exploring": run.exploring_policy}.get(name, name),  # type: ignore[arg-type]
            as_environment(env, horizon=6, reward_range=(-1, 1)), 50, run.seed,
        ).returns  # fmt: skip
        assert found["values"][name] == {
            "mean": pytest.approx(played.mean()), "episodes": 50,
            "standard_error": pytest.approx(played.std(ddof=1) / 50**0.5),
        }  # fmt: skip
    assert run.summary(values=False)["values"] is None
    assert found["smallest_upload"] == min(record.smallest for record in run.records)
    rows = single_lines(found)
    assert rows[1].split()[:3] == ["return", f"{found['values']['learned']['mean']:.4g}", "±"]
    assert rows[2].split()[:3] == ["while", "learning", number(found["return"])]
    twice = [found, found | {"seed": 1}]
    head, middle = (several_lines(twice, aggregate(twice), None)[i].split() for i in (1, 4))
    assert head[:2] == ["seed", "return"]
    assert middle[:2] == ["median", number(found["return"])]


def test_a_reward_outside_its_range_is_named() -> None:
    with refused(InvalidEnvironment, "reward-out-of-range", "reward_range", "(0, 1)"):
        _learn(lambda: Corridor(pay=2.0), horizon=6, features=walk_features)


FIVE, SQUARE = spaces.Discrete(5), spaces.Box(0.0, 1.0, (2,), np.float64)


@pytest.mark.parametrize(
    ("space", "seen"),
    [
        (FIVE, -1),
        (FIVE, 5),
        (FIVE, 2.5),
        (FIVE, None),
        (spaces.Discrete(5, start=1), 0),
        (SQUARE, np.array([0.5, np.nan])),
        (SQUARE, np.array([np.inf, 0.5])),
        (SQUARE, np.array([0.5])),
        (spaces.Tuple((FIVE, SQUARE)), (7, np.zeros(2))),
    ],
)
def test_an_observation_outside_its_space_is_named(space: Any, seen: Any) -> None:
    features = None if isinstance(space, spaces.Discrete) else FourierFeatures(2)
    what = ("bad-observation", repr(seen), "agent 0 at step 5")
    with refused(InvalidEnvironment, *what):
        _learn(lambda: Odd(space, seen), horizon=6, features=features)
    with refused(InvalidEnvironment, *what):
        evaluate_policy("random", lambda: Odd(space, seen), 3, horizon=6)
    run = _learn(lambda: Odd(space, seen, ends=True), 5, horizon=6, features=features)
    assert np.isfinite(run.w).all()  # nobody looks at what lies behind an end


def test_observations_may_be_whole_floats_and_leave_their_box() -> None:
    for space, seen in (FIVE, 2.0), (SQUARE, np.array([0.5, 1.5])):
        features = None if space is FIVE else FourierFeatures(2)
        assert _learn(lambda s=space, x=seen: Odd(s, x), 5, horizon=6, features=features).rounds


def test_an_environment_that_cannot_repeat_is_told_on() -> None:
    class Careless(Corridor):
        def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
            return super().reset(seed=None)

    with pytest.warns(UserWarning, match="does not reproduce an episode"):
        as_environment(Careless, horizon=4)


def test_a_registered_limit_gives_way_to_the_horizon() -> None:
    world = as_environment("CartPole-v1", horizon=600)
    players = Players(world, np.arange(1), 0)
    played = players.play(1, 1, lambda h, x, rows: np.array([h % 2] * len(rows)))
    assert 5 < played.lengths[0, 0] < 600
    players.close()


def test_an_unseen_package_works_from_its_id_or_says_what_is_missing() -> None:
    minigrid = pytest.importorskip("minigrid")
    for id in ("minigrid:MiniGrid-Empty-5x5-v0", "MiniGrid-Empty-5x5-v0"):
        with refused(InvalidEnvironment, "bad-observation-space"):
            FedLSVI(1).learn(id, 2, horizon=10, progress=False)

    def images() -> Any:
        return minigrid.wrappers.ImgObsWrapper(gymnasium.make("MiniGrid-Empty-5x5-v0"))

    where = EmbeddingFeatures(lambda seen: seen[:, :12] + 1.0)
    run = FedLSVI(2).learn(images, 3, horizon=10, features=where, progress=False)
    assert run.mean_returns is not None
