"""Settings in groups, and the same ones by name."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any, get_type_hints

import pytest

from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.algorithms import registry
from fedlsvi.config import Settings
from fedlsvi.errors import InvalidSetting, UnknownName
from fedlsvi.groups import (
    GROUPS,
    BonusSettings,
    ExchangeSettings,
    PresenceSettings,
    TriggerSettings,
)
from fedlsvi.learner import MoreSettings


@pytest.mark.parametrize(
    ("groups", "names"),
    [
        ({"trigger": TriggerSettings(gamma=5.0, min_round=3)}, {"gamma": 5.0, "min_round": 3}),
        ({"bonus": BonusSettings(beta=0.5, diversity=0.0)}, {"beta": 0.5, "diversity": 0.0}),
        ({"exchange": ExchangeSettings("dense", "exact", "one-trip")},
         {"packing": "dense", "aggregation": "exact", "exchange": "one-trip"}),
        ({"presence": PresenceSettings(0.5)}, {"participation": 0.5}),
    ],
    ids=["trigger", "bonus", "exchange", "presence"],
)  # fmt: skip
def test_a_group_is_its_settings_by_name(groups: dict[str, Any], names: dict[str, Any]) -> None:
    learner = FedLSVI(4, **groups)
    assert learner.settings == FedLSVI(4, **names).settings
    assert FedLSVI(4, **names | groups).settings == learner.settings  # twice the same is no clash
    assert FedLSVI(4).set_params(**names).get_params() == learner.get_params()


def test_a_setting_is_given_once() -> None:
    with refused(InvalidSetting, "setting-twice", "gamma"):
        FedLSVI(4, gamma=2.0, trigger=TriggerSettings(gamma=5.0))
    with refused(UnknownName, "unknown-setting", "gama"):
        FedLSVI(4, gama=2.0)  # type: ignore[call-arg]
    with refused(InvalidSetting, "bad-gamma"):
        TriggerSettings(gamma=0.5)


def test_the_signature_is_short_and_every_setting_has_a_type() -> None:
    """A type checker reads `MoreSettings`; it has what `Settings` has, with the same types."""
    named = [
        name
        for name, own in inspect.signature(FedLSVI).parameters.items()
        if own.kind is not own.VAR_KEYWORD
    ]
    assert len(named) <= 12
    hints, more = get_type_hints(Settings), get_type_hints(MoreSettings)
    every = {own.name for own in fields(Settings)}
    assert every == {*named, *more} - {*GROUPS}
    for name in more:
        if name != "present":  # any sequence is taken and becomes lists
            assert more[name] == hints[name]
    annotations = get_type_hints(FedLSVI.__init__)
    for name in every - {*more, "exchange", "bonus"}:  # these take a group, too
        assert annotations[name] == hints[name]


@pytest.mark.parametrize("name", registry.names())
def test_every_setting_is_documented_by_its_group(name: str) -> None:
    settings = registry.make(name, n_agents=3).settings
    for row in type(settings).documented():
        assert row["text"], row["name"]
