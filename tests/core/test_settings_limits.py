"""Numbers as users give them and as runs report them: settings, sizes, bounds."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlsvi
from expecting import refused
from fedlsvi import FedLSVI, checks
from fedlsvi.config import Settings
from fedlsvi.envs import ContinuousLinearMDP, RandomLinearMDP, RiverSwim, xi_close
from fedlsvi.envs.per_agent import own_features
from fedlsvi.errors import InvalidEnvironment, InvalidSetting
from fedlsvi.features import FourierFeatures
from fedlsvi.protocol.plan import make_plan
from fedlsvi.run import Bound
from fedlsvi.storage.run_header import describe

HUGE = 10**400


def test_numbers_of_numpy_become_plain_and_survive_a_folder(tmp_path: Path) -> None:
    learner = FedLSVI(
        np.int64(2), gamma=np.geomspace(1, 100, 3)[2], beta=np.float32(0.5), lam=np.longdouble(1)
    )
    kinds = {type(value) for value in asdict(learner.settings).values()}
    assert kinds <= {int, float, str, type(None)}
    env = RandomLinearMDP(4, 2, 3, 2)
    run = learner.learn(env, np.int64(20), np.int64(1), progress=False, folder=tmp_path / "x")  # type: ignore[arg-type]
    assert json.dumps(run.summary(), allow_nan=False)
    assert fedlsvi.load(tmp_path / "x").settings == learner.settings


@pytest.mark.parametrize(
    ("settings", "episodes", "said"),
    [
        ({"gamma": HUGE}, 9, ("bad-gamma", "1000")),
        ({"beta": HUGE}, 9, ("bad-beta",)),
        ({"lam": 5e-324}, 9, ("bad-lam", "5e-324")),
        ({"n_agents": 10**13}, 9, ("bad-n_agents", "n_agents", "32", "10000000000000")),
        ({}, 10**13, ("bad-episodes", "32", "10000000000000")),
        ({"beta": "theory", "confidence": 1e-320}, 9, ("bad-beta", "1e-320")),
        ({"beta": "theory", "c_beta": 1e308}, 9, ("bad-beta", "c_beta")),
    ],
)
def test_numbers_that_are_too_large(
    settings: dict[str, Any], episodes: int, said: tuple[str, ...]
) -> None:
    with refused(InvalidSetting, *said):
        FedLSVI(**settings).prepare(RiverSwim(), episodes)


@pytest.mark.parametrize("name", ["threads", "block"])
def test_how_the_work_is_cut_is_an_integer(name: str, tmp_path: Path) -> None:
    for wrong in (True, 0, 1.0, "2", np.int64(0)):
        with refused(InvalidSetting, f"bad-{name}", repr(wrong)):
            FedLSVI().prepare(RiverSwim(), 9, **{name: wrong})
    learner, cut = FedLSVI(2), {name: np.int64(1)}
    kept = learner.learn(RiverSwim(), 9, progress=False, folder=tmp_path / "x", **cut)  # type: ignore[arg-type]
    assert kept.taus == learner.learn(RiverSwim(), 9, progress=False).taus


@pytest.mark.parametrize(
    ("n_agents", "env", "episodes", "named"),
    [
        (1, {"horizon": 10**13}, 9, "10000000000000"),
        (1, {}, 2**32 - 1, "4294967295"),
        (10**9, {}, 9, "1000000000"),
        (10**6, {"n_states": 60}, 9, "1000000"),
    ],
    ids=["model", "regret", "agents", "statistics"],
)
def test_what_no_memory_holds_is_refused_before_it_begins(
    n_agents: int,
    env: dict[str, int],
    episodes: int,
    named: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a machine of 8 GiB; 10⁶ agents used to end in a MemoryError, 10⁹ took all memory."""
    monkeypatch.setattr(checks.os, "sysconf", {"SC_PAGE_SIZE": 2**12, "SC_PHYS_PAGES": 2**21}.get)
    with refused(InvalidSetting, "too-large", named):
        FedLSVI(n_agents).prepare(RiverSwim(**env), episodes)


