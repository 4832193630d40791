"""By mail, in one process and over frames a study teaches the same, to the last bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlsvi import PEVI, load
from fedlsvi.features.registry import make
from fedlsvi.logs.world import logged_worlds
from fedlsvi.policy import Policy
from fedlsvi.protocol import protected
from fedlsvi.remote import site_noise
from mailing import NAMES, A, H, S, T, dense, logs, merged, study_of
from transports_over_frames import over_frames

PRIVACY = {"epsilon": 20.0, "delta": 1e-6}


@pytest.fixture(autouse=True)
def one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every party draws its noise from the same secret, so that runs can be compared."""
    for module in (protected, site_noise):
        monkeypatch.setattr(module, "new_noise_key", lambda: bytes(range(32)))


def in_process(data: Any, settings: dict[str, Any], features: Any, **how: Any) -> Any:
    worlds = logged_worlds([data[name] for name in NAMES], horizon=H, n_states=S, n_actions=A)
    learner = PEVI(len(NAMES), exchange="one-trip", **settings)
    return learner.learn(worlds, T, features=features, progress=False, **how)


SETTINGS = [
    {"aggregation": "exact"},
    {"aggregation": "float"},
    {"aggregation": "secure"},
    {"aggregation": "exact", "privacy": PRIVACY},
    {"aggregation": "secure", "privacy": PRIVACY},
    {"aggregation": "secure", "stationary": True, "min_round": 5},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: "-".join(map(str, s.values()))[:30])
@pytest.mark.parametrize("kind", ["one-hot", "dense"])
def test_merged_by_mail_is_learned_in_one_process(
    kind: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    env, features = (None, {"name": "one-hot"}) if kind == "one-hot" else dense()
    settings = {"beta": 0.1, "lam": 0.5, **settings}
    data = logs(env)
    study = study_of(tmp_path, features=features, settings=settings)
    run = merged(study, tmp_path, data)
    params = {key: value for key, value in features.items() if key != "name"}
    phi = make(features["name"], **params)
    here = in_process(data, settings, phi, cohorts=len(NAMES))
    there = in_process(data, settings, phi, transport=over_frames(len(NAMES)))
    for other in (here, there):
        assert np.array_equal(run.w, other.w)
        assert np.array_equal(run.gram_packed, other.gram_packed)
    assert {k: n for k, n in run.ledger.scalars.items() if k != "signal"} == {
        k: n for k, n in here.ledger.scalars.items() if k != "signal"
    }
    policy = Policy.load(tmp_path / "run" / "policy")
    for h in range(1, H + 1):
        assert [policy.action(x, h) for x in range(S)] == here.policy.table[h - 1].tolist()
    assert np.array_equal(load(tmp_path / "run").w, run.w)


def test_vectors_go_by_mail_where_an_episode_is_one_step(tmp_path: Path) -> None:
    """A contextual bandit: nothing follows a step, so nothing has to be asked twice."""
    rng, data = np.random.default_rng(0), {}
    for name in NAMES:
        x, a = rng.random((T, 2)), rng.integers(A, size=T)
        data[name] = {
            "episode": np.arange(T), "step": np.ones(T, int), "observation": x, "action": a,
            "reward": np.clip(x[:, 0] * (a == 1) + 0.1 * rng.random(T), 0.0, 1.0),
            "terminated": np.ones(T, bool),
        }  # fmt: skip
    features = {"name": "fourier", "n_frequencies": 4}
    about = {"beta": 0.1, "lam": 0.5, "aggregation": "secure"}
    given = {"n_states": 0, "dim": 24, "horizon": 1, "features": features, "settings": about}
    run = merged(study_of(tmp_path, **given), tmp_path, data)
    worlds = logged_worlds([data[name] for name in NAMES], horizon=1, n_actions=A)
    phi = make("fourier", n_frequencies=4)
    here = PEVI(len(NAMES), **about).learn(worlds, T, features=phi, progress=False)
    assert np.array_equal(run.w, here.w)
    assert np.array_equal(run.gram_packed, here.gram_packed)
