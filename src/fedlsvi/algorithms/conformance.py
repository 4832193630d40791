"""`check_algorithm`: what every algorithm must do; the tests run it on every registered one."""

from __future__ import annotations

import json
import random
from itertools import combinations
from typing import Any

import numpy as np

from fedlsvi.algorithms.registry import Scalars, entry, make
from fedlsvi.algorithms.shared.comparator import Play
from fedlsvi.algorithms.shared.contract import party_states
from fedlsvi.algorithms.shared.regret_meter import RunMeter
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.garnet import RandomMDP
from fedlsvi.envs.linear import RandomLinearMDP
from fedlsvi.errors import InvalidEnvironment, InvalidInput
from fedlsvi.learner import drive, unattended
from fedlsvi.logs.recording import record_episodes
from fedlsvi.logs.world import logged_worlds
from fedlsvi.protocol.records import RoundRecord
from fedlsvi.protocol.session import Session
from fedlsvi.run import Run

AGENTS = 3
EPISODES = 60


def check_algorithm(name: str, **settings: Any) -> None:
    """Play an algorithm on two small problems, one tabular and one linear, and check its contract.

    Records and regret fit together; the regret is that of the policy which the run reports; a seed
    gives the same run however the work is split and wherever it is stopped; the ledger holds what
    the registered formula says; where nothing is sent, nobody learns from others.

    Args:
        name: The registered name.
        **settings: Settings of the algorithm.

    Raises:
        InvalidInput: The first violation of the contract; its `code` names it.
    """
    row = entry(name)
    known = row.parameters()
    first = next(iter(known), None)
    _require(
        first == "n_agents", "bad-first-setting", f"its first setting is {first}, not n_agents"
    )
    _require(make(name).name == name, "bad-name", f"its class attribute `name` must be '{name}'")
    tabular = _tabular(1)
    linear = RandomLinearMDP(n_states=6, n_actions=3, dim=4, horizon=3, seed=2)
    if row.offline:
        for env in (tabular, linear):
            _check_offline(name, env, settings, row.scalars)
        return
    for env in (tabular, linear):
        drawn = _global_draws()
        run = _learn(name, env, settings)
        _require(
            _global_draws() == drawn,
            "global-generator",
            "it draws from Python's or NumPy's global generator: draw from the run's seed",
        )
        _check_records(run, name)
        again = _learn(name, env, settings)
        _same(run, again, "not-repeatable", "the same seed must give the same run")
        cut = _learn(name, env, settings, threads=2, block=7, cohorts=AGENTS)
        _same(run, cut, "depends-on-split", "threads, block and cohorts must not change the result")
        resumed = _resumed(name, env, settings)
        _same(run, resumed, "not-resumable", "a resumed run must give the same bits")
        _check_reported(name, env, settings)
        if row.scalars is not None:
            expected = dict.fromkeys(run.ledger.scalars, 0) | row.scalars(run)
            _require(
                run.ledger.scalars == expected,
                "wrong-formula",
                f"the ledger has {run.ledger.scalars}, the formula says {expected}",
            )
    run, other = (_learn(name, tabular, settings, seed=seed) for seed in (5, 6))
    _require(
        _bits(other) != _bits(run), "seed-ignored", "a different seed must give a different run"
    )
    if run.ledger.total == 0:
        _check_alone(name, settings)


def _check_offline(
    name: str, env: FiniteMDP, settings: dict[str, Any], formula: Scalars | None
) -> None:
    """An algorithm that learns from logs: repeatable however the work is split, pooled logs give
    the same model as the agents' own, and the ledger holds what the formula says."""
    logs = [record_episodes(env, EPISODES + m, agent=m) for m in range(AGENTS)]
    one = {key: np.concatenate([log[key] for log in logs]) for key in logs[0]}
    one["episode"] = np.concatenate([log["episode"] + 10**6 * m for m, log in enumerate(logs)])
    phi = env.default_features()

    def learn(data: Any, n_agents: int, **options: Any) -> Run:
        learner: Any = make(name, n_agents=n_agents, **settings)
        worlds = logged_worlds(data, like=env)
        run: Run = learner.learn(worlds, features=phi, progress=False, **options)
        return run

    run = learn(logs, AGENTS)
    for options in ({}, {"threads": 2, "block": 7, "cohorts": AGENTS}):
        other = learn(logs, AGENTS, **options)
        same = (run.w.tobytes(), _account(run)) == (other.w.tobytes(), _account(other))
        _require(same, "not-repeatable", "the same logs must give the same run")
    off = float(np.abs(learn(one, 1).w - run.w).max())
    _require(off < 1e-9, "not-pooled", f"pooled logs give a different model, off by {off:g}")
    if formula is not None:
        expected = dict.fromkeys(run.ledger.scalars, 0) | formula(run)
        _require(
            run.ledger.scalars == expected,
            "wrong-formula",
            f"the ledger has {run.ledger.scalars}, the formula says {expected}",
        )


def _tabular(seed: int) -> RandomMDP:
    return RandomMDP(n_states=4, n_actions=3, horizon=3, seed=seed)


