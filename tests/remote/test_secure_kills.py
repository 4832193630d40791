"""SIGKILL of all parties of a secure run at random moments, each resumed: the same bits, and no
mask, and no noise of a private run, hides two contents, as the journals say."""

from __future__ import annotations

from pathlib import Path

import pytest

import problems
from fedlsvi.remote import site_noise
from fedlsvi.remote.masking import RECORD, STREAMS
from killing_frames import kill
from repeats import repeats

KILLS = repeats(3, 30)
EPISODES = repeats(120, 600)


@pytest.mark.parametrize("kind", ["private", "secure"][: repeats(1, 2)])
def test_killed_parties_hide_nothing_twice(kind: str, tmp_path: Path) -> None:
    found = kill("simplex", kind, 3, EPISODES, KILLS, tmp_path)
    assert found["kills"] >= min(KILLS, 20), "the run was over before it could be killed"
    assert found["equal"]
    for log in (tmp_path / "journals").rglob(STREAMS):  # one that was put aside, too
        streams = [(m, k, h) for m, k, h, _ in RECORD.iter_unpack(log.read_bytes())]
        assert len(set(streams)) == len(streams)
    logs = [path / STREAMS for path in sorted((tmp_path / "journals").glob("agents-?-?"))]
    assert len(logs) == 3
    for log in logs:
        streams = [(m, k, h) for m, k, h, _ in RECORD.iter_unpack(log.read_bytes())]
        # every step of every round and of the pass at the end; in one trip every round
        steps = (found["rounds"] + 1) * problems.simplex().horizon
        assert len(streams) == (steps if kind == "secure" else found["rounds"])
        assert len({membership for membership, _, _ in streams}) == 1
        if kind == "private":
            beside = log.parent.with_name(f"{log.parent.name}.noise") / site_noise.RELEASED
            used = [k for _, k, _ in site_noise.RECORD.iter_unpack(beside.read_bytes())]
            assert used == list(range(1, found["rounds"] + 1))
