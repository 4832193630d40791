"""One-hot problems kept by their cells give what the dense ones give."""

from __future__ import annotations

import numpy as np
import pytest

from agreement import compare
from fedlsvi import FedLSVI
from fedlsvi.envs import FiniteMDP, Garnet, RandomMDP, as_environment
from fedlsvi.experience import kinds, table_source
from fedlsvi.experience.cell_counts import CellCounts
from fedlsvi.experience.kinds import prefers_sparse
from fedlsvi.protocol.cohorts import cohort_of
from fedlsvi.run import Run
from problems import Setting, transition_rewards


def _moving() -> FiniteMDP:
    """Rewards that depend on the next state."""
    rng = np.random.default_rng(3)
    P = rng.dirichlet(np.full(5, 0.3), size=(5, 2))
    return FiniteMDP(P, rng.random((1, 5, 2, 5)), horizon=4, initial="uniform")


PROBLEMS = {
    "garnet": [Garnet(7, 3, 2, 4, seed=1)] * 3,
    "per step": [RandomMDP(4, 3, 3, seed=2)] * 3,
    "moving": [_moving()] * 3,
    "lake": [as_environment("FrozenLake-v1", horizon=12)] * 3,
    "different": [Garnet(7, 3, 2, 4, seed=s) for s in range(3)],
}


def _learn(name: str, episodes: int = 120, **options: object) -> Run:
    learner = FedLSVI(3, gamma=9.0, lam=0.05, beta=0.3)
    return learner.learn(PROBLEMS[name], episodes, 3, progress=False, **options)  # type: ignore[arg-type]


@pytest.fixture
def by_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "DENSE_BYTES", 0)


@pytest.mark.parametrize("name", PROBLEMS)
def test_sparse_is_dense(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dense = _learn(name)
    monkeypatch.setattr(kinds, "DENSE_BYTES", 0)
    run = _learn(name)
    assert run.plan is not None
    assert isinstance(cohort_of(run.plan, 0, 3).experience.memory, CellCounts)
    assert run.taus == dense.taus
    assert np.array_equal(run.gram_packed, dense.gram_packed)
    assert np.allclose(run.w, dense.w, rtol=0.0, atol=1e-12)
    assert run.regret is not None
    assert dense.regret is not None
    assert np.allclose(run.regret, dense.regret, atol=1e-9)


@pytest.mark.usefixtures("by_cells")
def test_no_cut_of_the_work_changes_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _learn("different")
    for options in ({"cohorts": 3}, {"block": 2}, {"threads": 1}):
        assert np.array_equal(_learn("different", **options).w, whole.w)
    monkeypatch.setattr(table_source, "LOG_BYTES", 1)  # every round spills over
    again = FedLSVI(3, gamma=200.0, lam=0.05, beta=0.3)
    spilled = again.learn(PROBLEMS["different"], 600, 3, progress=False)
    monkeypatch.undo()
    plain = again.learn(PROBLEMS["different"], 600, 3, progress=False)
    assert max(r.length for r in spilled.records) > 64
    assert spilled.taus == plain.taus
    assert np.allclose(spilled.w, plain.w, atol=1e-12)


@pytest.mark.usefixtures("by_cells")
def test_a_restored_session_goes_on_to_the_same_bits() -> None:
    learner = FedLSVI(3, gamma=9.0, lam=0.05, beta=0.3)
    whole, half, rest = (learner.prepare(PROBLEMS["lake"], 120, 3) for _ in range(3))
    records = list(whole.rounds())
    rounds = half.rounds()
    kept = [next(rounds) for _ in range(4)]
    arrays, plain = half.player.state()
    rest.restore({k: a.copy() for k, a in arrays.items()}, plain, None, kept)
    assert [r.last for r in rest.rounds()] == [r.last for r in records[4:]]
    assert np.array_equal(rest.player.server.w, whole.player.server.w)


def test_the_choice_is_a_matter_of_size_and_of_true_one_hot_features() -> None:
    assert prefers_sparse(20, 3000, 500, 6)  # Taxi
    assert not prefers_sparse(100, 64, 16, 4)  # FrozenLake 4×4
    assert not prefers_sparse(20, 51, 716, 25)  # groups of states


def test_taxi_fits_into_memory_and_learns() -> None:
    env = as_environment("Taxi-v4", horizon=8)
    run = FedLSVI(2, gamma=20.0, lam=1e-4, beta=0.03, diversity=0).learn(env, 60, 0, progress=False)
    assert run.plan is not None
    memory = cohort_of(run.plan, 0, 2).experience.memory
    assert isinstance(memory, CellCounts)
    assert memory.counts.nbytes < 2**20
    assert run.w.shape == (8, 3000)


def test_cells_are_those_of_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some pairs reach a state at a later step only; against the literal run."""
    problem = transition_rewards(0)
    reached = np.asarray(problem.one.P) > 0.0
    assert (reached.any(axis=0) & ~reached[0]).any()
    monkeypatch.setattr(kinds, "DENSE_BYTES", 0)
    run, _ = compare(problem, Setting(M=3, T=40, gamma=6.0, seed=1))
    assert run.plan is not None
    assert isinstance(cohort_of(run.plan, 0, 3).experience.memory, CellCounts)