def _learn(name: str, env: Any, settings: dict[str, Any], seed: int = 5, **options: Any) -> Run:
    learner = make(name, n_agents=AGENTS, **settings)
    with unattended():
        return learner.learn(env, EPISODES, seed, progress=False, **options)


def _resumed(name: str, env: FiniteMDP, settings: dict[str, Any]) -> Run:
    """A run that one session begins and another one continues."""
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
            f"check_algorithm: self.counts must be a dict of Python integers ({error})",
            code="bad-counts",
        ) from None
    regret = None if first.regret is None else first.regret[: records[-1].last].copy()
    first.close()
    second = learner.prepare(env, EPISODES, 5)
    second.restore(arrays, plain, regret, records)
    drive(second, [])
    return Run.of(second, learner.settings)


def _check_apart(session: Session) -> None:
    """No two parties hold the same array, unless it is read-only, as messages are."""
    player = session.player
    if not isinstance(player, Play):
        return
    held = {
        party: [array for array in arrays.values() if array.flags.writeable]
        for party, arrays in party_states(player.algorithm, player.parties())
    }
    for one, other in combinations(held, 2):
        _require(
            not any(np.may_share_memory(a, b) for a in held[one] for b in held[other]),
            "shared-array",
            f"parties '{one}' and '{other}' share an array: send it through the channel",
        )


def _check_reported(name: str, env: FiniteMDP, settings: dict[str, Any]) -> None:
    """One agent follows the policy that the run reports: a policy recorded after it was renewed, or
    `values` that nobody renews, give another regret."""
    learner = make(name, n_agents=1, **settings)
    with unattended():
        run = learner.learn(env, EPISODES, 5, progress=False, keep_models=True)
    assert run.regret is not None
    assert run.plan is not None
    steps, meter = np.diff(run.regret, prepend=0.0), RunMeter(run.plan).group([0])
    for record, policy in zip(run.records, run.policies, strict=True):
        t = record.first
        _require(
            abs(steps[t - 1] - meter.measure(t, 1, policy)[0]) < 1e-9,
            "regret-of-another-policy",
            f"the regret of episode {t} is not that of the policy in self.values (or followed) "
            "before it: record the policy that was played before you update it",
        )


def _check_alone(name: str, settings: dict[str, Any]) -> None:
    """The run reports the model of agent 0, who cannot know what the others see."""
    runs = []
    for other in (7, 8):
        envs = [_tabular(1), *[_tabular(other)] * (AGENTS - 1)]
        try:
            runs.append(_learn(name, envs, settings))
        except InvalidEnvironment:  # it needs the same MDP for all agents, and says so
            return
    _require(
        _bits(runs[0])[1:] == _bits(runs[1])[1:],
        "not-sent",
        "nothing was sent, but agent 0's model depends on what other agents saw: exchange it "
        "through the channel",
    )


def _check_records(run: Run, name: str) -> None:
    _require(run.algorithm == name, "bad-name", f"its player's `algorithm` must be '{name}'")
    ends = run.taus[0], run.taus[-1]
    _require(ends == (1, EPISODES + 1), "bad-records", "records must cover all episodes")
    k = 0
    for i, record in enumerate(run.records):
        k += record.rounds
        fits = record.first == run.taus[i] and record.last == run.taus[i + 1] - 1
        _require(fits and record.k == k, "bad-records", f"record {i} does not follow the last one")
        finite = np.isfinite(record.logdet).all()
        _require(finite, "logdet-not-finite", f"log det Λ is not finite in record {i}")
    assert run.regret is not None  # these problems know V*
    steps = np.diff(run.regret, prepend=0.0)
    complete = run.regret.shape == (EPISODES,)
    _require(complete, "bad-regret", "regret must have a value for every episode")
    _require(
        steps.min() >= -1e-9, "regret-falls", "regret must not fall: was every policy recorded?"
    )
    _require(steps.max() > 0.0, "no-regret", "regret is zero: was any policy recorded?")
    last = run.records[-1].scalars
    totals = last == run.ledger.scalars
    _require(totals, "bad-records", "the last record must hold the ledger's totals")
    parts = {category: int(one.sum()) for category, one in run.ledger.by_agent.items()}
    _require(
        parts == last, "counted-twice", "the ledger counts an agent twice: is it twice in a signal?"
    )


def _bits(run: Run) -> list[bytes]:
    assert run.regret is not None
    return [run.regret.tobytes(), run.w.tobytes(), run.gram.tobytes(), run.policy.table.tobytes()]


def _account(run: Run) -> list[Any]:
    """Ledger, counts and records, without the time that they took."""
    records = [record.to_dict() | {"seconds": None} for record in run.records]
    return [run.ledger.to_dict(), run.counts, records]


def _same(one: Run, other: Run, code: str, why: str) -> None:
    _require(_bits(one) == _bits(other) and _account(one) == _account(other), code, why)


def _global_draws() -> tuple[Any, ...]:
    """The state of the global generators."""
    numpy: Any = np.random.get_state()  # noqa: NPY002
    return random.getstate(), numpy[1].tobytes(), numpy[2:]


def _require(holds: bool | np.bool_, code: str, why: str) -> None:
    if not holds:
        raise InvalidInput(f"check_algorithm: {why}", code=code)
