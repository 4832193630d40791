"""Private runs whose agents come and go: whose noise is in the sums, and that nothing else is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import problems
from fedlsvi import FedLSVI
from fedlsvi.core import fixed_point
from fedlsvi.learner import drive
from fedlsvi.logs.agent_data import worlds_and_logs
from fedlsvi.privacy.noise import PrefixNoise, noise_of
from fedlsvi.privacy.protections import AWAY, Noise
from fedlsvi.protocol import protected
from fedlsvi.protocol.messages import Upload
from literal_participation import there
from recorded import recorded
from transports_over_frames import over_frames

PRIVACY = {"epsilon": 4.0, "delta": 1e-6}
OWN = {"participation": 0.5, "present": [[0, 1, 20], [3, 1, 10], [3, 40, 60]]}
KEY, SEED = bytes(range(32)), 3


@pytest.fixture(autouse=True)
def _one_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protected, "new_noise_key", lambda: KEY)


def prepare(exchange: Any = "stepwise", policy: Any = "explore", **options: Any) -> Any:
    learner = FedLSVI(
        4, aggregation="exact", privacy=PRIVACY, exchange=exchange, rounds=9, stationary=False,
        policy=policy, **OWN,
    )  # fmt: skip
    return learner.prepare(problems.one_hot(1).envs, 60, SEED, **options)


def logs() -> tuple[Any, list[list[int]]]:
    """Logs of three of the agents, and how many transitions each has at each step."""
    problem = problems.one_hot(1)
    columns, steps = recorded(problem.one, [6, 0, 4, 9], problem.horizon, problem.one.n_actions)
    known = worlds_and_logs(problem.one, columns, 4)[1]
    return known, [[len(at) for at in agent] for agent in steps]


def last_releases(session: Any, logged: int) -> list[int]:
    """The last release that each agent took part in, 0 if none; that of logs is the first."""
    who, last = there(OWN, 4, SEED), [logged] * 4
    for record in session.records:
        for m in who(record.k, record.first - 1):
            last[m] = record.k + logged
    return last


@pytest.mark.parametrize("logged", [False, True])
@pytest.mark.parametrize("exchange", ["stepwise", "one-trip"])
def test_the_sums_have_the_noise_of_each_agents_last_round(exchange: str, logged: bool) -> None:
    """Without it they are the counts of what was played and logged: whole numbers."""
    known, read = logs() if logged else ((), [[0] * 3] * 4)
    session = prepare(exchange, logs=known)
    drive(session, [])
    last, p = last_releases(session, int(logged)), session.player.parameters
    assert len(set(last)) > 1  # or nothing is shown
    release = p.release
    noisy = session.player.between.repair.noisy
    played = sum(record.present * record.length for record in session.records)
    for h in range(1, p.horizon + 1):
        total = noisy[h - 1].copy()
        for m, k in enumerate(last):
            if k:
                noise = noise_of(release, KEY, m, 1).words(k, h, since=0)
                grams = noise[: p.dim] if exchange == "stepwise" else noise[(h - 1) * p.dim :]
                total -= fixed_point.decode(grams[: p.dim], release.bits)
        np.testing.assert_allclose(total, np.rint(total), atol=1e-6)
        assert total.min() > -1e-6
        assert round(total.sum()) == played + sum(agent[h - 1] for agent in read)


def test_who_is_away_sends_nothing() -> None:
    session, who = prepare(), there(OWN, 4, SEED)
    transport: Any = session.player.transport
    inner, seen = transport.deliver, []

    def deliver(message: Any) -> Any:
        replies = inner(message)
        now = transport.membership.attendance.there
        for upload in (reply for reply in replies if isinstance(reply, Upload)):
            away = np.setdiff1d(np.arange(4), now)
            assert not upload.gram[away].any()
            assert not upload.b[away].any()
            assert upload.gram[now].any(axis=1).all()
            seen.append(len(away))
        return replies

    transport.deliver = deliver
    drive(session, [])
    assert any(seen)
    assert [record.present for record in session.records] == [
        len(who(record.k, record.first - 1)) for record in session.records
    ]


@pytest.mark.parametrize("exchange", ["stepwise", "one-trip"])
def test_cohorts_and_a_restart_change_nothing(exchange: str) -> None:
    whole, parts = prepare(exchange), prepare(exchange, cohorts=3)
    for session in (whole, parts):
        drive(session, [])
    assert whole.player.w.tobytes() == parts.player.w.tobytes()
    assert whole.player.ledger.to_dict() == parts.player.ledger.to_dict()
    first, second = prepare(exchange), prepare(exchange)
    rounds = first.rounds()
    records = [next(rounds) for _ in range(4)]
    arrays, plain = first.player.state()
    second.restore({k: a.copy() for k, a in arrays.items()}, plain, None, records)
    drive(second, [])
    assert second.player.w.tobytes() == whole.player.w.tobytes()


@pytest.mark.parametrize("exchange", ["stepwise", "one-trip"])
def test_sites_send_what_passes_the_checks(exchange: str) -> None:
    """Sites have secrets of their own, so the model is another; who was there is the same."""
    here, far = prepare(exchange), prepare(exchange, transport=over_frames(2))
    for session in (here, far):
        drive(session, [])
    assert [r.present for r in far.records] == [r.present for r in here.records]
    assert np.isfinite(far.player.w).all()
    for category in ("init", "up_stats", "down_model"):
        assert far.player.ledger.scalars[category] == here.player.ledger.scalars[category]
    p, present = here.player.parameters, sum(r.present for r in here.records)
    table = (p.horizon - 1) * p.dim * p.states  # noise has no zeros that need not be sent
    assert here.player.ledger.scalars["up_stats"] == present * (2 * p.horizon * p.dim + table)


def test_the_last_pass_is_one_more_release_of_who_is_there() -> None:
    session = prepare(policy="exploit")
    drive(session, [])
    p, last = session.player.parameters, session.records[-1].present
    assert np.isfinite(session.player.deployed_w).all()
    explore = prepare()
    drive(explore, [])
    more = session.player.ledger.total - explore.player.ledger.total
    assert more == last * (2 * p.horizon * p.dim + 1)


def test_noise_of_the_last_round_is_replaced_at_a_return() -> None:
    """After rounds 1, 2, 5, 6 and 9 the noise of the sums is that of the prefix of 9 rounds."""
    session = prepare()
    release = session.player.parameters.release
    sent, last = np.zeros(1, np.uint64), 0
    noise, gram = Noise(release, KEY, [2], 1), noise_of(release, KEY, 2, 1).grams[1]
    assert isinstance(gram, PrefixNoise)
    nothing = np.zeros((1, len(gram.sigma) + len(release.step_shares(2, 1)[1])), np.uint64)
    sent = np.zeros(len(gram.sigma), np.uint64)
    for k in range(1, 10):
        away = k in (3, 4, 7, 8)
        words = noise.added(nothing, k, 2, [AWAY if away else last])
        assert away == (not words.any())
        sent += words[0, : len(sent)]
        last = last if away else k
    assert sent.tobytes() == gram.words(9, since=0).tobytes()
