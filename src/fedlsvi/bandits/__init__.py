"""Federated contextual bandits: decisions that stand alone (H = 1), as in scikit-learn."""

from __future__ import annotations

from fedlsvi.bandits.learner import AsyncLinUCB, Decisions, DisLinUCB, FedLinTS, FedLinUCB
from fedlsvi.bandits.log import DecisionLog, LoggedDecisions
from fedlsvi.bandits.off_policy import Estimate, Replayed, estimate_value, replay

__all__ = [
    "AsyncLinUCB",
    "DecisionLog",
    "Decisions",
    "DisLinUCB",
    "Estimate",
    "FedLinTS",
    "FedLinUCB",
    "LoggedDecisions",
    "Replayed",
    "estimate_value",
    "replay",
]
