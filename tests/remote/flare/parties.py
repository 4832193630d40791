"""What the tests of NVIDIA FLARE share: a small federation, the same in this process, and the
processes of its parties."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fedlsvi.protocol.cohorts import cohort_of
from fedlsvi.protocol.ledger import Ledger
from fedlsvi.protocol.server import Server
from fedlsvi.protocol.session import FederatedPlayer, Session
from fedlsvi.protocol.transport import InProcess
from fedlsvi.remote.federation import Federation
from fedlsvi.remote.flare import project
from fedlsvi.remote.flare.processes import of_kit
from fedlsvi.remote.flare.provision import flare
from fedlsvi.remote.site_settings import environment
from patience import PATIENCE, wait_until

ENV = {"name": "random-linear", "n_states": 20, "n_actions": 4, "dim": 8, "horizon": 5, "seed": 0}
FEDERATION = Federation(
    "trial", episodes=160, horizon=5, dim=8, seed=3,
    settings={"gamma": 100.0, "aggregation": "float"},
    retry={"deadline": PATIENCE, "attempts": 1},
)  # fmt: skip
OWN = {
    # the three ways to name an environment; the first is a world of another kind, continuous
    "site-1": {"entry": "canary:make", "horizon": 5, "dim": 8},
    "site-2": {key: value for key, value in ENV.items() if key != "name"}
    | {"gym": "fedlsvi/RandomLinearMDP-v0"},
    "site-3": ENV,
}
SITES = tuple(OWN)


class InThisProcess(NamedTuple):
    """A federation without an engine: its server, the last episodes of the rounds, its ledger."""

    server: Server
    ends: list[int]
    ledger: Ledger


def in_this_process(federation: Federation) -> InThisProcess:
    """The same federation of the three sites in this process."""
    p = federation.parameters(3)
    plans = [federation.plan(environment(env), 3) for env in OWN.values()]
    cohorts = [cohort_of(plan, c, c + 1) for c, plan in enumerate(plans)]
    player = FederatedPlayer(p, InProcess(cohorts, p.trigger, p.overshoot))
    ends = [record.last for record in Session(player).rounds()]
    return InThisProcess(player.server, ends, player.ledger)


def submit(folder: Path, *federations: Federation) -> list[str]:
    """Jobs of these federations for the parties of a project, all at once: their numbers."""
    connection = project.console(folder, PATIENCE)
    try:
        write = flare("write_job")
        jobs = [write(made.table(), folder / "job", len(SITES)) for made in federations]
        return [connection.submit(job.absolute()) for job in jobs]
    finally:
        connection.close()


def await_rounds(records: Path, at_least: int) -> None:
    """Until the server has written so many records."""

    def there() -> bool:
        return records.exists() and len(records.read_text().splitlines()) >= at_least

    wait_until(there, "the run does not move")


def await_end(folder: Path) -> None:
    """Until the job that was submitted last has ended well."""
    number = project.status(folder)["jobs"][-1]["id"]
    assert project.wait(folder, number, PATIENCE) == project.COMPLETED


def processes(folder: Path, name: str, job: str = "") -> dict[str, int]:
    """A party's own process and, while a job runs, that of its job; shells are not listed."""
    found = {}
    for pid in of_kit(folder.absolute() / "kits" / name):
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            for kind, modules in PROCESSES.items():
                if any(module in words for module in modules) and job.encode() in words:
                    found[kind] = pid
    return found


PROCESSES = {"job": (b"runner_process", b"worker_process"),
             "party": (b"server_train", b"client_train")}  # fmt: skip
