"""The runs of a study that compares arms: one number for each arm and instance, kept in a file, so
that the study can be stopped and called again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

Arm = TypeVar("Arm")


class ArmFile(Generic[Arm]):
    """Numbers by arm and instance, as lines of a file.

    Args:
        path: The file; it need not exist.
        arm: A frozen dataclass: what one arm is.
    """

    def __init__(self, path: Path, arm: Callable[..., Arm]) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        rows = [json.loads(line) for line in lines]
        self._known = {(arm(**row["arm"]), row["instance"]): row["regret"] for row in rows}

    def play(self, runs: Iterable[tuple[Arm, int]], play: Callable[[Arm, int], float]) -> None:
        """Play what the file does not have yet."""
        for arm, instance in runs:
            if (arm, instance) in self._known:
                continue
            found = self._known[arm, instance] = play(arm, instance)
            of: Any = arm
            row = {"arm": asdict(of), "instance": instance, "regret": found}
            with self._path.open("a") as file:
                file.write(json.dumps(row) + "\n")

    def values(self, arm: Arm) -> np.ndarray:
        """The numbers of an arm, in the order of instances."""
        own = ((instance, value) for (of, instance), value in self._known.items() if of == arm)
        return np.array([value for _, value in sorted(own)])
