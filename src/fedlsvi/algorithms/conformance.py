"""`check_algorithm`: what every algorithm must do, run over every registered one by the tests."""

from __future__ import annotations

import json
import random
from itertools import combinations
from typing import Any

import numpy as np

from fedlsvi.algorithms.registry import entry, make
from fedlsvi.algorithms.shared.comparator import Play
from fedlsvi.algorithms.shared.contract import states
from fedlsvi.algorithms.shared.regret_meter import Ruler
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.garnet import RandomMDP
from fedlsvi.envs.linear import RandomLinearMDP
from fedlsvi.errors import InvalidEnvironment, InvalidInput
from fedlsvi.learner import drive
from fedlsvi.protocol.records import RoundRecord
from fedlsvi.protocol.session import Session
from fedlsvi.run import Run

AGENTS = 3
EPISODES = 60


def check_algorithm(name: str, **settings: Any) -> None:
    """Raise InvalidInput at the first promise of the interface that the algorithm breaks.

    It is played on two small problems, one tabular and one linear, with these settings: records and
    regret fit together, regret is that of the policy which the run reports, a seed gives the same
    run however the work is cut and wherever it is stopped, the ledger holds what the registered
    formula says, and where nothing is sent nobody learns from others.
    """
    row = entry(name)
    known = row.parameters()
    _require(next(iter(known), None) == "n_agents", "its first setting must be n_agents")
    _require(make(name).name == name, "its class attribute `name` must be the registered name")
    tabular = _tabular(1)
    linear = RandomLinearMDP(n_states=6, n_actions=3, dim=4, horizon=3, seed=2)
    for env in (tabular, linear):
        drawn = _global_draws()
        run = _learn(name, env, settings)
        _require(
            _global_draws() == drawn,
            "it draws from Python's or NumPy's global generator: draw from the run's seed",
        )
        _check_records(run, name)
        _same(run, _learn(name, env, settings), "the same seed must give the same run")
        cut = _learn(name, env, settings, threads=2, block=7, cohorts=AGENTS)
        _same(run, cut, "threads, block and cohorts may change the time and never the result")
        _same(run, _stopped(name, env, settings), "a stopped run must go on to the same bits")
        _check_reported(name, env, settings)
        if row.scalars is not None:
            expected = dict.fromkeys(run.ledger.scalars, 0) | row.scalars(run)
            _require(
                run.ledger.scalars == expected,
                f"the ledger has {run.ledger.scalars}, the formula says {expected}",
            )
    run, other = (_learn(name, tabular, settings, seed=seed) for seed in (5, 6))
    _require(_bits(other) != _bits(run), "the seed must matter")
    if run.ledger.total == 0:
        _check_alone(name, settings)


def _tabular(seed: int) -> RandomMDP:
    return RandomMDP(n_states=4, n_actions=3, horizon=3, seed=seed)


def _learn(name: str, env: Any, settings: dict[str, Any], seed: int = 5, **options: Any) -> Run:
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
    arrays, plain = first.player.state()
    _check_apart(first)
    arrays = {key: array.copy() for key, array in arrays.items()}
    try:
        plain = json.loads(json.dumps(plain))
    except TypeError as error:
        raise InvalidInput(
            f"check_algorithm: self.counts must be a dict of Python's integers ({error})"
        ) from None
    regret = None if first.regret is None else first.regret[: records[-1].last].copy()
    first.close()
    second = learner.prepare(env, EPISODES, 5)
    second.restore(arrays, plain, regret, records)
    drive(second, [])
    return Run.of(second, learner.settings)


def _check_apart(session: Session) -> None:
    """No two parties hold the same memory; a message, which is read-only, they may."""
    player = session.player
    if not isinstance(player, Play):
        return
    held = {
        party: [array for array in arrays.values() if array.flags.writeable]
        for party, arrays in states(player.algorithm, player.parties())
    }
    for one, other in combinations(held, 2):
        _require(
            not any(np.may_share_memory(a, b) for a in held[one] for b in held[other]),
            f"parties '{one}' and '{other}' share an array: what one tells the other goes through "
            "the channel",
        )


