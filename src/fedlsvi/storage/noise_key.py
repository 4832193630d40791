"""The secret of a private run's noise, while the run is under way.

    noise.json     the secret, for its owner alone; deleted when the run has ended

It is in place before the first round, so a resumed run adds the same noise to the same sums.
Whoever has it can take the noise away: it is no part of a checkpoint, and a finished folder does
not have it.
"""

from __future__ import annotations

import re
from pathlib import Path

from fedlsvi.errors import DamagedFile
from fedlsvi.privacy.noise import NOISE_KIND
from fedlsvi.protocol.session import Player
from fedlsvi.storage import files
from fedlsvi.storage.schema import Shape, suspect

NOISE = "noise.json"
_SHAPE: Shape = {"secret": re.compile("[0-9a-f]{64}"), "kind": re.compile(NOISE_KIND)}


def keep_noise_key(run: Path, player: Player) -> None:
    """Before a run folder is played: give the player the folder's secret, or keep the player's.

    Raises:
        DamagedFile: Rounds were played, and the folder has no secret.
    """
    key, path = player.noise_key, files.inside(run, NOISE)
    if key is None:
        return
    if files.exists(path):
        table = files.read_json(path, _SHAPE)
        with suspect(path):
            player.use_noise_key(bytes.fromhex(table["secret"]))
    elif player.k > 0:
        raise DamagedFile(
            f"{path} is missing, but rounds of this private run were played with its noise: put it "
            "back. New noise would spend the budget twice",
            code="noise-lost",
        )
    else:
        files.write_json(path, {"secret": key.hex(), "kind": NOISE_KIND}, private=True)


def forget_noise_key(run: Path) -> None:
    """The run has ended: nobody needs the secret again."""
    files.inside(run, NOISE).unlink(missing_ok=True)
