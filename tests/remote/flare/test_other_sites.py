"""Several jobs over the same records: what sums of several sets of sites reveal together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from kits import JOB, engine, server_kit, site_kit

from fedlsvi.envs import RandomMDP
from fedlsvi.errors import FedLSVIError, TransportError
from fedlsvi.logs.recording import record_episodes, write_records
from fedlsvi.remote import lost_bookings
from fedlsvi.remote.account import Account
from fedlsvi.remote.audit import UPLOADS, lines
from fedlsvi.remote.federation import Federation
from fedlsvi.remote.flare import job as flare
from fedlsvi.remote.flare.signing import Signer
from fedlsvi.remote.flare.transport import SignedSite
from patience import PATIENCE

ENV = RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1)
ALLOWS = "[require]\nother_sites = true\n"
OTHER_EPISODES = "[require]\nother_episodes = true\n"


class Proxy:
    """What FLARE calls a site with, as itself."""

    turn = Lock()

    def __init__(self, kit: Path, federation: Federation) -> None:
        self.site, self.name = flare.Site(federation.table()), kit.name
        self.context = engine(kit, kit.name)
        self.context.workspace.get_startup_kit_dir = lambda: site_kit(kit / "startup", kit.name)

    def __call__(self, **options: Any) -> Proxy:
        return self

    def __getattr__(self, method: str) -> Any:
        def call(content: bytes, proof: bytes) -> Any:
            with self.turn:
                before, flare.collab = flare.collab, self.context
                try:
                    return getattr(self.site, method)(content, proof)
                finally:
                    flare.collab = before

        return call


@pytest.fixture
def kits(tmp_path: Path) -> dict[str, Path]:
    found = {name: tmp_path / name for name in ("east", "north", "south", "west")}
    for m, kit in enumerate(found.values()):
        kit.mkdir()
        write_records(record_episodes(ENV, 20, seed=m, agent=m), kit / "log.parquet")
        (kit / "fedlsvi.toml").write_text('durable = false\ndata = "log.parquet"\n')
    return found


def job(name: str, episodes: int, **more: Any) -> Federation:
    """A job of secure sums over records."""
    settings = {"beta": 0.3, "aggregation": "secure", **more}
    return Federation(
        name, episodes=episodes, horizon=3, dim=12, one_hot=True, algorithm="pevi", n_actions=3,
        settings=settings, retry={"deadline": PATIENCE, "attempts": 1}, n_states=4,
        seed=len(name),
    )  # fmt: skip


def play(
    name: str, kits: list[Path], monkeypatch: pytest.MonkeyPatch, episodes: int = 20,
    others: dict[Path, dict[str, Any]] | None = None, **more: Any,
) -> None:  # fmt: skip
    """A job of secure sums over records, from its beginning to its end; `others` is what some sites
    are given instead."""
    federation = job(name, episodes, **more)
    proxies = [Proxy(kit, replace(federation, **(others or {}).get(kit, {}))) for kit in kits]
    server = kits[0].parent / "server"
    workspace = SimpleNamespace(
        get_root_dir=lambda: server, get_startup_kit_dir=lambda: server_kit(server / "startup")
    )
    unheard = SimpleNamespace(register_app_command=lambda *command: None)
    context = SimpleNamespace(
        get_job_id=lambda: "job-1", get_engine=lambda: unheard, get_run_abort_signal=lambda: None
    )
    own = SimpleNamespace(workspace=workspace, clients=proxies, fl_ctx=context)
    monkeypatch.setattr(flare, "collab", own)
    try:
        flare.Coordinator(federation.table()).run()
    finally:
        for proxy in proxies:
            for book in proxy.site._books or ():
                book.close()


def sums(kit: Path, name: str) -> int:
    """Uploads of a site in a job, by its own log."""
    return sum(line["kind"] in UPLOADS for line in lines(kit / "fedlsvi" / name / "sent.jsonl"))


def test_one_site_that_works_with_the_server_reads_no_other_from_several_jobs(
    kits: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """West works with the server. S(east, north), S(east, south) and S(north, south), each without
    what west knows, are three equations for three sites: ½ of the first two less the third is east
    alone. The second job over east's records gets nothing."""
    east, north, south, west = kits.values()
    (west / "fedlsvi.toml").write_text((west / "fedlsvi.toml").read_text() + ALLOWS)
    play("one", [east, north, west], monkeypatch)
    with pytest.raises(TransportError, match="MessageRefused"):
        play("second", [east, south, west], monkeypatch)
    with pytest.raises(TransportError, match="MessageRefused"):
        play("three", [north, south, west], monkeypatch)
    assert sums(east, "one") == sums(north, "one") == 3
    assert [sums(east, "second"), sums(north, "three")] == [0, 0]
    play("fourth", [east, north, west], monkeypatch)  # the same sites again
    assert [known.sites for known in Account(east / "fedlsvi").together] == [
        ("east", "north", "west")
    ]
    booked = Account(east / "fedlsvi").bookings
    assert [(b.federation, b.epsilon) for b in booked] == [
        (name, None) for name in ("one", "second", "fourth")
    ]


