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


@pytest.mark.parametrize("kind", ["private-steps", "private", "secure"][: repeats(1, 3)])
def test_killed_parties_hide_nothing_twice(kind: str, tmp_path: Path) -> None:
    name = "continuous" if kind == "private-steps" else "simplex"
    found = kill(name, kind, 3, EPISODES, KILLS, tmp_path)
    assert found["kills"] >= min(KILLS, 20), "the run was over before it could be killed"
    assert found["equal"]
    for log in (tmp_path / "journals").rglob(STREAMS):  # one that was put aside, too
        streams = [(m, k, h) for m, k, h, _ in RECORD.iter_unpack(log.read_bytes())]
        assert len(set(streams)) == len(streams)
    logs = [path / STREAMS for path in sorted((tmp_path / "journals").glob("agents-?-?"))]
    assert len(logs) == 3
    for log in logs:
        streams = [(m, k, h) for m, k, h, _ in RECORD.iter_unpack(log.read_bytes())]
        # every step of every round, and of the pass at the end; in one trip every round
        rounds, H = found["rounds"], getattr(problems, name)().horizon
        count = {"secure": (rounds + 1) * H, "private-steps": rounds * H, "private": rounds}
        assert len(streams) == count[kind]
        assert len({membership for membership, _, _ in streams}) == 1
        if kind != "secure":
            beside = log.parent.with_name(f"{log.parent.name}.noise") / site_noise.RELEASED
            used = [stage[1:3] for stage in site_noise.RECORD.iter_unpack(beside.read_bytes())]
            steps = [0] if kind == "private" else range(H, 0, -1)
            assert used == [(k, h) for k in range(1, rounds + 1) for h in steps]
