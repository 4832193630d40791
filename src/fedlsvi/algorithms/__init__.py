"""Algorithms by name. Fed-LSVI is a row like any other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedlsvi.registry import lazy_exports

if TYPE_CHECKING:
    from fedlsvi.algorithms.conformance import check_algorithm as check_algorithm
    from fedlsvi.algorithms.registry import AlgorithmEntry as AlgorithmEntry
    from fedlsvi.algorithms.registry import entry as entry
    from fedlsvi.algorithms.registry import make as make
    from fedlsvi.algorithms.registry import names as names
    from fedlsvi.algorithms.registry import register as register

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {"conformance": "check_algorithm", "registry": "AlgorithmEntry entry make names register"},
)
