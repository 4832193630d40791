"""Agents that are away in some rounds: the literal loop, the ledger, regret, kills and refusals."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedlsvi
from agreement import assert_agrees
from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.cli.text import single_lines
from fedlsvi.core.participation_schedule import ParticipationSchedule, deserted, expected_share
from fedlsvi.core.random import uniforms
from fedlsvi.core.statistics import packed_size
from fedlsvi.envs import RandomLinearMDP
from fedlsvi.errors import InvalidSetting
from fedlsvi.observers.traffic import Traffic
from fedlsvi.report.groups import Group
from fedlsvi.report.run_page import described, late_loss
from literal_participation import assert_ledger_counts_who_was_there, there
from problems import (
    Problem,
    Setting,
    chain,
    continuous,
    continuous_linear,
    heterogeneous,
    one_hot,
    simplex,
)
from variants import assert_kept, literal_options, paid

S = Setting(M=4, T=40, gamma=9.0, seed=5, lam=0.5)
STAYS = [[0, 1, 12], [2, 9, 40], [3, 1, 5], [3, 20, 30]]
AWAY: list[dict[str, Any]] = [
    {"participation": 0.5},
    {"participation": 0.01},
    {"present": STAYS},
    {"participation": 0.7, "present": STAYS, "cap": 1.3, "min_round": 2, "rounds": 12},
    {"participation": 0.4, "scalars": 9},
    {"participation": 0.4, "gamma": "anytime"},
    {"participation": 2},
    {"participation": 3, "present": STAYS},
]


@pytest.mark.parametrize("own", AWAY, ids=str)
@pytest.mark.parametrize(
    "problem", [simplex(3), chain(), heterogeneous(1, M=4), continuous()], ids=lambda p: p.name
)
def test_it_is_the_literal_loop_with_agents_away(problem: Problem, own: dict[str, Any]) -> None:
    p = FedLSVI(S.M).prepare(problem.envs, S.T, features=problem.features).plan.parameters
    size = packed_size(p.dim, p.packing) + p.dim
    given = paid(own, S.M, p.horizon, size)
    if "scalars" in own:  # every round may have to bring the model to all agents
        given |= {"scalars": own["scalars"] * S.M * (3 * p.horizon * size + 6) + 5}
    run = problem.learn(S, **given)
    who = there(own, S.M, S.seed)
    options = literal_options(S, p.dim, own)
    advice = run.policies if problem.finite else None
    assert_agrees(run, problem.literal(S, advice=advice, there=who, **options))
    assert_ledger_counts_who_was_there(run, who)
    assert_kept(run, own)
    played = sum(len(who(r.k, r.first - 1)) * r.length for r in run.records)
    assert run.agent_episodes == run.summary()["agent_episodes"] == played < S.M * S.T
    assert not run.bounds["theorem_1"].applies
    assert run.bounds["theorem_3"].holds


@pytest.mark.parametrize("problem", [chain(), one_hot(0)], ids=lambda p: p.name)
def test_steps_may_share_a_model(problem: Problem) -> None:
    own = {"participation": 0.5, "present": STAYS}
    run, who = problem.learn(S, stationary=True, **own), there(own, S.M, S.seed)
    literal = problem.literal(S, advice=run.policies, there=who, stationary=True)
    assert_agrees(run, literal)
    assert_ledger_counts_who_was_there(run, who)


@pytest.mark.parametrize("problem", [simplex(3), continuous_linear()], ids=lambda p: p.name)
def test_with_everybody_there_it_is_the_plain_run(problem: Problem) -> None:
    """The other path, bit by bit: regret, too."""
    plain, other = (
        FedLSVI(4, gamma=9.0, policy="explore", present=stays).learn(
            problem.envs, 60, 3, progress=False
        )
        for stays in (None, [[m, 1, 60] for m in range(4)])
    )
    assert other.w.tobytes() == plain.w.tobytes()
    assert other.gram.tobytes() == plain.gram.tobytes()
    np.testing.assert_allclose(other.regret, plain.regret, rtol=1e-12)
    assert other.ledger.scalars == plain.ledger.scalars


def test_reports_count_who_played() -> None:
    """Loss per episode played, raw data and the share that took part, on the page and the shell."""
    run = FedLSVI(4, participation=0.3).learn(simplex(3).envs, 50, 3, progress=False)
    assert run.regret is not None
    shares = [record.present * record.length for record in run.records]
    assert run.agent_episodes_until([0, run.records[0].last, 50]).tolist() == [
        0.0, shares[0], sum(shares),
    ]  # fmt: skip
    last = [r.present for r in run.records for _ in range(r.length)][-5:]
    assert late_loss(run) == pytest.approx((run.regret[-1] - run.regret[-6]) / sum(last))
    assert f"{sum(shares):,} episodes played in total" in " ".join(described(Group("", [run])))
    assert any(f"{sum(shares):,}" in line for line in single_lines(run.summary()))


@pytest.mark.parametrize("kind", ["simplex", "continuous"])
@pytest.mark.parametrize("after", [1, 4, 7])
def test_a_run_that_is_resumed_sees_the_same_agents(kind: str, after: int, tmp_path: Path) -> None:
    problem = simplex(3) if kind == "simplex" else continuous()
    learner = FedLSVI(4, gamma=9.0, participation=0.5, present=STAYS)
    options: Any = {"features": problem.features, "progress": False}
    whole = learner.learn(problem.envs, 40, 3, **options)

    def die(record: Any) -> None:
        if record.k == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learner.learn(
            problem.envs, 40, 3, folder=tmp_path / "run", checkpoint_seconds=0.0,
            observers=[die], **options,
        )  # fmt: skip
    for done in (
        fedlsvi.resume(tmp_path / "run", env=problem.envs, **options),
        fedlsvi.load(tmp_path / "run"),
    ):
        assert done.taus == whole.taus
        assert done.w.tobytes() == whole.w.tobytes()
        assert done.gram.tobytes() == whole.gram.tobytes()
        assert done.ledger.to_dict() == whole.ledger.to_dict()
        assert [r.present for r in done.records] == [r.present for r in whole.records]
        if whole.regret is not None:
            assert np.array_equal(done.regret, whole.regret)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("problem", [simplex(3), continuous()], ids=lambda p: p.name)
def test_a_longer_run_goes_on_with_the_same_agents(problem: Problem) -> None:
    learner = FedLSVI(4, gamma="anytime", participation=0.5)
    options: Any = {"features": problem.features, "progress": False}
    half = learner.learn(problem.envs, 21, 3, **options)
    longer = half.learn_more(19, progress=False)
    whole = learner.learn(problem.envs, 40, 3, **options)
    assert longer.taus == whole.taus
    assert longer.w.tobytes() == whole.w.tobytes()
    assert longer.ledger.to_dict() == whole.ledger.to_dict()


@given(st.integers(0, 2**40), st.integers(1, 40), st.floats(0.05, 1.0), st.integers(1, 50))
def test_the_schedule_is_a_function_of_seed_agent_and_round(
    seed: int, M: int, p: float, k: int
) -> None:
    """Nobody's draw depends on who else is in the federation."""
    many = ParticipationSchedule(M + 3, seed, p).during(k, 0)
    few = ParticipationSchedule(M, seed, p).during(k, 0)
    assert len(few) > 0
    if (many < M).any():
        assert many[many < M].tolist() == few.tolist()


