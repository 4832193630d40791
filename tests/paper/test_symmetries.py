"""What may not matter: the basis of the features, the unit of reward, the order of the agents, and
how the work is cut into blocks, threads and cohorts (oracles 3, 7, 8, 12)."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from agreement import assert_close
from fedlsvi import FedLSVI
from fedlsvi.envs import Garnet
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.experience import dense_counts, kinds, state_round, table_source
from fedlsvi.protocol import transport
from fedlsvi.protocol.cohorts import cohort_of
from fedlsvi.protocol.server import Server
from problems import Problem, Setting, chain, continuous, deterministic, heterogeneous, simplex


def rotation(d: int, seed: int = 0) -> Any:
    """A random orthogonal matrix."""
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))[0]


@pytest.mark.parametrize("gamma", [1.0, 4.0, 30.0])
@pytest.mark.parametrize("problem", [simplex(10), deterministic(10)], ids=lambda p: p.name)
def test_rotated_features_give_the_rotated_model(problem: Problem, gamma: float) -> None:
    """Oracle 7: φ → Uφ keeps every τ and every action, and turns w into Uw, Λ into UΛUᵀ."""
    s = Setting(M=3, T=40, gamma=gamma, seed=10)
    plain = problem.learn(s)
    U = rotation(plain.w.shape[1])
    turned = replace(problem, phi=problem.phi @ U.T, features=problem.phi @ U.T).learn(s)
    assert problem.literal(s).near_ties == 0, "a rotation may break ties; choose another problem"
    assert list(turned.taus) == list(plain.taus)
    assert np.array_equal(np.stack(turned.policies), np.stack(plain.policies))
    assert_close(turned.w, plain.w @ U.T, "w")
    assert_close(turned.gram, U @ plain.gram @ U.T, "Λ")


def test_rotated_continuous_features_give_the_rotated_model() -> None:
    """Oracle 7 with real states."""
    problem, s = continuous(), Setting(M=3, T=20, gamma=4.0, seed=11)
    plain = problem.learn(s)
    U = rotation(plain.w.shape[1])

    def turned_phi(states: Any) -> Any:
        return problem.features(states) @ U.T

    turned = replace(problem, phi=turned_phi, features=turned_phi).learn(s)
    assert list(turned.taus) == list(plain.taus)
    assert_close(turned.w, plain.w @ U.T, "w")
    assert_close(turned.gram, U @ plain.gram @ U.T, "Λ")


@pytest.mark.parametrize("c", [0.5, 0.3])
@pytest.mark.parametrize("gamma", [1.0, 4.0])
def test_scaled_rewards_give_the_scaled_model(c: float, gamma: float) -> None:
    """Oracle 8: r, β and the clip bound times c give w times c, the same actions, the same τ's.
    The clip scales because min(H − h + 1, v) = v at every step once v ≤ 1."""
    problem, s = simplex(12), Setting(M=3, T=40, gamma=gamma, seed=12, beta=0.6)
    env = problem.one
    paid_less = FiniteMDP(env.P, c * env.r, initial=env.initial_law(0), phi=problem.phi)
    plain = problem.learn(s, preset="practical", value_range=0.9)
    scaled = replace(problem, envs=paid_less).learn(
        s.but(beta=c * s.beta), preset="practical", value_range=c * 0.9
    )
    assert list(scaled.taus) == list(plain.taus)
    assert np.array_equal(np.stack(scaled.policies), np.stack(plain.policies))
    assert_close(scaled.w, c * plain.w, "w")
    assert_close(scaled.gram, plain.gram, "Λ")
    assert_close(scaled.regret, c * plain.regret, "regret")


@pytest.mark.parametrize("gamma", [1.0, 5.0, 1e9])
def test_agents_may_come_in_any_order(gamma: float) -> None:
    """Oracle 3: agents that differ but leave nothing to chance can be listed in any order."""
    phi = deterministic(13).phi
    agents = [deterministic(13 + m).one for m in range(5)]
    envs = [
        FiniteMDP(e.P, e.r, horizon=e.horizon, initial=m % e.n_states, phi=phi)
        for m, e in enumerate(agents)
    ]
    s = Setting(M=5, T=30, gamma=gamma)
    plain = Problem("listed", envs, phi, features=phi).learn(s)
    shuffled = Problem("shuffled", [envs[m] for m in (3, 0, 4, 1, 2)], phi, phi).learn(s)
    assert list(shuffled.taus) == list(plain.taus)
    assert_close(shuffled.w, plain.w, "w", 1e-8)
    assert_close(shuffled.gram, plain.gram, "Λ", 1e-8)
    assert_close(shuffled.regret, plain.regret, "regret")


def digest(array: Any) -> str:
    """A short name for every bit of an array."""
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:12]


def fingerprint(run: Any) -> dict[str, Any]:
    """Every bit of the result, and what was sent for it."""
    return {
        "taus": list(run.taus),
        "models": [(digest(w), digest(gram)) for w, gram in run.models],
        "policies": [digest(table) for table in run.policies],
        "w": digest(run.w),
        "gram": digest(run.gram),
        "regret": digest(run.regret),
        "signals": [(record.signals, sorted(record.triggers)) for record in run.records],
        "scalars": dict(run.ledger.scalars),
    }


WAYS: list[dict[str, Any]] = [
    {"block": 1}, {"block": 2}, {"block": 7}, {"block": 64}, {"block": None},
    {"threads": 1}, {"threads": 2}, {"threads": 2, "block": 7},
    {"cohorts": 2}, {"cohorts": 3}, {"cohorts": 9}, {"cohorts": 3, "threads": 2, "block": 2},
]  # fmt: skip


@pytest.mark.parametrize("gamma", [1.0, 6.0, 80.0])
@pytest.mark.parametrize(
    "problem",
    [simplex(14, S=12, A=4, d=9), chain(), heterogeneous(14, M=9), continuous(0.1, d=9)],
    ids=lambda p: p.name,
)
def test_how_the_work_is_cut_changes_no_bit(problem: Problem, gamma: float) -> None:
    """Oracle 12, to the last bit: block size, threads and cohorts are not part of the result. Nine
    agents, because NumPy adds eight numbers or more in another order than fewer."""
    s = Setting(M=9, T=40, gamma=gamma, seed=14)
    expected = fingerprint(problem.learn(s))
    for way in WAYS:
        assert fingerprint(problem.learn(s, **way)) == expected, f"changed by {way}"


@pytest.mark.parametrize("gamma", [150.0, 1e12])
@pytest.mark.parametrize("problem", [simplex(14), chain(), continuous(0.1)], ids=lambda p: p.name)
def test_long_rounds_change_no_bit_either(
    problem: Problem, gamma: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds of hundreds of episodes, which outgrow blocks, buffers and the log of a round."""
    s = Setting(M=3, T=500, gamma=gamma, seed=14)
    expected = fingerprint(problem.learn(s))
    for log_bytes in (64 * 2**20, 0):  # nothing but the smallest log: rounds spill into counts
        monkeypatch.setattr("fedlsvi.experience.table_source.LOG_BYTES", log_bytes)
        for way in ({"block": 50}, {"block": 64, "cohorts": 3}, {"threads": 2}, {"cohorts": 2}):
            assert fingerprint(problem.learn(s, **way)) == expected, f"changed by {way}"


