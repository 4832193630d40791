"""A federation from `federate init` over a kill and `resume` to a report and to a policy at every
site, through public commands alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parties import ENV, FEDERATION, SITES, await_end

import fedlsvi
from browser import chromium
from expecting import refused
from fedlsvi.cli import main
from fedlsvi.errors import InvalidEnvironment, InvalidInput
from fedlsvi.policy import Policy
from fedlsvi.remote.flare import project
from fedlsvi.remote.site_settings import environment
from repeats import only_ci

# FLARE's threads use what its libraries call deprecated
pytestmark = pytest.mark.filterwarnings("ignore")


def test_the_server_has_a_run_folder(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = project.server_folder(finished)
    run = fedlsvi.load(folder)
    assert (run.played, run.rounds) == (FEDERATION.episodes, len(run.records))
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
        copied = finished.parent / "copy"
        half_way(folder, copied)
        fedlsvi.resume(copied)


def half_way(folder: Path, target: Path) -> None:
    """The same folder without its checkpoints."""
    for name in ("settings.toml", "parameters.json", "versions.json"):
        target.mkdir(exist_ok=True)
        (target / name).write_bytes((folder / name).read_bytes())


@pytest.fixture(scope="module")
def report(finished: Path) -> Path:
    folder = project.server_folder(finished)
    assert main(["report", str(folder)]) == 0
    return folder / "report.html"


def test_the_report_says_what_is_not_known(report: Path) -> None:
    page = report.read_text(encoding="utf-8")
    assert "not known here" in page
    assert "at-sites" in page


def test_the_report_reads_well_in_a_browser(report: Path) -> None:
    with chromium() as page:
        for width in (1280, 390):
            page.open(report, width)
            found = page.measure()
            assert not page.complaints
            assert all(url.startswith(("file:", "data:")) for url in page.requests)
            assert found["figures"] > 0
            assert (found["empty"], found["hidden"]) == (0, 0)
            assert found["scrolls"] <= width
            assert "not known here" in page.evaluate("document.body.innerText")


@pytest.mark.parametrize("site", SITES)
def test_every_site_has_the_policy(
    site: str, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is evaluated on the site's own environment, and nothing leaves for it."""
    own = project.site_folder(finished, site)
    log = (own / "sent.jsonl").read_bytes()
    assert not (own / "policy").stat().st_mode & 0o077
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[2]))
        for path in (own / "policy", finished / "kits" / site):
            command = ["evaluate", str(path), "--episodes", "50", "--format", "json"]
            assert main(command) == 0
            found.append(json.loads(capsys.readouterr().out)["mean"])
    assert found[0] == found[1] > 0.0
    assert (own / "sent.jsonl").read_bytes() == log


def test_it_is_the_policy_of_the_server(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env: Any = environment(ENV)
    run = fedlsvi.load(project.server_folder(finished), env=env)
    there = Policy.load(project.site_folder(finished, "site-3") / "policy")
    assert np.array_equal(run.policy.table, there.table)
    values = env.policy_values(there.table)[0], env.uniform_values()[0]
    law = env.initial_law(0)
    assert law @ values[0] > law @ values[1]
    chosen = [f"--set=env.{key}={value}" for key, value in ENV.items() if key != "name"]
    command = ["evaluate", str(project.server_folder(finished)), "--env", "random-linear", *chosen]
    assert main([*command, "--episodes", "20"]) == 0
    assert "mean return" in capsys.readouterr().out


@only_ci
def test_the_job_may_be_submitted_again(finished: Path) -> None:
    """A run that has ended plays no more, and its sites write their policy again."""
    before = (project.server_folder(finished) / "records.jsonl").read_bytes()
    policy = project.site_folder(finished, "site-3") / "policy"
    kept = (policy / "policy.json").read_bytes()
    (policy / "policy.json").unlink()
    assert main(["resume", str(finished)]) == 0
    await_end(finished)
    assert (project.server_folder(finished) / "records.jsonl").read_bytes() == before
    assert (policy / "policy.json").read_bytes() == kept
