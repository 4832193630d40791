"""A site leaves a run under way: the others go on, without what it contributed."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from parties import FEDERATION, SITES

import fedlsvi
from expecting import refused
from fedlsvi.cli import main
from fedlsvi.errors import InvalidInput, InvalidSetting
from fedlsvi.remote import server_status
from fedlsvi.remote.flare import project
from fedlsvi.remote.flare.demo import free_port
from fedlsvi.storage import files, settings_file
from holding import Hold
from patience import PATIENCE, wait_until
from repeats import only_ci

# FLARE's threads use what its libraries call deprecated
pytestmark = pytest.mark.filterwarnings("ignore")

WORLD = {"n_states": 6, "n_actions": 3, "horizon": 5, "seed": 1}
LEAVING = replace(
    FEDERATION, name="leaving", dim=18, one_hot=True, episodes=400,
    settings={"gamma": 40.0, "aggregation": "exact"}, retry={"deadline": PATIENCE, "attempts": 1},
)  # fmt: skip


def written(folder: Path, **changes: object) -> Path:
    """What `remove_site` reads of a project."""
    folder.mkdir()
    parties = {"host": "localhost", "port": 1, "sites": list(SITES), "storage": "none"}
    text = settings_file.dump({**replace(LEAVING, **changes).table(), "parties": parties})  # type: ignore[arg-type]
    (folder / "federation.toml").write_text(text)
    return folder


def test_a_site_is_removed_in_the_settings_of_the_project(tmp_path: Path) -> None:
    folder = written(tmp_path / "project")
    for site in ("site-2", "site-3"):
        assert main(["federate", "remove-site", str(folder), site, "--offline"]) == 0
    federation, parties = project.read(folder)
    assert (federation.removed, parties["sites"]) == (["site-2", "site-3"], ["site-1"])
    federation.check(1)
    with refused(InvalidInput, "unknown-site", "site-3"):
        project.remove_site(folder, "site-3", ask=False)
    with refused(InvalidInput, "no-sites", "at least one"):
        project.remove_site(folder, "site-1", ask=False)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"settings": {"gamma": 40.0, "aggregation": "secure"}}, "bad-absent"),
        ({"evaluate": {"repeats": 4}}, "removed-and-evaluate"),
    ],
)
def test_a_site_whose_data_cannot_be_taken_out_stays(
    tmp_path: Path, changes: dict[str, object], code: str
) -> None:
    folder = written(tmp_path / "project", **changes)
    before = (folder / "federation.toml").read_text()
    with refused(InvalidSetting, code, ""):
        project.remove_site(folder, "site-2", ask=False)
    assert (folder / "federation.toml").read_text() == before


@only_ci  # over frames: tests/remote/test_recovery.py
def test_a_site_leaves_a_run_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One command ends the round, and the run goes on without the site, whose kit may be gone:
    rounds before stay as they were, and at the end Λ has every episode of the others and none of
    the site's. Certificates are renewed, and it is still removed."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    hold = Hold(tmp_path / "hold")
    env = {"name": "random-mdp"} | WORLD
    obeys = {"entry": "holding:named", "world": "random-mdp", "hold": str(hold.folder)} | WORLD
    own = {site: {"agents": 1, "env": env} for site in SITES} | {
        "site-1": {"agents": 1, "env": obeys}
    }
    folder = project.init(tmp_path / "project", LEAVING, own, port=free_port())
    run = project.server_folder(folder)
    try:
        project.launch(folder)
        hold.slow(0.5)
        number = project.start(folder, PATIENCE)

        def rounds() -> int:
            status = server_status.read(run)
            return 0 if status is None else status.rounds

        wait_until(lambda: rounds() >= 2, "the run does not move")
        before = files.whole_lines(run / "records.jsonl")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(project, "start", partial(project.start, seconds=PATIENCE))
            left = project.remove_site(folder, "site-3", PATIENCE)
        assert (left.ended, left.aborted) == ([number], False)
        project.stop(folder, ["site-3"], kill=True)
        hold.slow(0)
        assert project.wait(folder, left.job, PATIENCE) == project.COMPLETED
    finally:
        project.stop(folder, kill=True)
        project.clean(folder)
    done, status = fedlsvi.load(run), server_status.read(run)
    assert status is not None
    assert [site.state for site in status.sites] == ["here", "here", "excluded"]
    assert files.whole_lines(run / "records.jsonl").startswith(before)
    lam, visits = done.parameters.lam, done.gram_packed.reshape(5, 18).sum(axis=1)
    assert np.allclose(visits - 18 * lam, 2 * LEAVING.episodes, rtol=1e-12)
    renewed, _ = project.renew(folder, tmp_path / "renewed")
    federation, parties = project.read(renewed)
    assert (federation.removed, parties["sites"]) == (["site-3"], ["site-1", "site-2"])
