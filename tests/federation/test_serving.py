"""The server of a federation: its folder goes on with the run that it holds and with no other."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import problems
from fedlsvi import FedLSVI
from fedlsvi.errors import InvalidSetting, TransportError
from fedlsvi.federation.serving import check, serve
from fedlsvi.federation.stations import guard, makers
from fedlsvi.messages import Explore
from fedlsvi.server import Server
from fedlsvi.transports.local import Local
from fedlsvi.transports.patience import Absent, Patience
from fedlsvi.transports.wired import run_name


class Killed(Exception):
    """The server's process ends."""


class Silent(Local):
    """Cohort 1 is not heard from the exploration of round `since` on."""

    since: float = math.inf
    silent = False

    def exchange(self, frames: Any, deadline: float) -> Iterator[tuple[int, bytes]]:
        self.silent |= isinstance(self._asked, Explore) and self.guard.round >= self.since
        for c, data in super().exchange(frames, deadline):
            if c != 1 or not self.silent:
                yield c, data


class Trial:
    """A federation of two cohorts over frames, with a folder for the server and journals."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def play(
        self, last: int | None = None, seed: int = 1, absent: Absent = "fail",
        since: float = math.inf, agents: int = 4, cohorts: int = 2, gamma: float = 8.0,
        features: dict[str, Any] | None = None,
    ) -> Server:  # fmt: skip
        """Serve from where it was, and die after round `last`."""
        learner = FedLSVI(n_agents=agents, gamma=gamma, beta=0.5, lam=0.5)
        plan = learner.prepare(problems.one_hot().envs, 40, seed).plan
        made = makers(plan, cohorts, self.folder / "journals", durable=False, threads=1)
        run = run_name(plan.parameters, seed)
        patience = Patience(30.0, 1, absent=absent)
        transport = Silent(plan.parameters, made, run, patience, guard(plan))
        transport.since = since

        def observe(record: Any) -> None:
            if record.k == last:
                raise Killed

        try:
            server = self.folder / "server"
            check(plan.parameters, transport.cuts, run, server, features)
            return serve(plan.parameters, transport, server, observe, features)
        finally:
            transport.close()


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path)


def test_it_goes_on_where_it_was(trial: Trial, tmp_path: Path) -> None:
    with pytest.raises(Killed):
        trial.play(last=3)
    assert trial.play().w.tobytes() == Trial(tmp_path / "other").play().w.tobytes()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"seed": 2}, "begun with another seed: set that back, or give the federation another"),
        ({"gamma": 9.0}, "begun with gamma 8.0 and not 9.0: set that back"),
        ({"agents": 5}, r"n_agents 4 and not 5, agents \[2, 2\] at its sites and not \[2, 3\]"),
        ({"features": {"name": "rbf"}}, r"begun with features None and not {'name': 'rbf'}"),
        ({"cohorts": 1}, r"begun with agents \[2, 2\] at its sites and not \[4\]"),
    ],
)
def test_another_run_is_refused_in_a_sentence(
    change: dict[str, Any], sentence: str, trial: Trial
) -> None:
    with pytest.raises(Killed):
        trial.play(last=3)
    before = {path: path.read_bytes() for path in (trial.folder / "server").rglob("*.json*")}
    with pytest.raises(InvalidSetting, match=sentence):
        trial.play(**change)
    assert before == {path: path.read_bytes() for path in before}


def test_carrying_may_begin_after_a_failure(trial: Trial, tmp_path: Path) -> None:
    """The responses of who is away are those that were last accepted, also where the server that
    accepted them would not have carried anybody: the run is the one that carried from the start."""
    with pytest.raises(TransportError, match="no answer to Explore"):
        trial.play(since=4)
    changed = trial.play(since=4, absent="carry")
    always = Trial(tmp_path / "other").play(since=4, absent="carry")
    assert changed.w.tobytes() == always.w.tobytes()
