"""Further jobs of the parties on NVIDIA FLARE: other settings, a site that is held, jobs that no
party may run, sites with logs, a private run."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parties import FEDERATION, SITES, await_rounds, in_this_process, processes, submit

import fedlsvi
import mailing
from canary import PATTERN, Marked, contents, leaks, mark
from fedlsvi import PEVI, FedLSVI
from fedlsvi.algorithms.fitted_q_evaluation import estimate_value
from fedlsvi.cli import main
from fedlsvi.envs import RandomMDP, logged_worlds, record_episodes, write_records
from fedlsvi.envs.allowed import restrict
from fedlsvi.features import FourierFeatures
from fedlsvi.policy import Policy
from fedlsvi.privacy.noise import honest_sites, noise_of
from fedlsvi.protocol.cohorts import cohort_of
from fedlsvi.protocol.protected import ProtectedInProcess
from fedlsvi.protocol.session import FederatedPlayer, Session
from fedlsvi.remote import codec as wire
from fedlsvi.remote.audit import verify
from fedlsvi.remote.federation import Federation
from fedlsvi.remote.flare import project
from fedlsvi.remote.flare.log import line
from fedlsvi.remote.flare.provision import flare
from fedlsvi.remote.masking import KEYS
from fedlsvi.remote.release_log import releases
from fedlsvi.remote.site import SECRETS
from fedlsvi.remote.site_settings import environment
from fedlsvi.storage import checkpoint, evaluations, settings_file
from holding import Hold
from patience import PATIENCE, wait_until
from problems import half
from recorded import recorded
from repeats import only_ci, repeats
from variants import MIXED, assert_kept, paid

# FLARE's threads use what its libraries call deprecated
pytestmark = pytest.mark.filterwarnings("ignore")

AWAY = replace(
    FEDERATION, name="away", episodes=6000, settings={"gamma": 60.0},
    retry={"deadline": 15.0, "attempts": 1, "absent": "carry"},
)  # fmt: skip
PLAYED: dict[str, dict[str, Any]] = {
    "together": {
        "gamma": 30.0, "aggregation": "secure", "overshoot": "keep", "min_round": 6, "cap": 1.5,
    },
    **{f"varied-{i}": paid(own, 3, 5, 36 + 8) for i, own in enumerate(MIXED[:2])},
}  # fmt: skip
PLAYED = dict(list(PLAYED.items())[: repeats(0, len(PLAYED))])
"""The settings of further runs, by the names of their federations. Each setting by itself, and on a
desk all of them, are tested over frames, which are the same bytes."""

SPOILT = [
    # what is changed in a job, and what its administrator is told
    ("code", "server: BYOC not permitted"),
    ("class", "{number}/log.txt in the kit of a site"),
    ("server", "the server refused a class that the job names: Component 'fedlsvi.FedLSVI'"),
][: repeats(2, 3)]

UNANSWERED = "agent 1 carried (no answer to"


def made(name: str) -> Federation:
    """The federation of one of the further runs."""
    short = 60 if "aggregation" in PLAYED[name] else FEDERATION.episodes
    return replace(FEDERATION, name=name, episodes=short, settings=PLAYED[name])


@pytest.fixture(scope="module")
def others(finished: Path, spoilt: Any) -> Path:
    """More jobs of the same parties, at once with those that no party may run: where the server
    keeps their runs."""
    for number in submit(finished, *map(made, PLAYED)):
        assert project.wait(finished, number, PATIENCE) == project.COMPLETED
    return project.server_folder(finished).parent


@pytest.mark.parametrize("name", PLAYED)
def test_the_run_is_the_one_of_this_process(others: Path, name: str) -> None:
    """Triggers, episodes beyond the signal that are kept, and secure sums, which are those of
    "exact" in this process: to the bit, and in what was sent."""
    settings, federation = PLAYED[name], made(name)
    if settings.get("aggregation") == "secure":
        federation = replace(federation, settings=settings | {"aggregation": "exact"})
    server, ends, ledger = in_this_process(federation)
    run = fedlsvi.load(others / name)
    assert [record.last for record in run.records] == ends
    assert run.w.tobytes() == server.w.tobytes()
    assert run.gram_packed.tobytes() == server.gram.tobytes()
    if "overshoot" in settings:
        assert sum(record.overshoot for record in run.records) > 0
    if "varied" in name:
        assert_kept(run, MIXED[int(name[-1])])
    for category in ("init", "up_stats", "down_model"):
        if federation.settings == settings:
            assert run.ledger.scalars[category] == ledger.scalars[category]
    for site in SITES:  # nothing was sent twice where nothing was killed
        assert verify(others.parents[1] / site / "fedlsvi" / name / "sent.jsonl").again == 0


@pytest.mark.parametrize("name", [name for name in PLAYED if "aggregation" in PLAYED[name]])
def test_secure_sums_send_nothing_unmasked(others: Path, name: str) -> None:
    """Keys signed with the certificates of three kits, masked uploads, and no log that has an
    upload without a mask."""
    run = fedlsvi.load(others / name)
    bound = run.bounds["scalars"]
    assert bound.measured == bound.bound
    for site in SITES:
        sent = verify(others.parents[1] / site / "fedlsvi" / name / "sent.jsonl")
        # Λ and b, what tells the noise of the targets, and the last pass
        assert sent.scalars["MaskedUpload"] == run.rounds * 5 * (36 + 8 + 2) + 5 * 8
        assert "Upload" not in sent.scalars


@pytest.fixture(scope="module")
def spoilt(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Jobs that no party may run, as the administrator could submit them: by what was changed,
    their numbers."""
    assert not list((finished / "job").glob("**/*.py"))
    connection, numbers = project.console(finished, PATIENCE), {}
    for change, _ in SPOILT:
        part, own = ("server", "Coordinator") if change == "server" else ("client", "Site")
        job = tmp_path_factory.mktemp("spoilt") / change
        shutil.copytree(finished / "job" / "trial", job)
        meta = (job / "meta.json").read_text()
        assert '"trial"' in meta
        (job / "meta.json").write_text(meta.replace('"trial"', '"spoilt"'))
        (config,) = job.glob(f"**/config_fed_{part}.json")
        if change == "code":
            (config.parent.parent / "custom").mkdir()
            (config.parent.parent / "custom" / "extra.py").write_text("print('here')")
        else:
            named = config.read_text()
            ours = f"fedlsvi.remote.flare.job.{own}"
            assert ours in named
            config.write_text(named.replace(ours, "fedlsvi.FedLSVI"))
        numbers[change] = connection.submit(job)
    connection.close()
    return numbers


