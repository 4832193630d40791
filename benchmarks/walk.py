"""How many source files of the package one has to read to follow a run, and to follow an upload.

One walk goes from `learn` until the first episodes have been played. Runs are played twice and the
second one counts, so that caches are filled. Imports are counted in a process of their own. The
last rows follow one Stop over frames to two cohorts in threads until their Uploads are back: once
plain, and once as sites have it, three of them, each with a journal and a log of what leaves.

    python -m benchmarks.walk [--files]    the table, or also the names of the files
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import fedlsvi
from fedlsvi import FedLSVI
from fedlsvi.cli import main as shell
from fedlsvi.envs import RandomLinearMDP
from fedlsvi.experience.experience import Experience
from fedlsvi.experiments.measure import Row, table
from fedlsvi.protocol.messages import Stop, Upload
from fedlsvi.remote.audit import Audit
from fedlsvi.remote.codec import run_id
from fedlsvi.remote.endpoint import Endpoint
from fedlsvi.remote.endpoint_factory import endpoint_factories, guard_for
from fedlsvi.remote.frame_transport import ThreadTransport

ROOT = str(Path(fedlsvi.__file__).parent) + os.sep
RUN = ("run", "--env", "random-linear", "--agents", "2", "--episodes", "200", "--seed", "1")
IMPORTS = """
import sys
from fedlsvi.cli import main
main({!r})
print("modules", sum(m == "fedlsvi" or m.startswith("fedlsvi.") for m in sys.modules))
"""


@contextlib.contextmanager
def followed(until: str = "") -> Iterator[set[str]]:
    """The package's files whose functions are called in the block, in this and new threads; where
    a function is named, before it first returns."""
    seen: set[str] = set()
    over = False

    def look(frame: FrameType, event: str, _: Any) -> None:
        nonlocal over
        code = frame.f_code
        over = over or (event == "return" and code.co_qualname == until)
        if over:
            return
        if event == "call" and code.co_filename.startswith(ROOT) and code.co_name != "<module>":
            seen.add(code.co_filename.removeprefix(ROOT))

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        yield seen
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _run(folder: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        shell([*RUN, "--out", folder])


def files_of_the_first_episodes() -> set[str]:
    """The files between `learn` and the end of the first episodes of a small run."""
    env = RandomLinearMDP(n_states=6, n_actions=2, dim=3, horizon=3, seed=0)
    for _ in range(2):
        with followed(Experience.explore.__qualname__) as seen, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            FedLSVI(2, gamma=8.0).learn(env, 50, progress=False)
    return seen


def files_of_a_run() -> set[str]:
    """The files that a small `fedlsvi run` passes through once everything is warm."""
    with tempfile.TemporaryDirectory() as folder:
        _run(f"{folder}/cold")
        with followed() as seen:
            _run(f"{folder}/warm")
    return seen


def imports_of_a_run() -> int:
    """How many modules of the package a small `fedlsvi run` imports."""
    with tempfile.TemporaryDirectory() as folder:
        code = IMPORTS.format([*RUN, "--out", f"{folder}/run"])
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    return int(done.stdout.split()[-1])


def files_of_an_upload(as_sites: bool = False) -> set[str]:
    """The files that one Stop and its Uploads pass through over frames.

    Args:
        as_sites: Whether there are three cohorts, so that they are compared, each with a journal
            and a log of what leaves.
    """
    with tempfile.TemporaryDirectory() as folder:
        return _files_of_an_upload(Path(folder) if as_sites else None)


def _files_of_an_upload(folder: Path | None) -> set[str]:
    env = RandomLinearMDP(n_states=6, n_actions=2, dim=3, horizon=3, seed=0)
    cohorts = 2 if folder is None else 3

    def over_frames(plan: Any) -> ThreadTransport:
        run = run_id(plan.parameters, plan.seed)
        factories = endpoint_factories(plan, cohorts, folder, threads=1)
        made = ThreadTransport(plan.parameters, factories, run, None, guard_for(plan))
        for c, endpoint in enumerate(made.handlers):
            if folder is not None and isinstance(endpoint, Endpoint):
                endpoint.outbox = Audit(folder / f"sent-{c}.log")
        return made

    session = FedLSVI(n_agents=cohorts, gamma=8.0).prepare(env, 100, 1, transport=over_frames)
    player: Any = session.player
    server, transport = player.server, player.transport
    with followed() as seen:  # from the start, because threads inherit it when they begin
        server.start(transport)
        server.round(transport)
        signal = transport.wait(server.t, server.T - server.t)
        seen.clear()
        replies = transport.broadcast(Stop(signal.t))
    assert all(isinstance(reply, Upload) for reply in replies)
    session.close()
    return seen


def main(names: bool = False) -> list[Row]:
    """The figures; `names` also prints the files."""
    walks = {
        "files from `learn` to the end of the first episodes": (files_of_the_first_episodes(), 20),
        "files that a warm small `fedlsvi run` passes through": (files_of_a_run(), 42),
        "files that an Upload over frames passes through": (files_of_an_upload(), 12),
        "the same from three sites with journals and logs": (files_of_an_upload(True), None),
    }
    rows = [Row("modules of the package that a small `fedlsvi run` imports", imports_of_a_run())]
    for what, (files, most) in walks.items():
        if names:
            print(f"{what}:", *sorted(files), "", sep="\n")
        wanted, holds = ("", None) if most is None else (f"≤ {most}", len(files) <= most)
        rows.append(Row(what, len(files), wanted=wanted, holds=holds))
    return rows


if __name__ == "__main__":
    print(table(main("--files" in sys.argv)))
