"""Who is waited for is named, with the reason, and so is the end of the wait."""

from __future__ import annotations

from threading import Event
from typing import Any

from fedlsvi import FedLSVI
from fedlsvi.envs import RandomLinearMDP
from fedlsvi.errors import StoreError
from fedlsvi.protocol.messages import Stop
from fedlsvi.remote.codec import STOP, peek
from fedlsvi.remote.flare.log import NOBODY, NOTE, ROUND, WAITS, progress_in
from fedlsvi.remote.retry_policy import RetryPolicy
from fedlsvi.remote.waiting import Waiting, Watch
from patience import PATIENCE, wait_until
from transports_over_frames import over_frames

ENV = RandomLinearMDP(n_states=8, n_actions=2, dim=4, horizon=3, seed=2)
NAMES = ["north", "south", "west"]


def test_whoever_has_not_answered_is_waited_for() -> None:
    waiting = Waiting()
    assert waiting.longer_than(0.0) == []
    waiting.begin([0, 1, 2], "Stop", 7)
    waiting.heard(1)
    waiting.failed(2, 1, "StoreError")
    late = waiting.longer_than(0.0)
    assert [(a.cohort, a.attempt, a.why) for a in late] == [(0, 1, ""), (2, 2, "StoreError")]
    assert waiting.longer_than(1e6) == []
    said = late[1].sentence("west", late[1].since + 30.0)
    for part in ("west", "Stop", "round 7", "2 times", "StoreError"):
        assert part in said
    waiting.begin([1], "Model", 7)
    assert [a.cohort for a in waiting.longer_than(0.0)] == [1]


def test_changes_are_told_once() -> None:
    waiting, told = Waiting(), list[str]()
    watch = Watch(lambda: waiting, NAMES.__getitem__, told.append, patience=0.0)
    watch.look()
    waiting.begin([0, 1], "Stop", 1)
    waiting.heard(0)
    for _ in range(3):
        watch.look()
    waiting.failed(1, 1, "StoreError")
    watch.look()
    waiting.heard(1)
    for _ in range(3):
        watch.look()
    assert ["south" in one for one in told] == [True, True, False]
    assert "StoreError" in told[1]
    assert told[2] == ""


def test_a_site_that_fails_is_named_while_the_run_waits() -> None:
    """Its disk is full: it answers every request with an error until somebody makes room."""
    full, named, again = Event(), Event(), Event()
    told: list[str] = []
    full.set()

    def tell(sentence: str) -> None:
        told.append(sentence)
        (named if sentence else again).set()
        if sentence:
            full.clear()

    def made(plan: Any) -> Any:
        transport = over_frames(3, retry=RetryPolicy(PATIENCE, 2, absent="wait"))(plan)
        handle = transport.handlers[1].handle

        def failing(frame: bytes) -> bytes:
            if full.is_set() and peek(frame)[0] == STOP:
                raise StoreError("no space left on device", code="cannot-write")
            answer: bytes = handle(frame)
            return answer

        transport.handlers[1].handle = failing
        watches.append(Watch(lambda: transport.waiting, NAMES.__getitem__, tell, 0.0, 0.001))
        watches[0].__enter__()
        return transport

    watches: list[Watch] = []
    run = FedLSVI(n_agents=3).learn(ENV, 40, 0, transport=made, progress=False)
    wait_until(again.is_set, "nobody is told that the wait is over")
    watches[0].__exit__()
    assert named.is_set()
    assert any("south" in sentence and Stop.__name__ in sentence for sentence in told)
    assert run.played == 40
    assert run.w.tobytes() == FedLSVI(n_agents=3).learn(ENV, 40, 0, progress=False).w.tobytes()


def test_the_last_word_counts() -> None:
    rows = [f"x {ROUND}3, at episode 9", f"x {WAITS}waiting for north", f"x {NOTE}a note"]
    assert progress_in(rows)["waits"] == "waiting for north"
    assert progress_in([*rows, f"x {WAITS}{NOBODY}"])["waits"] == ""
    assert progress_in([*rows, "x this run ends: no site has an agent"])["waits"] == ""