@only_ci  # one job more; what a site says is read in test_operating.py
def test_the_reason_of_a_failure_reaches_the_terminal(
    finished: Path, spoilt: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """A site whose environment is not the federation's: the operator reads which site and what kind
    of error, in one sentence; the text of the error stays at the site."""
    settings = finished / "kits" / "site-3" / "local" / "fedlsvi.toml"
    before = settings.read_text()
    assert "horizon = 5" in before
    settings.write_text(before.replace("horizon = 5", "horizon = 4"))
    assert main(["federate", "start", str(finished), "--wait", str(PATIENCE)]) == 1
    settings.write_text(before)
    sentence = (
        "site site-3 cannot take part: join failed with InvalidEnvironment; "
        "the log at that site has the text"
    )
    assert sentence in capsys.readouterr().out
    logs = [path.read_text() for path in (finished / "kits" / "site-3").glob("*/log.txt")]
    assert any("has horizon 4, but the federation agreed on 5" in log for log in logs)
    assert main(["federate", "status", str(finished)]) == 0
    said = capsys.readouterr().out
    assert sentence in said
    assert "connected: site-1, site-2, site-3" in said
    assert f"episode {FEDERATION.episodes} of {FEDERATION.episodes}" in said


@pytest.mark.parametrize(("change", "said"), SPOILT)
def test_a_job_with_code_or_other_classes_is_refused(
    change: str, said: str, finished: Path, spoilt: dict[str, str]
) -> None:
    """Even from the administrator: no party runs what came with a job. Who submitted it is told
    what was refused, or where that stands."""
    number = spoilt[change]
    assert project.wait(finished, number, PATIENCE) != project.COMPLETED
    assert said.format(number=number) in project.reason(finished, number)
    if change == "class":
        log = (finished / "kits" / "site-1" / number / "log.txt").read_text()
        assert "Component 'fedlsvi.FedLSVI'" in log


def test_an_administrator_elsewhere_hears_of_rounds_and_notes(
    finished: Path, others: Path, tmp_path: Path
) -> None:
    """With the settings and the administrator's kit alone: what the records have, and whether the
    server could read a single episode."""
    (tmp_path / "kits").mkdir()
    (tmp_path / "kits" / project.ADMIN).symlink_to(finished / "kits" / project.ADMIN)
    connection = project.console(finished, PATIENCE)
    for name in ("trial", *PLAYED):
        rows = (others / name / "records.jsonl").read_text().splitlines()
        last = json.loads(rows[-1])
        notes = [line(note) for row in rows for note in json.loads(row)["notes"]]
        shown = PLAYED.get(name, {}).get("aggregation") != "secure"
        single = any(row["first"] == row["last"] for row in map(json.loads, rows)) and shown
        found = connection.progress(name)
        assert (found["rounds"], found["episodes"]) == (last["k"], last["last"])
        told = [note for note in found["notes"] if "a single episode" in note]
        if name != "trial":  # its first job was killed, and told it
            assert len(told) == single
        assert [note for note in found["notes"] if note not in told][: len(notes)] == notes
    connection.close()
    text = (finished / "federation.toml").read_text()
    (tmp_path / "federation.toml").write_text(text)
    assert project.progress(tmp_path)["rounds"] is None
    assert project.status(tmp_path)["episodes"] == FEDERATION.episodes


@only_ci
def test_a_site_that_is_held_is_carried_and_taken_back(finished: Path) -> None:
    """A site's process is held for some rounds, as by a network that fails, and goes on. No job has
    to be started again. All features sum to one, so 1ᵀΛ1 − λd counts episodes: none is missing and
    none is there twice. A busy machine may be late with any site, also at the end: of one that is
    away then, the last checkpoint says up to which episode Λ_h has it. Another site takes its time
    until all this has happened: 600 uploads of 2 seconds are longer than anybody waits here."""
    hold = Hold(finished.parent / "hold")
    hold.order(step=3, uploads=3)
    hold.slow(2.0)
    (number,) = submit(finished, AWAY)
    others = project.server_folder(finished).parent
    records = others / "away" / "records.jsonl"
    hold.wait()
    held = processes(finished, "site-2", number)["job"]
    before = records.read_text().count(UNANSWERED)
    os.kill(held, signal.SIGSTOP)
    try:
        hold.release()
        carried = lambda: records.read_text().count(UNANSWERED) > before  # noqa: E731
        wait_until(carried, "the site that is held is not carried")
        await_rounds(records, len(records.read_text().splitlines()) + 2)
    finally:
        os.kill(held, signal.SIGCONT)
    lost = records.read_text().rindex(UNANSWERED)
    back = lambda: "agent 1 taken back" in records.read_text()[lost:]  # noqa: E731
    wait_until(back, "the site that goes on is not taken back")
    hold.slow(0)
    assert project.wait(finished, number, PATIENCE) == project.COMPLETED
    rows = (others / "away" / "records.jsonl").read_text().splitlines()
    notes = [note for row in rows for note in json.loads(row)["notes"] if "agent 1 " in note]
    assert any(UNANSWERED in note for note in notes)
    assert any("agent 1 carried, away since round" in note for note in notes)
    lost = next(i for i, note in enumerate(notes) if UNANSWERED in note)
    assert any("agent 1 taken back" in note for note in notes[lost:])
    gram = fedlsvi.load(others / "away").gram
    episodes = gram.sum(axis=(1, 2)) - 8 * AWAY.parameters(3).lam
    last = checkpoint.newest(others / "away", lambda note: None)
    assert last is not None
    upto = [upto for _, upto, _ in last[0].plain["transport"]["carried"]["away"].values()]
    upto += [[AWAY.episodes] * AWAY.horizon] * (3 - len(upto))
    np.testing.assert_allclose(episodes, np.sum(upto, axis=0), rtol=1e-12)


@only_ci
def test_sites_with_logs_learn_what_pooled_logs_give(finished: Path) -> None:
    """Three sites with a log and no environment, one with a CSV file: w is that of all records in
    one place, each site keeps the policy, and no reward left. So is the estimate that the job ends
    with, from records of which nobody learned."""
    env = RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1)
    logs = [record_episodes(env, 30 + m, agent=m, ends=[1]) for m in range(3)]
    for log in logs:
        log["reward"] = mark(log["reward"])
    federation = Federation(
        "records", episodes=32, horizon=3, dim=12, one_hot=True, algorithm="pevi", n_actions=3,
        settings={"beta": 0.3}, retry=FEDERATION.retry, evaluate={"repeats": 2},
    )  # fmt: skip
    held_out = [record_episodes(env, 20 + m, seed=9, agent=m, ends=[1]) for m in range(3)]
    for log in held_out:
        log["reward"] = mark(log["reward"])
    before = {}
    for m, (site, log, kind) in enumerate(
        zip(SITES, logs, ("parquet", "csv", "parquet"), strict=True)
    ):
        settings = finished / "kits" / site / "local" / "fedlsvi.toml"
        write_records(log, settings.with_name(f"log.{kind}"))
        write_records(held_out[m], settings.with_name("held-out.parquet"))
        before[settings] = settings.read_text()
        settings.write_text(f'data = "log.{kind}"\nheld_out = "held-out.parquet"\n')
    (number,) = submit(finished, federation)
    assert project.wait(finished, number, PATIENCE) == project.COMPLETED
    for settings, text in before.items():
        settings.write_text(text)
    folder = project.server_folder(finished).parent / "records"
    run = fedlsvi.load(folder)
    one = {name: np.concatenate([log[name] for log in logs]) for name in logs[0]}
    one["episode"] = np.concatenate([log["episode"] + 100 * m for m, log in enumerate(logs)])
    pooled = fedlsvi.offline(one, env=env, beta=0.3, progress=False)
    here = fedlsvi.offline(logs, env=env, beta=0.3, progress=False)
    assert run.algorithm == "pevi"
    assert np.abs(run.w - pooled.w).max() < 1e-9
    assert run.w.tobytes() == here.w.tobytes()
    assert run.rounds == 1
    for category in ("init", "up_stats", "down_model"):
        assert run.ledger.scalars[category] == here.ledger.scalars[category]
    for site in SITES:
        learned = Policy.load(finished / "kits" / site / "fedlsvi" / "records" / "policy")
        assert np.array_equal(learned.table, pooled.policy.table)
    (found,) = evaluations.read(folder)["estimated"]
    wanted = estimate_value(
        here.policy, logged_worlds(held_out, like=env), here.plan.features, repeats=0
    )
    for name in ("value", "unseen", "pessimistic", "optimistic", "behaviour", "episodes"):
        assert found[name] == pytest.approx(getattr(wanted, name), abs=1e-9), name
    assert 0.0 <= found["low"] < found["high"] <= 3.0
    assert found["data"] == list(SITES)
    assert leaks({"server": contents(folder)}) == {}