def _check_reported(name: str, env: FiniteMDP, settings: dict[str, Any]) -> None:
    """What one agent follows is what the session says that it follows: a policy that was held after
    it had been renewed, or `values` that nobody renews, give another regret."""
    learner = make(name, n_agents=1, **settings)
    run = learner.learn(env, EPISODES, 5, progress=False, keep_models=True)
    assert run.regret is not None
    assert run.plan is not None
    steps, seat = np.diff(run.regret, prepend=0.0), Ruler(run.plan).seat([0])
    for record, policy in zip(run.records, run.policies, strict=True):
        t = record.first
        _require(
            abs(steps[t - 1] - seat.measure(t, 1, policy)[0]) < 1e-9,
            f"the regret of episode {t} is not that of the policy which self.values (or followed) "
            "had before it: hold the policy that was played, before it is renewed",
        )


def _check_alone(name: str, settings: dict[str, Any]) -> None:
    """The model of the run is agent 0's, who cannot know what the others meet."""
    runs = []
    for other in (7, 8):
        envs = [_tabular(1), *[_tabular(other)] * (AGENTS - 1)]
        try:
            runs.append(_learn(name, envs, settings))
        except InvalidEnvironment:  # it says itself that all agents must meet the same MDP
            return
    _require(
        _bits(runs[0])[1:] == _bits(runs[1])[1:],
        "nothing was sent, but agent 0's model depends on what other agents saw: let what they "
        "tell each other go through the channel",
    )


def _check_records(run: Run, name: str) -> None:
    _require(run.algorithm == name, "its player's `algorithm` must be the registered name")
    _require(run.taus[0] == 1 and run.taus[-1] == EPISODES + 1, "records must cover all episodes")
    k = 0
    for i, record in enumerate(run.records):
        k += record.rounds
        fits = record.first == run.taus[i] and record.last == run.taus[i + 1] - 1
        _require(fits and record.k == k, f"record {i} does not follow the one before it")
        _require(np.isfinite(record.logdet).all(), f"log det Λ is not finite in record {i}")
    assert run.regret is not None  # these problems know V*
    steps = np.diff(run.regret, prepend=0.0)
    _require(run.regret.shape == (EPISODES,), "regret must have a value for every episode")
    _require(steps.min() >= -1e-9, "regret must not fall: were all policies held by a seat?")
    _require(steps.max() > 0.0, "regret is zero: was any policy held by a seat?")
    last = run.records[-1].scalars
    _require(last == run.ledger.scalars, "the last record must hold the ledger's totals")
    parts = {category: int(one.sum()) for category, one in run.ledger.by_agent.items()}
    _require(parts == last, "the ledger counts an agent twice: was it named twice in one signal?")


def _bits(run: Run) -> list[bytes]:
    assert run.regret is not None
    return [run.regret.tobytes(), run.w.tobytes(), run.gram.tobytes(), run.policy.table.tobytes()]


def _told(run: Run) -> list[Any]:
    """What the run says of itself, but for the time that it took."""
    records = [record.to_dict() | {"seconds": None} for record in run.records]
    return [run.ledger.to_dict(), run.counts, records]


def _same(one: Run, other: Run, why: str) -> None:
    _require(_bits(one) == _bits(other) and _told(one) == _told(other), why)


def _global_draws() -> tuple[Any, ...]:
    """How far the generators are that everybody shares."""
    numpy: Any = np.random.get_state()  # noqa: NPY002
    return random.getstate(), numpy[1].tobytes(), numpy[2:]


def _require(holds: bool | np.bool_, why: str) -> None:
    if not holds:
        raise InvalidInput(f"check_algorithm: {why}")
