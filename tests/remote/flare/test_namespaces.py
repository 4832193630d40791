"""The drill in network namespaces, as far as it goes without root."""

from __future__ import annotations

import os
import sys

import namespaces
import pytest


def test_without_root_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys, "argv", ["namespaces.py"])
    assert namespaces.main() == 2
    assert "root" in capsys.readouterr().err


def test_every_party_has_an_address_of_its_own() -> None:
    places = [namespaces.SERVER, *namespaces.PLACES.values()]
    assert len(places) == 5
    for name in ("name", "number", "cable"):
        assert len({getattr(place, name) for place in places}) == 5
    assert all(len(place.cable) < 16 for place in places)  # what Linux allows