WARD = RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1)
FLAT = {"name": "table", "table": np.eye(12)[np.zeros((4, 3), int)].tolist()}
"""Features in which all visits look alike."""


def over_logs(name: str, aggregation: str) -> Federation:
    """A job in which all sites learn from logs, in one trip."""
    return Federation(
        name, episodes=30, horizon=3, dim=12, one_hot=True, algorithm="pevi", n_actions=3,
        n_states=4, features={"name": "one-hot"}, retry=FEDERATION.retry,
        settings={"beta": 0.3, "aggregation": aggregation, "exchange": "one-trip"},
    )  # fmt: skip


@pytest.fixture
def ward_logs(finished: Path) -> Iterator[list[dict[str, np.ndarray]]]:
    """The sites have records, and nothing else, until the test ends."""
    logs = [record_episodes(WARD, 30 - 5 * m, seed=m, agent=m, ends=[1]) for m in range(3)]
    before = {}
    for site, log in zip(SITES, logs, strict=True):
        settings = finished / "kits" / site / "local" / "fedlsvi.toml"
        write_records(log, settings.with_name("ward.parquet"))
        before[settings] = settings.read_text()
        settings.write_text('data = "ward.parquet"\n')
    yield logs
    for settings, text in before.items():
        settings.write_text(text)