@pytest.mark.parametrize("dense", [True, False])
def test_a_round_that_ends_within_what_was_counted(
    dense: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cohort looks far ahead and spills, and then another one fires long before that: as at sites
    that play on until they hear of it."""
    monkeypatch.setattr(
        transport, "deliver_to",
        lambda cohorts, message: [cohort.receive(message) for cohort in cohorts],
    )  # fmt: skip
    env = Garnet(8, 3, 2, horizon=3, seed=2, initial="uniform")
    monkeypatch.setattr(table_source, "LOG_BYTES", 0)
    if not dense:
        monkeypatch.setattr(kinds, "DENSE_BYTES", 0)
    M, T = 4, 4_000
    learner, played = FedLSVI(M, gamma=600.0, beta=0.3, stationary=False), []
    monkeypatch.setattr(
        state_round.StateRound, "empty",
        lambda log, empty=state_round.StateRound.empty: (played.append(1), empty(log)),
    )  # fmt: skip
    whole = learner.learn(env, T, 1, progress=False)
    assert np.trace(whole.gram[0]) == pytest.approx(M * T, abs=1.0)  # one-hot: visits, and λ·d
    for cohorts in (2, 4):
        played.clear()
        run = learner.learn(env, T, 1, progress=False, cohorts=cohorts)
        assert len(played) > cohorts * (run.rounds + 1)  # it did happen
        assert fingerprint(run) == fingerprint(whole)


def test_a_short_round_of_which_a_part_was_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """As at a site that looked far ahead twice and is then told to stop early."""
    monkeypatch.setattr(table_source, "LOG_BYTES", 0)
    plan = FedLSVI(2, bonus="constant").prepare(simplex(14).envs, 400, 3).plan
    uploads = []
    for windows in ((20,), (10, 64), (64, 64)):
        cohort = cohort_of(plan, 0, 2)
        cohort.start(Server(plan.layout, 1.0, 9.0, 0.5, 400).parameters())
        for n in windows:
            cohort.experience.explore(n)
        upload = cohort.stop(20)
        uploads.append((upload.gram.tobytes(), upload.b.tobytes()))
    assert uploads[1:] == uploads[:1] * 2


def test_a_table_of_outer_products_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """φφᵀ read from a table, as on small problems, or formed again for each transition."""
    problem, s = simplex(14, S=12, A=4, d=9), Setting(M=9, T=40, gamma=6.0, seed=14)
    assert dense_counts.outer_products(problem.phi).shape == (12 * 4, 9 * 10 // 2)
    expected = fingerprint(problem.learn(s))
    monkeypatch.setattr(dense_counts, "OUTER_BYTES", 0)
    assert dense_counts.outer_products(problem.phi).size == 0
    assert fingerprint(problem.learn(s)) == expected


@pytest.mark.parametrize("problem", [simplex(15), continuous()], ids=lambda p: p.name)
def test_a_seed_gives_the_run_again_and_another_seed_another(problem: Problem) -> None:
    """The seed is the only source of chance."""
    s = Setting(M=3, T=30, seed=15)
    assert fingerprint(problem.learn(s)) == fingerprint(problem.learn(s))
    assert fingerprint(problem.learn(s)) != fingerprint(problem.learn(s.but(seed=16)))
