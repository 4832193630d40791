"""A server that asks sites for other things than Algorithm 1 does, on real endpoints."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import problems
from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.core.statistics import pack
from fedlsvi.core.trigger import schedule
from fedlsvi.errors import DamagedFile, MessageRefused
from fedlsvi.features import TableFeatures
from fedlsvi.privacy import noise
from fedlsvi.protocol.messages import Explore, Keep, Model, Start, Stop
from fedlsvi.protocol.plan import make_plan
from fedlsvi.remote.closing_estimate import estimate_id
from fedlsvi.remote.codec import Failure
from fedlsvi.remote.endpoint import Endpoint
from fedlsvi.remote.federation import Federation
from fedlsvi.remote.journal import Journal
from fedlsvi.remote.release_log import RELEASES, ReleaseLog, releases
from fedlsvi.remote.site import open_books
from fedlsvi.remote.site_settings import SiteSettings
from fedlsvi.storage import files
from site_endpoints import SITES, Sites, as_bytes, failed, refusals

PROBLEM = problems.one_hot()


def plan(**options: Any) -> Any:
    about = {"gamma": 60.0, "beta": 0.5, "lam": 0.5, "stationary": False, "aggregation": "secure"}
    learner = FedLSVI(n_agents=3, **about | options)
    return make_plan(learner.settings, PROBLEM.envs, 60, 3, features=PROBLEM.features)


@pytest.fixture
def sites(tmp_path: Path) -> Any:
    made = Sites(plan(), tmp_path)
    yield made
    made.close()


def close_to(read: np.ndarray, true: Any) -> np.ndarray:
    """Which entries the server has read right."""
    return np.abs(read - true) < 1e-6


def test_sites_that_are_asked_the_same_can_be_added(sites: Sites) -> None:
    sites.agreed()
    read = sites.total(sites.all(Stop(20)))
    assert close_to(read, np.sum([sites.true(c, 20) for c in range(SITES)], axis=0)).all()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_longer_round_of_the_victim_alone_is_noise(sites: Sites, restarts: bool) -> None:
    """Stop(50) to one site, Stop(2) to the others: 50 episodes of the one, all but alone."""
    sites.agreed()
    if restarts:
        sites.restart()
    ends = [2, 50, 2]
    read = sites.total([sites.ask(c, Stop(t)) for c, t in enumerate(ends)])
    true = np.sum([sites.true(c, t) for c, t in enumerate(ends)], axis=0)
    assert not close_to(read, true).any()


def test_another_model_for_the_victim_is_noise_from_then_on(sites: Sites) -> None:
    """Its V would be a question of the server's choice: Σφ V(x') over the victim alone, once what
    the others send under w = 0 is known."""
    sites.agreed()
    H = sites.p.horizon
    uploads = sites.all(Stop(20))
    total = sites.total(uploads)
    sites.gram[H - 1] += total[: sites.p.dim]
    honest = sites.model(H)
    sites.w[H - 1, 0] = 0.5
    other = sites.model(H)
    answers = [sites.ask(c, other if c == 1 else honest) for c in range(SITES)]
    visits = sites.total(answers)[: sites.p.dim]
    assert not close_to(visits.sum(), 3 * 20)
    assert close_to(visits, visits.round()).mean() < 0.5  # counts would be whole


def test_a_digest_survives_snapshots_and_restarts(sites: Sites) -> None:
    """A site that restarts within a round, or goes back to a snapshot, masks like the others."""
    sites.agreed()
    sites.synchronise(10)
    assert sites.all(Keep(10)) == [None] * SITES
    w, gram = sites.w.copy(), sites.gram.copy()
    second = sites.synchronise(25, between=lambda h: sites.restart(h % SITES))
    model = sites.w.tobytes()
    sites.w, sites.gram, sites.round = w, gram, 2  # the server resumes from its checkpoint
    sites.restart(0, 2)
    sites.agreed(10)
    again = sites.synchronise(25, between=lambda h: sites.restart((h + 1) % SITES))
    assert as_bytes(again) == as_bytes(second)
    assert sites.w.tobytes() == model


# jobs that differ

ONE = 1  # the site that is given another job


def other_features(sites: Sites) -> Any:
    """The plan of the same run for features that say nothing, in which all visits look alike."""
    flat = np.zeros((PROBLEM.one.n_states, PROBLEM.one.n_actions, sites.p.dim))
    flat[..., 0] = 1.0
    found = replace(sites.plan, features=TableFeatures(flat))
    assert found.parameters == sites.p
    return found


def given(sites: Sites, plan: Any, *which: int) -> None:
    """These sites are given another job; they begin again with it."""
    for c in which:
        sites.endpoints[c].close()
        sites.factories[c] = replace(sites.factories[c], plan=plan)
        sites.endpoints[c] = sites.factories[c]()


@pytest.mark.parametrize("restarts", [False, True])
def test_other_features_for_the_others_are_noise(sites: Sites, restarts: bool) -> None:
    """All but one are given features in which their own data say nothing: what they add is known,
    and the rest of the sum would be that one's."""
    given(sites, other_features(sites), 0, 2)
    sites.agreed()
    if restarts:
        sites.restart()
    read, t = sites.total(sites.all(Stop(20))), 20
    known = np.zeros(sites.p.dim)
    known[0] = 2 * t
    assert not close_to(read[: sites.p.dim] - known, sites.true(ONE, t)[: sites.p.dim]).any()


