"""Processes of a secure federation on NVIDIA FLARE, killed in the middle of synchronisations."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from parties import FEDERATION, processes

import fedlsvi
from fedlsvi import FedLSVI
from fedlsvi.envs import record_episodes, write_records
from fedlsvi.errors import MessageRefused
from fedlsvi.remote import codec as wire
from fedlsvi.remote.audit import verify
from fedlsvi.remote.flare import project
from fedlsvi.remote.flare.demo import free_port
from fedlsvi.remote.masking import KEYS
from fedlsvi.remote.release_log import releases
from fedlsvi.remote.site import SECRETS
from fedlsvi.remote.site_settings import environment
from fedlsvi.storage import files
from holding import Hold
from patience import PATIENCE
from repeats import only_ci

# FLARE's threads use what its libraries call deprecated
pytestmark = pytest.mark.filterwarnings("ignore")


def inside_a_synchronisation(folder: Path, site: str) -> bool:
    """Whether the last request in a dead site's journal is one between two uploads."""
    newest = max((project.site_folder(folder, site) / "journal").glob("0*.log")).read_bytes()
    kind, step = 0, 0
    with suppress(ValueError, MessageRefused):  # nothing asked yet, or not wholly written down
        kind, step, _ = wire.peek(next(wire.split(newest[newest.rindex(wire.MAGIC) :])))
    return kind == wire.STOP or (kind == wire.MODEL and step > 1)


OUTAGES = (
    # at the upload of which step, whose job is killed, and who is killed altogether
    (6, ("localhost", "site-2"), ()),
    (4, ("localhost",), ("site-1",)),
    (8, (), ("localhost", "site-1", "site-3")),
)


@only_ci
def test_kills_inside_synchronisations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGKILL to the processes of jobs, to FLARE's server and to sites, eleven in three outages,
    all in the middle of a synchronisation and each followed by the job again, the last with new
    certificates for everybody: the final model has the bits of the undisturbed run without
    masks, no mask has hidden two contents, and the logs of what left agree with the ledger. The
    third site has a log and nothing to play in, and the others have a policy for every episode."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    world = {"n_states": 6, "n_actions": 3, "horizon": 10, "seed": 1}
    env, hold = {"name": "random-mdp"} | world, Hold(tmp_path / "hold")
    federation = replace(
        FEDERATION, name="kills", horizon=10, dim=18, one_hot=True, episodes=400, logged=25,
        n_actions=3, settings={"gamma": 40.0, "aggregation": "secure", "diversity": 0.2},
        retry={"deadline": PATIENCE, "attempts": 1},
    )  # fmt: skip
    # first, so that what the sites run is compiled
    made = environment(env)
    log = record_episodes(made, 25, agent=2)
    learner = FedLSVI(n_agents=3, gamma=40.0, aggregation="exact", stationary=False, diversity=0.2)
    here = learner.learn(
        [made, made, None], federation.episodes, federation.seed, data=[None, None, log],
        progress=False,
    )  # fmt: skip
    sites, own = ("site-1", "site-2", "site-3"), {"agents": 1, "env": env}
    obeys = {"entry": "holding:named", "world": "random-mdp", "hold": str(hold.folder)} | world
    settings = dict.fromkeys(sites, own) | {
        "site-1": {"agents": 1, "env": obeys},
        "site-3": {"agents": 1, "data": str(tmp_path / "log.parquet")},
    }
    folder = project.init(tmp_path / "project", federation, settings, port=free_port())
    write_records(log, tmp_path / "log.parquet")
    kills = 0
    try:
        project.launch(folder)
        for step, jobs, parties in OUTAGES:
            hold.order(step, uploads=2 if kills else 3)  # the logs are round 0
            number = project.start(folder, PATIENCE)
            hold.wait()
            found = {name: processes(folder, name) for name in ("localhost", *sites)}
            targets = [found[name]["job"] for name in jobs]
            targets += [pid for name in parties for pid in found[name].values()]
            for pid in targets:
                os.kill(pid, signal.SIGKILL)
            kills += len(targets)
            assert any(inside_a_synchronisation(folder, site) for site in sites)
            hold.release()
            assert project.progress(folder)["episodes"] < federation.episodes
            if len(parties) == 3:  # they come back with other certificates
                project.stop(folder, kill=True)
                project.clean(folder)
                folder, missing = project.renew(folder, tmp_path / "renewed")
                assert missing == []
                project.launch(folder)
            elif parties:
                project.stop(folder, parties, kill=True)
                project.launch(folder, parties)
            if "localhost" not in parties:
                assert project.wait(folder, number, PATIENCE) != "FINISHED:COMPLETED"
        number = project.start(folder, PATIENCE)
        assert project.wait(folder, number, PATIENCE) == "FINISHED:COMPLETED"
    finally:
        project.stop(folder, kill=True)
        project.clean(folder)
    assert kills >= 10
    run = fedlsvi.load(project.server_folder(folder))
    assert run.w.tobytes() == here.w.tobytes()
    assert run.gram_packed.tobytes() == here.gram_packed.tobytes()
    ledger = files.read_json(project.server_folder(folder) / "ledger.json", {str: object})
    for site in sites:
        home = project.site_folder(folder, site)
        sent = verify(home / "sent.jsonl", ledger["every"]["up_stats"])
        assert sent.again > 0
        assert "Upload" not in sent.scalars
        secrets = home.parent / SECRETS / home.name
        assert not (secrets / KEYS).exists()  # the run has ended
        stages = [stage for _, stage, _, _ in releases(secrets)]
        assert len(set(stages)) == len(stages)
        assert {h for _, h in stages} == set(range(1, 11))
        assert len(stages) == (run.rounds + 2) * 10  # the log's round and the pass at the end, too
        left = [json.loads(row) for row in (home / "sent.jsonl").read_text().splitlines()]
        bytes_of = {(row["round"], row["step"], row["digest"]) for row in left
                    if row["kind"] == "MaskedUpload"}  # fmt: skip
        assert len(bytes_of) == len(stages)
