"""A job that ends with an estimate from records at its sites: the server's and the site's part,
called as FLARE calls them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from kits import engine, server_kit
from streams import all_removed, arrives, kept, sleepers

import fedlsvi
from expecting import refused
from fedlsvi.algorithms.fitted_q_evaluation import estimate_value
from fedlsvi.algorithms.shared.evaluation_site import Pass
from fedlsvi.cli import main
from fedlsvi.core.privacy_accountant import composed, mu_of
from fedlsvi.envs import RandomMDP, logged_worlds, record_episodes, write_records
from fedlsvi.errors import FedLSVIError, InvalidSetting, MessageRefused, TransportError
from fedlsvi.protocol.messages import Model
from fedlsvi.remote import closing_estimate
from fedlsvi.remote.account import Account
from fedlsvi.remote.audit import lines, verify
from fedlsvi.remote.codec import Address, encode
from fedlsvi.remote.evaluation import AnsweredModels
from fedlsvi.remote.federation import Federation
from fedlsvi.remote.flare import job as flare
from fedlsvi.remote.flare.log import ASK_PAUSE, ASK_STATUS
from fedlsvi.remote.identity import run_identities
from fedlsvi.report.estimates import estimates
from fedlsvi.storage import evaluations
from patience import PATIENCE

ENV = RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1)
FEDERATION = Federation(
    "records", episodes=40, horizon=3, dim=12, one_hot=True, algorithm="pevi", n_actions=3,
    settings={"beta": 0.3}, evaluate={"repeats": 4}, retry={"deadline": PATIENCE, "attempts": 1},
)  # fmt: skip


def joined(episodes: int, seed: int) -> dict[str, Any]:
    """The records of three agents in one table."""
    logs = [record_episodes(ENV, episodes + m, seed=seed, agent=m, ends=[1]) for m in range(3)]
    found = {name: np.concatenate([log[name] for log in logs]) for name in logs[0]}
    return found | {"agent": np.repeat(np.arange(3), [len(log["step"]) for log in logs])}


class Proxy:
    """What FLARE calls a site with; the site's own context is in force while it answers. Sites are
    asked by threads at once and have one context each, so that they answer one after the other."""

    name = "south"
    turn = Lock()

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
            with self.turn:
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
    return play_at([kit], kit / "server", monkeypatch, federation, fails_at)


def play_at(kits: list[Path], server: Path, monkeypatch: pytest.MonkeyPatch,
            federation: Federation = FEDERATION, fails_at: int = 0) -> Path:  # fmt: skip
    """The job at several sites."""
    proxies = [Proxy(kit, federation.table()) for kit in kits]
    for m, proxy in enumerate(proxies):
        proxy.fails_at, proxy.name = fails_at, f"south{m or ''}"
        proxy.context = engine(kits[m], proxy.name)
    workspace = SimpleNamespace(
        get_root_dir=lambda: server, get_startup_kit_dir=lambda: server_kit(server / "startup")
    )
    commands: dict[str, Any] = {}
    server_engine = SimpleNamespace(register_app_command=commands.__setitem__)
    context = SimpleNamespace(
        get_job_id=lambda: "job-1", get_engine=lambda: server_engine,
        get_run_abort_signal=lambda: None,
    )  # fmt: skip
    own = SimpleNamespace(workspace=workspace, clients=proxies, fl_ctx=context)
    monkeypatch.setattr(flare, "collab", own)
    try:
        flare.Coordinator(federation.table()).run()
    finally:
        for proxy in proxies:
            proxy.close()
    assert commands[ASK_STATUS]("", {}, None)["state"] == "complete"
    assert commands[ASK_PAUSE]("", {}, None) == {"pausing": False}  # there is no run any more
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
        if name not in ("scalars", "effective") and not name.startswith(("importance", "robust")):
            assert found[name] == pytest.approx(number, abs=1e-9), name
    for name in ("importance", "robust"):  # they need each episode's own ratio
        assert found[name] is None
        assert wanted[name] is not None
    assert "episode" in found["importance_missing"]
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


def test_passes_have_the_numbers_that_sites_wrote_down() -> None:
    kinds = ("value", "most", "behaviour", "lower", "upper")
    assert [Pass(kind).number for kind in kinds] == [0, 1, 2, 3, 4]
    assert [Pass(kind, 2).number for kind in kinds[:3]] == [15, 16, 17]


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
    Federation("wards", 40, 3, 12, one_hot=True, evaluate={}).check(3)
    for share in (0.0, 1.0, "half"):
        with refused(InvalidSetting, "bad-share"):
            replace(FEDERATION, evaluate={"share": share}, settings=PRIVATE).check(3)


PRIVATE = {"beta": 0.3, "aggregation": "exact", "privacy": {"epsilon": 8.0, "delta": 1e-6}}


def test_learning_and_estimate_share_one_budget(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Squares of μ add up to what the job may spend; a restarted site has the same noise."""
    federation = replace(FEDERATION, settings=PRIVATE, evaluate={"share": 0.4})
    learned = federation.parameters(3).privacy["epsilon"]
    estimated = closing_estimate.evaluation_of(federation, 3).privacy["epsilon"]
    assert composed([learned, estimated], 1e-6) == pytest.approx(8.0)
    assert mu_of(estimated, 1e-6) ** 2 == pytest.approx(0.4 * mu_of(8.0, 1e-6) ** 2)
    folder = play(kit, monkeypatch, federation)
    (found,) = evaluations.read(folder)["estimated"]
    assert found["epsilon"] == pytest.approx(estimated)
    assert found["low"] is found["importance"] is None
    assert fedlsvi.load(folder).parameters.privacy["epsilon"] == pytest.approx(learned)
    (folder / evaluations.FILE).unlink()
    play(kit, monkeypatch, federation)
    assert evaluations.read(folder)["estimated"] == [found]


