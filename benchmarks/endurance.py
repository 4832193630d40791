"""Thousands of rounds on FLARE: threads, memory and files of every process, and whether they grow.

    python -m benchmarks endurance
    python -m benchmarks.endurance ROUNDS FOLDER

A server and three sites on loopback play with γ = 1, so that every episode ends in a round. While
they do, each process of theirs is looked at every few seconds: its threads, resident memory and
open files, and the files in its party's kit. The table compares the medians of the last tenth of
the rounds with those of the tenth that follows the first. A site's log of what it sent is evidence
and grows, by 3.5 MB in a thousand rounds here. The samples and the plot are written to `FOLDER`,
build/endurance unless given.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from statistics import median
from typing import NamedTuple

from fedlsvi.experiments.measure import Row, table
from fedlsvi.remote.federation import Federation
from fedlsvi.remote.flare import project
from fedlsvi.remote.flare.demo import free_port
from fedlsvi.remote.flare.log import ENDED
from fedlsvi.remote.flare.processes import of_kit

ROUNDS, HORIZON, DIM = 10_000, 6, 4
SITES = ("site-1", "site-2", "site-3")
PARTIES = ("localhost", *SITES)
ENV = {"name": "random-linear", "n_states": 10, "n_actions": 3, "dim": DIM, "horizon": HORIZON}
FOLDER = Path("build/endurance")
SECONDS = 5.0
"""Between two samples."""
ASK_EVERY = 12
"""Samples after which FLARE is asked whether the job has ended; a question costs memory there."""
JOB = (b"runner_process", b"worker_process")
"""What FLARE calls the process of a job, at the server and at a site."""
ALLOWED = {"threads": 20.0, "memory": 10.0, "open files": 20.0, "files": 20.0}
"""By how much a quantity may end above where it was: threads, MB, open files, files in the kit."""
UNITS = {"memory": "MB"}


class Sample(NamedTuple):
    """One look at the processes of one party.

    Attributes:
        round: How many rounds were done.
        party: Its name, and whether it is the process of its job.
        threads: How many the process has.
        memory: Resident megabytes.
        open_files: How many it has open.
        files: In the party's kit.
        megabytes: That these take.
    """

    round: int
    party: str
    threads: int
    memory: float
    open_files: int
    files: int
    megabytes: float


def look(kit: Path, done: int) -> Iterator[Sample]:
    """The processes of a kit as they are now."""
    sizes = []
    for path in kit.rglob("*"):
        with suppress(OSError):  # it may just have been removed
            if path.is_file():
                sizes.append(path.stat().st_size)
    for pid in of_kit(kit):
        process = Path(f"/proc/{pid}")
        with suppress(OSError, KeyError):  # it may just have ended
            words = (process / "cmdline").read_bytes()
            if b"nvflare" not in words:  # the shell that starts it again if it dies
                continue
            rows = (process / "status").read_text().splitlines()
            status = dict(row.split(":", 1) for row in rows if ":" in row)
            party = f"{kit.name}, job" if any(name in words for name in JOB) else kit.name
            yield Sample(
                done, party, int(status["Threads"]), int(status["VmRSS"].split()[0]) / 1024.0,
                len(list((process / "fd").iterdir())), len(sizes), sum(sizes) / 1e6,
            )  # fmt: skip


def rounds_done(records: Path) -> int:
    """How many rounds the server has written down."""
    return records.read_bytes().count(b"\n") if records.exists() else 0


def watch(folder: Path, number: str, into: Path) -> list[Sample]:
    """Look until the job has ended; each sample is also appended to a file as it comes."""
    kits = [folder / "kits" / name for name in PARTIES]
    samples: list[Sample] = []
    with (into / "samples.jsonl").open("w", encoding="utf-8") as file:
        connection = project.console(folder)
        try:
            state = ""
            for n in count():
                if n % ASK_EVERY == 0 and (state := connection.job(number)).startswith(ENDED):
                    break
                done = rounds_done(project.server_folder(folder) / "records.jsonl")
                for sample in (sample for kit in kits for sample in look(kit, done)):
                    samples.append(sample)
                    file.write(json.dumps(sample._asdict()) + "\n")
                file.flush()
                time.sleep(SECONDS)
            assert state == project.COMPLETED, connection.reason(number)
        finally:
            connection.close()
    return samples


def compared(samples: list[Sample], rounds: int) -> list[Row]:
    """Each quantity after a tenth of the rounds and at the end."""
    rows = []
    for what, allowed in ALLOWED.items():
        for party in _parties(samples, what):
            own = [sample for sample in samples if sample.party == party]
            early, late = (
                [getattr(sample, what.replace(" ", "_")) for sample in own
                 if low * rounds <= sample.round < high * rounds]
                for low, high in ((0.1, 0.2), (0.9, 1.0))
            )  # fmt: skip
            if early and late:
                before, after = median(early), median(late)
                wanted = f"<= {before + allowed:.0f}"
                name = f"{what} of {party}: {before:.0f} after a tenth of the rounds, at the end"
                unit = UNITS.get(what, "")
                rows.append(Row(name, after, unit, wanted, after <= before + allowed))
    return rows


def _parties(samples: list[Sample], what: str) -> list[str]:
    """Who has a line of this quantity; the files of a kit belong to both of its processes."""
    every = dict.fromkeys(sample.party for sample in samples)
    return [party for party in every if what != "files" or ", job" not in party]


def plot(samples: list[Sample], path: Path) -> None:
    """Four quantities over rounds, a line for each process."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 7), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, what in zip(figure.subplots(2, 2).flat, ALLOWED, strict=True):
        for party in _parties(samples, what):
            own = [sample for sample in samples if sample.party == party]
            values = [getattr(sample, what.replace(" ", "_")) for sample in own]
            color = f"C{PARTIES.index(party.removesuffix(', job'))}"
            style = "-" if party.endswith(", job") or what == "files" else ":"
            rounds = [sample.round for sample in own]
            axes.plot(rounds, values, style, color=color, label=party, linewidth=1.2)
        axes.set(title=what, xlabel="round", ylim=(0, None))
    figure.axes[1].set_ylabel("MB")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.savefig(path, dpi=120)


def main(rounds: int = ROUNDS, into: Path = FOLDER) -> list[Row]:
    """Three sites, d = 4, H = 6."""
    into.mkdir(parents=True, exist_ok=True)
    federation = Federation(
        "endurance", episodes=rounds, horizon=HORIZON, dim=DIM,
        settings={"gamma": 1.0, "rounds": "off", "cap": "off", "aggregation": "float"},
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="fedlsvi-") as scratch:
        sites = {site: {"agents": 1, "env": ENV} for site in SITES}
        folder = project.init(Path(scratch) / "project", federation, sites, port=free_port())
        project.launch(folder)
        try:
            began = time.monotonic()
            samples = watch(folder, project.start(folder), into)
            spent = time.monotonic() - began
            done = rounds_done(project.server_folder(folder) / "records.jsonl")
        finally:
            project.stop(folder)
            project.clean(folder)
    plot(samples, into / "endurance.png")
    return [Row("rounds", done), Row("seconds a round", spent / done, "s"),
            *compared(samples, rounds)]  # fmt: skip


if __name__ == "__main__":
    print(table(main(int(sys.argv[1]), Path(sys.argv[2]))))