def test_no_snapshot_goes_on_with_other_features(sites: Sites) -> None:
    """What was asked until then was alike, and the rounds after it would be of one site's data."""
    sites.agreed()
    sites.synchronise(10)
    assert sites.all(Keep(10)) == [None] * SITES
    given(sites, other_features(sites), 0, 2)
    sites.agreed(10)
    visits = sites.total(sites.all(Stop(30)))[: sites.p.dim]
    assert close_to(visits, visits.round()).mean() < 0.5  # counts would be whole


CHANGES = {
    "episodes": 41, "horizon": 4, "dim": 9, "seed": 3, "one_hot": False, "nonnegative": True,
    "simplex": True, "reward_range": [0.0, 2.0], "features": {"name": "own"}, "logged": 3,
    "settings": {"beta": 0.4}, "algorithm": "fed-lsvi", "n_states": 5, "n_actions": 4,
    "action_names": ["b", "a", "c"],
}  # fmt: skip
MAY = {
    "name": "other", "retry": {"deadline": 9.0}, "max_agents": 3, "evaluate": {"repeats": 3},
    "revoked": "list", "removed": ["east"],
}  # fmt: skip


def test_every_key_of_a_job_is_part_of_what_sites_agree_on() -> None:
    """But for those that may change within a run, and those of the server. A new key is one or the
    other."""
    job = Federation(
        "wards", 40, 3, 12, one_hot=True, algorithm="pevi", n_actions=3, n_states=4,
        features={"name": "one-hot"}, settings={"beta": 0.3}, action_names=["a", "b", "c"],
    )  # fmt: skip
    assert CHANGES.keys() | MAY.keys() == job.table().keys()
    for key, value in (CHANGES | MAY).items():
        changed = replace(job, **{key: value})
        assert (changed.agreed == job.agreed) == (key in MAY), key
    estimates = [estimate_id(replace(job, evaluate=own), 3) for own in (None, {}, {"episodes": 9})]
    assert estimates[0] == ""
    assert len(set(estimates)) == 3


# counts that are the site's own


def test_a_round_that_the_server_invents_is_refused(
    sites: Sites, caplog: pytest.LogCaptureFixture
) -> None:
    """Back to a snapshot under another number, one more episode at the victim: the difference of
    two uploads would be that episode."""
    sites.agreed()
    sites.synchronise(10)
    assert sites.all(Keep(10)) == [None] * SITES
    for k in (1, 3, 7777):
        assert sites.ask(1, Stop(20), k) == Failure("MessageRefused")
        sites.turns[1] = (sites.turns[1][0], sites.turns[1][1] - 1)
    assert refusals(caplog) == {"other-round"}
    sites.synchronise(20)
    caplog.clear()
    sites.round = 7777
    start = Start(
        sites.w, pack(sites.gram, sites.p.packing), sites.p.gamma, sites.p.signed_beta, 60, 10
    )
    assert failed(sites.all(start))
    assert refusals(caplog) == {"other-round"}