def left(kit: Path) -> list[str]:
    """Hashes of the sums of an estimate that have left a site."""
    path = kit / "fedlsvi" / "records" / closing_estimate.LEFT
    return [line["digest"] for line in lines(path) if line["kind"] == "Upload"]


def test_another_estimate_of_the_same_run_spends_again(
    kit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another number of episodes makes passes of their own, with new noise: a server that asks for
    one after the other, and answers with the same models, would average the noise away. Each is
    booked, and none leaves beyond the limit."""
    job = replace(FEDERATION, settings=PRIVATE, evaluate={"share": 0.4})
    limited = "[require]\ntotal_epsilon = 13.0\ndelta = 1e-6\n"
    (kit / "fedlsvi.toml").write_text((kit / "fedlsvi.toml").read_text() + limited)
    folder, account = play(kit, monkeypatch, job), kit / "fedlsvi"
    counts, bookings = [len(left(kit))], []
    # this server does not send the models of before, so that only the first sum of the other leaves
    for episodes, code in ((50, "no-answer"), (60, "site-refused")):
        (folder / evaluations.FILE).unlink(missing_ok=True)
        with refused(TransportError, code):
            play(kit, monkeypatch, replace(job, evaluate={"share": 0.4, "episodes": episodes}))
        counts.append(len(set(left(kit))))
        bookings.append([booking.epsilon for booking in Account(account).bookings])
    assert counts == [12, 13, 13]
    assert bookings == [[8.0, 8.0]] * 2
    play(kit, monkeypatch, job)  # the same again
    assert len(set(left(kit))) == 13
    assert Account(account).spent(1e-6) == pytest.approx(composed([8.0, 8.0], 1e-6))


SECURE = replace(FEDERATION, settings={"beta": 0.3, "aggregation": "secure", "min_round": 5})


@pytest.fixture
def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Kits of three sites with the records of one agent each."""
    kits = []
    for m in range(3):
        kits.append(tmp_path / f"site{m}")
        kits[m].mkdir()
        for name, episodes, seed in (("log", 20, 0), ("others", 30, 7)):
            table = joined(episodes, seed)
            own = {key: part[table["agent"] == m] for key, part in table.items() if key != "agent"}
            write_records(own, kits[m] / f"{name}.parquet")
        (kits[m] / "fedlsvi.toml").write_text(
            'agents = 1\ndurable = false\ndata = "log.parquet"\nheld_out = "others.parquet"\n'
        )
    identities = dict(zip((str(kit) for kit in kits), run_identities(range(3)), strict=True))
    monkeypatch.setattr(
        flare, "SiteCertificate", lambda startup, name, *own: identities[str(startup.parent)]
    )
    return kits


def test_masks_of_an_estimate_are_of_one_policy(
    three: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site that was asked other things while it learned has another policy: what is added to its
    sums then is noise."""
    opened, asked = flare.open_passes, list[bytes]()

    def open_passes(job: Any, own: Any, policy: Any, first: int, *about: Any) -> Any:
        *rest, learned = about
        asked.append(learned)
        return opened(job, own, policy, first, *rest, learned if first else bytes(32))

    monkeypatch.setattr(flare, "open_passes", open_passes)
    with pytest.raises(FedLSVIError):
        play_at(three, tmp_path / "server", monkeypatch, SECURE)
    assert len(asked) == 3
    assert len(set(asked)) == 1  # that all were asked the same is known to them
    assert asked[0] not in (b"", bytes(32))


def test_sites_evaluate_with_secure_sums_and_a_floor(
    three: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three sites, of which the server sees sums alone: the estimate of all records in one place
    with the same floor."""
    folder = play_at(three, tmp_path / "server", monkeypatch, SECURE)
    (found,) = evaluations.read(folder)["estimated"]
    run = fedlsvi.offline(joined(20, 0), env=ENV, beta=0.3, min_round=5, progress=False)
    worlds = logged_worlds(joined(30, 7), like=ENV)
    wanted = estimate_value(run.policy, worlds, run.plan.features, repeats=0, min_round=5)
    for name in ("value", "unseen", "pessimistic", "optimistic", "behaviour"):
        assert found[name] == pytest.approx(getattr(wanted, name), abs=1e-6), name
    assert found["low"] < found["value"] < found["high"]


def test_the_server_has_a_report_of_records_it_never_saw(
    kit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many records there are, only the sites know; what Λ covers, the server knows too."""
    folder = play(kit, monkeypatch)
    assert main(["report", str(folder)]) == 0
    page = (folder / "report.html").read_text(encoding="utf-8")
    covered = page.partition("What the logs cover")[2].partition("</p>")[0]
    assert fedlsvi.load(folder).coverage.meaning() in covered
    assert "logged episode" not in covered


@pytest.mark.parametrize("where", ["", "fedlsvi/records/policy"])
def test_a_site_estimates_its_policy_from_another_log(
    where: str, kit: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As two messages recommend, on the kit or on the policy in it: the number is the one of all
    records in one place."""
    play(kit, monkeypatch, replace(FEDERATION, evaluate=None))
    (kit / "local").mkdir()
    shutil.copy(kit / "fedlsvi.toml", kit / "local")
    others = str(kit / "others.parquet")
    command = ["evaluate", str(kit / where), "--data", others, "--repeats", "0", "--format", "json"]
    capsys.readouterr()
    assert main(command) == 0
    found = json.loads(capsys.readouterr().out)
    for name in ("value", "pessimistic", "optimistic", "behaviour", "episodes"):
        assert found[name] == pytest.approx(here(0)[name], abs=1e-9), name


def test_the_engine_keeps_few_of_the_answers(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FLARE would keep each for a minute, with a thread that sleeps."""
    method, asked = Proxy.__getattr__, []

    def arriving(proxy: Proxy, name: str) -> Any:
        def call(content: bytes, proof: bytes) -> Any:
            answer = method(proxy, name)(content, proof)
            if name == "handle":
                asked.append(arrives(answer))
            return answer

        return call

    monkeypatch.setattr(Proxy, "__getattr__", arriving)
    with all_removed():
        others = set(sleepers())
        play(kit, monkeypatch)
        assert len(asked) > 60
        assert len(kept()) == len(set(sleepers()) - others) <= 3
