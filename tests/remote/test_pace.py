"""A site that hears of a signal stops there; what it does then depends on no kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import problems
from fedlsvi import FedLSVI
from fedlsvi.protocol.messages import Explore, Request, Start
from fedlsvi.remote.codec import Address, decode_reply, encode
from fedlsvi.remote.endpoint_factory import makers
from fedlsvi.remote.flare.pace import Pace
from fedlsvi.remote.frame_transport import run_name

EPOCH = 5


@pytest.mark.parametrize("heard", [1, 2, 0])
@pytest.mark.parametrize("kill", [False, True])
def test_who_stopped_for_a_signal_and_is_asked_again(
    heard: int, kill: bool, tmp_path: Path
) -> None:
    """The sender of the signal is lost, and the site is asked to go on: it signals where it would
    have done so anyway, also if it was killed in between."""
    plan = FedLSVI(n_agents=2, gamma=8.0, lam=0.5).prepare(problems.simplex().envs, 60, 1).plan
    maker = makers(plan, 1, tmp_path, durable=False, threads=1)[0]
    p = plan.parameters
    gram = np.stack([np.eye(p.dim)[np.triu_indices(p.dim)]] * p.horizon)
    start = Start(np.zeros((p.horizon, p.dim)), gram, p.gamma, p.beta, p.episodes)
    run, announced = run_name(p, plan.seed), []

    def ask(station: Any, number: int, message: Request, until: int | None = None) -> Any:
        frame = encode(message, Address(run, EPOCH, number, 1, 0, 2))
        pace = Pace()
        pace.begin(frame, station, lambda signal, _: announced.append(signal.t))
        if until is not None:
            pace.hurry((EPOCH, number), until)
        return decode_reply(station.handle(frame), plan.layout)[1]

    station = maker()
    ask(station, 1, start)
    alone = ask(station, 2, Explore(8)).t
    assert alone > 2  # as far as it goes if nobody else signals
    station.close()
    for file in (tmp_path / "agents-0-1").iterdir():
        file.unlink()

    station = maker()
    ask(station, 1, start)
    assert ask(station, 2, Explore(8), until=heard).t == 0
    assert station.cohort.experience.length == heard
    if kill:
        station.close()
        station = maker()
    assert ask(station, 3, Explore(8)).t == alone
    assert announced == [alone, alone]
    station.close()
