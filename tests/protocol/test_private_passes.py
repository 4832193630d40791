"""Private runs that begin with logs, or end with a policy to deploy: one release more each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlsvi
import problems
from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.core.privacy_accountant import epsilon_of
from fedlsvi.core.statistics import full
from fedlsvi.errors import InvalidSetting
from fedlsvi.privacy import gram_repair
from fedlsvi.privacy import noise as private_noise
from fedlsvi.privacy.sums import FixedPointSums
from fedlsvi.protocol import one_trip, protected
from fedlsvi.protocol.cohorts import cohort_of
from fedlsvi.remote import site_noise
from recorded import recorded
from transports_over_frames import assert_same, over_frames

PRIVACY = {"epsilon": 2.0, "delta": 1e-6}
KEY = bytes(range(32))
SITES, T = 3, 40
LOGGED = [12, 0, 7]
CASES = [
    (problems.simplex(), "one-trip"), (problems.chain(), "one-trip"),
    (problems.simplex(), "stepwise"), (problems.chain(), "stepwise"),
    (problems.continuous(), "stepwise"),
]  # fmt: skip
EVERY = pytest.mark.parametrize(
    ("problem", "exchange"), CASES, ids=lambda case: getattr(case, "name", case)
)


def learn(problem: Any, exchange: Any, data: bool, policy: Any, **own: Any) -> Any:
    settings = {"aggregation": "exact", "rounds": 5, "privacy": PRIVACY, "lam": 0.5, "beta": 0.5}
    settings |= {key: own.pop(key) for key in (*settings, "gamma", "cap") if key in own}
    learner = FedLSVI(SITES, exchange=exchange, policy=policy, **settings)
    one = problem.one
    if data:
        own["data"], _ = recorded(one, LOGGED, problem.horizon, one.n_actions)
    return learner.learn(
        problem.envs if isinstance(problem.envs, list) else one, T, 3, features=problem.features,
        progress=False, keep_models=True, **own,
    )  # fmt: skip


@pytest.fixture
def one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (protected, site_noise):
        monkeypatch.setattr(module, "new_noise_key", lambda: KEY)


@pytest.mark.parametrize("aggregation", ["exact", "secure"])
@EVERY
def test_without_noise_it_is_the_same_algorithm(
    problem: Any, exchange: str, aggregation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = lambda key, label, sigma: np.zeros(sigma.size, np.int64)  # noqa: E731
    monkeypatch.setattr(private_noise, "discrete_gaussian", nothing)
    monkeypatch.setattr(private_noise, "randomly_rounded", lambda key, label, c, r: c >> 16)
    monkeypatch.setattr(gram_repair, "SHIFT", 0.0)
    monkeypatch.setattr(one_trip, "constant_direction", lambda values: np.zeros(values.dim))
    own: dict[str, Any] = {"data": True, "policy": "exploit"}
    private = learn(problem, exchange, aggregation=aggregation, cohorts=3, **own)
    usual = learn(problem, exchange, aggregation="float", privacy=None, gamma=1.0, cap="off", **own)
    assert private.taus == usual.taus
    rounding = 80 * SITES * 5 * 2.0**-private.parameters.scale_bits
    for (w, gram), (other_w, other_gram) in zip(private.models, usual.models, strict=True):
        assert np.abs(full(gram) - full(other_gram)).max() < rounding
        assert np.abs(w - other_w).max() < 1e3 * rounding
    assert np.abs(private.policy_w - usual.policy_w).max() < 1e3 * rounding


@pytest.mark.usefixtures("one_key")
@pytest.mark.parametrize("aggregation", ["exact", "secure"])
@EVERY
def test_frames_carry_what_one_process_computes(
    problem: Any, exchange: str, aggregation: str, tmp_path: Path
) -> None:
    own: dict[str, Any] = {"data": True, "policy": "exploit", "aggregation": aggregation}
    here = learn(problem, exchange, cohorts=3, **own)
    frames, run = over_frames(3, tmp_path / "journals"), tmp_path / "run"
    there = learn(problem, exchange, transport=frames, folder=run, **own)
    assert_same(here, there)
    assert here.policy_w.tobytes() == there.policy_w.tobytes()
    assert fedlsvi.load(run).epsilon_spent == here.epsilon_spent == PRIVACY["epsilon"]
    assert there.bounds["scalars"].holds


@pytest.mark.usefixtures("one_key")
@EVERY
def test_each_of_them_is_paid_for(problem: Any, exchange: str) -> None:
    """The logs are the first release of all; a pass by steps releases every response once more,
    and in one trip nothing."""
    plain, logs, ends = (
        learn(problem, exchange, data, policy)
        for data, policy in ((False, "explore"), (True, "explore"), (False, "exploit"))
    )
    release = [run.parameters.release for run in (plain, logs, ends)]
    assert [own.rounds for own in release] == [5, 6, 5]
    steps = exchange == "stepwise"
    assert (ends.w.tobytes() == plain.w.tobytes()) != steps
    assert [run.epsilon_spent for run in (plain, logs, ends)] == [PRIVACY["epsilon"]] * 3
    if steps:  # before its last pass it has something left
        assert release[2].answers == 6
        assert release[2].response_sigma(1) > 1.05 * release[0].response_sigma(1)
        before = ends.parameters.epsilon_spent(5, False)
        assert before < PRIVACY["epsilon"] == ends.parameters.epsilon_spent(5, True)
        assert epsilon_of(release[2].mu, PRIVACY["delta"]) == pytest.approx(2.0, rel=1e-6)
        with refused(InvalidSetting, "bad-policy"):
            plain.policy_at(0.0)
    else:
        assert np.array_equal(plain.policy_at(0.0).table, ends.policy.table)


@pytest.mark.parametrize("problem", [problems.simplex(), problems.chain()], ids=lambda p: p.name)
def test_a_logged_episode_moves_sums_no_farther_than_noise_assumes(problem: Any) -> None:
    """Another first episode in its place: other actions and rewards, and an early end."""
    env = problem.one
    data, _ = recorded(env, LOGGED, problem.horizon, env.n_actions)
    other = {name: np.array(column) for name, column in data[0].items()}
    first = other["episode"] == other["episode"][0]
    other["action"] = np.where(first, (other["action"] + 1) % env.n_actions, other["action"])
    other["reward"] = np.where(first, 1.0 - other["reward"], other["reward"])
    drop = first & (other["step"] > 1)
    shorter = {name: column[~drop] for name, column in other.items()}
    shorter["terminated"] = shorter["terminated"] | first[~drop]
    words = []
    for log in (data[0], other, shorter):
        learner = FedLSVI(SITES, exchange="one-trip", aggregation="exact", privacy=PRIVACY)
        own: dict[str, Any] = {"features": problem.features, "data": [log, *data[1:]]}
        plan = learner.learn(env, T, 3, progress=False, **own).plan
        cohort, p = cohort_of(plan, 0, 1), plan.parameters
        cohort.experience.begin(0)
        sent = cohort.stop(0)
        words.append(FixedPointSums(plan.layout, p.scale_bits).words(sent).view(np.int64))
    shares = p.release.shares(1)
    for change in (words[1] - words[0], words[2] - words[0]):
        moved = np.sqrt(np.square(change / shares).sum())
        assert 0.0 < moved <= p.release.mu / p.release.factors.norm
