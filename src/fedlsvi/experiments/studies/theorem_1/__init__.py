"""Theorem 1: regret of order √T, and agents that gain from each other."""
