"""SIGKILL of all parties of a secure run at random moments, each resumed: the same bits, and no
mask hides two contents, as the journals say."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import problems
from fedlsvi import FedLSVI
from fedlsvi.remote.masking import RECORD, STREAMS
from repeats import repeats

KILLS = repeats(1, 30)
EPISODES = repeats(120, 600)

CHILD = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[4:]
import problems
from fedlsvi import FedLSVI, resume
from transports_over_frames import over_frames
folder, journals, episodes = sys.argv[1:4]
problem = problems.simplex()
transport = over_frames(3, Path(journals))
if Path(folder).exists():
    run = resume(folder, env=problem.envs, features=problem.features, transport=transport,
                 progress=False, checkpoint_seconds=0)
else:
    learner = FedLSVI(n_agents=4, gamma=4.0, beta=0.5, lam=0.5, aggregation="secure")
    run = learner.learn(problem.envs, int(episodes), 1, features=problem.features, progress=False,
                        transport=transport, folder=folder, checkpoint_seconds=0)
print(run.w.tobytes().hex())
"""


def test_killed_parties_mask_nothing_twice(tmp_path: Path) -> None:
    problem = problems.simplex()
    learner = FedLSVI(n_agents=4, gamma=4.0, beta=0.5, lam=0.5, aggregation="exact")
    here = learner.learn(problem.envs, EPISODES, 1, features=problem.features, progress=False)
    folder, journals = tmp_path / "run", tmp_path / "journals"
    paths = [path for path in sys.path if path]
    command = [sys.executable, "-c", CHILD, str(folder), str(journals), str(EPISODES), *paths]
    instants = random.Random(0)
    for attempt in range(KILLS + 1):
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        if attempt < KILLS:
            progress = folder / "records.jsonl"
            before = progress.stat().st_size if progress.exists() else 0
            while child.poll() is None and (
                not progress.exists() or progress.stat().st_size == before
            ):
                time.sleep(0.005)
            time.sleep(instants.uniform(0.0, 0.1))
            child.send_signal(signal.SIGKILL)
        out, _ = child.communicate(timeout=300)
        if child.returncode == 0:
            break
        assert child.returncode == -signal.SIGKILL
    assert attempt >= min(KILLS, 20), "the run was over before it could be killed"
    assert out.strip() == here.w.tobytes().hex()
    logs = sorted(journals.rglob(STREAMS))
    assert len(logs) == 3
    for log in logs:
        streams = [(m, k, h) for m, k, h, _ in RECORD.iter_unpack(log.read_bytes())]
        assert len(set(streams)) == len(streams)
        # every step of every round and of the pass at the end, in one membership
        assert len(streams) == (here.rounds + 1) * problem.horizon
        assert len({membership for membership, _, _ in streams}) == 1
