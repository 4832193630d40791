"""A site that stops itself in the middle of a synchronisation, so that tests can kill and hold
others while the run stands still, however fast the machine is.

`arm` runs in the site's process, with a folder of orders. It looks there whenever an upload is
about to leave; `Hold` is the test's end of that folder.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedlsvi.remote import codec
from fedlsvi.remote.audit import Audit
from patience import wait_until

ORDER, HELD, SLOW = "order", "held", "slow"


def arm(folder: Path) -> None:
    """From now on this process obeys: it stops, as by SIGSTOP, when it has written down that the
    n-th upload of a step since the order leaves, and before that leaves."""
    if getattr(Audit.sent, "obeys", False):  # the site makes its environment again at the end
        return
    sent, counted = Audit.sent, {"": 0}

    def obeying(self: Audit, frame: bytes) -> None:
        sent(self, frame)
        kind, step, _ = codec.peek(frame)
        if kind not in (codec.UPLOAD, codec.MASKED):
            return
        with suppress(FileNotFoundError):
            time.sleep(float((folder / SLOW).read_text()))
        order = (folder / ORDER).read_text() if (folder / ORDER).exists() else ""
        at, _, uploads = order.partition(" ")
        if at == str(step):
            counted[order] = counted.get(order, 0) + 1
            if counted[order] == int(uploads.split()[0]):
                (folder / HELD).write_text(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGSTOP)

    obeying.obeys = True  # type: ignore[attr-defined]
    Audit.sent = obeying  # type: ignore[method-assign]


def named(world: str, hold: str, horizon: int, **options: Any) -> Any:
    """One of our environments at a site that obeys, as `entry = "holding:named"` in its settings:
    `world` is its name."""
    from fedlsvi import envs

    arm(Path(hold))
    return envs.make(world, horizon=horizon, **options)


class Hold:
    """Orders to a site that obeys.

    Args:
        folder: Of the orders; made if there is none.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self._orders = folder, 0
        folder.mkdir(exist_ok=True)

    def order(self, step: int, uploads: int) -> None:
        """Stop when so many uploads of this step were made from here on."""
        self._orders += 1
        (self.folder / HELD).unlink(missing_ok=True)
        whole = self.folder / "new"
        whole.write_text(f"{step} {uploads} {self._orders}")
        whole.rename(self.folder / ORDER)

    def wait(self) -> None:
        """Until the site has stopped."""
        wait_until(self._stopped, "the run does not move")

    def _stopped(self) -> bool:
        with suppress(OSError, ValueError):
            pid = int((self.folder / HELD).read_text())
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            return state == "T"
        return False

    def release(self) -> None:
        """It goes on, if it still lives, and stops no more."""
        (self.folder / ORDER).unlink()
        with suppress(ProcessLookupError):
            os.kill(int((self.folder / HELD).read_text()), signal.SIGCONT)

    def slow(self, seconds: float) -> None:
        """Have each of its uploads take so long at least; 0 is no more."""
        if seconds:
            whole = self.folder / "slower"
            whole.write_text(f"{seconds}")
            whole.rename(self.folder / SLOW)
        else:
            (self.folder / SLOW).unlink()
