"""Whether one model of all steps and agents is right: the sums, the sentence, and who gets them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from fedlsvi import STOP, FedLSVI, load, resume
from fedlsvi.envs import as_environment
from fedlsvi.errors import MessageRefused
from fedlsvi.protocol.messages import Exploit, Upload
from fedlsvi.remote.endpoint_factory import guard_for
from transports_over_frames import over_frames

H, ACTIONS = 4, 2
WHERE = ("transport", "cohorts", "folder", "observers")


class Visits(gymnasium.Env[Any, Any]):  # type: ignore[misc]
    """A severity of 0, 1 or 2, which the treatment pulls down; who is well at the last visit earns
    1. `shows` is what a visit observes of the visit's number; `ends` is whether the last visit ends
    the episode, or only the horizon does."""

    def __init__(
        self, vector: bool = False, shows: bool = False, worse: float = 0.0, ends: bool = True
    ) -> None:
        self.vector, self.shows, self.worse, self.ends = vector, shows, worse, ends
        self.action_space = gymnasium.spaces.Discrete(ACTIONS)
        self.observation_space = gymnasium.spaces.Discrete(3 * H)
        if vector:
            self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,), np.float64)

    def _seen(self) -> Any:
        visit = min(self.visit, H - 1) * self.shows
        return (
            np.array([self.severity / 2, visit / H]) if self.vector else 3 * visit + self.severity
        )

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.severity, self.visit = int(self.np_random.integers(3)), 0
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        better = (
            self.np_random.random() < (0.7 if action == self.severity % 2 else 0.4) - self.worse
        )
        self.severity = int(np.clip(self.severity + (-1 if better else 1), 0, 2))
        self.visit += 1
        last = self.visit == H
        return self._seen(), float(last and self.severity == 0), last and self.ends, False, {}


def per_visit(states: np.ndarray) -> np.ndarray:
    """One-hot in visit, severity and action, of vectors."""
    place = 3 * np.rint(states[:, 1] * H).astype(int) + np.rint(2 * states[:, 0]).astype(int)
    return np.eye(3 * H * ACTIONS)[place[:, None] * ACTIONS + np.arange(ACTIONS)]


def visits(**options: Any) -> Any:
    return as_environment(lambda: Visits(**options), horizon=H)


def learn(env: Any, episodes: int = 60, features: Any = None, **options: Any) -> Any:
    """A run of four agents, unless the options say so; they are of the learner or of `learn`."""
    where = {name: options.pop(name) for name in WHERE if name in options}
    learner = FedLSVI(options.pop("n_agents", 4), value_range=1, **options)
    return learner.learn(env, episodes, features=features, progress=False, **where)


def codes(run: Any) -> list[str]:
    return [advice.code for advice in run.advice]


@pytest.mark.parametrize("bonus", ["constant", "noise"])
@pytest.mark.parametrize("vector", [False, True])
def test_an_outcome_at_the_last_visit_is_told_where_time_is_not_observed(
    vector: bool, bonus: Any
) -> None:
    features = per_visit if vector else None
    for ends in (False, True):
        run = learn(visits(vector=vector, ends=ends), features=features, bonus=bonus)
        assert run.parameters.stationary
        assert codes(run) == ["steps-differ"]
        # one-hot, what follows the end is a state that nobody has tried: one model of all steps
        # hopes for it at each of them, and is as far off at those before the last
        if vector or not ends:
            assert f"step {H}" in run.advice[0].sentence
    assert codes(learn(visits(vector=vector), features=features, stationary=False)) == []
    assert codes(learn(visits(vector=vector, shows=True), features=features, bonus=bonus)) == []


@pytest.mark.parametrize("stationary", [True, False])
@pytest.mark.parametrize("vector", [False, True])
def test_sums_of_one_hot_features_by_hand(vector: bool, stationary: bool) -> None:
    """Each cell belongs to one visit, and its n targets have the mean w(n + λ)/n: so a step's
    residuals sum to λΣw over its cells, whether steps share Λ or not, and n is all of them."""
    run = learn(
        visits(vector=vector, shows=True), features=per_visit if vector else None,
        stationary=stationary,
    )  # fmt: skip
    p, cells = run.parameters, 3 * ACTIONS
    fit = run.fit.sum(axis=0)
    assert (fit[:, 0] == p.n_agents * p.episodes).all()
    for h in range(1, H + 1):
        place = slice((h - 1) * cells, h * cells)
        assert fit[h - 1, 3] == pytest.approx(p.lam * run.w[h - 1, place].sum(), abs=1e-9)
        visits_there = np.diagonal(run.gram[h - 1])[place] - p.lam
        total = (visits_there + p.lam) @ run.w[h - 1, place]
        assert fit[h - 1, 1] == pytest.approx(total, rel=1e-9)
        assert 0.0 <= fit[h - 1, 4] <= fit[h - 1, 2]


def test_agents_that_differ_are_told() -> None:
    worlds = [visits(shows=True, worse=0.0 if m < 3 else 0.4) for m in range(4)]
    assert codes(learn(worlds, 200)) == ["agents-differ"]
    assert codes(learn([visits(shows=True) for _ in range(4)], 200)) == []


def test_features_that_see_nothing_are_told() -> None:
    """A clock alone: steps are told apart, and within a step nothing is."""

    def clock(states: np.ndarray) -> np.ndarray:
        place = np.rint(states[:, 1] * H).astype(int)
        return np.repeat(np.eye(H)[place][:, None], ACTIONS, axis=1)

    assert codes(learn(visits(vector=True, shows=True), features=clock)) == ["features-say-little"]


@pytest.mark.parametrize("vector", [False, True])
def test_the_same_over_frames_in_cohorts_and_after_a_restart(vector: bool, tmp_path: Path) -> None:
    env, features = visits(vector=vector), per_visit if vector else None
    run = learn(env, features=features)
    for where in ({"cohorts": 2}, {"transport": over_frames(2)}):
        other = learn(env, features=features, **where)
        assert other.fit.tobytes() == run.fit.tobytes()
        assert other.bounds["scalars"].holds
    folder = str(tmp_path / "run")
    learn(env, features=features, folder=folder, observers=[lambda r: STOP if r.k == 7 else None])
    again = resume(folder, env=env, features=features)
    assert again.fit.tobytes() == run.fit.tobytes()
    read = load(folder, env=env, features=features)
    assert read.fit is not None
    assert read.fit.tobytes() == run.fit.tobytes()
    assert read.summary(values=False)["advice"] == again.summary(values=False)["advice"] != []


@pytest.mark.parametrize("aggregation", ["float", "exact"])
def test_the_ledger_counts_five_scalars_for_each_agent_and_step(aggregation: Any) -> None:
    run = learn(visits(), aggregation=aggregation)
    assert run.fit.shape == (4, H, 5)
    assert run.bounds["scalars"].holds


def test_nothing_is_sent_where_something_hides_what_agents_send() -> None:
    for settings in (
        {"aggregation": "secure", "cohorts": 4},
        {"privacy": {"epsilon": 5.0, "delta": 1e-6}, "aggregation": "exact", "policy": "exploit"},
        {"exchange": "one-trip"},
        {"policy": "explore"},
    ):
        run = learn(visits(), **settings)
        assert run.fit is None
        assert "steps-differ" not in codes(run)


def test_who_is_away_says_nothing() -> None:
    run = learn(visits(), n_agents=6, participation=0.5, policy="exploit")
    there = run.records[-1].present
    assert (run.fit.any(axis=(1, 2))).sum() == there < 6


def test_the_guard_refuses_a_fit_that_no_targets_have() -> None:
    session = FedLSVI(3, value_range=1).prepare(visits(), 20)
    guard = guard_for(session.plan)
    d = session.plan.parameters.dim
    good = np.array([20.0, 3.0, 2.0, 0.5, 1.0])
    guard.t = 20

    def closing(fit: np.ndarray) -> Upload:
        rows = np.tile(fit, (3, 1)) if fit.size else np.empty((0, 5))
        return Upload(H, np.empty((3, 0)), np.zeros((3, d)), fit=rows)

    with pytest.raises(MessageRefused):  # before the last pass
        guard.check_fit(0, closing(good))
    guard.sends(Exploit(0.0))
    guard.check_fit(0, closing(good))
    for place, value in ((0, 21.0), (0, -1.0), (1, 21.0), (2, np.nan), (3, 9.0), (4, -1.0)):
        bad = good.copy()
        bad[place] = value
        with pytest.raises(MessageRefused):
            guard.check_fit(0, closing(bad))
    with pytest.raises(MessageRefused):
        guard.check_fit(0, closing(np.empty(0)))
