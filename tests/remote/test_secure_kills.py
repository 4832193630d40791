"""SIGKILL of all parties of a secure run together, or of one that is drawn, at drawn places, each
resumed: the same bits, and no mask, and no noise of a private run, hides two contents, as the
journals say."""

from __future__ import annotations

from pathlib import Path

import pytest

import killing_parties
import problems
from fedlsvi.remote.release_log import releases
from killing_frames import kill
from repeats import only_ci, repeats

KILLS = repeats(3, 30)
EPISODES = repeats(120, 600)


@pytest.mark.parametrize("kind", ["private-steps", "private", "secure"][: repeats(1, 3)])
def test_killed_parties_hide_nothing_twice(kind: str, tmp_path: Path) -> None:
    name = "continuous" if kind == "private-steps" else "simplex"
    found = kill(name, kind, 3, EPISODES, KILLS, tmp_path)
    assert found["kills"] == KILLS
    assert found["equal"]
    check_journals(tmp_path / "journals", kind, name, found["rounds"])


@only_ci
@pytest.mark.parametrize("kind", ["secure", "private-steps"])
def test_a_killed_party_is_waited_for_and_hides_nothing_twice(kind: str, tmp_path: Path) -> None:
    """The server and each of three sites are processes; one of them is killed at a time."""
    name = "continuous" if kind == "private-steps" else "simplex"
    found = killing_parties.kill(name, kind, EPISODES, KILLS, tmp_path)
    assert sum(found["killed"].values()) == KILLS
    assert len(found["killed"]) == 4
    assert found["equal"]
    check_journals(tmp_path / "journals", kind, name, found["rounds"])


def check_journals(journals: Path, kind: str, name: str, rounds: int) -> None:
    """Every sum that was due was released, for one content: each step of every round, and of the
    pass at the end of a run without noise; in one trip every round."""
    H = getattr(problems, name)().horizon
    steps = [0] if kind == "private" else list(range(H, 0, -1))
    due = [(k, h) for k in range(1, rounds + 1 + (kind == "secure")) for h in steps]
    folders = sorted(journals.glob("*.secrets"))
    assert len(folders) == 3
    for folder in folders:
        assert [stage for _, stage, _, _ in releases(folder)] == due
