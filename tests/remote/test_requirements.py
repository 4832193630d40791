"""What a site demands, and what a server without environments can do in one trip."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from expecting import refused
from fedlsvi import FedLSVI, envs
from fedlsvi.errors import InvalidEnvironment, InvalidSetting, UnknownName
from fedlsvi.remote.codec import run_id
from fedlsvi.remote.endpoint_factory import endpoint_factories
from fedlsvi.remote.federation import Federation, serve
from fedlsvi.remote.frame_transport import ThreadTransport
from fedlsvi.remote.requirements import Requirements
from fedlsvi.remote.site_settings import SiteSettings
from fedlsvi.storage import settings_file

SECURE = {"min_round": 30, "aggregation": "secure"}


@pytest.mark.parametrize(
    ("job", "lacks"),
    [
        (SECURE, []),
        ({**SECURE, "min_round": 20}, []),
        ({**SECURE, "min_round": 19}, ["min_round = 20", "19"]),
        ({"min_round": 30}, ['aggregation = "secure"', '"float"']),
        ({"min_round": 30, "aggregation": "exact"}, ['aggregation = "secure"', '"exact"']),
        ({}, ["min_round = 20", 'aggregation = "secure"']),
        ({**SECURE, "min_round": "30"}, ["min_round = 20"]),
    ],
)
def test_a_job_lacks_what_a_site_requires(job: dict[str, Any], lacks: list[str]) -> None:
    said = Requirements.of({"min_round": 20, "aggregation": "secure"}).missing(job)
    assert bool(said) == bool(lacks)
    for part in lacks:
        assert part in said


@pytest.mark.parametrize(
    ("settings", "public"),
    [
        ({"aggregation": "secure"}, True),
        ({"aggregation": "secure", "gamma": "auto", "rounds": 6}, True),
        ({"aggregation": "secure", "scalars": 100_000}, True),
        ({"aggregation": "secure", "privacy": {"epsilon": 1.0, "delta": 1e-6}}, True),
        ({"gamma": 1, "rounds": 6}, True),
        ({"aggregation": "secure", "gamma": 6.0}, False),
        ({"aggregation": "secure", "gamma": "anytime"}, False),
        ({"aggregation": "secure", "cap": 1.5}, False),
        ({"aggregation": "secure", "overshoot": "keep"}, False),
        ({"aggregation": "secure", "rounds": "off"}, False),
        ({"aggregation": "secure", "preset": "paper"}, False),
        ({"aggregation": "exact"}, False),
        ({"gamma": 1}, False),
        ({}, False),
    ],
)
def test_a_site_may_require_that_signals_say_nothing(settings: Any, public: bool) -> None:
    """What the settings say of the ends of rounds is what the numbers in force say."""
    job = Federation("trial", episodes=60, horizon=3, dim=4, settings=settings)
    assert job.ends_are_public is public
    assert job.parameters(8).ends_are_public is public
    said = Requirements.of({"schedule": "public"}).missing(settings, job.ends_are_public)
    assert ("public schedule" in said) is not public


def test_logs_are_read_when_they_are_asked_for() -> None:
    settings = {"aggregation": "secure"}
    assert Federation("trial", 60, 3, 4, algorithm="pevi", settings=settings).ends_are_public


def test_nothing_is_required_by_default() -> None:
    assert Requirements().missing({}) == ""


def test_a_wrong_table_is_refused(tmp_path: Path) -> None:
    with refused(UnknownName, "unknown-key", "min_rounds"):
        Requirements.of({"min_rounds": 20})
    with refused(InvalidSetting, "bad-aggregation", "hidden"):
        Requirements.of({"aggregation": "hidden"})
    with refused(InvalidSetting, "bad-min_round"):
        Requirements.of({"min_round": 0})
    with refused(InvalidSetting, "bad-require"):
        Requirements.of(["secure"])
    path = tmp_path / "fedlsvi.toml"
    own = {"env": {"name": "river-swim"}, "require": {"min_round": 20}}
    path.write_text(settings_file.dump(own))
    assert SiteSettings.read(path).require == Requirements(min_round=20)


ENV = envs.make("river-swim")
TRIP = Federation(
    "trip", episodes=40, horizon=ENV.horizon, dim=ENV.n_states * ENV.n_actions, one_hot=True,
    features={"name": "one-hot"}, n_states=ENV.n_states,
    settings={"gamma": 6.0, "exchange": "one-trip", "aggregation": "secure"},
)  # fmt: skip


def test_a_server_that_knows_the_features_alone_plays_one_trip(tmp_path: Path) -> None:
    """It has no environment; the run is that of one process."""
    plan, p = TRIP.plan(ENV, 3), TRIP.parameters(3)
    transport = ThreadTransport(p, endpoint_factories(plan, 3, threads=1), run_id(p, TRIP.seed))
    opened = TRIP.open_run(tmp_path / "run", transport.cuts, lambda note: None)
    try:
        run = serve(opened, transport, [], TRIP.values(p))
    finally:
        transport.close()
    learner = FedLSVI(
        n_agents=3, gamma=6.0, exchange="one-trip", aggregation="exact", stationary=False
    )
    here = learner.learn(ENV, 40, TRIP.seed, progress=False)
    assert run.taus == here.taus
    assert run.w.tobytes() == here.w.tobytes()


def test_what_one_trip_needs_to_know_is_asked_for() -> None:
    with refused(InvalidSetting, "one-trip-needs-states"):
        replace(TRIP, n_states=0).check(3)
    with refused(InvalidSetting, "one-trip-needs-features"):
        replace(TRIP, features=None).check(3)
    with refused(InvalidSetting, "other-dim"):
        replace(TRIP, n_actions=7).check(3)
    with refused(InvalidSetting, "bad-absent"):
        replace(TRIP, retry={"absent": "carry"}).check(3)
    with refused(InvalidEnvironment, "other-states"):
        replace(TRIP, n_states=3).plan(ENV, 3)
    TRIP.check(3)


def test_secure_federations_need_three_sites_that_stay() -> None:
    secure = replace(TRIP, settings={"aggregation": "secure"})
    secure.check(3)
    with refused(InvalidSetting, "too-few-sites"):
        secure.check(2)
    with refused(InvalidSetting, "bad-absent"):
        replace(secure, retry={"absent": "carry"}).check(3)


@pytest.mark.parametrize(
    ("settings", "floor"),
    [
        ({"privacy": {"epsilon": 5.0, "delta": 1e-6}, "aggregation": "secure"}, 100),
        (
            {"privacy": {"epsilon": 5.0, "delta": 1e-6}, "aggregation": "exact", "min_round": 300},
            300,
        ),
        ({"aggregation": "secure", "min_round": 30}, 30),
        ({}, 1),
    ],
)
def test_the_rounds_of_a_private_job_count_and_not_its_setting(
    settings: dict[str, Any], floor: int
) -> None:
    """A private run begins with rounds of T/200 episodes, and none is shorter."""
    job = Federation("wards", episodes=20_000, horizon=5, dim=8, settings=settings)
    assert job.floor == floor
    if "privacy" in settings:
        assert job.parameters(3).min_round == floor
    for least in (floor, floor + 1):
        said = Requirements.of({"min_round": least}).missing(job.settings, floor=job.floor)
        assert bool(said) == (least > floor)