@only_ci  # over frames: tests/mail/test_same_bits.py
@pytest.mark.parametrize("aggregation", ["exact", "secure"])
def test_logs_at_sites_in_one_process_and_by_mail_have_the_same_bits(
    aggregation: str, finished: Path, ward_logs: list[Any], tmp_path: Path
) -> None:
    job = over_logs(f"logs-{aggregation}", aggregation)
    (number,) = submit(finished, job)
    assert project.wait(finished, number, PATIENCE) == project.COMPLETED
    run = fedlsvi.load(project.server_folder(finished).parent / job.name)
    worlds = logged_worlds(ward_logs, horizon=3, n_states=4, n_actions=3)
    learner = PEVI(3, **job.settings)
    here = learner.learn(worlds, job.episodes, features="one-hot", cohorts=3, progress=False)
    own = {key: value for key, value in job.settings.items() if key != "exchange"}
    study = mailing.study_of(tmp_path, settings={"lam": learner.settings.lam, **own})
    by_mail = mailing.merged(study, tmp_path, dict(zip(mailing.NAMES, ward_logs, strict=True)))
    for other in (here, by_mail):
        assert run.w.tobytes() == other.w.tobytes()
        assert run.gram_packed.tobytes() == other.gram_packed.tobytes()
    sent = [verify(finished / "kits" / site / "fedlsvi" / job.name / "sent.jsonl").scalars
            for site in SITES]  # fmt: skip
    assert all(("MaskedUpload" in own) == (aggregation == "secure") for own in sent)


