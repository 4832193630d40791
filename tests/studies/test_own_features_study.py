"""The study of coefficients of own: its sites, what it measures, and what its limits say."""

from __future__ import annotations

import numpy as np
import pytest

from studies import own_features as study

pytestmark = pytest.mark.filterwarnings("ignore::fedlsvi.errors.TrafficWarning")


@pytest.mark.parametrize("kind", study.KINDS)
def test_sites_differ_by_their_offsets_alone(kind: str) -> None:
    alike, apart = study.sites(kind, 0.0, 0), study.sites(kind, 0.25, 0)
    for one, other in zip(alike, apart, strict=True):
        assert np.array_equal(one.P, other.P)
        offset = other.r - one.r
        assert 0.0 < np.abs(offset).max() <= 0.25
        # the same in every state and step, and with levels for every action
        np.testing.assert_allclose(offset, np.broadcast_to(offset[:1, :1], offset.shape))
        assert kind == "treatments" or np.ptp(offset) < 1e-12
    assert all(np.array_equal(site.r, alike[0].r) for site in alike)


def test_own_coefficients_win_where_treatments_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "EPISODES", 100)
    monkeypatch.setattr(study, "LOGGED", 60)
    found = {arm: study.scores("treatments", 0.25, arm, 0) for arm in ("one w", "own", "ξ")}
    assert set(found["ξ"]) == {"regret"}
    for what in ("regret", "loss", "error"):
        assert found["own"][what] < 0.5 * found["one w"][what]


def test_alone_is_the_mean_over_sites(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "EPISODES", 20)
    monkeypatch.setattr(study, "LOGGED", 20)
    found = study.scores("level", 0.0, "alone", 0)
    assert all(0.0 <= value < 3.0 for value in found.values())


def test_limits() -> None:
    half, same, worse = [0.1] * 8, [0.2] * 8, [0.3] * 8
    assert study.verdict("treatments", 0.25, "loss", half, worse) == "holds"
    assert study.verdict("treatments", 0.25, "loss", same, worse) == "does not hold"
    assert study.verdict("level", 0.25, "regret", worse, same) == ""
    assert study.verdict("treatments", 0.05, "error", half, worse) == ""
    assert study.verdict("level", 0.0, "regret", same, same) == "holds"
    assert study.verdict("level", 0.0, "regret", worse, same) == "does not hold"
