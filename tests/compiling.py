"""One process at a time compiles a kernel; the others wait and load it.

In a fresh clone nothing is compiled. Without this, all workers begin by compiling the same kernels
side by side, which costs more processor time than most tests.
"""

from __future__ import annotations

import getpass
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

from filelock import FileLock
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher

LOCKS = Path(tempfile.gettempdir()) / f"fedlsvi-kernels-of-{getpass.getuser()}"
_compile = Dispatcher.compile
_locks: dict[str, FileLock] = {}


def _of(kernel: Dispatcher) -> FileLock:
    """The lock of a kernel. One object in this process: a kernel may be compiled inside itself."""
    code = kernel.py_func.__code__
    name = sha256(f"{code.co_filename}:{code.co_firstlineno}".encode()).hexdigest()[:16]
    return _locks.setdefault(name, FileLock(LOCKS / name))


def _alone(kernel: Dispatcher, signature: Any) -> Any:
    # Numba's own lock first: else a thread that has it could wait for one that waits for it.
    # Kernels call kernels in one direction, so processes cannot wait for each other either.
    if not kernel.py_func.__module__.startswith("fedlsvi."):  # a part of a kernel, not kept
        return _compile(kernel, signature)
    with global_compiler_lock, _of(kernel):
        return _compile(kernel, signature)


def one_process_at_a_time() -> None:
    """From now on, in this process."""
    LOCKS.mkdir(exist_ok=True)
    Dispatcher.compile = _alone
