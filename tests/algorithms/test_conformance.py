"""What every registered algorithm must do: a new row is tested the moment it is registered."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from algorithms.roster import (
    AGENTS,
    ANCHOR,
    CONTINUOUS,
    NAMES,
    TABULAR,
    assert_same,
    continued,
    learn,
    linear,
    make,
    plain,
    strangers,
    tabular,
)
from expecting import refused
from fedlsvi.algorithms import registry
from fedlsvi.envs import ContinuousLinearMDP, FiniteMDP
from fedlsvi.errors import InvalidInput, UnknownName
from literal import worlds

EVERYONE = {
    "fed-lsvi", "independent", "centralised", "low-switching", "rare-switch", "coop-lsvi",
    "async-coop", "coopts-phe", "coopts-lmc", "fedq-hoeffding", "fedq-bernstein", "fedq-advantage",
    "fed-ucbvi", "lsvi-ucb-pp", "stale", "periodic", "ucbvi", "psrl", "q-ucb2", "q-avg",
    "fed-sarsa", "ucrl-vtr", "fed-ucrl-vtr",
}  # fmt: skip


def test_the_whole_roster_is_registered() -> None:
    assert set(NAMES) >= EVERYONE
    for name in EVERYONE:
        assert registry.make(name).name == name
        assert registry.entry(name).scalars is not None
        assert next(iter(registry.entry(name).parameters())) == "n_agents"


@pytest.mark.parametrize("name", NAMES)
def test_learns_a_small_problem(name: str) -> None:
    """Mean regret per agent and episode over the last tenth below 5 % of V*; where nothing is
    promised, 15 %."""
    env, T = tabular(), 3000
    run = learn(name, env, T)
    late = (run.regret[-1] - run.regret[-T // 10 - 1]) / (T // 10) / AGENTS
    limit = (0.05 if registry.entry(name).guarantee else 0.15) * env.optimal_values()[0].mean()
    assert late < limit
    table = env.policy_values(run.policy.table)[0]  # what it reports is as good
    assert (env.optimal_values()[0] - table).mean() < limit


@pytest.mark.parametrize("name", [name for name in NAMES if name not in TABULAR])
def test_learns_with_linear_features(name: str) -> None:
    env, T = linear(), 2000
    run = learn(name, env, T)
    late = (run.regret[-1] - run.regret[-T // 10 - 1]) / (T // 10) / AGENTS
    assert run.w.shape == (3, 4)
    assert run.gram.shape == (3, 4, 4)
    assert late < 0.05 * (env.optimal_values()[0] @ env.initial_law(0))


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_run(name: str) -> None:
    assert_same(learn(name, tabular(), 150, seed=5), learn(name, tabular(), 150, seed=5))


@pytest.mark.parametrize("name", NAMES)
def test_other_seed_other_run(name: str) -> None:
    one, two = learn(name, tabular(), 150, seed=5), learn(name, tabular(), 150, seed=6)
    assert one.regret.tobytes() != two.regret.tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_how_the_work_is_cut_does_not_matter(name: str) -> None:
    """threads, block and, where there are any, cohorts change the time and never the result."""
    for env in (tabular(), linear()):
        run = learn(name, env, 60, threads=1)
        assert_same(run, learn(name, env, 60, threads=2, block=1))
        assert_same(run, learn(name, env, 60, threads=2, block=7, cohorts=AGENTS))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("T", [1, 2, 151])
def test_regret_is_a_curve(name: str, T: int) -> None:
    """(T,), never falling: increments are gaps to the optimum, exact up to rounding."""
    run = learn(name, tabular(), T)
    assert run.regret.shape == (T,)
    assert np.diff(run.regret, prepend=0.0).min() >= -1e-9
    assert run.taus[0] == 1
    assert run.taus[-1] == T + 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", [tabular, linear], ids=lambda k: k.__name__)
def test_ledger_is_the_closed_formula(name: str, kind: Any) -> None:
    """Scalars by category, to the last one, for one agent and for several."""
    formula = registry.entry(name).scalars
    assert formula is not None
    for M in (1, AGENTS):
        run = learn(name, kind(), 120, n_agents=M)
        expected = dict.fromkeys(run.ledger.scalars, 0) | formula(run)
        assert run.ledger.scalars == expected
        assert run.ledger.total == sum(expected.values())
        assert {c: int(per.sum()) for c, per in run.ledger.by_agent.items()} == expected


@pytest.mark.parametrize("name", NAMES)
def test_records_are_consistent(name: str) -> None:
    run = learn(name, tabular(), 150)
    k = 0
    for i, record in enumerate(run.records):
        assert record.first == run.taus[i]
        assert record.last == run.taus[i + 1] - 1
        assert record.last >= record.first
        k += record.rounds
        assert record.k == k
        assert record.regret == run.regret[record.last - 1]
        assert record.signals >= 0
        assert set(record.seconds) == {"explore", "synchronise", "evaluate"}
        assert min(record.seconds.values()) > -1e-3
        assert all(0 <= m < AGENTS and 0 <= h <= 3 for m, h in record.triggers)
        assert len(record.logdet) == 3
    assert k == run.rounds
    assert run.records[-1].scalars == run.ledger.scalars
    totals = [sum(record.scalars.values()) for record in run.records]
    assert totals == sorted(totals)
    assert run.algorithm == name
    assert run.summary()["algorithm"] == name


@pytest.mark.parametrize("name", NAMES)
def test_observers_see_every_record(name: str) -> None:
    seen: list[Any] = []
    run = learn(name, tabular(), 40, observers=[seen.append])
    assert [r.k for r in seen] == [r.k for r in run.records]


@pytest.mark.parametrize("name", NAMES)
def test_environments_draw_alike(name: str) -> None:
    """Algorithms that randomise use streams of their own: with one action there is nothing to
    choose, and one agent visits the same states whoever it is, those of the keyed draws."""
    base, T = tabular(), 30
    env = FiniteMDP(base.P[:, :, :1], base.r[:, :, :1], initial=base.initial_laws[0])
    every_time = {"alpha": -0.5} if name == "async-coop" else {}
    run = learn(name, env, T, n_agents=1, seed=5, settings=every_time)
    visits = np.zeros((env.horizon, env.n_states))
    (world,) = worlds(env, 1, 5)
    for t in range(1, T + 1):
        for h, (x, *_) in enumerate(world.play(t, lambda h, x: 0, env.horizon)):
            visits[h, x] += 1
    prior = 1.0 if name in TABULAR else run.parameters.lam
    seen = run.gram_packed - prior
    if name == ANCHOR:  # a visit counts by its weight
        seen, visits = seen > 0.0, visits > 0.0
    assert np.allclose(seen, visits)
    assert np.abs(run.regret).max() < 1e-12


@pytest.mark.parametrize("name", NAMES)
def test_agents_that_differ(name: str) -> None:
    """A list of environments, one per agent; each is measured against its own optimum. Where one
    agent stands for all, they must be the same, and start alike."""
    if name != ANCHOR:
        run = learn(name, strangers(7), 60)
        assert run.regret[-1] > 0.0
        assert run.regret.tobytes() != learn(name, strangers(1), 60).regret.tobytes()
        return
    run = learn(name, strangers(1), 60)
    assert run.regret.tobytes() == learn(name, strangers(1)[0], 60).regret.tobytes()
    base = tabular()
    apart = FiniteMDP(base.P, base.r, horizon=3, initial=np.eye(4)[:2])
    for env in (strangers(7), apart):
        with refused(InvalidInput, "different-environments", "2 different", "3 agents"):
            learn(name, env, 60)


@pytest.mark.parametrize("name", NAMES)
def test_wrong_settings_are_refused(name: str) -> None:
    with refused(InvalidInput, "bad-n_agents", "0"):
        registry.make(name, n_agents=0)
    with refused(UnknownName, "unknown-setting", "'n_agentz'", "'n_agents'"):
        registry.make(name, n_agentz=1)
    with refused(InvalidInput, "bad-value_range", "-1.0"):
        registry.make(name, value_range=-1.0)
    with refused(InvalidInput, "bad-preset", "'best'", '"practical", "paper"'):
        registry.make(name, preset="best")
    with refused(InvalidInput, "bad-episodes", "0"):
        learn(name, tabular(), 0)
    with refused(InvalidInput, "bad-seed", "-1"):
        learn(name, tabular(), 5, seed=-1)
    with refused(InvalidInput, "wrong-number-of-environments", "2", "3"):
        learn(name, [tabular(), tabular()], 5)


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("periodic", "period", 0),
        ("stale", "gamma", 0.5),
        ("low-switching", "eta", 0.5),
        ("rare-switch", "budget", 0),
        ("coop-lsvi", "threshold", "often"),
        ("coopts-phe", "sigma", -1.0),
        ("coopts-phe", "samples", 0),
        ("coopts-lmc", "steps", 0),
        ("async-coop", "alpha", -1.0),
        ("async-coop", "schedule", "fair"),
        ("fedq-hoeffding", "c", float("nan")),
        ("fedq-advantage", "reference", 0),
        ("fed-ucbvi", "epsilon", -0.1),
        ("lsvi-ucb-pp", "c_D", -1.0),
        ("independent", "beta", -1.0),
    ],
)
def test_own_settings_are_refused(name: str, setting: str, value: Any) -> None:
    with refused(InvalidInput, f"bad-{setting}", setting, repr(value)):
        registry.make(name, **{setting: value})


@pytest.mark.parametrize("name", NAMES)
def test_continuous_states_are_played_or_refused(name: str) -> None:
    env = ContinuousLinearMDP()
    if name in CONTINUOUS:
        run = learn(name, env, 6, n_agents=2)
        assert run.regret.shape == (6,)
        assert np.diff(run.regret, prepend=0.0).min() >= -1e-9
        formula = registry.entry(name).scalars
        assert formula is not None
        assert run.ledger.scalars == dict.fromkeys(run.ledger.scalars, 0) | formula(run)
    else:
        with refused(InvalidInput, "needs-finite-states", name):
            learn(name, env, 6)


@pytest.mark.parametrize("name", NAMES)
def test_sums_that_do_not_fit_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is allocated, and with a way out; Q-learners and Fed-LSVI's kin keep less."""
    monkeypatch.setattr("fedlsvi.algorithms.shared.lsvi_sums.LARGEST", 1000)
    small = {"fed-lsvi", "periodic", "stale", "low-switching", "rare-switch"}
    small |= {"fedq-hoeffding", "fedq-bernstein", "fedq-advantage", "q-ucb2", "q-avg", "fed-sarsa"}
    if name in small:
        learn(name, tabular(), 3)
    else:
        with refused(InvalidInput, "sums-too-large", name):
            learn(name, tabular(), 3)


@pytest.mark.parametrize("name", NAMES)
def test_settings_describe_the_learner(name: str) -> None:
    """What a run folder writes down makes the same learner again."""
    learner = make(name)
    assert registry.make(name, **dataclasses.asdict(learner.settings)).settings == learner.settings
    assert type(learner).__name__ in repr(learner)
    assert f"n_agents={AGENTS}" in repr(learner)


@pytest.mark.parametrize("name", NAMES)
def test_can_be_continued_after_any_record(name: str) -> None:
    """state → restore between two records, and the rest of the run has the same bits."""
    learner, env = make(name), linear()
    whole = learner.learn(env, 60, 3, progress=False)
    run = continued(learner, env, 60, 25)
    assert run.regret is not None
    assert run.regret.tobytes() == whole.regret.tobytes()
    assert run.w.tobytes() == whole.w.tobytes()
    assert run.ledger.scalars == whole.ledger.scalars
    assert plain(run) == plain(whole)
    assert run.counts == whole.counts
