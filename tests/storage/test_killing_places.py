"""The places of kills: every call that changes the disk is one, and every part of a write."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from fedlsvi.storage import files
from killing_places import DiskCalls, Place, Round, places

SEALING = Round(calls=5, writes=1)
"""A sealed file: unlink, write, fsync, replace, and fsync of the folder."""


class Stopped(Exception):
    """In the place of a kill."""


def stop() -> None:
    raise Stopped


def seal(folder: Path, checkpoints: int) -> None:
    for number in range(1, checkpoints + 1):
        files.write(folder / f"{number}.json", b"whole")


@pytest.mark.parametrize(
    ("place", "left"),
    [
        (Place(0, 1), []),
        (Place(0, 2), [(".1.json.tmp", b"")]),
        (Place(0, 1, 0.5), [(".1.json.tmp", b"wh")]),
        (Place(0, 3), [(".1.json.tmp", b"whole")]),
        (Place(0, 5), [("1.json", b"whole")]),
        (Place(1, 1), [("1.json", b"whole")]),
        (Place(0, 2, 0.2), [(".2.json.tmp", b"w"), ("1.json", b"whole")]),
        (Place(1, 4), [(".2.json.tmp", b"whole"), ("1.json", b"whole")]),
    ],
)
def test_what_a_kill_leaves(place: Place, left: list[tuple[str, bytes]], tmp_path: Path) -> None:
    """In the writing of two checkpoints."""
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    with pytest.raises(Stopped), DiskCalls(stop, place):
        seal(folder, 2)
    assert [(path.name, path.read_bytes()) for path in sorted(folder.iterdir())] == left
    assert os.fsync.__module__ == "posix"


def test_calls_are_counted_from_checkpoint_to_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    with DiskCalls() as disk:
        seal(folder, 3)
    assert disk.rounds[1:] == [SEALING] * 2


def test_places_leave_rounds_for_all_of_them() -> None:
    """A kill lets the checkpoints pass that it waits for, and one more at most."""
    for seed in range(20):
        drawn = places(random.Random(seed), 45, [SEALING] * 30)
        assert len(drawn) == 30
        assert sum(place.seals + 1 for place in drawn) < 45
        assert {place.part is None for place in drawn} == {True, False}
        assert len(set(drawn)) > 20
