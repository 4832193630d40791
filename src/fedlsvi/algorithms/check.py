"""`check_algorithm`: what every algorithm must do, run over every registered one by the tests."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from fedlsvi.algorithms.registry import entry, make
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.garnet import RandomMDP
from fedlsvi.envs.linear import RandomLinearMDP
from fedlsvi.errors import InvalidInput
from fedlsvi.learner import drive
from fedlsvi.records import RoundRecord
from fedlsvi.run import Run

AGENTS = 3
EPISODES = 60


def check_algorithm(name: str, **settings: Any) -> None:
    """Raise InvalidInput at the first promise of the interface that the algorithm breaks.

    It is played on two small problems, one tabular and one linear, with these settings: records and
    regret fit together, a seed gives the same run however the work is cut and wherever it is
    stopped, and the ledger holds what the registered formula says.
    """
    row = entry(name)
    known = row.parameters()
    _require(next(iter(known), None) == "n_agents", "its first setting must be n_agents")
    _require(make(name).name == name, "its class attribute `name` must be the registered name")
    tabular = RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1)
    linear = RandomLinearMDP(n_states=6, n_actions=3, dim=4, horizon=3, seed=2)
    for env in (tabular, linear):
        run = _learn(name, env, settings)
        _check_records(run, name)
        _same(run, _learn(name, env, settings), "the same seed must give the same run")
        cut = _learn(name, env, settings, threads=2, block=7)
        _same(run, cut, "threads and block may change the time and never the result")
        _same(run, _stopped(name, env, settings), "a stopped run must go on to the same bits")
        if row.scalars is not None:
            expected = dict.fromkeys(run.ledger.scalars, 0) | row.scalars(run)
            _require(
                run.ledger.scalars == expected,
                f"the ledger has {run.ledger.scalars}, the formula says {expected}",
            )
    other = _learn(name, tabular, settings, seed=6)
    _require(_bits(other) != _bits(_learn(name, tabular, settings)), "the seed must matter")


def _learn(
    name: str, env: FiniteMDP, settings: dict[str, Any], seed: int = 5, **options: Any
) -> Run:
    learner = make(name, n_agents=AGENTS, **settings)
    return learner.learn(env, EPISODES, seed, progress=False, **options)


def _stopped(name: str, env: FiniteMDP, settings: dict[str, Any]) -> Run:
    """The run of a session that took over from another one in the middle."""
    learner = make(name, n_agents=AGENTS, **settings)
    first = learner.prepare(env, EPISODES, 5)
    records: list[RoundRecord] = []
    for record in first.rounds():
        records.append(record)
        if record.last >= EPISODES // 3:
            break
    arrays, plain = first.state()
    arrays = {key: array.copy() for key, array in arrays.items()}
    plain = json.loads(json.dumps(plain))
    regret = None if first.regret is None else first.regret[: records[-1].last].copy()
    first.close()
    second = learner.prepare(env, EPISODES, 5)
    second.restore(arrays, plain, regret, records)
    drive(second, [])
    return Run.of(second, learner.settings)


def _check_records(run: Run, name: str) -> None:
    _require(run.algorithm == name, "its session's `algorithm` must be the registered name")
    _require(run.taus[0] == 1 and run.taus[-1] == EPISODES + 1, "records must cover all episodes")
    k = 0
    for i, record in enumerate(run.records):
        k += record.rounds
        fits = record.first == run.taus[i] and record.last == run.taus[i + 1] - 1
        _require(fits and record.k == k, f"record {i} does not follow the one before it")
    assert run.regret is not None  # these problems know V*
    steps = np.diff(run.regret, prepend=0.0)
    _require(run.regret.shape == (EPISODES,), "regret must have a value for every episode")
    _require(steps.min() >= -1e-9, "regret must not fall: were all policies held by a seat?")
    _require(steps.max() > 0.0, "regret is zero: was any policy held by a seat?")
    last = run.records[-1].scalars
    _require(last == run.ledger.scalars, "the last record must hold the ledger's totals")


def _bits(run: Run) -> list[bytes]:
    assert run.regret is not None
    return [run.regret.tobytes(), run.w.tobytes(), run.gram.tobytes(), run.policy.table.tobytes()]


def _same(one: Run, other: Run, why: str) -> None:
    _require(_bits(one) == _bits(other) and one.ledger.scalars == other.ledger.scalars, why)


def _require(holds: bool | np.bool_, why: str) -> None:
    if not holds:
        raise InvalidInput(f"check_algorithm: {why}")
