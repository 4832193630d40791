"""Algorithms by name. Fed-LSVI is a row like any other."""

from fedlsvi.algorithms.conformance import check_algorithm
from fedlsvi.algorithms.registry import AlgorithmEntry, entry, make, names, register

__all__ = ["AlgorithmEntry", "check_algorithm", "entry", "make", "names", "register"]