@pytest.mark.parametrize("begin", [0, 10], ids=["from the beginning", "from a snapshot"])
def test_a_sum_is_answered_once(sites: Sites, begin: int, caplog: pytest.LogCaptureFixture) -> None:
    """However a server gets back to where it was: the same request has the same content again,
    another end or another V is refused, although all sites are asked alike and have new keys."""
    models = {0: (sites.w.copy(), sites.gram.copy(), 1)}
    sites.agreed()
    sites.synchronise(10)
    models[10] = sites.w.copy(), sites.gram.copy(), 2
    assert sites.all(Keep(10)) == [None] * SITES
    sites.synchronise(30)
    end, d, H = (10 if begin == 0 else 30), sites.p.dim, sites.p.horizon

    def back() -> None:
        sites.restart()
        (w, gram, sites.round) = models[begin]
        sites.w, sites.gram = w.copy(), gram.copy()
        sites.agreed(begin)

    back()
    again = sites.total(sites.all(Stop(end)))
    back()
    assert sites.total(sites.all(Stop(end))).tobytes() == again.tobytes()
    back()
    assert failed(sites.all(Stop(end + 1)))
    assert refusals(caplog) == {"answered-before"}
    for question in range(d):  # one V after another: 0 at step H − 1, but for one pair
        caplog.clear()
        back()
        sites.gram[-1] += sites.total(sites.all(Stop(end)))[:d]
        sites.w[-1] = 0.0
        sites.w[-1, question] = 1.0
        assert failed(sites.all(sites.model(H)))
        assert refusals(caplog) == {"answered-before"}


