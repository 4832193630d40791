"""SIGKILL of all parties of a secure run at random moments, each resumed: the same bits, and no
mask hides two contents, as the journals say."""

from __future__ import annotations

from pathlib import Path

import problems
from fedlsvi.remote.masking import RECORD, STREAMS
from killing_frames import kill
from repeats import repeats

KILLS = repeats(3, 30)
EPISODES = repeats(120, 600)


def test_killed_parties_mask_nothing_twice(tmp_path: Path) -> None:
    found = kill("simplex", "secure", 3, EPISODES, KILLS, tmp_path)
    assert found["kills"] >= min(KILLS, 20), "the run was over before it could be killed"
    assert found["equal"]
    logs = sorted((tmp_path / "journals").rglob(STREAMS))
    assert len(logs) == 3
    for log in logs:
        streams = [(m, k, h) for m, k, h, _ in RECORD.iter_unpack(log.read_bytes())]
        assert len(set(streams)) == len(streams)
        # every step of every round and of the pass at the end, in one membership
        assert len(streams) == (found["rounds"] + 1) * problems.simplex().horizon
        assert len({membership for membership, _, _ in streams}) == 1
