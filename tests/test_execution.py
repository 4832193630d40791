"""Where agents are and how the work is cut: one object, or its fields as keywords."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from expecting import refused
from fedlsvi import PEVI
from fedlsvi.algorithms import registry
from fedlsvi.envs import Garnet
from fedlsvi.errors import InvalidInput, InvalidSetting
from fedlsvi.learner import Execution, Placing
from fedlsvi.logs.recording import record_episodes
from transports_over_frames import over_frames

ENV = Garnet(5, 2, 2, 3, seed=1)
LOGS = [record_episodes(ENV, 9, seed=m) for m in range(2)]


def learned(name: str, **placing: Any) -> Any:
    if name == "pevi":
        return PEVI(2).learn(ENV, data=LOGS, progress=False, **placing)
    return registry.make(name, n_agents=2).learn(ENV, 30, 3, progress=False, **placing)


def test_the_keywords_are_the_fields() -> None:
    assert set(Placing.__annotations__) == {field.name for field in fields(Execution)}


@pytest.mark.parametrize("name", ["fed-lsvi", "centralised", "pevi"])
def test_the_object_is_its_keywords(name: str) -> None:
    given: dict[str, Any] = {"cohorts": 2, "threads": 1, "block": 7, "keep_models": True}
    one, other = learned(name, **given), learned(name, execution=Execution(**given))
    plain = learned(name)
    assert one.w.tobytes() == other.w.tobytes() == plain.w.tobytes()
    assert len(one.models) == len(other.models) == one.rounds > 0 == len(plain.models)
    assert other.plan.threads == 1
    assert other.plan.block == 7


def test_an_object_says_where_agents_are() -> None:
    placed = learned("fed-lsvi", execution=Execution(over_frames(2)))
    assert placed.w.tobytes() == learned("fed-lsvi").w.tobytes()
    with refused(InvalidSetting, "transport-not-supported"):
        learned("centralised", execution=Execution("ray"))


def test_nothing_is_said_twice_or_misspelt() -> None:
    for name in ("fed-lsvi", "centralised", "pevi"):
        with refused(InvalidInput, "execution-twice"):
            learned(name, execution=Execution(), cohorts=2)
        with pytest.raises(TypeError, match="cohort"):
            learned(name, cohort=2)
