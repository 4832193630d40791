"""Pessimistic value iteration: federated is pooled, and both are the literal algorithm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlsvi
from expecting import refused
from fedlsvi import PEVI, FedLSVI
from fedlsvi.algorithms import check_algorithm, registry
from fedlsvi.core.theory import beta_pessimistic
from fedlsvi.envs import FiniteMDP, RandomLinearMDP, RandomMDP
from fedlsvi.errors import InvalidEnvironment
from fedlsvi.experience import log_buffer
from fedlsvi.logs import sources
from fedlsvi.logs.recording import record_episodes, write_records
from fedlsvi.logs.rows import InvalidRecord
from fedlsvi.logs.world import logged_worlds
from literal_pevi import pevi
from repeats import repeats
from transports_over_frames import over_frames

SITES = 10


def tabular() -> RandomMDP:
    return RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1)


def linear() -> RandomLinearMDP:
    return RandomLinearMDP(n_states=6, n_actions=3, dim=4, horizon=3, seed=2)


def logs(env: FiniteMDP, sites: int = SITES, episodes: int = 6) -> list[dict[str, Any]]:
    """Logs of different lengths; state 1 ends an episode."""
    return [record_episodes(env, episodes + m, seed=m, agent=m, ends=[1]) for m in range(sites)]


def pooled(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """All records in one place, as one agent's."""
    one = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    one["episode"] = np.concatenate([part["episode"] + 1000 * m for m, part in enumerate(parts)])
    return one


def without_next(log: dict[str, Any]) -> dict[str, Any]:
    return {k: c for k, c in log.items() if k not in ("next_observation", "probability")}


def vectors(log: dict[str, Any]) -> dict[str, Any]:
    """Numbered states as points of the plane: a problem of the continuous kind."""
    place = np.random.default_rng(0).random((6, 2))
    seen = {k: place[log[k]] for k in ("observation", "next_observation") if k in log}
    return log | seen


def bumps(states: np.ndarray) -> np.ndarray:
    """Five features of each of three actions, in the unit ball."""
    waves = np.cos(states @ np.array([[3.0, 1.0, 2.0, 5.0, 0.0], [1.0, 4.0, 2.0, 0.0, 5.0]]))
    shifted = np.stack([np.roll(waves, a, axis=1) for a in range(3)], axis=1)
    return shifted / 3.0


@pytest.mark.parametrize("stationary", [False, True], ids=["per-step", "stationary"])
@pytest.mark.parametrize("kind", ["one-hot", "dense", "continuous"])
def test_is_the_literal_algorithm_and_federated_equals_pooled(kind: str, stationary: bool) -> None:
    """Ten sites, one site with all records, and the literal code: w within 1e-9, same policy."""
    env: FiniteMDP = tabular() if kind == "one-hot" else linear()
    parts = [without_next(log) if m % 3 else log for m, log in enumerate(logs(env))]
    if not stationary:
        parts = [without_next(log) for log in parts]
    for log in parts[::2]:  # an episode that was cut: its last row has no target
        for name in log:
            log[name] = log[name][:-1]
    settings: dict[str, Any] = {"beta": 0.3, "lam": 0.5, "horizon": 3, "n_actions": 3}
    settings["stationary"] = stationary
    d, phi = env.n_states * 3, None
    if kind == "one-hot":
        unit = np.eye(d)
        phi = lambda x, a: unit[3 * x + a]  # noqa: E731
        settings["n_states"] = env.n_states
    elif kind == "dense":
        table = env.default_features()
        d, phi = 4, lambda x, a: table(np.array([x]))[0, a]
        settings |= {"features": table, "n_states": env.n_states}
    else:
        parts = [vectors(log) for log in parts]
        d, phi = 5, lambda x, a: bumps(x[None])[0, a]
        settings["features"] = bumps
    run = fedlsvi.offline(parts, progress=False, **settings)
    w, gram, best = pevi(parts, phi, 3, 3, d, 0.5, 0.3, stationary=stationary)
    if stationary:  # a table has next_observation in all rows or in none
        parts = [log for m, log in enumerate(parts) if m % 3 == 0]
        run_of_some = fedlsvi.offline(parts, progress=False, **settings)
        one = fedlsvi.offline(pooled(parts), progress=False, **settings)
        assert np.abs(run_of_some.w - one.w).max() < 1e-9
    else:
        one = fedlsvi.offline(pooled(parts), progress=False, **settings)
        assert np.abs(run.w - one.w).max() < 1e-9
    assert np.abs(run.w - w).max() < 1e-9
    assert np.abs(run.gram - gram).max() < 1e-9
    seen = np.unique(np.concatenate([log["observation"] for log in parts]), axis=0)
    for h in (1, 2, 3):
        wanted = [best(h, x)[0] for x in seen]
        assert run.policy.actions(h, seen).tolist() == wanted
        assert stationary or one.policy.actions(h, seen).tolist() == wanted
    assert run.rounds == 1
    assert run.ledger.scalars == dict.fromkeys(run.ledger.scalars, 0) | registry.entry(
        "pevi"
    ).scalars(run)
    if not stationary:
        assert run.counts["left_out"] == sum(
            int(log["step"][-1] < 3 and not log["terminated"][-1]) for log in parts
        )


