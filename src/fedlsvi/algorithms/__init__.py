"""Algorithms by name. Fed-LSVI is a row like any other."""

from fedlsvi.algorithms.registry import AlgorithmEntry, entry, make, names, register

__all__ = ["AlgorithmEntry", "entry", "make", "names", "register"]