def test_a_million_agents_that_are_added_are_allowed_where_memory_suffices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a machine of 8 GiB too; they were refused, because each had sums of its own."""
    monkeypatch.setattr(checks.os, "sysconf", {"SC_PAGE_SIZE": 2**12, "SC_PHYS_PAGES": 2**21}.get)
    env = RandomLinearMDP(60, 3, 20, 10, seed=0)
    together: Any = {"exchange": "one-trip", "aggregation": "exact"}
    session = FedLSVI(10**6, **together).prepare(env, 9)
    assert session.player.parameters.n_agents == 10**6
    session.close()
    with refused(InvalidSetting, "too-large", "one-trip", "exact"):
        FedLSVI(10**6).prepare(env, 9)
    with refused(InvalidSetting, "too-large", "20000000"):
        FedLSVI(2 * 10**7, **together).prepare(env, 9)


def test_the_longest_round_that_is_certain_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """One round of all episodes: its log, or its counts, are kept of every agent."""
    monkeypatch.setattr(checks.os, "sysconf", {"SC_PAGE_SIZE": 2**12, "SC_PHYS_PAGES": 2**21}.get)
    env = RandomLinearMDP(50, 3, 20, 10, seed=0)
    long: Any = {"exchange": "one-trip", "aggregation": "exact", "rounds": 1}
    FedLSVI(10**5, **long).prepare(env, 100).close()
    with refused(InvalidSetting, "too-large", "100000"):
        FedLSVI(10**5, **long).prepare(env, 10**4)


@pytest.mark.parametrize("kind", ["CartPole-v1", "tent"])
def test_agents_in_any_world_are_counted(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million agents ended in a MemoryError here: what they log and their determinants were
    left out."""
    monkeypatch.setattr(checks.os, "sysconf", {"SC_PAGE_SIZE": 2**12, "SC_PHYS_PAGES": 2**21}.get)
    env: Any = ContinuousLinearMDP(horizon=20) if kind == "tent" else kind
    features = FourierFeatures(4) if kind == "CartPole-v1" else None
    with refused(InvalidSetting, "too-large", "1000000"):
        FedLSVI(10**6).prepare(env, 9, features=features)


def test_an_equality_holds_only_where_both_sides_are_equal() -> None:
    assert Bound("at most", 10.0, 3).holds
    assert not Bound("at most", 10.0, 11).holds
    assert Bound("equal", 10.0, 10, exact=True).holds
    assert not Bound("equal", 10.0, 3, exact=True).holds
    assert Bound("equal", 10.0, None, exact=True).holds is None


@pytest.mark.parametrize(
    "setting", [{"gamma": 1e308}, {"beta": 1e308}, {"confidence": 1e-320}, {"lam": 6e-309}], ids=str
)
def test_bounds_beyond_every_number_are_null(setting: dict[str, float]) -> None:
    run = FedLSVI(2, **setting).learn(RiverSwim(3, 3), 9, progress=False)  # type: ignore[arg-type]
    found = json.loads(json.dumps(run.summary(), allow_nan=False))["bounds"]
    assert found["theorem_1"] == {
        "claim": "regret ≤ Theorem 1 at the β and λ in force",
        "bound": None,
        "measured": run.regret[-1],  # type: ignore[index]
        "holds": True,
        "applies": False,
    }
    for what in ("scalars", "lengths"):
        assert run.plot(what).axes


def test_agents_with_other_features_of_their_own_are_refused() -> None:
    worlds = [RandomLinearMDP(4, 2, 3, 2, seed=seed) for seed in (0, 0, 1)]
    assert own_features(worlds[:2]) is worlds[0].default_features()
    with refused(InvalidEnvironment, "features-disagree", "agent 2"):
        FedLSVI(3).prepare(worlds, 9)
    assert FedLSVI(3).prepare(xi_close(worlds[0], 3, 0.1), 9)
    # agent 0's own map, given to all of them, is then not "the environment's own"
    settings = Settings(3)
    plan = make_plan(settings, worlds, 9, 0, worlds[0].default_features())
    assert describe(plan, "fed-lsvi", settings)[0].features == {
        "name": "table",
        "file": "features.safetensors",
    }
