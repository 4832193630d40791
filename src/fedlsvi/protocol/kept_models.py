"""The models of a run's rounds, for study (`keep_models=True`), as small as they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import overload

import numpy as np

from fedlsvi.checks import plural, refuse_large
from fedlsvi.config import Parameters
from fedlsvi.core.statistics import every_step, full

Model = tuple[np.ndarray, np.ndarray]
"""w and Λ of all steps."""


class KeptModels(Sequence[Model]):
    """(w, Λ) after each round; an entry is expanded to (H, d), (H, d, d) when it is asked for.

    Attributes:
        packed: What is kept: w, (H, d), and Λ, (H, d, d), or (H, d) where features are one-hot and
            Gram matrices diagonal; with 1 in place of H where all steps share one.
    """

    def __init__(self, packed: Iterable[Model] = ()) -> None:
        self.packed = list(packed)

    def keep(self, w: np.ndarray, gram: np.ndarray, matrices: int) -> None:
        """Copy the model of a round, whose first so many Gram matrices are its own."""
        self.packed.append((w.copy(), gram[:matrices].copy()))

    @overload
    def __getitem__(self, k: int) -> Model: ...
    @overload
    def __getitem__(self, k: slice) -> KeptModels: ...
    def __getitem__(self, k: int | slice) -> Model | KeptModels:
        if isinstance(k, slice):
            return KeptModels(self.packed[k])
        w, gram = self.packed[k]
        return w, every_step(full(gram), len(w))

    def __len__(self) -> int:
        return len(self.packed)


def refuse_many(rounds: int, p: Parameters, gram: np.ndarray, policy: np.ndarray | None) -> None:
    """Refuse to keep models and policies of so many rounds where this machine has no room."""
    each = p.horizon * p.dim + p.matrices * gram[0].size + (0 if policy is None else policy.size)
    refuse_large(
        f"keep_models=True, with up to {plural(rounds, 'round')},",
        rounds * each,
        "leave it out, or set rounds= to have fewer",
    )
