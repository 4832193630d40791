"""Agents that stay away: a deadline, then the policy of the run; and agents that may not be cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import problems
from expecting import refused
from fedlsvi import FedLSVI, Run
from fedlsvi.errors import InvalidSetting, TransportError
from fedlsvi.learner import drive
from fedlsvi.protocol.messages import Keep, Upload
from fedlsvi.remote import frame_transport
from fedlsvi.remote.codec import decode_reply, encode, run_id
from fedlsvi.remote.conformance import RUN, opened, parameters, uploads
from fedlsvi.remote.endpoint_factory import endpoint_factories, guard_for
from fedlsvi.remote.frame_transport import ThreadTransport
from fedlsvi.remote.guard import Refusal
from fedlsvi.remote.retry_policy import RetryPolicy
from patience import PATIENCE
from transports_over_frames import over_frames

LEARNER = FedLSVI(n_agents=4, gamma=8.0, beta=0.5, lam=0.5)


class Forgetful(ThreadTransport):
    """Loses what cohort 1 sends: always from request 30 on, or only the first time it is asked."""

    once = False

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.seen: set[int] = set()
        self.exchanges = 0
        self.clock = lambda: self.exchanges * self.retry.deadline

    def exchange(self, frames: Any, deadline: float) -> Iterator[tuple[int, bytes]]:
        self.exchanges += 1
        for c, data in super().exchange(frames, deadline):
            lost = c == 1 and self.number > 30 and not (self.once and self.number in self.seen)
            if lost:
                self.seen.add(self.number)
                continue  # as after the deadline, without waiting for it
            yield c, data


def forgetful(retry: RetryPolicy, once: bool = False) -> Any:
    def make(plan: Any) -> Forgetful:
        run = run_id(plan.parameters, plan.seed)
        made = endpoint_factories(plan, 2, threads=1)
        transport = Forgetful(plan.parameters, made, run, retry, guard_for(plan))
        transport.once = once
        return transport

    return make


def test_fail_names_the_agents() -> None:
    with refused(TransportError, "no-answer", "agents 2 to 3"):
        LEARNER.learn(
            problems.simplex().envs, 80, 1, progress=False,
            transport=forgetful(RetryPolicy(PATIENCE, 2, absent="fail")),
        )  # fmt: skip


class SnapshotLost(ThreadTransport):
    """Cohort 1 does not answer the request for a snapshot after round 3."""

    def exchange(self, frames: Any, deadline: float) -> Iterator[tuple[int, bytes]]:
        lost = isinstance(self.request, Keep) and self.guard.round == 4
        for c, data in super().exchange(frames, deadline):
            if c != 1 or not lost:
                yield c, data


@pytest.mark.parametrize("absent", ["fail", "exclude", "carry"])
def test_the_round_that_has_just_ended_is_named(absent: Any, tmp_path: Path) -> None:
    """A snapshot after round 3 belongs to round 3, though its note is in the record of round 4."""

    def transport(plan: Any) -> SnapshotLost:
        made = endpoint_factories(plan, 2, tmp_path, durable=False, threads=1)
        retry, run = RetryPolicy(PATIENCE, 1, absent=absent), run_id(plan.parameters, plan.seed)
        return SnapshotLost(plan.parameters, made, run, retry, guard_for(plan))

    session = LEARNER.prepare(problems.one_hot().envs, 80, 1, transport=transport)
    rounds = session.rounds()
    try:
        record = [next(rounds) for _ in range(3)][-1]
        if absent == "fail":
            with refused(TransportError, "no-answer", "agents 2 to 3, round 3:", "Keep"):
                session.player.transport.keep(record.last)  # type: ignore[attr-defined]
            return
        if absent == "exclude":  # to carry asks for a snapshot after every round
            session.player.transport.keep(record.last)  # type: ignore[attr-defined]
        noted = next(rounds).notes
        assert not record.notes
        assert [note.partition(" (")[0] for note in noted] == [
            f"round 3: agents 2 to 3 {'carried' if absent == 'carry' else 'excluded'}"
        ]
    finally:
        session.close()


def test_exclude_goes_on_and_writes_it_down() -> None:
    session = LEARNER.prepare(
        problems.simplex().envs,
        80,
        1,
        transport=forgetful(RetryPolicy(PATIENCE, 2, absent="exclude")),
    )
    drive(session, [])
    notes = [note for record in session.records for note in record.notes]
    assert len(notes) == 1
    assert "agents 2 to 3 excluded" in notes[0]
    by_agent = session.player.transport.ledger.by_agent["up_stats"]
    assert by_agent[0] > by_agent[2]
    # the closed formula is of M agents who all stay
    assert "scalars" not in Run.of(session, LEARNER.settings).bounds


def test_questions_of_an_engine_stand_beside_the_closed_formula() -> None:
    run = LEARNER.learn(problems.simplex().envs, 80, 1, progress=False, transport=over_frames(2))
    found = run.bounds["scalars"]
    assert found.holds
    assert found.claim.startswith("scalars = closed formula, and ")
    assert run.ledger.total > found.bound


def test_wait_asks_until_it_is_there() -> None:
    """Every message of one cohort is lost once: the same bits as without."""
    here = LEARNER.learn(problems.simplex().envs, 80, 1, progress=False)
    there = LEARNER.learn(
        problems.simplex().envs, 80, 1, progress=False,
        transport=forgetful(RetryPolicy(PATIENCE, 1, absent="wait"), once=True),
    )  # fmt: skip
    assert there.taus == here.taus
    assert there.w.tobytes() == here.w.tobytes()


def test_who_errs_at_once_is_asked_again_after_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """They double up to ten seconds or the deadline; who is silent for a deadline had its pause."""
    pauses: list[float] = []
    monkeypatch.setattr(frame_transport, "sleep", pauses.append)
    for retry, seconds in (
        (RetryPolicy(300.0, 5), [0.2, 0.4, 0.8, 1.6]),
        (RetryPolicy(0.5, 4), [0.2, 0.4, 0.5]),
        (RetryPolicy(300.0, 1001), [0.2, 0.4, 0.8, 1.6, 3.2, 6.4] + 994 * [10.0]),
    ):
        pauses.clear()
        transport = opened(lambda m, p: ThreadTransport(parameters(6), m, RUN, p), "raises", retry)
        transport.clock = lambda: 7.0
        with refused(TransportError, "agent-failed", "agent 2", "RuntimeError"):
            uploads(transport)
        transport.close()
        assert pauses == pytest.approx(seconds)


def test_the_retry_policy_is_checked() -> None:
    for wrong in ({"deadline": 0.0}, {"attempts": 0}, {"absent": "go"}, {"refused": "no"},
                  {"carry": 0}):  # fmt: skip
        with refused(InvalidSetting, f"bad-{next(iter(wrong))}"):
            RetryPolicy(**wrong)  # type: ignore[arg-type]


def test_kept_overshoot_is_the_same_on_every_number_of_cohorts() -> None:
    """Where nothing can be rolled back, episodes beyond the signal stay, and are reported."""
    learner = FedLSVI(n_agents=4, gamma=30.0, beta=0.5, lam=0.5, overshoot="keep")
    runs = [
        learner.learn(problems.simplex().envs, 200, 1, progress=False, transport=over_frames(n))
        for n in (1, 2, 4)
    ]
    assert sum(record.overshoot for record in runs[0].records) > 0
    runs += [
        learner.learn(problems.simplex().envs, 200, 1, progress=False, cohorts=n, block=block)
        for n, block in ((1, None), (3, 1), (2, 7))
    ]
    for run in runs[1:]:
        assert run.taus == runs[0].taus
        assert run.w.tobytes() == runs[0].w.tobytes()


class Poison(ThreadTransport):
    """Changes what one cohort sends, from some request on."""

    def exchange(self, frames: Any, deadline: float) -> Iterator[tuple[int, bytes]]:
        for c, data in super().exchange(frames, deadline):
            address, reply = decode_reply(data, self.layout)
            if c == 1 and self.number > 30 and isinstance(reply, Upload):
                data = encode(Upload(reply.h, reply.gram, reply.b * 1e6 + 1e6), address)
            yield c, data


def test_exclusion_goes_on_without_the_cohort_and_says_so() -> None:
    """After the exclusion everything of its agents is withdrawn: the Gram matrices are those of
    the other agents alone."""
    learner = FedLSVI(n_agents=4, gamma=8.0, beta=0.5, lam=0.5)

    def make(refused: Any) -> Any:
        def poison(plan: Any) -> Poison:
            run = run_id(plan.parameters, plan.seed)
            retry = RetryPolicy(PATIENCE, 2, refused=refused)
            return Poison(plan.parameters, endpoint_factories(plan, 2, threads=1), run, retry)

        return poison

    with refused(Refusal, "impossible-message", "agent 2, round ", ", step "):
        learner.learn(problems.simplex().envs, 80, 1, transport=make("refuse"), progress=False)
    session = learner.prepare(problems.simplex().envs, 80, 1, transport=make("exclude"))
    drive(session, [])
    noted = [note for record in session.records for note in record.notes]
    assert len(noted) == 1
    assert "agents 2 to 3 excluded" in noted[0]
    traces = session.player.server.gram.trace(axis1=1, axis2=2)
    others = session.player.transport.guard.gram[:, :2].sum(axis=1)  # type: ignore[attr-defined]
    diagonal = np.cumsum([0, *range(session.plan.layout.dim, 1, -1)])
    assert np.allclose(traces - 0.5 * session.plan.layout.dim, others[:, diagonal].sum(axis=1))
    assert not session.player.transport.guard.gram[:, 2:].any()  # type: ignore[attr-defined]
