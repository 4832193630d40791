"""A job that ends with an estimate from records at its sites: the server's and the site's part,
called as FLARE calls them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from kits import engine, server_kit

import fedlsvi
from expecting import refused
from fedlsvi.algorithms.fitted_q_evaluation import estimate_value
from fedlsvi.algorithms.shared.evaluation_site import Pass
from fedlsvi.envs import RandomMDP, logged_worlds, record_episodes, write_records
from fedlsvi.errors import FedLSVIError, InvalidSetting, MessageRefused, TransportError
from fedlsvi.protocol.messages import Model
from fedlsvi.remote import closing_estimate
from fedlsvi.remote.audit import lines, verify
from fedlsvi.remote.codec import Address, encode
from fedlsvi.remote.evaluation import AnsweredModels
from fedlsvi.remote.federation import Federation
from fedlsvi.remote.flare import job as flare
from fedlsvi.report.estimates import estimates
from fedlsvi.storage import evaluations

ENV = RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1)
FEDERATION = Federation(
    "records", episodes=40, horizon=3, dim=12, one_hot=True, algorithm="pevi", n_actions=3,
    settings={"beta": 0.3}, evaluate={"repeats": 4}, retry={"deadline": 5.0, "attempts": 1},
)  # fmt: skip


def joined(episodes: int, seed: int) -> dict[str, Any]:
    """The records of three agents in one table."""
    logs = [record_episodes(ENV, episodes + m, seed=seed, agent=m, ends=[1]) for m in range(3)]
    found = {name: np.concatenate([log[name] for log in logs]) for name in logs[0]}
    return found | {"agent": np.repeat(np.arange(3), [len(log["step"]) for log in logs])}


class Proxy:
    """What FLARE calls a site with; the site's own context is in force while it answers."""

    name = "south"

    def __init__(self, kit: Path, table: dict[str, Any]) -> None:
        self.site, self.context, self.asked = flare.Site(table), engine(kit), 0
        self.fails_at = 0

    def __call__(self, **options: Any) -> Proxy:
        return self

    def __getattr__(self, method: str) -> Any:
        def call(content: bytes, proof: bytes) -> Any:
            self.asked += 1
            if self.asked == self.fails_at:
                raise ConnectionError
            before, flare.collab = flare.collab, self.context
            try:
                return getattr(self.site, method)(content, proof)
            finally:
                flare.collab = before

        return call

    def close(self) -> None:
        for book in (*(self.site._books or ()), *filter(None, [self.site._passes])):
            book.close()


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site with three agents, records to learn from, and others."""
    write_records(joined(20, 0), tmp_path / "log.parquet")
    write_records(joined(30, 7), tmp_path / "others.parquet")
    (tmp_path / "fedlsvi.toml").write_text(
        'agents = 3\ndurable = false\ndata = "log.parquet"\nheld_out = "others.parquet"\n'
    )
    monkeypatch.setattr(closing_estimate, "randbits", lambda n: 3)
    return tmp_path


def play(kit: Path, monkeypatch: pytest.MonkeyPatch, federation: Federation = FEDERATION,
         fails_at: int = 0) -> Path:  # fmt: skip
    """The job from its beginning to its end; returns the server's run folder."""
    proxy = Proxy(kit, federation.table())
    proxy.fails_at = fails_at
    server = kit / "server"
    workspace = SimpleNamespace(
        get_root_dir=lambda: server, get_startup_kit_dir=lambda: server_kit(server / "startup")
    )
    context = SimpleNamespace(get_job_id=lambda: "job-1")
    own = SimpleNamespace(workspace=workspace, clients=[proxy], fl_ctx=context)
    monkeypatch.setattr(flare, "collab", own)
    try:
        flare.Coordinator(federation.table()).run()
    finally:
        proxy.close()
    return server / "fedlsvi" / "records"


def here(repeats: int, **how: Any) -> dict[str, Any]:
    """The same in this process, with all records at hand."""
    run = fedlsvi.offline(joined(20, 0), env=ENV, beta=0.3, progress=False)
    worlds = logged_worlds(joined(30, 7), like=ENV)
    found = estimate_value(run.policy, worlds, run.plan.features, repeats=repeats, seed=3, **how)
    return found.row()


