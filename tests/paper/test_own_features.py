"""Coefficients of each agent's own, against one w for all in the features (φ_s, φ_o ⊗ e_m)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlsvi
from expecting import refused
from fedlsvi import PEVI, FedLSVI
from fedlsvi.algorithms import pevi as offline
from fedlsvi.envs.continuous import ContinuousMDP
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.errors import InvalidSetting
from fedlsvi.logs.recording import record_episodes
from fedlsvi.logs.world import logged_worlds
from fedlsvi.policy import Policy
from fedlsvi.remote.endpoint_factory import endpoint_factories
from fedlsvi.remote.retry_policy import RetryPolicy
from literal import literal_fed_lsvi
from literal_own_features import expanded, offset_sites, together
from literal_pevi import pevi
from lossy import between, check_increments, lossy
from patience import PATIENCE
from transports_over_frames import assert_same, over_frames

M, S, A, H, T = 3, 5, 3, 4, 120
OWN = A
SHARED = 3
SITES = offset_sites(M, S, A, H)
WHOLE = together(SITES, OWN)
PAIRED: dict[str, dict[str, Any]] = {
    "defaults, without noise": {"bonus": "constant"},
    "paper": {"preset": "paper", "beta": 0.5},
    "pessimistic pass": {"pessimism": 0.2},
    "a budget": {"rounds": 9},
    "anytime": {"gamma": "anytime"},
    "overshoot": {"overshoot": "keep", "gamma": 9.0},
    "dense": {"packing": "dense"},
    "exact": {"aggregation": "exact"},
    "secure": {"aggregation": "secure", "rounds": 12},
    "away": {"participation": 0.6, "policy": "exploit"},
    "coming late": {"present": [[1, 20, 60], [1, 90, 110]], "policy": "exploit"},
}


def learned(env: Any, **settings: Any) -> Any:
    options = {k: settings.pop(k) for k in ("data", "transport", "folder") if k in settings}
    settings = {"beta": 0.3} | settings
    return FedLSVI(M, **settings).learn(env, T, seed=3, progress=False, **options)


def policies(run: Any) -> np.ndarray:
    """(H, M·S) the policy of each agent, in the states of `WHOLE`."""
    return np.concatenate([policy.table for policy in run.agent_policies], axis=1)


@pytest.mark.parametrize("settings", PAIRED.values(), ids=PAIRED.keys())
def test_a_run_is_that_of_the_pooled_regression(settings: dict[str, Any]) -> None:
    """Rounds, weights, regret and policies, with all numbers in force."""
    mine, pooled = learned(SITES, own_features=OWN, **settings), learned(WHOLE, **settings)
    for name in ("gamma", "beta", "lam", "cap", "rounds"):
        assert getattr(mine.parameters, name) == getattr(pooled.parameters, name)
    assert mine.taus == pooled.taus
    np.testing.assert_allclose(mine.w, pooled.w[:, :SHARED], atol=1e-7)
    np.testing.assert_allclose(mine.regret, pooled.regret, rtol=1e-9)
    assert np.array_equal(policies(mine), pooled.policy.table)
    if pooled.policy_w is not None:
        np.testing.assert_allclose(mine.policy_w, pooled.policy_w[:, :SHARED], atol=1e-7)


def test_a_run_is_algorithms_1_and_2_line_by_line() -> None:
    mine = learned(SITES, own_features=OWN, preset="paper", beta=0.5, gamma=6.0, diversity=0.0)
    phi = WHOLE.default_features().table  # type: ignore[attr-defined]
    expected = literal_fed_lsvi(WHOLE, phi, M, T, H, 3, 1.0, 0.5, 6.0)
    assert mine.taus == expected.taus
    np.testing.assert_allclose(mine.w, expected.w[:, :SHARED], atol=1e-9)


def test_where_steps_share_their_sums() -> None:
    steady = [
        FiniteMDP(env.P[0], env.r[0], horizon=H, initial=env.initial_law(0), phi=env.phi)
        for env in SITES
    ]
    whole = together(steady, OWN)
    whole = FiniteMDP(whole.P, whole.r[0], horizon=H, initial=whole.initial_laws, phi=whole.phi)
    one = learned(steady, own_features=OWN, stationary=True)
    pooled = learned(whole, stationary=True)
    assert one.taus == pooled.taus
    np.testing.assert_allclose(one.w, pooled.w[:, :SHARED], atol=1e-7)
    assert one.bounds["scalars"].holds


def test_logs_beside_players() -> None:
    logs = [record_episodes(env, 20, seed=1, agent=m) for m, env in enumerate(SITES)]
    mine = learned(SITES, own_features=OWN, data=logs)
    pooled = learned(WHOLE, data=glued(logs))
    assert mine.taus == pooled.taus
    np.testing.assert_allclose(mine.w, pooled.w[:, :SHARED], atol=1e-7)
    assert np.array_equal(policies(mine), pooled.policy.table)


class Slope(ContinuousMDP):
    """x in [0, 1] goes on by a draw and the action; agents pay differently for action 1."""

    name, n_actions, state_dim, horizon = "slope", 2, 1, 3
    draws_at_reset, draws_per_step = 1, 1

    def __init__(self, bonus: float = 0.0) -> None:
        self.bonus = bonus

    def reset(self, u: np.ndarray, agents: np.ndarray) -> np.ndarray:
        return u[:, :1].copy()

    def step(
        self, h: int, x: np.ndarray, a: np.ndarray, u: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        pay = 0.3 * x[:, 0] + 0.2 + self.bonus * a
        return pay, np.clip(0.5 * x + 0.3 * u + 0.2 * a[:, None], 0.0, 1.0)


def slopes(states: np.ndarray) -> np.ndarray:
    """(x, 1, a)/√3: the last one is own."""
    phi = np.ones((len(states), 2, 3))
    phi[:, :, 0], phi[:, :, 2] = states[:, :1], np.arange(2)
    return phi / np.sqrt(3.0)


def test_vectors_over_frames_and_in_process(tmp_path: Path) -> None:
    """And the two agents learn to act differently."""
    envs = [Slope(-0.2), Slope(0.2)]
    learner = FedLSVI(2, own_features=1, rounds=8, value_range=3.0)
    one = learner.learn(envs, 60, seed=1, features=slopes, progress=False)
    other = learner.learn(
        envs, 60, seed=1, features=slopes, progress=False, transport=over_frames(2)
    )
    assert_same(one, other)
    x = np.linspace(0.0, 1.0, 5)[:, None]
    assert [policy.actions(3, x).tolist() for policy in one.agent_policies] == [[0] * 5, [1] * 5]
    one.save(str(tmp_path / "run"))
    read = fedlsvi.load(tmp_path / "run", env=envs, features=slopes)
    assert [policy.actions(3, x).tolist() for policy in read.agent_policies] == [[0] * 5, [1] * 5]


@pytest.mark.parametrize(
    "settings",
    [{}, {"bonus": "noise", "beta": None}, {"aggregation": "exact"}, {"participation": 0.6},
     {"aggregation": "secure", "rounds": 12}],
    ids=str,
)  # fmt: skip
def test_frames_change_no_bit_and_pass_the_guard(settings: dict[str, Any]) -> None:
    one = learned(SITES, own_features=OWN, **settings)
    other = learned(SITES, own_features=OWN, transport=over_frames(M), **settings)
    assert other.regret is None  # nobody there knows the policies
    assert_same(other, one)
    if one.policy_w is not None:
        assert one.policy_w.tobytes() == other.policy_w.tobytes()


def test_a_silent_site_is_taken_back_with_every_episode_once(tmp_path: Path) -> None:
    kept: list[Any] = []

    def make(plan: Any) -> Any:
        retry = RetryPolicy(PATIENCE, 1, absent="carry")
        kept[:] = [lossy(between(7, 12), tmp_path, retry, M)(plan), plan]
        return kept[0]

    run = learned(SITES, own_features=OWN, transport=make, policy="explore")
    assert any("taken back" in note for record in run.records for note in record.notes)
    check_increments(*kept)


def test_noise_of_targets_is_that_of_the_pooled_residuals() -> None:
    """σ̂ has their sum of squares exactly, and counts a few directions in force too many."""
    settings = {"beta": None, "bonus": "noise"}
    mine = FedLSVI(M, own_features=OWN, rounds=1, **settings)
    one = mine.prepare(SITES, T, 3)
    other = FedLSVI(M, rounds=1, **settings).prepare(WHOLE, T, 3)
    for session in (one, other):
        list(session.rounds())
        session.close()
    sigma = [session.player.server.noise for session in (one, other)]  # type: ignore[attr-defined]
    np.testing.assert_allclose(*sigma, rtol=3e-3)
    assert (sigma[0] >= sigma[1] - 1e-12).all()


# offline


def glued(logs: list[dict[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
    """The logs with states of `WHOLE`."""
    moved = ("observation", "next_observation")
    return [
        {k: v + m * S if k in moved else v for k, v in log.items()} for m, log in enumerate(logs)
    ]


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_pevi_is_that_of_all_logs_in_one_place(beta: float, stationary: bool) -> None:
    logs = [record_episodes(env, 20 + 5 * m, seed=1, agent=m) for m, env in enumerate(SITES)]
    run = offline.offline(
        logs, horizon=H, n_states=S, n_actions=A, features=SITES[0].phi, own_features=OWN,
        beta=beta, stationary=stationary, progress=False,
    )  # fmt: skip
    p = run.parameters
    phi = WHOLE.phi
    assert phi is not None
    w, gram, best = pevi(
        glued(logs), lambda x, a: phi[x, a], A, H, SHARED + M * OWN, p.lam, beta,
        stationary=stationary,
    )  # fmt: skip
    np.testing.assert_allclose(run.w, w[:, :SHARED], atol=1e-9)
    # the model of the shared coefficients is the pooled one's marginal
    marginal = [np.linalg.inv(np.linalg.inv(one)[:SHARED, :SHARED]) for one in gram]
    np.testing.assert_allclose(run.gram, marginal, atol=1e-8)
    for m, policy in enumerate(run.agent_policies):
        for h in range(1, H + 1):
            values = policy.values.values[h - 1]  # type: ignore[union-attr]
            found = list(zip(policy.table[h - 1].tolist(), values.tolist(), strict=True))
            for x, (action, value) in enumerate(found):
                assert (action, value) == (
                    best(h, m * S + x)[0], pytest.approx(best(h, m * S + x)[1], abs=1e-9)
                )  # fmt: skip
    assert run.ledger.scalars == run.ledger.scalars | offline.scalars(run)


def test_only_sums_of_the_shared_features_are_sent() -> None:
    """As many scalars as if agents had no others: M·H(P + d) up, and as many down."""
    logs = [record_episodes(env, 10, seed=1, agent=m) for m, env in enumerate(SITES)]
    worlds = logged_worlds(logs, like=SITES[0])
    run = PEVI(M, own_features=OWN).learn(
        worlds, features=SITES[0].default_features(), progress=False
    )
    packed = SHARED * (SHARED + 1) // 2
    assert run.ledger.scalars["up_stats"] == M * H * (packed + SHARED)
    assert run.ledger.scalars["down_model"] == M * H * (packed + SHARED)


def test_the_ledger_is_the_formula_in_the_shared_dimension() -> None:
    run = learned(SITES, own_features=OWN, bonus="noise", beta=None)
    assert run.bounds["scalars"].holds
    assert run.bounds["theorem_3"].holds


# what is done with a run


def test_a_run_is_resumed_to_the_same_bits(tmp_path: Path) -> None:
    whole = learned(SITES, own_features=OWN, rounds=12)
    stop = lambda record: fedlsvi.STOP if record.k == 6 else None  # noqa: E731
    FedLSVI(M, own_features=OWN, rounds=12, beta=0.3).learn(
        SITES, T, seed=3, progress=False, folder=tmp_path / "run", observers=[stop],
        checkpoint_seconds=0,
    )  # fmt: skip
    again = fedlsvi.resume(tmp_path / "run", env=SITES, progress=False)
    assert_same(again, whole)
    assert again.policy_w.tobytes() == whole.policy_w.tobytes()
    assert np.array_equal(policies(again), policies(whole))
    read = fedlsvi.load(tmp_path / "run", env=SITES)
    assert np.array_equal(read.policy.table, whole.policy.table)  # the shared ones alone
    assert np.array_equal(policies(read), policies(whole))
    assert read.references() == again.references()
    again.agent_policies[1].save(tmp_path / "policy")
    site = Policy.load(tmp_path / "policy", features=SITES[1].phi)
    assert np.array_equal(site.table, whole.agent_policies[1].table)


@pytest.mark.parametrize("settings", [{}, {"participation": 0.6, "policy": "exploit"}], ids=str)
def test_sites_that_begin_again_have_the_same_policy(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    """From their journals, in the middle of a run and when it has ended."""
    kept: list[Any] = []

    def make(plan: Any) -> Any:
        kept[:] = [over_frames(M, tmp_path)(plan), plan]
        return kept[0]

    learner = FedLSVI(M, own_features=OWN, beta=0.3, rounds=8, **settings)
    whole = learner.learn(SITES, T, seed=3, progress=False)
    folder = tmp_path / "run"
    stop = lambda record: fedlsvi.STOP if record.k == 5 else None  # noqa: E731
    learner.learn(
        SITES, T, seed=3, progress=False, folder=folder, observers=[stop], transport=make,
        checkpoint_seconds=0,
    )  # fmt: skip
    again = fedlsvi.resume(folder, env=SITES, progress=False, transport=make)
    assert_same(again, whole)
    for m, policy in enumerate(whole.agent_policies):
        endpoint = endpoint_factories(kept[1], M, tmp_path, durable=False, threads=1)[m]()
        site: Any = endpoint.cohort
        assert np.array_equal((site.deployed or site.values).policy, policy.table)
        endpoint.close()


def test_references_are_of_agent_0_and_its_policy() -> None:
    run = learned(SITES, own_features=OWN)
    table = run.agent_policies[0].table
    expected = SITES[0].policy_values(table)[0] @ SITES[0].initial_law(0)
    assert run.references()["learned"] == pytest.approx(float(expected))


def test_features_of_zeros_for_own_are_as_none() -> None:
    """Where sites have nothing of their own, one w for all is what there is."""
    phi = np.concatenate([SITES[0].phi[..., :SHARED], np.zeros((S, A, 2))], axis=2)  # type: ignore[index]
    envs = [FiniteMDP(env.P, env.r, initial=env.initial_law(0), phi=phi) for env in SITES]
    plain = [FiniteMDP(e.P, e.r, initial=e.initial_law(0), phi=phi[..., :SHARED]) for e in envs]
    one, other = learned(envs, own_features=2, gamma=5.0), learned(plain, gamma=5.0)
    assert one.taus == other.taus
    np.testing.assert_allclose(one.w, other.w, atol=1e-9)
    assert all(np.array_equal(p.table, one.policy.table) for p in one.agent_policies)


# what is refused


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"exchange": "one-trip"}, "one-trip-own-features"),
        ({"privacy": {"epsilon": 1.0, "delta": 1e-6}, "aggregation": "exact"}, "bad-privacy"),
        ({"own_features": SHARED + OWN}, "bad-own_features"),
        ({"own_features": -1}, "bad-own_features"),
        ({"packing": "diagonal"}, "bad-packing"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(settings: dict[str, Any], code: str) -> None:
    with refused(InvalidSetting, code):
        learned(SITES, **{"own_features": OWN} | settings)


def test_agents_of_one_cohort_cannot_have_different_policies() -> None:
    with refused(InvalidSetting, "policies-differ"):
        learned(SITES, own_features=OWN, transport=over_frames(1))


def test_expanded_features_are_those_of_one_agent() -> None:
    """(1, 2 | 3, 4) of agent 1 of 2 is (1, 2 | 0, 0 | 3, 4)."""
    assert expanded(np.array([1.0, 2.0, 3.0, 4.0]), 2, 1, 2).tolist() == [1, 2, 0, 0, 3, 4]
