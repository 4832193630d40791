"""Agents that stay away: a deadline, then the policy of the run; and agents that may not be cut."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import problems
from fedlsvi import FedLSVI, Run
from fedlsvi.errors import InvalidSetting, TransportError
from fedlsvi.learner import drive
from fedlsvi.remote import frame_transport as wired
from fedlsvi.remote.conformance import RUN, opened, parameters, uploads
from fedlsvi.remote.endpoint_factory import guard, makers
from fedlsvi.remote.frame_transport import run_name
from fedlsvi.remote.retry_policy import Patience
from fedlsvi.remote.threads import Local
from transports_over_frames import over_frames

LEARNER = FedLSVI(n_agents=4, gamma=8.0, beta=0.5, lam=0.5)


class Forgetful(Local):
    """Loses what cohort 1 sends: always from request 30 on, or only the first time it is asked."""

    once = False

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.seen: set[int] = set()
        self.exchanges = 0
        self.clock = lambda: self.exchanges * self.patience.deadline

    def exchange(self, frames: Any, deadline: float) -> Iterator[tuple[int, bytes]]:
        self.exchanges += 1
        for c, data in super().exchange(frames, deadline):
            lost = c == 1 and self.number > 30 and not (self.once and self.number in self.seen)
            if lost:
                self.seen.add(self.number)
                continue  # as after the deadline, without waiting for it
            yield c, data


def forgetful(patience: Patience, once: bool = False) -> Any:
    def make(plan: Any) -> Forgetful:
        run = run_name(plan.parameters, plan.seed)
        made = makers(plan, 2, threads=1)
        transport = Forgetful(plan.parameters, made, run, patience, guard(plan))
        transport.once = once
        return transport

    return make


def test_fail_names_the_agents() -> None:
    with pytest.raises(TransportError, match=r"agents 2 to 3.*no answer to"):
        LEARNER.learn(
            problems.simplex().envs, 80, 1, progress=False,
            transport=forgetful(Patience(60.0, 2, absent="fail")),
        )  # fmt: skip


def test_exclude_goes_on_and_writes_it_down() -> None:
    session = LEARNER.prepare(
        problems.simplex().envs, 80, 1, transport=forgetful(Patience(60.0, 2, absent="exclude"))
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
        transport=forgetful(Patience(60.0, 1, absent="wait"), once=True),
    )  # fmt: skip
    assert there.taus == here.taus
    assert there.w.tobytes() == here.w.tobytes()


def test_who_errs_at_once_is_asked_again_after_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """They double up to ten seconds or the deadline; who is silent for a deadline had its pause."""
    pauses: list[float] = []
    monkeypatch.setattr(wired, "sleep", pauses.append)
    for patience, seconds in (
        (Patience(300.0, 5), [0.2, 0.4, 0.8, 1.6]),
        (Patience(0.5, 4), [0.2, 0.4, 0.5]),
        (Patience(300.0, 1001), [0.2, 0.4, 0.8, 1.6, 3.2, 6.4] + 994 * [10.0]),
    ):
        pauses.clear()
        transport = opened(lambda m, p: Local(parameters(6), m, RUN, p), "raises", patience)
        transport.clock = lambda: 7.0
        with pytest.raises(TransportError, match=r"agent 2.*RuntimeError"):
            uploads(transport)
        transport.close()
        assert pauses == pytest.approx(seconds)


def test_patience_is_checked() -> None:
    for wrong in ({"deadline": 0.0}, {"attempts": 0}, {"absent": "go"}, {"refused": "no"},
                  {"carry": 0}):  # fmt: skip
        with pytest.raises(InvalidSetting):
            Patience(**wrong)  # type: ignore[arg-type]


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
