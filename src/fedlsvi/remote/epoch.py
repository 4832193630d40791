"""A server that is started again must speak later than every server before it.

Each server process counts its messages from an epoch of its own, in nanoseconds of its clock. The
epoch is written down before it is used, so that it rises even where the clock was set back or the
server before died without a checkpoint.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from fedlsvi.errors import DamagedFile
from fedlsvi.remote.frame_transport import FrameTransport
from fedlsvi.storage import files

EPOCH = "epoch.json"
APART = 2**30
"""How far the epochs of two servers are apart at least; a server uses some up in its calls to sites
that are away."""


def take_epoch(transport: FrameTransport, folder: Path) -> None:
    """Give the transport the next epoch of a folder, and write it down."""
    path = files.inside(folder, EPOCH)
    with suppress(DamagedFile):  # there is none; or the clock and the checkpoint must do
        transport.begin_at(files.read_json(path, {"epoch": int})["epoch"] + APART)
    files.write_json(path, {"epoch": transport.epoch})
