"""A site that hears of a signal stops there; what it does then depends on no kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kits import first_start

import problems
from fedlsvi import FedLSVI
from fedlsvi.protocol.messages import Explore, Request
from fedlsvi.remote.codec import Address, decode_reply, encode, run_id
from fedlsvi.remote.endpoint_factory import endpoint_factories
from fedlsvi.remote.flare.job import SiteSignals

EPOCH = 5


@pytest.mark.parametrize("heard", [1, 2, 0])
@pytest.mark.parametrize("kill", [False, True])
def test_who_stopped_for_a_signal_and_is_asked_again(
    heard: int, kill: bool, tmp_path: Path
) -> None:
    """The sender of the signal is lost, and the site is asked to go on: it signals where it would
    have done so anyway, also if it was killed in between."""
    plan = FedLSVI(n_agents=2, gamma=8.0, lam=1.0).prepare(problems.simplex().envs, 60, 1).plan
    factory = endpoint_factories(plan, 1, tmp_path, durable=False, threads=1)[0]
    p = plan.parameters
    start = first_start(p)
    run, announced = run_id(p, plan.seed), list[Any]()

    def ask(endpoint: Any, number: int, message: Request, until: int | None = None) -> Any:
        frame = encode(message, Address(run, EPOCH, number, 1, 0, 2))
        signals = SiteSignals(lambda sent: announced.append(decode_reply(sent, plan.layout)[1]))
        if until is not None:
            signals.heard(EPOCH, number, until)
        return decode_reply(endpoint.handle(frame, signals), plan.layout)[1]

    endpoint = factory()
    ask(endpoint, 1, start)
    alone = ask(endpoint, 2, Explore(8)).t
    assert alone > 2  # as far as it goes if nobody else signals
    endpoint.close()
    for file in (tmp_path / "agents-0-1").iterdir():
        file.unlink()

    endpoint = factory()
    ask(endpoint, 1, start)
    assert ask(endpoint, 2, Explore(8), until=heard).t == 0
    assert endpoint.cohort.experience.length == heard
    if kill:
        endpoint.close()
        endpoint = factory()
    assert ask(endpoint, 3, Explore(8)).t == alone
    assert [signal.t for signal in announced] == [alone, alone]
    endpoint.close()
