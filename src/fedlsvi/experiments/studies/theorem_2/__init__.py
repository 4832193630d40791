"""Theorem 2: agents that are ξ-close to one linear MDP."""
