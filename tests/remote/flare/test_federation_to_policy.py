"""A federation from `federate init` to a policy at every site, through public commands alone."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parties import ENV, processes

import fedlsvi
from expecting import refused
from fedlsvi.cli import main
from fedlsvi.errors import InvalidEnvironment, InvalidInput
from fedlsvi.policy import Policy
from fedlsvi.remote.federation import environment
from fedlsvi.remote.flare import project
from fedlsvi.remote.flare.demo import free_port
from fedlsvi.storage import settings_file

# FLARE's threads use what its libraries call deprecated
pytestmark = pytest.mark.filterwarnings("ignore")

EPISODES = 1500
SITES = {
    # the three ways to name an environment; the first is continuous, with features of its own
    "east": {"entry": "canary:make", "horizon": 5, "dim": 8},
    "north": {key: value for key, value in ENV.items() if key != "name"},
    "south": ENV,
}
SITES["north"]["gym"] = "fedlsvi/RandomLinearMDP-v0"

FEDERATION = f"""
name = "wards"
episodes = {EPISODES}
horizon = 5
dim = 8
seed = 3

[settings]
gamma = 60.0

[retry]
deadline = 120.0
attempts = 1
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project whose run has ended. Its server was killed on the way, and `fedlsvi resume` on its
    folder submitted the job again."""
    base = tmp_path_factory.mktemp("wards")
    folder = base / "project"
    (base / "federation.toml").write_text(FEDERATION)
    command = ["federate", "init", str(base / "federation.toml"), "--sites", ",".join(SITES)]
    assert main([*command, "--out", str(folder), "--port", str(free_port())]) == 0
    for site, env in SITES.items():
        text = settings_file.dump({"agents": 1, "env": env})
        (folder / "kits" / site / "local" / "fedlsvi.toml").write_text(text)
    with pytest.MonkeyPatch.context() as patch:  # a site finds its module as the tests do
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        try:
            assert main(["federate", "start", str(folder), "--here"]) == 0
            await_rounds(project.server_folder(folder) / "records.jsonl", 3)
            kill_server(folder)
            project.launch(folder, ["localhost"])
            assert main(["resume", str(project.server_folder(folder))]) == 0
            await_end(folder)
            yield folder
        finally:
            project.stop(folder, kill=True)
            project.clean(folder)


def await_rounds(records: Path, at_least: int) -> None:
    end = time.monotonic() + 240.0
    while not records.exists() or len(records.read_text().splitlines()) < at_least:
        assert time.monotonic() < end, "the run does not move"
        time.sleep(0.01)


def kill_server(folder: Path) -> None:
    """The processes of the server, in the middle of the run."""
    assert set(processes(folder, "localhost")) == {"party", "job"}
    assert project.stop(folder, ["localhost"], kill=True) == ["localhost"]
    run = fedlsvi.load(project.server_folder(folder))
    assert 0 < run.played < EPISODES
    assert run.regret is None


def await_end(folder: Path) -> None:
    """Until the job that was submitted last has ended well."""
    end = time.monotonic() + 240.0
    while (found := project.status(folder))["jobs"][-1]["status"] != project.COMPLETED:
        assert time.monotonic() < end, found
        time.sleep(1.0)


def test_the_server_has_a_run_folder(ended: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = project.server_folder(ended)
    run = fedlsvi.load(folder)
    assert (run.played, run.rounds) == (EPISODES, len(run.records))
    assert (run.regret, run.mean_returns, run.scalars_raw) == (None, None, None)
    assert run.environment_name == "at-sites"
    assert run.bounds["scalars"].holds
    assert {path.name for path in folder.iterdir()} >= {
        "checkpoints", "epoch.json", "ledger.json", "parameters.json", "records.jsonl",
        "settings.toml", "summary.json", "versions.json",
    }  # fmt: skip
    assert not folder.stat().st_mode & 0o077
    assert main(["resume", str(folder)]) == 0  # it has ended: nothing is submitted
    said = capsys.readouterr().out
    assert "not known here" in said
    assert str(run.rounds) in said
    with refused(InvalidEnvironment, "env-at-sites"):
        run.policy.action(0, 1)
    with refused(InvalidInput, "agents-at-sites"):
        copied = ended.parent / "copy"
        half_way(folder, copied)
        fedlsvi.resume(copied)


def half_way(folder: Path, target: Path) -> None:
    """The same folder without its checkpoints."""
    for name in ("settings.toml", "parameters.json", "versions.json"):
        target.mkdir(exist_ok=True)
        (target / name).write_bytes((folder / name).read_bytes())


def test_the_report_says_what_is_not_known(ended: Path) -> None:
    folder = project.server_folder(ended)
    assert main(["report", str(folder)]) == 0
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "not known here" in page
    assert "at-sites" in page


@pytest.mark.parametrize("site", SITES)
def test_every_site_has_the_policy(
    site: str, ended: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is evaluated on the site's own environment, and nothing leaves for it."""
    own = project.site_folder(ended, site)
    log = (own / "sent.jsonl").read_bytes()
    assert not (own / "policy").stat().st_mode & 0o077
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[2]))
        for path in (own / "policy", ended / "kits" / site):
            command = ["evaluate", str(path), "--episodes", "50", "--format", "json"]
            assert main(command) == 0
            found.append(json.loads(capsys.readouterr().out)["mean"])
    assert found[0] == found[1] > 0.0
    assert (own / "sent.jsonl").read_bytes() == log


def test_it_is_the_policy_of_the_server(ended: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env: Any = environment(ENV)
    run = fedlsvi.load(project.server_folder(ended), env=env)
    there = Policy.load(project.site_folder(ended, "south") / "policy")
    assert np.array_equal(run.final_policy.table, there.table)
    values = env.policy_values(there.table)[0], env.uniform_values()[0]
    law = env.initial_law(0)
    assert law @ values[0] > law @ values[1]
    chosen = [f"--set=env.{key}={value}" for key, value in ENV.items() if key != "name"]
    command = ["evaluate", str(project.server_folder(ended)), "--env", "random-linear", *chosen]
    assert main([*command, "--episodes", "20"]) == 0
    assert "mean return" in capsys.readouterr().out


def test_the_job_may_be_submitted_again(ended: Path) -> None:
    """A run that has ended plays no more, and its sites write their policy again."""
    before = (project.server_folder(ended) / "records.jsonl").read_bytes()
    policy = project.site_folder(ended, "south") / "policy"
    kept = (policy / "policy.json").read_bytes()
    (policy / "policy.json").unlink()
    assert main(["resume", str(ended)]) == 0
    await_end(ended)
    assert (project.server_folder(ended) / "records.jsonl").read_bytes() == before
    assert (policy / "policy.json").read_bytes() == kept
