"""`check_algorithm` passes every registered algorithm and refuses what breaks a promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from algorithms.roster import NAMES
from fedlsvi.algorithms import centralised, check_algorithm, register, registry
from fedlsvi.algorithms.shared.comparator import Stretch
from fedlsvi.errors import InvalidInput


@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm_passes(name: str) -> None:
    check_algorithm(name)


def deaf(play: Any, done: Stretch) -> Stretch:
    """Nobody measures."""
    play.ruler.gaps[:] = 0.0
    return done


def cheating(play: Any, done: Stretch) -> Stretch:
    """Something is sent that the formula does not know."""
    play.channel.broadcast("down_model", np.zeros(1))
    return done


def forgetful(play: Any, done: Stretch) -> Stretch:
    """What it knows is in no checkpoint."""
    play.calls = getattr(play, "calls", 0) + 1
    play.ruler.gaps[play.t] += play.calls
    return done


def negative(play: Any, done: Stretch) -> Stretch:
    play.ruler.gaps[play.t] = -1.0
    return done


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (deaf, "regret is zero"),
        (cheating, "the formula says"),
        (forgetful, "must go on to the same bits"),
        (negative, "must not fall"),
    ],
)
def test_broken_promises_are_named(
    fault: Callable[[Any, Stretch], Stretch], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry.REGISTRY, "rows", dict(registry.REGISTRY.rows))

    class Play(centralised.CentralisedPlay):
        algorithm = "broken"

        def advance(self) -> Stretch:
            return fault(self, super().advance())

    class Broken(centralised.Centralised):
        name = "broken"

        def play(self, plan: Any, cohorts: Any, keep_models: bool) -> Any:
            return Play(plan, self.settings, keep_models)

    register("broken", Broken, "breaks a promise", centralised.scalars)
    with pytest.raises(InvalidInput, match=f"check_algorithm: .*{why}"):
        check_algorithm("broken")


def test_names_must_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry.REGISTRY, "rows", dict(registry.REGISTRY.rows))
    register("another", centralised.Centralised, "under a wrong name")
    with pytest.raises(InvalidInput, match="must be the registered name"):
        check_algorithm("another")
