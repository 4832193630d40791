"""Which experience fits a problem: what its worlds are, whether all steps share their data, and
whether every agent and episode has a policy of its own. Only what is chosen is imported."""

from __future__ import annotations

from typing import Any, Literal

Kind = Literal[
    "dense", "sparse", "continuous", "stepped", "stepped-finite", "logged-finite", "logged"
]
"""Tables by counts or by what was seen, continuous states, black boxes with vectors or numbers for
states, logs with numbers or vectors."""


DENSE_BYTES = 4 * 2**20
"""Up to this size of one agent's dense N it is kept dense; a matter of H, d and S alone, so that no
result depends on how agents are split into cohorts."""


def prefers_sparse(horizon: int, dim: int, n_states: int, n_actions: int) -> bool:
    """Whether a problem with one-hot features is kept by its cells.

    Where pairs share coordinates, d is small and so is the dense N.
    """
    return dim == n_states * n_actions and 8 * horizon * dim * n_states > DENSE_BYTES


def experience_class(kind: Kind, stationary: bool, diverse: bool) -> Any:
    """The class that keeps what agents see in worlds of this kind."""
    if diverse and kind in ("dense", "sparse"):
        from fedlsvi.experience.diverse import KnownTables, StationaryKnownTables

        return StationaryKnownTables if stationary else KnownTables
    if diverse and kind == "stepped-finite":
        from fedlsvi.experience.diverse import PairLog, StationaryPairLog

        return StationaryPairLog if stationary else PairLog
    return _stationary(kind) if stationary else _by_step(kind)


def _by_step(kind: Kind) -> Any:
    """Every step has data of its own."""
    if kind == "dense":
        from fedlsvi.experience.finite import FiniteExperience

        return FiniteExperience
    if kind == "sparse":
        from fedlsvi.experience.finite_sparse import SparseExperience

        return SparseExperience
    if kind == "continuous":
        from fedlsvi.experience.continuous import ContinuousExperience

        return ContinuousExperience
    if kind == "stepped":
        from fedlsvi.experience.stepped import GymExperience

        return GymExperience
    if kind == "stepped-finite":
        from fedlsvi.experience.stepped_finite import GymFiniteExperience

        return GymFiniteExperience
    from fedlsvi.experience.logged import LoggedContinuousExperience, LoggedFiniteExperience

    return LoggedFiniteExperience if kind == "logged-finite" else LoggedContinuousExperience


def _stationary(kind: Kind) -> Any:
    """The same where all steps share their data."""
    if kind in ("dense", "sparse", "stepped-finite"):
        from fedlsvi.experience import stationary_finite as finite

        return {
            "dense": finite.StationaryFiniteExperience,
            "sparse": finite.StationarySparseExperience,
            "stepped-finite": finite.StationaryGymFiniteExperience,
        }[kind]
    if kind in ("continuous", "stepped"):
        from fedlsvi.experience import stationary_vectors as vectors

        return {
            "continuous": vectors.StationaryContinuousExperience,
            "stepped": vectors.StationaryGymExperience,
        }[kind]
    from fedlsvi.experience import logged

    return {
        "logged-finite": logged.StationaryLoggedFiniteExperience,
        "logged": logged.StationaryLoggedContinuousExperience,
    }[kind]
