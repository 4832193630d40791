"""BLAS on one thread. Our products are many and small: threads that wait for each other between two
of them cost several times what they save, and the compiled loops use the cores already."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import scipy.linalg  # noqa: F401 (its BLAS must be loaded before libraries are looked for)
from threadpoolctl import ThreadpoolController


@cache
def _libraries() -> ThreadpoolController:
    """The BLAS libraries of this process. To find them takes milliseconds, to limit them none."""
    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[Any]:
    """While it is in force, BLAS keeps to one thread; then it has as many as before."""
    limited: AbstractContextManager[Any] = _libraries().limit(limits=1, user_api="blas")
    return limited
