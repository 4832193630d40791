"""An operator's view of real processes: who is waited for, why a job ended, a pause."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from parties import FEDERATION, SITES, in_this_process, processes, submit

import fedlsvi
from fedlsvi.cli import main
from fedlsvi.remote import server_status
from fedlsvi.remote.flare import project
from holding import Hold
from patience import PATIENCE, wait_until
from repeats import only_ci

# FLARE's threads use what its libraries call deprecated
pytestmark = pytest.mark.filterwarnings("ignore")

WATCHED = replace(
    FEDERATION, name="watched", episodes=900, settings={"gamma": 60.0},
    retry={"deadline": 5.0, "attempts": 1, "absent": "wait"},
)  # fmt: skip


@only_ci  # over frames: tests/remote/test_server_status.py
def test_a_held_site_is_named_and_a_paused_run_goes_on_to_the_same_bits(finished: Path) -> None:
    """Site-2 stands still: its name, and that nothing comes, are in the file of the server and in
    its answer to the administrator; so is its return. The run is paused, started again, and site-2
    killed: the reason names it. After another start the model is the one of this process."""
    hold = Hold(finished.parent / "hold")
    hold.order(step=3, uploads=3)
    hold.slow(0.5)  # the run is not over before all this has happened
    folder = project.server_folder(finished).parent / "watched"
    (number,) = submit(finished, WATCHED)
    hold.wait()
    held = processes(finished, "site-2", number)["job"]
    os.kill(held, signal.SIGSTOP)

    def state() -> str:
        live = server_status.read(folder)
        return "" if live is None or not live.sites else live.sites[1].state

    connection = project.console(finished, PATIENCE)
    try:
        hold.release()
        wait_until(lambda: state() == "awaited", "nobody says who is waited for")
        live = connection.live(number)
        assert live is not None
        assert [site.state for site in live.sites].count("awaited") == 1
        assert live.sites[1].name == "site-2"
        os.kill(held, signal.SIGCONT)
        wait_until(lambda: state() == "here", "its return is not said")
        assert connection.pause(number)
        assert project.wait(finished, number, PATIENCE) == project.COMPLETED
        assert "paused" in connection.reason(number)
    finally:
        hold.slow(0)
        with suppress(ProcessLookupError):
            os.kill(held, signal.SIGCONT)
        connection.close()
    paused = fedlsvi.load(folder)
    assert 0 < paused.played < WATCHED.episodes
    hold.order(step=3, uploads=3)
    (number,) = submit(finished, WATCHED)
    hold.wait()
    os.kill(processes(finished, "site-2", number)["job"], signal.SIGKILL)
    hold.release()
    assert project.wait(finished, number, PATIENCE) != project.COMPLETED
    assert "site-2" in project.reason(finished, number)
    (number,) = submit(finished, WATCHED)
    assert project.wait(finished, number, PATIENCE) == project.COMPLETED
    here, run = in_this_process(WATCHED), fedlsvi.load(folder)
    assert [record.last for record in run.records] == here.ends
    assert run.w.tobytes() == here.server.w.tobytes()
    assert len(SITES) == len(server_status.read(folder).sites)  # type: ignore[union-attr]


def test_the_finished_job_has_a_status(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the last job, even if jobs before it failed: the run was over, and has a policy."""
    assert main(["federate", "start", str(finished), "--wait", str(PATIENCE)]) == 0
    capsys.readouterr()
    live = server_status.read(project.server_folder(finished))
    assert live is not None
    assert (live.state, live.episode) == ("complete", FEDERATION.episodes)
    assert [site.name for site in live.sites] == list(SITES)
    assert main(["federate", "status", str(finished), "--check"]) == 0
    assert main(["federate", "pause", str(finished)]) == 0
    assert "no job is running" in capsys.readouterr().out