def test_a_share_p_of_the_rounds_is_played() -> None:
    who = ParticipationSchedule(50, 1, 0.3)
    counts = np.bincount(np.concatenate([who.during(k, 0) for k in range(400)]), minlength=50)
    assert abs(counts.mean() / 400 - 0.3) < 0.02
    assert counts.std() < 3 * np.sqrt(400 * 0.3 * 0.7)


@given(st.integers(0, 2**40), st.integers(2, 60), st.integers(1, 60), st.integers(1, 9))
def test_so_many_are_asked_each_as_often(seed: int, n: int, more: int, k: int) -> None:
    asked = ParticipationSchedule(n + more, seed, n).during(k, 0)
    assert len(np.unique(asked)) == n
    assert asked.tolist() == sorted(asked.tolist())
    assert asked[0] >= 0
    assert asked[-1] < n + more


def test_all_sets_of_agents_are_asked_alike() -> None:
    who = ParticipationSchedule(5, 1, 2)
    sets = [tuple(who.during(k, 0).tolist()) for k in range(4_000)]
    counts = [sets.count(pair) for pair in combinations(range(5), 2)]
    assert sum(counts) == 4_000
    assert sum((n - 400) ** 2 / 400 for n in counts) < 27.9  # χ² of 9 degrees, p = 0.001


