"""Processes of a secure federation on NVIDIA FLARE, killed in the middle of synchronisations."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from parties import FEDERATION, processes, wait_for_step

import fedlsvi
from fedlsvi import FedLSVI
from fedlsvi.envs import record_episodes, write_records
from fedlsvi.errors import MessageRefused
from fedlsvi.remote import codec as wire
from fedlsvi.remote.audit import verify
from fedlsvi.remote.flare import project
from fedlsvi.remote.flare.demo import free_port
from fedlsvi.remote.masking import RECORD, STREAMS
from fedlsvi.remote.site_settings import environment
from fedlsvi.storage import files
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
def test_kills_inside_synchronisations(tmp_path: Path) -> None:
    """SIGKILL to the processes of jobs, to FLARE's server and to sites, eleven in three outages,
    all aimed at the middle of a synchronisation and each followed by the job again, the last with
    new certificates for everybody: the final model has the bits of the undisturbed run without
    masks, no mask has hidden two contents, and the logs of what left agree with the ledger. The
    third site has a log and nothing to play in, and the others have a policy for every episode."""
    env = {"name": "random-mdp", "n_states": 6, "n_actions": 3, "horizon": 10, "seed": 1}
    federation = replace(
        FEDERATION, name="kills", horizon=10, dim=18, one_hot=True, episodes=400, logged=25,
        n_actions=3, settings={"gamma": 40.0, "aggregation": "secure", "diversity": 0.2},
        retry={"deadline": 20.0, "attempts": 1},
    )  # fmt: skip
    # first, so that what the sites run is compiled
    world = environment(env)
    log = record_episodes(world, 25, agent=2)
    learner = FedLSVI(n_agents=3, gamma=40.0, aggregation="exact", stationary=False, diversity=0.2)
    here = learner.learn(
        [world, world, None], federation.episodes, federation.seed, data=[None, None, log],
        progress=False,
    )  # fmt: skip
    sites, own = ("site-1", "site-2", "site-3"), {"agents": 1, "env": env}
    settings = dict.fromkeys(sites, own) | {
        "site-3": {"agents": 1, "data": str(tmp_path / "log.parquet")}
    }
    folder = project.init(tmp_path / "project", federation, settings, port=free_port())
    write_records(log, tmp_path / "log.parquet")
    kills = inside = 0
    try:
        project.launch(folder)
        number = project.start(folder)
        for step, jobs, parties in OUTAGES:
            wait_for_step(folder, "site-1", step, 1 if kills else 2)  # the logs are round 0
            found = {name: processes(folder, name) for name in ("localhost", *sites)}
            targets = [found[name]["job"] for name in jobs]
            targets += [pid for name in parties for pid in found[name].values()]
            wait_for_step(folder, "site-1", step, 1)
            for pid in targets:
                os.kill(pid, signal.SIGKILL)
            kills += len(targets)
            if any(inside_a_synchronisation(folder, site) for site in sites):
                inside += len(targets)
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
                assert project.wait(folder, number, 240.0) != "FINISHED:COMPLETED"
            number = project.start(folder)
        assert project.wait(folder, number, 240.0) == "FINISHED:COMPLETED"
    finally:
        project.stop(folder, kill=True)
        project.clean(folder)
    assert kills >= 10
    assert inside >= 3
    run = fedlsvi.load(project.server_folder(folder))
    assert run.w.tobytes() == here.w.tobytes()
    assert run.gram_packed.tobytes() == here.gram_packed.tobytes()
    ledger = files.read_json(project.server_folder(folder) / "ledger.json", {str: object})
    for site in sites:
        home = project.site_folder(folder, site)
        sent = verify(home / "sent.jsonl", ledger["every"]["up_stats"])
        assert sent.again > 0
        assert "Upload" not in sent.scalars
        (masks,) = home.rglob(STREAMS)
        streams = [(m, k, h) for m, k, h, _ in RECORD.iter_unpack(masks.read_bytes())]
        assert len(set(streams)) == len(streams)
        # one membership from the first start to the last, with new certificates too
        assert len({membership for membership, _, _ in streams}) == 1
        assert {h for _, _, h in streams} == set(range(1, 11))
        assert len(streams) == (run.rounds + 2) * 10  # the log's round and the pass at the end, too
        left = [json.loads(row) for row in (home / "sent.jsonl").read_text().splitlines()]
        bytes_of = {(row["round"], row["step"], row["digest"]) for row in left
                    if row["kind"] == "MaskedUpload"}  # fmt: skip
        assert len(bytes_of) == len(streams)
