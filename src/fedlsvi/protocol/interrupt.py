"""Ctrl-C that waits for the end of the round, so that nothing that was learned is lost."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupt:
    """While active, the first Ctrl-C sets `asked`; the second one interrupts at once.

    Signals reach the main thread only; elsewhere this does nothing.
    """

    def __init__(self, polite: bool = False, active: bool = True) -> None:
        """Ready, not yet in force.

        Args:
            polite: Leave Ctrl-C alone where somebody else has taken it already.
            active: False leaves it alone in any case.
        """
        self.asked, self.polite, self.active = False, polite, active
        self._before: Any = None

    def __enter__(self) -> Interrupt:
        ours = not self.polite or signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self.active and ours and threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        # straight to the terminal: whoever was interrupted may hold the lock of sys.stderr
        os.write(2, b"\nfedlsvi: stopping at the end of this round; Ctrl-C again stops at once\n")
