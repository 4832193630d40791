"""Theorem 3: the number of rounds."""