def test_asking_takes_no_draw_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand of a million are asked in the time of a thousand."""
    drawn = []

    def counted(seed: int, agents: Any, k: int, n: int, draws: int, stream: int) -> np.ndarray:
        drawn.append(len(agents) * n * draws)
        return uniforms(seed, agents, k, n, draws, stream)

    monkeypatch.setattr("fedlsvi.core.participation_schedule.uniforms", counted)
    assert len(ParticipationSchedule(10**6, 0, 1_000).during(3, 5)) == 1_000
    assert drawn == [1_000]


def test_an_episode_without_agents_is_found() -> None:
    assert deserted(2, [[0, 1, 5], [1, 4, 9]], 9) is None
    assert deserted(2, [[0, 1, 5], [1, 7, 9]], 9) == 6
    assert deserted(2, [[0, 2, 5], [1, 4, 9]], 9) == 1
    assert deserted(3, [[0, 2, 5], [1, 4, 9]], 9) is None
    assert deserted(2, [[0, 1, 5], [1, 1, 5]], 6) == 6


@pytest.mark.parametrize("own", [*AWAY[:3], {"participation": 2}], ids=str)
def test_what_is_expected_counts_who_is_there(own: dict[str, Any]) -> None:
    run = simplex(3).learn(S, **own)
    expected = Traffic.of(run.parameters, run.raw_scalars_per_step)
    assert expected.scalars[0] <= run.ledger.total <= expected.scalars[1]
    assert expected.raw is not None
    assert abs(expected.raw / run.scalars_raw - 1.0) < 0.4
    assert expected_share(4, 1.0, STAYS, 40) == (12 + 40 + 32 + 16) / 160
    assert expected_share(10, 3, None, 40) == 0.3
    assert expected_share(4, 2, [[1, 1, 10], [2, 1, 10], [3, 1, 10]], 40) == (20 + 30) / 160


@pytest.mark.parametrize(
    ("own", "code"),
    [
        ({"participation": 0.0}, "bad-participation"),
        ({"participation": 1.5}, "bad-participation"),
        ({"participation": 3}, "bad-participation"),
        ({"present": []}, "bad-present"),
        ({"present": [[0, 1]]}, "bad-present"),
        ({"present": [[2, 1, 5]]}, "bad-present"),
        ({"present": [[0, 5, 4]]}, "bad-present"),
        ({"present": {0: (1, 5)}}, "bad-present"),
        ({"present": [[0, 1, 5], [1, 7, 30]]}, "bad-present"),
    ],
)
def test_what_leaves_nobody_or_means_nothing_is_refused(own: dict[str, Any], code: str) -> None:
    with refused(InvalidSetting, code):
        FedLSVI(n_agents=2, **own).learn(RandomLinearMDP(), 30, progress=False)


def test_masks_cancel_only_over_all() -> None:
    with refused(InvalidSetting, "bad-participation"):
        FedLSVI(n_agents=4, participation=0.5, aggregation="secure")