def test_the_estimate_is_the_one_of_all_records_in_one_place(
    kit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = play(kit, monkeypatch)
    (found,) = evaluations.read(folder)["estimated"]
    wanted = here(4)
    assert found["data"] == ["south"]
    for name, number in wanted.items():
        if name not in ("scalars", "importance", "effective"):
            assert found[name] == pytest.approx(number, abs=1e-9), name
    assert found["importance"] is None  # it needs each episode's own ratio
    page = "".join(estimates(fedlsvi.load(folder), {}))
    assert "south" in page
    assert f"{found['value']:,.4g}" in page
    kept = (folder / evaluations.FILE).read_bytes()
    assert play(kit, monkeypatch) == folder  # a second job asks for nothing
    assert (folder / evaluations.FILE).read_bytes() == kept
    # what left is written down, apart from what left in learning
    site = kit / "fedlsvi" / "records"
    assert verify(site / closing_estimate.LEFT).scalars["Upload"] > 0
    left = [line["kind"] for line in lines(site / closing_estimate.LEFT)]
    assert left.count("Upload") == (4 + 1 + 3 * 4) * 4


def test_of_long_records_the_first_episodes_count(
    kit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = replace(FEDERATION, evaluate={"repeats": 0, "episodes": 10})
    (found,) = evaluations.read(play(kit, monkeypatch, short))["estimated"]
    assert found["episodes"] == 30
    assert found["low"] is found["behaviour_high"] is None
    logs = joined(30, 7)
    kept = np.zeros(len(logs["step"]), bool)
    for m in range(3):  # some episodes of the world are over before their first step
        begun = np.unique(logs["episode"][logs["agent"] == m])[:10]
        kept |= (logs["agent"] == m) & np.isin(logs["episode"], begun)
    first = {name: column[kept] for name, column in logs.items()}
    run = fedlsvi.offline(joined(20, 0), env=ENV, beta=0.3, progress=False)
    wanted = estimate_value(
        run.policy, logged_worlds(first, like=ENV), run.plan.features, repeats=0
    )
    assert found["value"] == pytest.approx(wanted.value, abs=1e-9)
    assert found["behaviour"] == pytest.approx(wanted.behaviour, abs=1e-9)


@pytest.mark.parametrize("fails_at", [14, 40])
def test_an_evaluation_that_was_broken_off_is_asked_for_again(
    fails_at: int, kit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same models, so that the site tells nothing that it has not told."""
    with pytest.raises(FedLSVIError):
        play(kit, monkeypatch, fails_at=fails_at)
    assert not evaluations.read(kit / "server" / "fedlsvi" / "records")["estimated"]
    (found,) = evaluations.read(play(kit, monkeypatch))["estimated"]
    assert found["low"] == pytest.approx(here(4)["low"], abs=1e-9)


def test_records_that_have_changed_meanwhile_are_not_evaluated(
    kit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a server that asks with another V: nobody answers one step under two models."""
    with pytest.raises(FedLSVIError):
        play(kit, monkeypatch, fails_at=40)
    write_records(joined(25, 8), kit / "others.parquet")
    with refused(TransportError, "no-answer"):
        play(kit, monkeypatch)
    (kit / "fedlsvi" / "records" / "evaluated.log").unlink()
    assert evaluations.read(play(kit, monkeypatch))["estimated"]


def test_one_model_for_each_step_of_a_pass(tmp_path: Path) -> None:
    def frame(h: int, fill: float, number: int = 5) -> bytes:
        return encode(Model(h, np.full(3, fill), np.ones(3)), Address(1, 9, number, 1, 0, 2))

    book = AnsweredModels(tmp_path)
    for h in (2, 1):
        book.check(0, frame(h, 0.1))
        book.check(1, frame(h, 0.2))
    again = AnsweredModels(tmp_path)  # after a restart
    again.check(0, frame(2, 0.1, number=8))
    for book_ in (book, again):
        with refused(MessageRefused, "evaluated-before", "step 2"):
            book_.check(0, frame(2, 0.2))
    path = tmp_path / "evaluated.log"
    path.write_bytes(path.read_bytes()[:-5])  # a kill left the last record unfinished
    AnsweredModels(tmp_path).check(1, frame(1, 0.3))


def test_passes_have_numbers_of_their_own() -> None:
    passes = [Pass(), Pass(most=True), Pass(-2.0), Pass(2.0), Pass(behaviour=True)]
    passes += [Pass(draw=k, **own) for k in range(3)
               for own in ({}, {"most": True}, {"behaviour": True})]  # fmt: skip
    assert len({one.number for one in passes}) == len(passes)


def test_what_cannot_end_with_an_estimate_is_refused(
    kit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (kit / "fedlsvi.toml").write_text('agents = 3\ndata = "log.parquet"\n')
    with refused(TransportError, "site-refused", "held_out"):
        play(kit, monkeypatch)
    for table, code in (
        (3, "not-a-table"),
        ({"repeat": 3}, "unknown-key"),
        ({"repeats": -1}, "bad-repeats"),
        ({"episodes": 0}, "bad-episodes"),
    ):
        with refused(FedLSVIError, code):
            replace(FEDERATION, evaluate=table).check(3)  # type: ignore[arg-type]
    played = Federation("wards", 40, 3, 12, one_hot=True, evaluate={})
    played.check(3)
    for own in ({"min_round": 5}, {"aggregation": "secure"}):
        with refused(InvalidSetting, "evaluate-unprotected"):
            replace(played, settings=own).check(3)