@pytest.mark.parametrize("stationary", [False, True], ids=["per-step", "stationary"])
@pytest.mark.parametrize("kind", ["finite", "continuous"])
def test_blocks_cohorts_transports_and_spilled_states_change_no_bit(
    kind: str, stationary: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    env, settings = linear(), {"stationary": stationary}
    parts = logs(env, 4)
    if kind == "continuous":
        parts, settings = [vectors(log) for log in parts], settings | {"features": bumps}

    def learn(**options: Any) -> Any:
        return fedlsvi.offline(parts, n_actions=3, horizon=3, progress=False, **settings, **options)

    run = learn()
    for options in (
        {"cohorts": 3}, {"threads": 2, "block": 2}, {"transport": over_frames(2, tmp_path)},
    ):  # fmt: skip
        other = learn(**options)
        assert other.w.tobytes() == run.w.tobytes()
        assert other.gram.tobytes() == run.gram.tobytes()
    monkeypatch.setattr(log_buffer, "SPILL", 1)
    assert learn().w.tobytes() == run.w.tobytes()
    monkeypatch.setattr(sources, "BLOCK", 5)
    assert np.abs(learn().w - run.w).max() < 1e-12


def test_a_run_folder_of_files_is_read_again(tmp_path: Path) -> None:
    """Written, loaded, its policy played in the simulator; another log is refused."""
    env = tabular()
    for m, log in enumerate(logs(env, 3, 40)):
        write_records(log, tmp_path / f"{m}.parquet")
    files = [str(tmp_path / f"{m}.parquet") for m in range(3)]
    run = fedlsvi.offline(files, env=env, folder=tmp_path / "run", progress=False)
    again = fedlsvi.load(tmp_path / "run")
    assert again.algorithm == "pevi"
    assert again.counts == run.counts
    assert again.w.tobytes() == run.w.tobytes()
    assert np.array_equal(again.policy.table, run.policy.table)
    assert np.array_equal(fedlsvi.load(tmp_path / "run", env=env).policy.table, run.policy.table)
    assert fedlsvi.resume(tmp_path / "run").w.tobytes() == run.w.tobytes()
    run.policy.save(tmp_path / "policy")
    assert np.array_equal(type(run.policy).load(tmp_path / "policy").table, run.policy.table)
    assert run.references() == again.references()


def test_a_killed_run_is_taken_up_to_the_same_bits(tmp_path: Path) -> None:
    """Killed before its only round was over, it has a header and no checkpoint."""
    from fedlsvi.storage.run_writer import begin

    env = tabular()
    write_records(logs(env, 1, 30)[0], tmp_path / "log.parquet")
    learner, worlds = PEVI(1), logged_worlds(tmp_path / "log.parquet", like=env)
    whole = learner.learn(worlds, progress=False)
    begin(tmp_path / "run", learner.prepare(worlds, 30).plan, "pevi", learner.settings)
    resumed = fedlsvi.resume(tmp_path / "run", progress=False)
    assert resumed.w.tobytes() == whole.w.tobytes()


def test_with_data_that_covers_everything_it_reaches_the_optimum() -> None:
    env = tabular()
    best = float(env.initial_law(0) @ env.optimal_values()[0])
    gaps = []
    for n in (10, 100, 10_000):
        run = fedlsvi.offline([record_episodes(env, n, agent=m) for m in range(2)], env=env,
                              progress=False)  # fmt: skip
        gaps.append(best - float(env.initial_law(0) @ env.policy_values(run.policy.table)[0]))
    assert gaps[0] > 0.05
    assert gaps[0] > gaps[1]
    assert gaps[2] < 1e-9


def test_what_was_never_seen_is_worth_nothing() -> None:
    """A log of state 0 and action 0 alone: elsewhere V̂ = 0 and the lowest action is taken."""
    env = tabular()
    one = {
        "episode": np.zeros(1, int), "step": np.ones(1, int), "observation": np.zeros(1, int),
        "action": np.zeros(1, int), "reward": np.zeros(1), "terminated": np.ones(1, bool),
    }  # fmt: skip
    run = fedlsvi.offline(one, env=env, progress=False)
    assert not run.w.any()
    assert not run.policy.values.values.any()
    assert not run.policy.table.any()
    assert np.allclose(run.gram[0].diagonal(), [1.001] + [0.001] * 11)


def test_the_theorems_beta_gives_a_lower_bound_on_100_instances() -> None:
    """V̂₁ ≤ V^π̂₁ in every state, and V̂ is not all zero somewhere (β scaled down to see that)."""
    above = 0
    for seed in range(repeats(25, 100)):
        env = RandomLinearMDP(n_states=8, n_actions=3, dim=4, horizon=3, seed=seed)
        parts = [record_episodes(env, 40, seed=seed, agent=m) for m in range(3)]
        run = fedlsvi.offline(parts, env=env, preset="paper", progress=False)
        p = run.parameters
        assert (p.lam, p.beta) == (1.0, beta_pessimistic(4, 3, 3, 40))
        truth = env.policy_values(run.policy.table)
        assert (run.policy.values.values[:3] <= truth[:3] + 1e-12).all()
        small = fedlsvi.offline(parts, env=env, preset="paper", c_beta=0.02, progress=False)
        truth = env.policy_values(small.policy.table)
        assert (small.policy.values.values[:3] <= truth[:3] + 1e-12).all()
        above += small.policy.values.values[0].max() > 0.0
    assert above > 0


def test_the_bonus_is_taken_off() -> None:
    """By hand: one state, two actions, H = 1; action 1 pays more and was seen once."""
    log = {
        "episode": np.arange(5), "step": np.ones(5, int), "observation": np.zeros(5, int),
        "action": np.array([0, 0, 0, 0, 1]), "reward": np.array([0.5, 0.5, 0.5, 0.5, 0.8]),
        "terminated": np.ones(5, bool),
    }  # fmt: skip
    for beta, chosen, value in ((0.0, 1, 0.4), (0.4, 0, 0.4 - 0.4 / 5**0.5)):
        run = fedlsvi.offline(log, beta=beta, lam=1.0, progress=False)
        assert run.w[0].tolist() == [0.4, 0.4]  # 2/(4 + 1) and 0.8/(1 + 1)
        assert run.policy.table[0, 0] == (chosen if beta else 0)
        assert run.policy.values.values[0, 0] == pytest.approx(value)


def test_a_norm_above_one_is_refused_with_its_row() -> None:
    log = vectors(without_next(logs(linear(), 1, 20)[0]))
    log["observation"][20] = 9.0

    def long(states: np.ndarray) -> np.ndarray:
        return bumps(states) * np.where(states[:, :1, None] > 2.0, 40.0, 1.0)

    with refused(InvalidRecord, "norm-above-1") as caught:
        fedlsvi.offline(log, features=long, n_actions=3, progress=False)
    assert caught.value.row == 21  # type: ignore[attr-defined]


def test_what_does_not_fit_is_refused() -> None:
    env = tabular()
    parts = logs(env, 3)
    with refused(InvalidRecord, "wrong-number-of-logs", "3", "2"):
        PEVI(2).learn(data=parts)
    with refused(InvalidEnvironment, "needs-records"):
        PEVI(2).learn(env, 10)
    with refused(InvalidEnvironment, "needs-world"):
        FedLSVI(3).learn(logged_worlds(parts, like=env), 10)
    with refused(InvalidRecord, "agents-twice"):
        PEVI(2).learn(data=[log | {"agent": np.zeros(len(log["step"]), int)} for log in parts[:2]])


def test_check_algorithm_knows_algorithms_that_learn_from_logs() -> None:
    check_algorithm("pevi")
