"""One project on NVIDIA FLARE that all tests of this folder share: a server and three sites, each a
process of its own, started once. Its first job is killed in the middle and resumed."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from parties import (
    FEDERATION,
    OWN,
    InThisProcess,
    await_end,
    in_this_process,
    processes,
)

import fedlsvi
from expecting import refused
from fedlsvi import json_log
from fedlsvi.cli import main
from fedlsvi.errors import InvalidInput
from fedlsvi.remote.flare import project
from fedlsvi.remote.flare.demo import free_port
from fedlsvi.storage import settings_file
from holding import Hold
from patience import PATIENCE


@pytest.fixture(autouse=True)
def no_log_stays() -> Iterator[None]:
    """A job writes its log until its process ends; one that a test plays, until the test does."""
    yield
    for handler in list(logging.getLogger(json_log.LOGGER).handlers):
        json_log.stop(handler)


@pytest.fixture(scope="session")
def undisturbed() -> InThisProcess:
    """The first job's run in this process; what the sites run is compiled by it."""
    return in_this_process(FEDERATION)


def start(*words: str) -> None:
    """A command that starts a job, however long its parties take to connect."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(project, "start", partial(project.start, seconds=PATIENCE))
        assert main(list(words)) == 0


@pytest.fixture(scope="session")
def parties(tmp_path_factory: pytest.TempPathFactory, undisturbed: InThisProcess) -> Iterator[Path]:
    """A project by `federate init` whose parties run, and its job by `federate start --here`, which
    stands still in the third round; every process ends with the tests."""
    base = tmp_path_factory.mktemp("federation")
    folder, settings = base / "project", base / "federation.toml"
    settings.write_text(settings_file.dump(FEDERATION.table()))
    command = ["federate", "init", str(settings), "--sites", ",".join(OWN), "--out", str(folder)]
    assert main([*command, "--port", str(free_port())]) == 0
    for site, env in OWN.items():
        named = dict(env)
        if site == "site-1":
            named |= {file: str(base / file) for file in ("overheard", "answers", "hold")}
        # jobs with several settings play the episodes of one seed here
        require = {"other_episodes": True}
        text = settings_file.dump({"agents": 1, "env": named, "require": require})
        (folder / "kits" / site / "local" / "fedlsvi.toml").write_text(text)
    Hold(base / "hold").order(step=3, uploads=3)
    with pytest.MonkeyPatch.context() as patch:  # a site finds its module as the tests do
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        try:
            start("federate", "start", str(folder), "--here")
            yield folder
        finally:
            project.stop(folder, kill=True)
            project.clean(folder)
            shutil.rmtree(folder / "kits")


@pytest.fixture(scope="session")
def finished(parties: Path) -> Path:
    """The same project after its job has ended. No second one was taken meanwhile; its server was
    killed on the way, and `fedlsvi resume` on the server's folder submitted the job again."""
    folder = project.server_folder(parties)
    hold = Hold(parties.parent / "hold")
    hold.wait()  # so that the run cannot end before its server is killed
    try:
        with refused(InvalidInput, "job-under-way", "trial"):
            project.start(parties)
        assert set(processes(parties, "localhost")) == {"party", "job"}
        assert project.stop(parties, ["localhost"], kill=True) == ["localhost"]
    finally:
        hold.release()
    run = fedlsvi.load(folder)
    assert 0 < run.played < FEDERATION.episodes
    assert run.regret is None
    project.launch(parties, ["localhost"])
    start("resume", str(folder))
    await_end(parties)
    return parties
