"""Algorithms by name, Fed-LSVI a row like any other, and what a custom one is made of."""

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
    from fedlsvi.algorithms.shared.comparator import Comparator as Comparator
    from fedlsvi.algorithms.shared.comparator import Play as Play
    from fedlsvi.algorithms.shared.comparator import Segment as Segment
    from fedlsvi.algorithms.shared.explorer import Explorer as Explorer
    from fedlsvi.algorithms.shared.lsvi_sums import LSVISums as LSVISums
    from fedlsvi.algorithms.shared.settings import LinearSettings as LinearSettings
    from fedlsvi.algorithms.shared.settings import RandomisedSettings as RandomisedSettings
    from fedlsvi.algorithms.shared.settings import SingleAgentSettings as SingleAgentSettings
    from fedlsvi.algorithms.shared.settings import TabularSettings as TabularSettings
    from fedlsvi.core.statistics import packed_size as packed_size

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "conformance": "check_algorithm",
        "registry": "AlgorithmEntry entry make names register",
        "shared.comparator": "Comparator Play Segment",
        "shared.explorer": "Explorer",
        "shared.lsvi_sums": "LSVISums",
        "shared.settings": "LinearSettings RandomisedSettings SingleAgentSettings TabularSettings",
        ".core.statistics": "packed_size",
    },
)