@only_ci  # over frames: test_deviating_server.py; in this process: test_other_sites.py
def test_a_job_with_an_app_for_each_site_reads_no_site(
    finished: Path, ward_logs: list[Any], tmp_path: Path
) -> None:
    """The administrator gives two sites features in which their part of a secure sum is known. All
    sites answer, and what the server has is no sum."""
    job = replace(over_logs("apart", "secure"), seed=5)  # not answered before
    folder = flare("write_job")(job.table(), tmp_path, len(SITES))
    shutil.copytree(folder / "app", folder / "other")
    config = folder / "other" / "config" / "config_fed_client.json"
    table = json.loads(config.read_text())
    table["components"][0]["args"]["federation"]["features"] = FLAT
    config.write_text(json.dumps(table))
    meta = json.loads((folder / "meta.json").read_text())
    meta["deploy_map"] = {"app": ["server", SITES[0]], "other": list(SITES[1:])}
    (folder / "meta.json").write_text(json.dumps(meta))
    connection = project.console(finished, PATIENCE)
    number = connection.submit(folder)
    connection.close()
    assert project.wait(finished, number, PATIENCE) != project.COMPLETED
    reason = project.reason(finished, number)
    for site in SITES:
        sent = verify(finished / "kits" / site / "fedlsvi" / job.name / "sent.jsonl")
        assert "MaskedUpload" in sent.scalars, reason
    assert "sum" in reason


