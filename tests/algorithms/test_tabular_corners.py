"""Tabular comparators where a ceiling, a sharp bonus or a tie decides."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from algorithms.literal_tabular import literal_advantage, literal_fedq, literal_ucbvi
from algorithms.test_tabular import KINDS, is_literal
from fedlsvi.algorithms import registry
from fedlsvi.algorithms.fed_ucbvi import late_threshold
from fedlsvi.algorithms.fedq_bernstein import bernstein
from fedlsvi.algorithms.shared.fedq import first_reaching
from literal import follow, worlds
from problems import Problem, one_hot, simplex

M, T = 3, 120


def below(name: str, problem: Problem, **settings: Any) -> tuple[Any, np.ndarray, Any]:
    """A run under the practical ceilings min(H − h + 1, 1.5), these ceilings, and its plan."""
    learner = registry.make(name, n_agents=M, preset="practical", value_range=1.5, **settings)
    run = learner.learn(problem.envs, T, 1, progress=False, keep_models=True)
    top = run.parameters.ceilings
    assert top.tolist() == [1.5, 1.5, 1.0]
    return run, top, run.plan


@pytest.mark.parametrize("problem", KINDS, ids=lambda p: p.name)
def test_literal_codes_agree_below_a_ceiling(problem: Problem) -> None:
    """Values in [0, 1.5] where H = 3: the ceilings are in Q's start, in V, in the bonus of
    FedQ-Advantage, and in the scores that Fed-UCBVI chooses by."""
    for name, sharp in ("fedq-hoeffding", False), ("fedq-bernstein", True):
        run, top, _ = below(name, problem, c=0.05)
        is_literal(run, literal_fedq(problem.envs, M, T, 1, 0.05, 0.05, list(top), sharp))
    run, top, _ = below("fedq-advantage", problem, c=0.2, reference=40)
    is_literal(run, literal_advantage(problem.envs, M, T, 1, 0.2, list(top), 40), 1e-7)
    for c in 0.3, 2.0:  # the larger one reaches the ceiling, where scores tie, after many visits
        run, top, plan = below("fed-ucbvi", problem, c=c)
        is_literal(
            run, literal_ucbvi(problem.envs, M, T, 1, c, list(top), late_threshold(plan, 0.0))
        )


def test_scores_at_the_ceiling_tie() -> None:
    """Fed-UCBVI chooses by Q, which is clipped: c = 2, H = 3 and one or two visits of an action are
    a bonus of 3 whatever it earned, so Q = 1.5 for both actions, and the lower one is taken."""
    settings = {"n_agents": 1, "c": 2.0, "value_range": 1.5}
    server = registry.make("fed-ucbvi", **settings).prepare(one_hot(3).one, T, 1).player.tables  # type: ignore[attr-defined]
    n = np.tile([2, 1], (1, 4, 1))
    nothing = np.zeros(n.shape)
    server.back_up(1, n, np.tile([0.1, 0.9], (1, 4, 1)), nothing, nothing)
    assert (server.Q[0] == 1.5).all()
    assert (server.policy[0] == 0).all()


@pytest.mark.parametrize("seed", range(6))
def test_a_round_ends_with_the_first_that_reach_a_limit(seed: int) -> None:
    """By counting: all agents that reach a limit in the first such episode, at their lowest step;
    whoever would be later is not named."""
    rng = np.random.default_rng(seed)
    m, H, S, n = 5, 3, 2, 12
    log = rng.integers(S, size=(m, H + 1, n)).astype(np.uint32)
    limits = rng.integers(2, 9, size=(m, H, S)).astype(float)
    reached = np.full((m, H), n + 1)
    for i in range(m):
        for h in range(H):
            for x in range(S):
                visits = np.cumsum(log[i, h] == x)
                hit = np.flatnonzero((visits >= limits[i, h, x]) & (log[i, h] == x))
                reached[i, h] = min([reached[i, h], *(hit[:1] + 1)])
    first = reached.min()
    when, steps = np.zeros(m, np.int64), np.zeros(m, np.int64)
    assert first_reaching(log, n, limits, when, steps) == first <= n
    assert when.tolist() == [first if first in row else 0 for row in reached]
    for row, h in zip(reached[when > 0], steps[when > 0], strict=True):
        assert h == np.flatnonzero(row == first)[0] + 1


def test_an_agent_that_would_be_later_is_not_named() -> None:
    """By hand: agent 0 reaches 3 visits in episode 3, agent 1 reaches 2 in episode 2, at both of
    its steps."""
    log = np.array([[[0, 0, 0]] * 3, [[0, 0, 0]] * 3], np.uint32)
    limits = np.array([[[3.0], [3.0]], [[2.0], [2.0]]])
    when, steps = np.zeros(2, np.int64), np.zeros(2, np.int64)
    assert first_reaching(log, 3, limits, when, steps) == 2
    assert when.tolist() == [0, 2]
    assert steps[1] == 1


@pytest.mark.parametrize("problem", KINDS, ids=lambda p: p.name)
def test_fedq_names_who_had_enough_and_where(problem: Problem) -> None:
    """max(1, N/(MH(H + 1))) visits, with the N of the model before the round: every round is played
    again, and nobody has that many before its last episode."""
    run, _, _ = below("fedq-hoeffding", problem, c=0.05)
    agents, H, A = worlds(problem.envs, M, 1), problem.horizon, problem.one.n_actions
    known = np.zeros((H, problem.one.n_states, A), int)
    signals = set()
    for record, pi, (_, gram) in zip(run.records, run.policies, run.models, strict=True):
        visits: dict[tuple[int, int, int], int] = defaultdict(int)
        for t in range(record.first, record.last + 1):
            enough = set()
            for m, agent in enumerate(agents):
                for h, (x, a, _, _) in enumerate(agent.play(t, follow(pi), H)):
                    visits[m, h, x] += 1
                    if visits[m, h, x] >= max(1, known[h, x, a] // (M * H * (H + 1))):
                        enough.add((m, h + 1))
            assert bool(enough) <= (t == record.last)
        lowest = [(m, min(h for k, h in enough if k == m)) for m in sorted({m for m, _ in enough})]
        if record.last == T:
            lowest = [(m, 0) for m in range(M)]
        assert [(int(m), int(h)) for m, h in record.triggers] == lowest
        assert record.signals == len(lowest)
        signals.add(len(lowest))
        known = np.rint(np.diagonal(gram, axis1=1, axis2=2)).astype(int).reshape(known.shape) - 1
    assert len(signals) > 1


@pytest.mark.parametrize("n_agents", [1, 4])
def test_the_sharp_bonus_of_bernstein(n_agents: int) -> None:
    """N = 10⁹ visits of V ∈ {0, 2}, half of each: W = 1. With H = 3, S = A = 1, c = 1 and ι = 5,
    β = √((15/N)(1 + 3)) + 5(√3⁷ + √(M·3⁶))/N, below √(135/N), and B = β/2 with all of it new."""
    N, H, iota = 10**9, 3, 5.0
    shape, mine = (H, 1, 1), (n_agents, H, 1)
    visits = np.zeros(mine, np.int64)
    visits[:, 0, 0] = 1
    # everything before this round: N − M visits with the same mean and mean square
    Q, counts = np.zeros(shape), np.full(shape, N)
    sums, squares = np.full(shape, N - n_agents, float), np.full(shape, 2.0 * (N - n_agents))
    widths = np.zeros(shape)
    bernstein(Q, counts, np.zeros((H, 1), np.int32), visits, np.ones(mine), np.full(mine, 2.0),
              sums, squares, widths, 1.0, iota)  # fmt: skip
    extra = math.sqrt(3.0**7) + math.sqrt(n_agents * 3.0**6)
    sharp = math.sqrt(15.0 / N * (1.0 + 3.0)) + 5.0 * extra / N
    assert sharp < math.sqrt(135.0 / N)
    assert widths[0, 0, 0] == pytest.approx(sharp, rel=1e-12)
    assert Q[0, 0, 0] == pytest.approx(sharp / 2.0, rel=1e-12)
    assert not widths[1:].any()


@pytest.mark.parametrize("problem", [simplex(5), one_hot(5)], ids=lambda p: p.name)
def test_the_tables_of_plus_plus_only_tighten(problem: Problem) -> None:
    """Q is the least and Q̌ the largest of all estimates so far, also where a new one is worse."""
    session = registry.make("lsvi-ucb-pp", n_agents=2).prepare(problem.envs, 20, 1)
    for _ in session.rounds():
        pass
    agent = session.player.agent  # type: ignore[attr-defined]
    score, low = agent.score.copy(), agent.low.copy()
    agent.renew()
    assert (agent.score <= score).all()
    assert (agent.low >= low).all()
    agent.score[:], agent.low[:] = 0.25, 0.125
    agent.renew()
    assert (agent.score <= 0.25).all()
    assert (agent.low >= 0.125).all()
    assert (agent.below[:-1] >= 0.125).all()
