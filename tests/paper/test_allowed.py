"""Only some actions are allowed: the fast paths are the literal loop over A_x, no other action is
ever taken, and V* is that of the allowed ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from agreement import assert_agrees, assert_few_near_ties
from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.algorithms import registry
from fedlsvi.envs import FiniteMDP, as_environment, make
from fedlsvi.envs.allowed import draw_allowed, restrict, take_allowed
from fedlsvi.envs.registry import from_spec
from fedlsvi.errors import InvalidEnvironment, InvalidInput, InvalidSetting
from fedlsvi.policy import Policy
from fedlsvi.remote.federation import Federation
from literal import Array, backward_values
from problems import (
    Problem,
    Setting,
    continuous,
    half,
    mask,
    masked,
    masks_of_their_own,
    one_hot,
    simplex,
    transition_rewards,
)
from repeats import repeats
from transports_over_frames import assert_same, over_frames

SETTING = Setting(M=3, T=24, gamma=6.0, seed=4, lam=0.7, beta=0.6)


def listed(table: Array) -> Callable[[int, Any], Sequence[int]]:
    """A table (S, A) or (H, S, A) as the reference wants it."""
    steps = table if table.ndim == 3 else table[None]
    return lambda h, x: np.flatnonzero(steps[(h - 1) % len(steps), x]).tolist()


def cases() -> dict[str, tuple[Problem, list[Any], Any]]:
    """Problem, the masks of three agents for the reference, and settings."""
    dense, hot = simplex(1, S=7, A=5, anchors=True), one_hot(3, S=6, A=4)
    moving, found = transition_rewards(2, S=5, A=3), {}
    for name, problem, step, own in (
        ("features", dense, (), {}),
        ("one-hot", hot, (), {"stationary": True}),
        ("one-hot per step", hot, (3,), {"stationary": False}),
        ("rewards on transitions", moving, (), {}),
    ):
        size = (*step, problem.one.n_states, problem.one.n_actions)
        table = mask(len(name), *size)
        env = restrict(problem.envs, table)
        found[name] = (Problem(name, env, problem.phi), [listed(table)] * 3, own)
    agents, tables = masks_of_their_own()
    found["each agent its own"] = (agents, [listed(table) for table in tables], {})
    return found


@pytest.mark.parametrize("name", list(cases()))
def test_a_masked_run_is_the_literal_loop(name: str) -> None:
    problem, allowed, own = cases()[name]
    run = problem.learn(SETTING, **own)
    steady = bool(own.get("stationary", False))
    literal = problem.literal(SETTING, advice=None, allowed=allowed, stationary=steady)
    assert_agrees(run, literal)
    assert_few_near_ties(literal)


@pytest.mark.parametrize("stationary", [False, True])
def test_a_masked_run_on_continuous_states_is_the_literal_loop(stationary: bool) -> None:
    problem = masked()
    problem.one.stationary = stationary
    run = problem.learn(SETTING, stationary=stationary)
    which = [lambda h, x: np.flatnonzero(half(h, x[None])[0]).tolist()] * 3
    literal = problem.literal(SETTING, allowed=which, stationary=stationary)
    assert_agrees(run, literal)


@pytest.mark.parametrize("problem", [simplex(1, anchors=True), one_hot(0), continuous()])
def test_a_mask_that_allows_everything_changes_no_bit(problem: Problem) -> None:
    def everything(h: int, x: Array) -> Array:
        return np.ones((len(x), problem.one.n_actions), bool)

    env = restrict(problem.envs, everything)
    free = problem.learn(SETTING)
    run = Problem("all", env, problem.phi, problem.features).learn(SETTING)
    assert_same(free, run)


@pytest.mark.parametrize("own", [{}, {"stationary": True}, {"features": True}])
def test_no_other_action_is_taken_on_finite_states(own: dict[str, Any]) -> None:
    """With one-hot features Λ − λI counts every action that was taken."""
    rng = np.random.default_rng(0)
    S, A, H = 9, 5, 10
    P, r = rng.dirichlet(np.full(S, 0.3), (S, A)), rng.random((S, A))
    table = mask(1, S, A)
    r[~table] = 1.0  # nothing else is as good
    env = FiniteMDP(P, r, horizon=H, initial="uniform", allowed=table)
    T = repeats(2_000, 100_000) // 2
    phi = None
    if own.pop("features", False):  # the same counts, by the kernels for dense features
        phi, own = 0.9 * np.eye(S * A).reshape(S, A, S * A), {"packing": "packed", "rounds": 4}
    run = FedLSVI(2, gamma=500.0, **own).learn(env, T, features=phi, progress=False)
    counts = np.einsum("hii->hi", run.gram).reshape(H, S, A) - run.parameters.lam
    assert not counts[:, ~table].any()
    assert table[np.arange(S), run.policy.table].all()
    assert table[np.arange(S), run.policy.table].all()
    total = counts.sum() / (0.81 if phi is not None else 1.0)
    steps = H * 2 * T * (H if run.parameters.stationary else 1)
    assert total == pytest.approx(steps)


def test_no_other_action_is_taken_on_continuous_states() -> None:
    problem, taken = continuous(), [0]
    env = restrict(problem.envs, half)
    inner = env.step

    def step(h: int, x: Array, a: Array, u: Array) -> Any:
        taken[0] += len(x)
        assert half(h, x)[np.arange(len(x)), a].all()
        return inner(h, x, a, u)

    env.step = step
    episodes = repeats(400, 83_400)
    FedLSVI(4, gamma=5_000.0, rounds=6).learn(
        env, episodes, features=problem.features, progress=False
    )
    assert taken[0] >= 4 * 3 * episodes  # episodes that are played ahead count as well


def test_the_optimum_is_that_of_the_allowed_actions() -> None:
    for seed in range(20):
        env = simplex(seed).one
        table = mask(seed, env.horizon, env.n_states, env.n_actions)
        some = restrict(env, table)
        best = backward_values(some, None, listed(table))
        assert np.allclose(some.optimal_values()[0], best, atol=1e-12)
        policy = some.greedy_policy()
        assert np.take_along_axis(table, policy[..., None], 2).all()
        assert np.allclose(some.policy_values(policy)[0], best, atol=1e-12)
        assert (some.uniform_policy()[~table] == 0.0).all()
        assert np.allclose(some.uniform_policy().sum(axis=2), 1.0)
        assert (some.uniform_values()[0] <= best + 1e-12).all()
        assert some.fingerprint != env.fingerprint


def test_it_learns_the_best_allowed_policy() -> None:
    env = restrict(one_hot(5, S=5, A=4, H=4).one, mask(2, 5, 4))
    run = FedLSVI(4, gamma=50.0).learn(env, 3_000, progress=False)
    value = env.policy_values(run.policy.table)[0, 0]
    assert value == pytest.approx(env.optimal_values()[0, 0], abs=0.02)


def test_masks_add_up_and_come_back_from_their_record() -> None:
    env = make("river-swim", n_states=4, horizon=5)
    left, right = np.ones((4, 2), bool), np.ones((4, 2), bool)
    left[0, 1], right[3, 0] = False, False
    both = restrict(restrict(env, left), right)
    assert (both.allowed[0] == (left & right)).all()
    again = from_spec(both.spec())
    assert again.fingerprint == both.fingerprint
    given = as_environment(env, allowed=left.astype(int).tolist())
    assert given.fingerprint == restrict(env, left).fingerprint
    other = np.ones((4, 2), bool)
    other[0, 0] = False
    with refused(InvalidEnvironment, "no-action", "state 0"):
        restrict(restrict(env, left), other)
    per_step = restrict(env, lambda h, x: np.stack([x * 0 == 0, np.full(len(x), h > 2)], 1))
    assert per_step.allowed[:2, :, 1].sum() == 0
    assert per_step.allowed[2:].all()


@pytest.mark.parametrize(
    ("allowed", "code", "said"),
    [
        (np.ones((3, 2), bool), "bad-allowed", "(3, 2)"),
        (np.full((4, 2), 0.5), "bad-allowed", "float"),
        (np.array([[1, 1], [1, 1], [0, 0], [1, 1]]), "no-action", "state 2"),
        (np.array([[[True, True]] * 4] * 4 + [[[True, True]] * 3 + [[False] * 2]]), "no-action",
         "step 5"),
        ("some", "bad-allowed", "some"),
    ],
)  # fmt: skip
def test_a_mask_that_is_none_is_refused(allowed: Any, code: str, said: str) -> None:
    env = make("river-swim", n_states=4, horizon=5)
    with refused(InvalidEnvironment, code, said):
        FedLSVI(2).learn(env, 5, allowed=allowed, progress=False)


def test_a_function_that_allows_nothing_is_refused_where_it_does() -> None:
    problem = continuous()
    for wrong, code in (
        (lambda h, x: half(h, x) & (h < 3), "no-action"),
        (lambda h, x: half(h, x)[:, :2], "bad-allowed"),
    ):
        with refused(InvalidEnvironment, code):
            FedLSVI(1).learn(
                restrict(problem.envs, wrong), 5, features=problem.features, progress=False
            )
    with refused(InvalidEnvironment, "bad-allowed"):
        restrict(problem.envs, np.ones((3, 3), bool))


def test_one_trip_needs_one_mask_that_the_server_knows() -> None:
    """It equals the literal code where masks are the same (tests/matrix)."""
    env = one_hot(0).one
    masks = [restrict(env, mask(seed, 4, 2)) for seed in (0, 1)]
    with refused(InvalidSetting, "one-trip-masks"):
        FedLSVI(2, exchange="one-trip").learn(masks, 5, progress=False)
    sizes = {"dim": 8, "n_states": 4, "n_actions": 2, "one_hot": True}
    how = {"features": {"name": "one-hot"}, "settings": {"exchange": "one-trip"}}
    federation = Federation("masks", 5, env.horizon, **sizes, **how)
    federation.plan([env] * 2, 2)
    with refused(InvalidSetting, "one-trip-masks"):
        federation.plan([masks[0]] * 2, 2)


def test_every_algorithm_knows_masks_or_says_that_it_does_not() -> None:
    env = restrict(one_hot(1, S=5, A=3).one, mask(3, 5, 3))
    knows, said = set(), {}
    for name in registry.names():
        if registry.entry(name).offline:
            continue
        learner = registry.make(name, n_agents=2)
        try:
            run = learner.learn(env, 40, progress=False, keep_models=True)
        except InvalidEnvironment as error:
            said[name] = error.code
            continue
        knows.add(name)
        assert min(np.diff(run.regret, prepend=0.0)) >= -1e-9
        for table in [*run.policies, run.policy.table]:
            assert np.take_along_axis(env.allowed[0], table.T, 1).all(), name
        counts = np.einsum("hii->hi", run.gram).reshape(-1, 5, 3) - run.parameters.lam
        assert not counts[:, ~env.allowed[0]].any(), name
    assert set(said.values()) == {"masks-not-supported"}
    assert knows >= {
        "fed-lsvi", "stale", "periodic", "centralised", "independent", "low-switching",
        "rare-switch", "coop-lsvi", "async-coop",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["independent", "periodic", "stale", "low-switching"])
def test_agents_with_masks_of_their_own_keep_to_them(name: str) -> None:
    base = one_hot(1, S=5, A=3).one
    envs = [restrict(base, mask(m, 5, 3)) for m in range(3)]
    run = registry.make(name, n_agents=3).learn(envs, 30, progress=False)
    assert np.take_along_axis(envs[0].allowed[0], run.policy.table.T, 1).all()
    assert min(np.diff(run.regret, prepend=0.0)) >= -1e-9  # V* is that of each agent's own
    for other in ("centralised", "coop-lsvi"):
        with refused(InvalidEnvironment, "masks-not-supported"):
            registry.make(other, n_agents=3).learn(envs, 5, progress=False)


def test_transports_and_restarts_give_the_same_bits(tmp_path: Any) -> None:
    problem, _, _ = cases()["each agent its own"]
    here = problem.learn(SETTING)
    assert_same(here, problem.learn(SETTING, cohorts=3, threads=2))
    assert_same(here, problem.learn(SETTING, transport=over_frames(3)))
    with refused(InvalidSetting, "masks-differ"):
        problem.learn(SETTING, transport=over_frames(1))
    env = restrict(make("garnet", n_states=5), mask(1, 5, make("garnet", n_states=5).n_actions))
    learner = FedLSVI(2, gamma=5.0)
    whole = learner.learn(env, 40, progress=False)
    kept = learner.learn(env, 40, progress=False, folder=tmp_path / "run")
    assert_same(whole, kept)
    import fedlsvi

    loaded = fedlsvi.load(tmp_path / "run")  # the environment comes from its record
    assert np.array_equal(loaded.policy.table, whole.policy.table)
    assert np.array_equal(loaded.policy.table, whole.policy.table)


def test_a_saved_policy_keeps_to_its_mask(tmp_path: Any) -> None:
    table = mask(2, 6, 4)
    env = restrict(one_hot(3, S=6, A=4).one, table)
    run = FedLSVI(2, gamma=9.0).learn(env, 60, progress=False)
    run.policy.save(tmp_path / "finite")
    again = Policy.load(tmp_path / "finite")
    assert np.array_equal(again.table, run.policy.table)
    assert table[np.arange(6), again.table].all()
    # in memory it can also be told of another mask; a file has no second choice
    other = mask(3, 6, 4)
    chosen = run.policy.actions(1, np.arange(6), other)
    assert other[np.arange(6), chosen].all()
    with refused(InvalidInput, "no-second-choice"):
        again.actions(1, np.arange(6), other)
    with refused(InvalidInput, "bad-allowed"):
        run.policy.action(0, 1, np.zeros(4))


def test_a_saved_policy_of_continuous_states_has_to_be_told(tmp_path: Any) -> None:
    env = restrict(make("continuous-linear", n_actions=3, horizon=3), half)
    run = FedLSVI(2, gamma=9.0).learn(env, 30, progress=False)
    x = np.random.default_rng(0).random((50, 1))
    here = run.policy.actions(1, x)
    assert half(1, x)[np.arange(50), here].all()
    run.policy.save(tmp_path / "policy")
    again = Policy.load(tmp_path / "policy")
    with refused(InvalidInput, "needs-mask"):
        again.actions(1, x)
    assert np.array_equal(again.actions(1, x, half(1, x)), here)


def test_allowed_actions_are_drawn_alike() -> None:
    table = mask(5, 4, 6)
    drawn = draw_allowed(np.random.default_rng(0).random(20_000), np.repeat(table, 5_000, axis=0))
    for row, some in zip(table, drawn.reshape(4, -1), strict=True):
        share = np.bincount(some, minlength=6) / len(some)
        assert np.abs(share - row / row.sum()).max() < 0.03
        assert not share[~row].any()
    assert take_allowed(np.array([[False, True, True]]), np.array([3])).tolist() == [2]