@only_ci  # over frames: test_recovery.py
def test_a_site_with_a_log_alone_beside_sites_that_play(finished: Path) -> None:
    """Site-1 plays and has a log, site-2 plays and may not do everything everywhere, site-3 has a
    log and no world: the run is the one in this process, and neither what FLARE sent from site-1
    nor what the server keeps has anything of a log, whose states and rewards are all marked."""
    world, horizon = Marked(5, 8), 5
    logs, _ = recorded(world, [9, 0, 12], horizon, world.n_actions)
    for log in logs:
        if log is not None:
            for name in ("observation", "next_observation", "reward"):
                log[name] = mark(log[name].astype(float))
    phi = {"name": "fourier", "n_frequencies": 2}
    federation = Federation(
        "beside", episodes=40, horizon=horizon, dim=12, seed=2, features=phi, logged=12,
        n_actions=3, settings={"gamma": 9.0}, retry=FEDERATION.retry,
    )  # fmt: skip
    overheard = finished.parent / "overheard-beside"
    plays = '[env]\nentry = "canary:make"\nhorizon = 5\ndim = 8\n'
    own = [f'data = "log.parquet"\n{plays}overheard = "{overheard}"\n',
           f"{plays}masked = true\n", 'data = "log.parquet"\n']  # fmt: skip
    before = {}
    for site, log, text in zip(SITES, logs, own, strict=True):
        settings = finished / "kits" / site / "local" / "fedlsvi.toml"
        before[settings] = settings.read_text()
        settings.write_text(text)
        if log is not None:
            write_records(log, settings.with_name("log.parquet"))
    (number,) = submit(finished, federation)
    learner = FedLSVI(3, gamma=9.0, stationary=False)
    here = learner.learn(
        [world, restrict(world, half), None], 40, 2, data=logs, features=FourierFeatures(2),
        progress=False,
    )  # fmt: skip
    assert project.wait(finished, number, PATIENCE) == project.COMPLETED
    for settings, text in before.items():
        settings.write_text(text)
    folder = project.server_folder(finished).parent / "beside"
    run = fedlsvi.load(folder)
    assert [r.last for r in run.records] == [r.last for r in here.records]
    assert run.w.tobytes() == here.w.tobytes()
    assert run.policy_w.tobytes() == here.policy_w.tobytes()
    assert run.bounds["scalars"].holds
    counted = run.ledger.by_agent["up_stats"].tolist()
    for site, of_site in zip(SITES, counted, strict=True):
        log = finished / "kits" / site / "fedlsvi" / "beside" / "sent.jsonl"
        assert verify(log, of_site).uncounted == []
    sent = overheard.read_bytes()
    assert sent.count(wire.MAGIC) > 50
    assert PATTERN in (finished / "kits" / "site-1" / "local" / "log.parquet").read_bytes()
    assert leaks({"overheard": sent, "server": contents(folder)}) == {}
    learned = Policy.load(finished / "kits" / "site-3" / "fedlsvi" / "beside" / "policy")
    at = np.array([0.3])
    assert learned.action(at, step=1) == here.policy.action(at, step=1)


@only_ci  # over frames: tests/remote/test_secure_sums.py
def test_secure_sums_with_a_floor_and_one_hot_features(finished: Path) -> None:
    """What an operator tries first: honest sites are refused in no round, and the model is that of
    exact sums in this process."""
    env = {"name": "random-mdp", "n_states": 4, "n_actions": 3, "horizon": 3, "seed": 1}
    settings = {"aggregation": "secure", "min_round": 6, "gamma": 30.0}
    federation = Federation(
        "floor", episodes=60, horizon=3, dim=12, one_hot=True, n_actions=3,
        features={"name": "one-hot"}, retry=FEDERATION.retry, settings=settings,
    )  # fmt: skip
    before = {}
    for site in SITES:
        path = finished / "kits" / site / "local" / "fedlsvi.toml"
        before[path] = path.read_text()
        path.write_text(settings_file.dump({"env": env, "require": {"min_round": 6}}))
    (number,) = submit(finished, federation)
    ended = project.wait(finished, number, PATIENCE)
    for path, text in before.items():
        path.write_text(text)
    assert ended == project.COMPLETED
    run = fedlsvi.load(project.server_folder(finished).parent / "floor")
    here = FedLSVI(3, **settings | {"aggregation": "exact"}).learn(
        environment(env), 60, federation.seed, progress=False
    )
    lengths = [record.length for record in run.records]
    assert len(lengths) > 2
    assert min(lengths) >= 6
    assert [record.last for record in run.records] == [record.last for record in here.records]
    assert run.w.tobytes() == here.w.tobytes()


