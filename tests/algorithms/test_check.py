"""`check_algorithm` passes every registered algorithm and refuses what breaks a promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from algorithms.roster import NAMES
from expecting import refused
from fedlsvi.algorithms import centralised, check_algorithm, register, registry
from fedlsvi.algorithms.shared.comparator import Segment
from fedlsvi.errors import InvalidInput


@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm_passes(name: str) -> None:
    check_algorithm(name)


def deaf(play: Any, done: Segment) -> Segment:
    """Nobody measures."""
    play.regret_meter.gaps[:] = 0.0
    return done


def cheating(play: Any, done: Segment) -> Segment:
    """Something is sent that the formula does not know."""
    play.channel.broadcast("down_model", np.zeros(1))
    return done


def forgetful(play: Any, done: Segment) -> Segment:
    """What it knows is in no checkpoint."""
    play.calls = getattr(play, "calls", 0) + 1
    play.regret_meter.gaps[play.t] += play.calls
    return done


def negative(play: Any, done: Segment) -> Segment:
    play.regret_meter.gaps[play.t] = -1.0
    return done


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (deaf, "no-regret"),
        (cheating, "wrong-formula"),
        (forgetful, "not-resumable"),
        (negative, "regret-falls"),
    ],
)
def test_a_broken_contract_is_named(
    fault: Callable[[Any, Segment], Segment], code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry.REGISTRY, "rows", dict(registry.REGISTRY.rows))

    class Play(centralised.CentralisedPlay):
        algorithm = "broken"

        def advance(self) -> Segment:
            return fault(self, super().advance())

    class Broken(centralised.Centralised):
        name = "broken"

        def play(self, plan: Any, cohorts: Any, keep_models: bool) -> Any:
            return Play(plan, self.settings, keep_models)

    register("broken", Broken, "breaks its contract", centralised.scalars)
    with refused(InvalidInput, code):
        check_algorithm("broken")


def test_names_must_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry.REGISTRY, "rows", dict(registry.REGISTRY.rows))
    register("another", centralised.Centralised, "under a wrong name")
    with refused(InvalidInput, "bad-name", "'another'"):
        check_algorithm("another")
