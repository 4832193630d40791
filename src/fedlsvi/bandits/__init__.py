"""Federated contextual bandits: decisions that stand alone (H = 1), as in scikit-learn."""

from __future__ import annotations

from fedlsvi.bandits.learner import AsyncLinUCB, Decisions, DisLinUCB, FedLinTS, FedLinUCB

__all__ = ["AsyncLinUCB", "Decisions", "DisLinUCB", "FedLinTS", "FedLinUCB"]