FLOORS = [("float", "stepwise"), ("exact", "stepwise"), ("float", "one-trip")]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(("aggregation", "exchange"), FLOORS)
def test_a_floor_is_no_difference_of_two_ends(
    aggregation: str, exchange: str, restarts: bool, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Nothing is masked, but rounds have at least 20 episodes. Stop(20), from the beginning again,
    Stop(21): the difference of the two would be the one pair that the last episode visited."""
    about = {"min_round": 20, "aggregation": aggregation, "exchange": exchange}
    sites = Sites(plan(**about), tmp_path)

    def upload(t: int) -> Any:
        if restarts:
            sites.restart(1)
        assert begin(sites, 1) is None
        return sites.ask(1, Stop(t))

    try:
        first = upload(20)
        assert upload(21) == Failure("MessageRefused")
        assert refusals(caplog) == {"answered-before"}
        for again in (upload(20), upload(20)):
            assert again.gram.tobytes() == first.gram.tobytes()
            assert again.b.tobytes() == first.b.tobytes()
    finally:
        sites.close()


def begin(sites: Sites, c: int) -> Any:
    """A server begins at one site, whose sums are not masked."""
    p = sites.p
    gram = pack(sites.gram, p.packing).copy()
    return sites.ask(c, Start(sites.w.copy(), gram, p.gamma, p.signed_beta, p.episodes))


@pytest.mark.parametrize("aggregation", ["float", "exact"])
def test_under_a_floor_each_response_is_for_one_model(
    aggregation: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Σφ V(x') of the same 20 episodes under one V after another is what a floor is to hide too."""
    sites = Sites(plan(min_round=20, aggregation=aggregation), tmp_path)
    H, d, answered = sites.p.horizon, sites.p.dim, []
    try:
        for question in range(3):
            assert begin(sites, 1) is None
            upload: Any = sites.ask(1, Stop(20))
            w = (np.arange(d) == question).astype(float)
            answered.append(sites.ask(1, Model(H, w, sites.gram[-1] + upload.gram.sum(axis=0))))
        refusal = Failure("MessageRefused")
        assert [answer == refusal for answer in answered] == [False, True, True]
        assert refusals(caplog) == {"answered-before"}
    finally:
        sites.close()


def floored(tmp_path: Path) -> Sites:
    """A run with a floor at site 1, kept after 20 of its episodes."""
    sites = Sites(plan(min_round=15, aggregation="float"), tmp_path)
    assert begin(sites, 1) is None
    one_round(sites, 20)
    assert sites.ask(1, Keep(20)) is None
    return sites


def one_round(sites: Sites, t: int) -> list[bytes]:
    """Of site 1 alone, as Algorithm 1 has it; what it sent."""
    sent, upload = [], sites.ask(1, Stop(t))
    for h in range(sites.p.horizon, 0, -1):
        sent.append(upload.gram.tobytes() + upload.b.tobytes())  # type: ignore[union-attr]
        sites.gram[h - 1] += upload.gram.sum(axis=0)  # type: ignore[union-attr]
        sites.w[h - 1] = upload.b.sum(axis=0) / sites.gram[h - 1]  # type: ignore[union-attr]
        upload = sites.ask(1, sites.model(h))
    assert upload is None
    sites.round, sites.t = sites.round + 1, t
    return sent


def back_to(sites: Sites, t: int, w: np.ndarray, gram: np.ndarray, round_: int) -> Any:
    sites.w, sites.gram, sites.round, sites.t = w.copy(), gram.copy(), round_, t
    p, packed = sites.p, pack(gram, sites.p.packing).copy()
    return sites.ask(1, Start(w.copy(), packed, p.gamma, p.signed_beta, p.episodes, t))


def test_under_a_floor_kills_of_either_side_end_with_the_same_bits(tmp_path: Path) -> None:
    """A server that resumes from its checkpoint, and a site from its journal, in the middle of a
    round that was answered in part: the same again, and on to the end."""
    sites = floored(tmp_path)
    w, gram = sites.w.copy(), sites.gram.copy()
    try:
        second = one_round(sites, 40)
        for restarts in (False, True):
            if restarts:
                sites.restart(1)
            assert back_to(sites, 20, w, gram, 2) is None
            assert one_round(sites, 40) == second
        sites.restart(1)
        assert sites.ask(1, Keep(40)) is None
        assert len(one_round(sites, 60)) == sites.p.horizon
    finally:
        sites.close()


def test_under_a_floor_no_snapshot_is_the_way_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """From a snapshot, an end one episode later; and from one whose record of releases is lost."""
    sites = floored(tmp_path)
    w, gram = sites.w.copy(), sites.gram.copy()
    try:
        assert sites.ask(1, Stop(40)) != Failure("MessageRefused")
        assert back_to(sites, 20, w, gram, 2) is None
        assert sites.ask(1, Stop(41)) == Failure("MessageRefused")
        assert refusals(caplog) == {"answered-before"}
        sites.endpoints[1].close()
        shutil.rmtree(tmp_path / "agents-1-1.secrets")
        with refused(DamagedFile, "releases-lost"):
            sites.factories[1]()
    finally:
        sites.close()


@pytest.mark.parametrize("stop", [20, 21])
def test_another_name_of_the_federation_is_no_way_back(
    stop: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The same settings and seed under another name are the same episodes: the same sum comes
    again, as after a disk was lost elsewhere, and no other one."""
    sites, sent = Sites(plan(min_round=15, aggregation="float")), []
    try:
        for name, t in (("wards", 20), ("wards-2", stop)):
            sites.endpoints[1].close()
            secrets = tmp_path / "fedlsvi" / ".secrets" / name
            (tmp_path / "fedlsvi" / name).mkdir(parents=True)
            journal = Journal(tmp_path / "fedlsvi" / name / "journal", False, secrets=secrets)
            make = sites.factories[1].cohort
            sites.endpoints[1] = Endpoint(make, sites.p, sites.run, journal)
            assert begin(sites, 1) is None
            sent.append(sites.ask(1, Stop(t)))
        assert (sent[1] == Failure("MessageRefused")) == (stop == 21)
        assert refusals(caplog) == ({"answered-before"} if stop == 21 else set())
    finally:
        sites.close()


def test_a_journal_under_a_floor_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    """Its snapshots do not say what was asked, and nothing says what has left: what leaves from
    then on is answered once."""
    sites = floored(tmp_path)
    w, gram = sites.w.copy(), sites.gram.copy()
    sites.endpoints[1].close()
    shutil.rmtree(tmp_path / "agents-1-1.secrets")
    manifest = tmp_path / "agents-1-1" / "000000020.json"
    table = json.loads(manifest.read_text())
    del table["plain"]["transcript"]
    files.write_json(manifest, {key: table[key] for key in table if key != "sha256"})
    try:
        sites.endpoints[1] = sites.factories[1]()
        for stop, answered in ((40, True), (40, True), (41, False)):
            assert back_to(sites, 20, w, gram, 2) is None
            assert (sites.ask(1, Stop(stop)) != Failure("MessageRefused")) == answered
    finally:
        sites.close()


def test_a_request_that_comes_again_is_answered_with_the_same_bytes(sites: Sites) -> None:
    sites.agreed()
    uploads = sites.all(Stop(20))
    for c in range(SITES):
        assert sites.again(c, Stop(20)).words.tobytes() == uploads[c].words.tobytes()  # type: ignore[union-attr]
    sites.restart()
    for c in range(SITES):
        assert sites.again(c, Stop(20)).words.tobytes() == uploads[c].words.tobytes()  # type: ignore[union-attr]


def test_a_record_that_a_kill_left_unfinished_is_cut_off(tmp_path: Path) -> None:
    log = ReleaseLog(7, (0, 2), tmp_path, durable=False)
    log.use(1, 2, bytes(32), b"content".ljust(32))
    whole = (tmp_path / RELEASES).read_bytes()
    (tmp_path / RELEASES).write_bytes(whole + whole[:17])
    assert releases(tmp_path) == [((7, 0, 2), (1, 2), bytes(32), b"content".ljust(32))]
    assert (tmp_path / RELEASES).read_bytes() == whole
    assert len(ReleaseLog(7, (0, 2), tmp_path)) == 1
    assert len(ReleaseLog(8, (0, 2), tmp_path)) == 0


def test_a_site_has_the_same_numbers_in_all_of_a_run(tmp_path: Path) -> None:
    """Where data are records, another number would bring other noise for the same sums."""
    ReleaseLog(7, (0, 2), tmp_path, durable=False).use(1, 2, bytes(32), bytes(32))
    with refused(MessageRefused, "answered-before"):
        ReleaseLog(7, (2, 2), tmp_path)


# models that are questions


def question(sites: Sites, pair: int) -> Start:
    """An agent whose Λ is huge, but for one pair, signals if and only if it visits that pair."""
    gram = np.full((sites.p.horizon, sites.p.dim), 1e90)
    gram[:, pair] = 1e-90
    return Start(np.zeros_like(sites.w), gram, sites.p.gamma, sites.p.signed_beta, sites.p.episodes)


def test_a_model_is_no_question_about_one_pair(
    sites: Sites, caplog: pytest.LogCaptureFixture
) -> None:
    """Beginning again and again, a server could ask for one pair after another."""
    told = [
        pair
        for pair in range(sites.p.dim)
        if sites.ask(1, question(sites, pair)) is None and sites.ask(1, Explore(5)).t > 0  # type: ignore[union-attr]
    ]
    assert told == []
    assert refusals(caplog) == {"bad-model"}


def test_a_model_only_grows_by_what_the_round_can_bring(
    sites: Sites, caplog: pytest.LogCaptureFixture
) -> None:
    """Within a run: Λ is never below what it was, nor above what all agents can have seen, nor are
    weights larger than any targets allow. Then the run goes on."""
    sites.agreed()
    sites.synchronise(10)
    d, H = sites.p.dim, sites.p.horizon
    before, uploads = sites.gram[-1].copy(), sites.all(Stop(30))
    total = sites.total(uploads)
    true, w = before + total[:d], total[d:] / (before + total[:d])
    own = np.flatnonzero(sites.true(0, 10)[:d])[0]
    for gram, weights in (
        (before - 0.5 * (np.arange(d) == own), w),  # less than there was
        (true + 1.0, w),  # d more visits than episodes
        (np.where(np.arange(d) == own, true, 1e90), w),
        (true, w + 100.0),
    ):
        for c in range(SITES):
            epoch, number = sites.turns[c]
            assert sites.ask(c, Model(H, weights, gram)) == Failure("MessageRefused"), gram - true
            sites.turns[c] = epoch, number
    assert refusals(caplog) == {"bad-model"}
    sites.gram[-1], sites.w[-1] = true, w
    assert sites.total(sites.all(sites.model(H)))[:d].sum() == pytest.approx(3 * 20)


def test_no_refusal_says_what_a_site_has_seen(sites: Sites) -> None:
    """A site that refused a Λ without its own share would answer whether that share is larger than
    a number of the server's choice. Nothing is sent after the model of step 1, so the server can go
    back and ask again: with bisection it would have every count."""
    d, H = sites.p.dim, sites.p.horizon

    def to_the_last_model() -> tuple[np.ndarray, np.ndarray]:
        sites.w[:], sites.gram[:], sites.round = 0.0, sites.p.lam, 1
        sites.agreed()
        uploads = sites.all(Stop(20))
        for h in range(H, 1, -1):
            sites.add(h, uploads)
            uploads = sites.all(sites.model(h))
        return sites.gram[0].copy(), sites.total(uploads)[:d]

    before, total = to_the_last_model()
    read = np.zeros(d)
    for pair in range(d):
        most = int(total[pair].round())
        while read[pair] < most:
            middle, turn = (int(read[pair]) + most) // 2, sites.turns[1]
            gram = before + np.where(np.arange(d) == pair, middle, total)
            if sites.ask(1, Model(1, np.zeros(d), gram)) == Failure("MessageRefused"):
                read[pair], sites.turns[1] = middle + 1, turn
            else:
                most = middle
                to_the_last_model()
    assert total.sum() == 3 * 20
    assert not read.any()  # nothing is refused, whatever the site has seen


@pytest.mark.parametrize("given", [{"gamma": 1.0, "rounds": 6}, {"gamma": "auto"}], ids=str)
def test_rounds_of_a_public_schedule_reveal_nothing_by_their_ends(
    given: dict[str, Any], tmp_path: Path
) -> None:
    """With gamma = 1 and a number of rounds, or where nothing is said of ends, all agents signal
    when the schedule says so, whatever they have seen and whichever model they were sent."""
    heard = []
    for seed, pair in ((3, 0), (4, 1)):
        public = plan(**given)
        made = Sites(replace(public, seed=seed), tmp_path / str(seed))
        made.agreed()
        heard.append([])
        K = public.parameters.rounds
        for t in schedule(60, K)[:-1]:
            assert failed(made.all(Stop(int(t) + 1)))  # the end that is agreed on, and no other
            made.turns = [(epoch, number - 1) for epoch, number in made.turns]
            signals = made.all(Explore(int(t) - made.t))
            heard[-1].append([(s.t, s.agents.tolist(), s.steps.tolist()) for s in signals])
            uploads = made.all(Stop(int(t)))
            for h in range(made.p.horizon, 0, -1):
                total = made.total(uploads)[: made.p.dim]
                made.gram[h - 1] += total
                made.w[h - 1, pair] = 0.5  # the server would steer agents
                uploads = made.all(made.model(h))
            made.round, made.t = made.round + 1, int(t)
        made.close()
    assert heard[0] == heard[1]
    assert len(heard[0]) == K - 1


# backups


def test_a_journal_that_outlived_its_record_of_releases_is_refused(
    sites: Sites, tmp_path: Path
) -> None:
    """A site's disk is lost and its journal comes back from a backup: it would play the round again
    and hide other content behind noise or masks of which it does not know that they were used. So
    it is if the record is there, but older than the journal."""
    sites.agreed()
    sites.synchronise(10)
    older = (tmp_path / "agents-0-0.secrets" / RELEASES).read_bytes()
    sites.synchronise(20)
    assert sites.all(Keep(20)) == [None] * SITES
    (tmp_path / "agents-0-0.secrets" / RELEASES).write_bytes(older)
    shutil.rmtree(tmp_path / "agents-1-1.secrets")
    for c in (0, 1):
        with refused(DamagedFile, "releases-lost"):
            sites.restart(c)


def test_what_a_site_backs_up_does_not_say_what_has_left(tmp_path: Path) -> None:
    """A backup of a federation's folder holds neither keys nor the record of releases, so restoring
    it takes nothing back."""
    home = tmp_path / "fedlsvi" / "wards"
    home.mkdir(parents=True)
    journal, audit = open_books(SiteSettings(env=None, durable=False), home)
    journal.close()
    audit.close()
    assert not journal.secrets.is_relative_to(home)
    assert journal.secrets == tmp_path / "fedlsvi" / ".secrets" / "wards"


# other sites


@pytest.mark.parametrize("exchange", ["stepwise", "one-trip"])
def test_noise_is_drawn_once_however_often_a_server_asks(
    exchange: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Explore(0) may come any number of times, and how long drawing takes depends on what is drawn:
    it is not measured twice."""
    about = {"gamma": "auto", "rounds": 3, "policy": "explore", "exchange": exchange}
    sites, drawn = Sites(plan(**about, privacy={"epsilon": 5.0, "delta": 1e-6}), tmp_path), []
    sample = noise.randomly_rounded

    def counted(*about: Any) -> Any:
        drawn.append(about)
        return sample(*about)

    monkeypatch.setattr(noise, "randomly_rounded", counted)
    try:
        sites.agreed()
        for again in range(4):
            assert sites.ask(1, Explore(0)) is not None
            if again == 0:
                first = len(drawn)
        assert len(drawn) == first > 0
    finally:
        sites.close()


@dataclass(frozen=True)
class Named:
    """A site whose certificate has a name, as on FLARE."""

    name: str
    fewest: int = 0

    def sign(self, content: bytes) -> bytes:
        return self.name.encode()

    def verify(self, first: int, content: bytes, proof: bytes) -> str:
        return proof.decode()

    def admit(self, names: Sequence[str]) -> None:
        """Whoever they are."""


@pytest.mark.parametrize("then", ["south", "west"])
@pytest.mark.parametrize("private", [False, True])
def test_a_sum_is_answered_for_one_set_of_sites(
    then: str, private: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A server begins again with another site in the place of south. If that one works with the
    server, the difference of the two sums would be what south has sent, and the noise of the others
    would be gone from it."""
    privacy = {"epsilon": 5.0, "delta": 1e-6}
    about = {"gamma": "auto", "rounds": 3, "policy": "explore", "privacy": privacy}
    sites = Sites(plan(**about if private else {}), tmp_path)
    end = int(schedule(60, 3, sites.p.min_round)[0])

    def sum_with(*names: str) -> list[Any]:
        for c, name in enumerate(names):
            sites.endpoints[c].close()
            sites.factories[c] = replace(sites.factories[c], identity=Named(name))
            if name == "west":
                sites.factories[c] = replace(sites.factories[c], folder=tmp_path / "west")
                (tmp_path / "west").mkdir()
            sites.endpoints[c] = sites.factories[c]()
        sites.agreed()
        return sites.all(Stop(end))

    try:
        assert not failed(sum_with("east", "north", "south"))
        again = sum_with("east", "north", then)
        assert failed(again[:2]) == (then == "west")
        assert refusals(caplog) == ({"answered-before"} if then == "west" else set())
    finally:
        sites.close()


def test_a_site_may_ask_for_more_sites(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """[require] sites: with few, those that work with the server may be all but one."""
    sites = Sites(plan(), tmp_path)
    try:
        sites.endpoints[0].close()
        sites.factories[0] = replace(sites.factories[0], identity=Named("east", fewest=4))
        sites.endpoints[0] = sites.factories[0]()
        assert sites.ask(0, sites.start()) == Failure("MessageRefused")
        assert refusals(caplog) == {"too-few-sites"}
    finally:
        sites.close()
