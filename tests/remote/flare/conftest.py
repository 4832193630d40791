"""One project on NVIDIA FLARE that all tests of this folder share: a server and three sites, each a
process of its own, started once. Its first job is killed in the middle and resumed."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from parties import (
    FEDERATION,
    OWN,
    InThisProcess,
    await_end,
    await_rounds,
    in_this_process,
    processes,
)

import fedlsvi
from expecting import refused
from fedlsvi.cli import main
from fedlsvi.errors import InvalidInput
from fedlsvi.remote.flare import project
from fedlsvi.remote.flare.demo import free_port
from fedlsvi.storage import settings_file


@pytest.fixture(scope="session")
def undisturbed() -> InThisProcess:
    """The first job's run in this process; what the sites run is compiled by it."""
    return in_this_process(FEDERATION)


@pytest.fixture(scope="session")
def parties(tmp_path_factory: pytest.TempPathFactory, undisturbed: InThisProcess) -> Iterator[Path]:
    """A project by `federate init` whose parties run, and its job by `federate start --here`; every
    process ends with the tests."""
    base = tmp_path_factory.mktemp("federation")
    folder, settings = base / "project", base / "federation.toml"
    settings.write_text(settings_file.dump(FEDERATION.table()))
    command = ["federate", "init", str(settings), "--sites", ",".join(OWN), "--out", str(folder)]
    assert main([*command, "--port", str(free_port())]) == 0
    for site, env in OWN.items():
        named = dict(env)
        if site == "site-1":
            named |= {file: str(base / file) for file in ("overheard", "answers")}
        text = settings_file.dump({"agents": 1, "env": named})
        (folder / "kits" / site / "local" / "fedlsvi.toml").write_text(text)
    with pytest.MonkeyPatch.context() as patch:  # a site finds its module as the tests do
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        try:
            assert main(["federate", "start", str(folder), "--here"]) == 0
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
    await_rounds(folder / "records.jsonl", 2)
    held = processes(parties, "site-2")["job"]
    os.kill(held, signal.SIGSTOP)  # the run cannot end before its server is killed
    try:
        with refused(InvalidInput, "job-under-way", "trial"):
            project.start(parties)
        assert set(processes(parties, "localhost")) == {"party", "job"}
        assert project.stop(parties, ["localhost"], kill=True) == ["localhost"]
    finally:
        os.kill(held, signal.SIGCONT)
    run = fedlsvi.load(folder)
    assert 0 < run.played < FEDERATION.episodes
    assert run.regret is None
    project.launch(parties, ["localhost"])
    assert main(["resume", str(folder)]) == 0
    await_end(parties)
    return parties
