"""`absent="carry"` and "exclude" in one trip, with noisy sums and where a run begins with logs: no
episode is lost, none is counted twice, and none stays of who is excluded."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import problems
from fedlsvi import FedLSVI, resume
from fedlsvi.core import fixed_point
from fedlsvi.learner import drive
from fedlsvi.logs.agent_data import worlds_and_logs
from fedlsvi.privacy.noise import noise_of
from fedlsvi.remote import site_noise
from fedlsvi.remote.audit import Audit, verify
from fedlsvi.remote.retry_policy import RetryPolicy
from fedlsvi.storage.run_writer import RunWriter, begin
from lossy import KEY, Silence, between, check_increments, lossy
from patience import PATIENCE
from recorded import recorded
from repeats import repeats

EPISODES, M = 40, 4
PRIVACY = {"epsilon": 4.0, "delta": 1e-6}
PROBLEM = problems.one_hot()
CARRY = RetryPolicy(PATIENCE, 1, absent="carry")
EXCLUDE = RetryPolicy(PATIENCE, 1, absent="exclude")

OWN: dict[str, dict[str, Any]] = {
    "one trip": {"exchange": "one-trip", "gamma": 8.0},
    "one trip, shared": {"exchange": "one-trip", "gamma": 8.0, "stationary": True},
    "one trip, exact": {"exchange": "one-trip", "gamma": 8.0, "aggregation": "exact"},
    "one trip, coming": {"exchange": "one-trip", "gamma": 8.0, "participation": 0.6},
    "logs": {"gamma": 8.0},
    "logs, one trip": {"exchange": "one-trip", "gamma": 8.0},
    "noise": {"privacy": PRIVACY, "aggregation": "exact", "rounds": 9},
    "noise, coming": {
        "privacy": PRIVACY, "aggregation": "exact", "rounds": 9, "participation": 0.6,
    },
    "noise, one trip": {
        "privacy": PRIVACY, "aggregation": "exact", "rounds": 9, "exchange": "one-trip",
    },
    "noise, logs": {"privacy": PRIVACY, "aggregation": "exact", "rounds": 9},
}  # fmt: skip
"""Settings by what they have in them."""


@pytest.fixture(autouse=True)
def _one_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_noise, "new_noise_key", lambda: KEY)


def prepare(
    name: str, silence: Silence, folder: Path, retry: RetryPolicy = CARRY, **more: Any
) -> Any:
    own = {"stationary": False, "policy": "explore"} | OWN[name] | more
    logs: Any = ()
    if "logs" in name:
        problem = problems.one_hot()
        data = recorded(problem.one, [6, 0, 4, 9], problem.horizon, problem.one.n_actions)[0]
        logs = worlds_and_logs(problem.one, data, M)[1]
    learner = FedLSVI(M, beta=0.5, lam=0.5, **own)
    transport = lossy(silence, folder, retry)
    return learner.prepare(
        PROBLEM.envs, EPISODES, 1, logs=logs, transport=transport, keep_models=True
    )


def play(name: str, silence: Silence, folder: Path, retry: RetryPolicy = CARRY, **more: Any) -> Any:
    session = prepare(name, silence, folder, retry, **more)
    drive(session, [])
    return session


def notes(session: Any) -> list[str]:
    return [note for record in session.records for note in record.notes]


def check(session: Any, gone: tuple[int, ...] = ()) -> None:
    """What the server has of each agent is right, and its model is made of that alone."""
    player, p = session.player, session.plan.parameters
    check_increments(player.transport, session.plan, gone)
    total = player.transport.guard.gram.sum(axis=1)
    if p.privacy is not None:
        np.testing.assert_allclose(player.between.repair.noisy, total, atol=1e-6)
        return
    for h in range(1, p.horizon + 1):
        small = np.diagonal(session.models[-1][1][h - 1])
        np.testing.assert_allclose(small, total[min(h, len(total)) - 1] + p.lam, atol=1e-6)
    if player.server.layout.states:
        of = player.transport.reachability.contributed.of.values()
        np.testing.assert_allclose(player.between.u, sum(u.b.sum(axis=0) for u in of), atol=1e-6)


@pytest.mark.parametrize("kind", ["request", "reply"])
@pytest.mark.parametrize("first", range(1, 9, repeats(3, 1)))
@pytest.mark.parametrize("name", OWN)
def test_silence_from_any_request_on(name: str, first: int, kind: str, tmp_path: Path) -> None:
    """Of Start, the logs, Explore, Stop and models."""
    session = play(name, between(first, first + 2, kind), tmp_path)
    assert any("agents 2 to 3 carried" in note for note in notes(session))
    assert not session.player.transport.membership.away
    check(session)


@given(
    losses=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 9), st.booleans()), max_size=5),
    name=st.sampled_from(list(OWN)),
)
@settings(max_examples=repeats(10, 40))
def test_any_silence_loses_no_episode(losses: list[tuple[int, int, bool]], name: str) -> None:
    def silence(n: int) -> str | None:
        for first, length, request in losses:
            if first <= n < first + length:
                return "request" if request else "reply"
        return None

    with tempfile.TemporaryDirectory() as folder:
        session = play(name, silence, Path(folder))
        if not session.player.transport.membership.away:
            check(session)


@pytest.mark.parametrize("retry", [EXCLUDE, RetryPolicy(PATIENCE, 1, absent="carry", carry=2)],
                         ids=["at once", "later"])  # fmt: skip
@pytest.mark.parametrize("first", range(11, 13, repeats(2, 1)))
@pytest.mark.parametrize("name", OWN)
def test_nothing_stays_of_who_is_excluded(
    name: str, first: int, retry: RetryPolicy, tmp_path: Path
) -> None:
    session = play(name, lambda n: "request" if n >= first else None, tmp_path, retry)
    assert list(session.player.transport.membership.excluded) == [1]
    check(session, gone=(2, 3))


@pytest.mark.parametrize("name", [name for name in OWN if "coming" not in name])
def test_the_ledger_and_the_log_of_a_site_agree(name: str, tmp_path: Path) -> None:
    """What is sent again on a return is counted once at both ends."""
    for i, lost in enumerate([(9, 12), (10, 10), (11, 14)]):
        session = prepare(name, between(*lost, "reply"), tmp_path / str(i))
        transport: Any = session.player.transport
        transport.handlers[1].outbox = Audit(tmp_path / f"{i}.jsonl", durable=False)
        drive(session, [])
        counted = int(transport.ledger.by_agent["up_stats"][2:].sum())
        verify(tmp_path / f"{i}.jsonl", counted)
        assert any("taken back" in note for note in notes(session))


@pytest.mark.parametrize("stop", [12, 15, 18])
@pytest.mark.parametrize("name", ["one trip", "noise, one trip"])
def test_a_server_that_restarts_knows_who_is_away(name: str, stop: int, tmp_path: Path) -> None:
    session = prepare(name, between(9, 16), tmp_path / "journals")
    transport: Any = session.player.transport
    inner = transport.exchange

    def exchange(frames: Any, deadline: float) -> Any:
        if transport.exchanges == stop:
            raise KeyboardInterrupt
        return inner(frames, deadline)

    transport.exchange = exchange
    run = begin(tmp_path / "run", session.plan, "fed-lsvi", FedLSVI(M, **OWN[name]).settings)
    with pytest.raises(KeyboardInterrupt):
        drive(session, [RunWriter(run, session, 0.0)])
    made: list[Any] = []

    def again(plan: Any) -> Any:
        made.append(lossy(lambda n: None, tmp_path / "journals", CARRY)(plan))
        return made[0]

    done = resume(tmp_path / "run", env=PROBLEM.envs, transport=again, progress=False)
    transport = made[0]
    assert not transport.membership.away
    visits = transport.guard.gram.sum(axis=(1, 2))
    if done.parameters.privacy is None:
        np.testing.assert_array_equal(visits, M * EPISODES)
        return
    p = done.parameters
    for h in range(1, p.horizon + 1):
        noise = [noise_of(p.release, KEY, m, 1).words(len(done.records), h, since=0)
                 for m in range(M)]  # fmt: skip
        words = sum(row[(h - 1) * p.dim : h * p.dim] for row in noise)
        added = fixed_point.decode(words, p.release.bits).sum()
        assert visits[h - 1] - added == pytest.approx(M * EPISODES)