@only_ci
@pytest.mark.parametrize("exchange", ["one-trip", "stepwise"])
def test_a_private_run_has_the_noise_of_its_sites_and_no_other(
    finished: Path, exchange: str
) -> None:
    """Three sites on finite states. With the secrets that they have while they play, this process
    adds the same noise and has the same model to the bit; nobody released a round twice, and when
    the run has ended no site has a secret of it."""
    world = {"n_states": 4, "n_actions": 3, "horizon": 3, "seed": 1}
    env, hold = {"name": "random-mdp"} | world, Hold(finished.parent / f"hold-{exchange}")
    obeys = {"entry": "holding:named", "world": "random-mdp", "hold": str(hold.folder)} | world
    name, steps = f"private-{exchange}", [0] if exchange == "one-trip" else [3, 2, 1]
    federation = Federation(
        name, episodes=40, horizon=3, dim=12, one_hot=True, n_states=4, n_actions=3,
        features={"name": "one-hot"}, retry=FEDERATION.retry,
        settings={"exchange": exchange, "aggregation": "secure", "rounds": 5,
                  "privacy": {"epsilon": 2.0, "delta": 1e-6}},
    )  # fmt: skip
    before = {}
    for site in SITES:
        settings = finished / "kits" / site / "local" / "fedlsvi.toml"
        before[settings] = settings.read_text()
        own = {"env": obeys if site == "site-1" else env, "require": {"epsilon": 2.0}}
        settings.write_text(settings_file.dump(own))
    hold.order(step=1, uploads=2)
    (number,) = submit(finished, federation)
    hold.wait()
    homes = [finished / "kits" / site / "fedlsvi" / SECRETS / name for site in SITES]
    keys = []
    for home in homes:
        (kept,) = home.glob("noise-*.json")
        masks = home / KEYS
        assert (kept.stat().st_mode | masks.stat().st_mode) & 0o777 == 0o600
        keys.append(json.loads(kept.read_text())["secret"])
    hold.release()
    assert project.wait(finished, number, PATIENCE) == project.COMPLETED
    for settings, text in before.items():
        settings.write_text(text)
    run = fedlsvi.load(project.server_folder(finished).parent / name)
    plan, p = federation.plan(environment(env), 3), federation.parameters(3)
    sites = ProtectedInProcess([cohort_of(plan, m, m + 1) for m in range(3)], p)
    assert p.privacy is not None
    enough = honest_sites(3, p.privacy["colluders"])
    for m, (home, key) in enumerate(zip(homes, keys, strict=True)):
        noise = sites.protections[m].noise
        assert noise is not None
        noise.rows = [noise_of(p.release, bytes.fromhex(key), m, enough)]
        assert key.encode() not in contents(home.parent.parent)
        assert not (home / KEYS).exists()
        stages = [stage for _, stage, _, _ in releases(home)]
        assert stages == [(k, h) for k in range(1, 6) for h in steps]
    player = FederatedPlayer(p, sites, values=federation.values(p))
    ends = [record.last for record in Session(player).rounds()]
    assert [record.last for record in run.records] == ends
    assert run.w.tobytes() == player.server.w.tobytes()
    assert run.epsilon_spent == 2.0