FLAT = {"name": "table", "table": np.eye(12)[np.zeros((4, 3), int)].tolist()}
"""Features in which all visits look alike: nothing is new in what such a site sends."""


@pytest.mark.parametrize(
    "other",
    [{"features": FLAT}, {"reward_range": [0.0, 1.0 + 1e-9]}, {"n_states": 0}],
    ids=["features", "rewards", "states"],
)
def test_no_site_can_be_given_another_job(
    other: dict[str, Any], kits: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job may carry an app for each site. Of sites that were given others, nothing can be added
    up: or the organiser would give all but one what makes their part of the sum known."""
    east, north, _, west = kits.values()
    with pytest.raises(FedLSVIError):
        play("one", [east, north, west], monkeypatch, others={east: other, west: other})
    play("second", [east, north, west], monkeypatch)


@pytest.mark.parametrize("hidden", [{}, {"aggregation": "float", "min_round": 5}])
def test_no_second_job_counts_one_patient_less(
    hidden: dict[str, Any], kits: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only north's records are that long: the sum over 30 episodes of each site less the one over
    29 would be north's last patient, whose records nobody else has seen."""
    north = kits.pop("north")
    write_records(record_episodes(ENV, 30, seed=9), north / "log.parquet")
    three = [kits["east"], north, kits["west"]]
    play("one", three, monkeypatch, episodes=30, **hidden)
    with pytest.raises(TransportError, match="MessageRefused"):
        play("second", three, monkeypatch, episodes=29, **hidden)
    assert [sums(north, "one"), sums(north, "second") if not hidden else 0] == [3, 0]
    play("third", three, monkeypatch, episodes=30, beta=0.5, **hidden)  # another question
    for kit in three:
        (kit / "fedlsvi.toml").write_text((kit / "fedlsvi.toml").read_text() + OTHER_EPISODES)
    play("fourth", three, monkeypatch, episodes=29, **hidden)
    assert [own.counted["episodes"] for own in Account(north / "fedlsvi").together] == [30, 29]


def test_a_site_that_refused_a_job_refuses_it_again(
    kits: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that asks the same process to join once more gets no further."""
    hidden = {"aggregation": "float", "min_round": 5}
    three = [kits[name] for name in ("east", "north", "west")]
    play("one", three, monkeypatch, episodes=20, **hidden)
    proxy = Proxy(three[0], job("second", 19, **hidden))
    signer = Signer(server_kit(three[0].parent / "startup"), "second", JOB)
    site: Any = SignedSite(proxy, signer, proxy.name)
    try:
        site(timeout=1.0).hello()
        for _ in range(2):
            with pytest.raises(FedLSVIError, match="MessageRefused"):
                site(timeout=1.0).join(0, 3)
    finally:
        for book in proxy.site._books:
            book.close()


def test_no_second_job_counts_one_patient_more(
    kits: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """East has one more patient since: the difference of two sums would be hers."""
    east, north, _, west = kits.values()
    play("one", [east, north, west], monkeypatch, episodes=40)
    write_records(record_episodes(ENV, 21, seed=0, agent=0), east / "log.parquet")
    with pytest.raises(TransportError, match="MessageRefused"):
        play("second", [east, north, west], monkeypatch, episodes=40)
    assert sums(east, "second") == 0
    counted = [own.counted["recorded episodes"] for own in Account(east / "fedlsvi").together]
    assert counted == [20]


def test_a_lost_account_forgets_no_sums(
    kits: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With whom the records were summed up is not known any more: a person has to say so."""
    east, north, _, west = kits.values()
    play("one", [east, north, west], monkeypatch)
    home = east / "fedlsvi"
    (home / "account.jsonl").unlink()
    for name, others in (("second", [north, west]), ("one", [north, west])):
        with pytest.raises(TransportError, match="DamagedFile"):
            play(name, [east, *others], monkeypatch)
    assert not (home / "account.jsonl").exists()
    lost_bookings.state(home, 0.0, 1e-6)
    play("second", [east, north, west], monkeypatch)


def test_a_site_may_allow_other_sites_and_noise_needs_no_leave(
    kits: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    east, north, south, west = kits.values()
    private = {"privacy": {"epsilon": 5.0, "delta": 1e-6}}
    play("one", [east, north, west], monkeypatch, **private)
    play("second", [east, south, west], monkeypatch, **private)
    assert Account(east / "fedlsvi").together == []
    for kit in kits.values():
        (kit / "fedlsvi.toml").write_text((kit / "fedlsvi.toml").read_text() + ALLOWS)
    play("three", [east, north, west], monkeypatch)
    play("fourth", [east, south, west], monkeypatch)
    assert len(Account(east / "fedlsvi").together) == 2


def test_keys_that_nobody_has_compared_are_named(
    kits: dict[str, Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    east, north, _, west = kits.values()
    play("one", [east, north, west], monkeypatch)
    unpinned = [r for r in caplog.records if getattr(r, "code", "") == "peer-not-pinned"]
    assert {r.args[0] for r in unpinned} == {"east", "north", "west"}  # type: ignore[index]
