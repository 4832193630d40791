"""Private runs at sites: the same noise after a restart, never twice, and nothing after the end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import problems
from expecting import refused
from fedlsvi import FedLSVI, envs, load, resume
from fedlsvi.errors import DamagedFile, MessageRefused
from fedlsvi.privacy.protections import Noise
from fedlsvi.protocol import protected
from fedlsvi.protocol.cohorts import cohort_of
from fedlsvi.protocol.messages import Stop
from fedlsvi.remote import site_noise
from fedlsvi.remote.codec import run_id
from fedlsvi.remote.endpoint import RequestOrder
from fedlsvi.remote.endpoint_factory import endpoint_factories
from fedlsvi.remote.federation import Federation, serve
from fedlsvi.remote.frame_transport import ThreadTransport
from fedlsvi.remote.release_log import releases
from fedlsvi.remote.requirements import Requirements
from fedlsvi.remote.site_noise import NoiseSecret
from fedlsvi.remote.site_privacy import SitePrivacy
from fedlsvi.storage import settings_file
from transports_over_frames import assert_same, dying, over_frames

PROBLEM = problems.simplex()
PRIVACY = {"epsilon": 2.0, "delta": 1e-6}


def learner(aggregation: Any = "secure") -> FedLSVI:
    return FedLSVI(
        n_agents=5, exchange="one-trip", aggregation=aggregation, rounds=6, privacy=PRIVACY
    )


def learn(aggregation: Any, **options: Any) -> Any:
    return learner(aggregation).learn(
        PROBLEM.envs, 60, 3, features=PROBLEM.features, progress=False, **options
    )


@pytest.fixture
def one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every site draws from the same secret, so that runs can be compared."""
    for module in (protected, site_noise):
        monkeypatch.setattr(module, "new_noise_key", lambda: bytes(range(32)))


@pytest.mark.usefixtures("one_key")
@pytest.mark.parametrize("aggregation", ["exact", "secure"])
def test_frames_carry_what_one_process_computes(aggregation: str, tmp_path: Path) -> None:
    here = learn(aggregation, cohorts=3)
    there = learn(aggregation, transport=over_frames(3, tmp_path))
    assert_same(there, here)
    assert stages(tmp_path) == [[(k, 0) for k in range(1, 7)]] * 3


CONTINUOUS = problems.continuous()


def learn_by_steps(aggregation: Any, **options: Any) -> Any:
    """The same on real states, whose agents answer step by step."""
    learner = FedLSVI(n_agents=5, aggregation=aggregation, rounds=5, privacy=PRIVACY)
    return learner.learn(
        CONTINUOUS.envs, 60, 3, features=CONTINUOUS.features, progress=False, **options
    )


@pytest.mark.usefixtures("one_key")
@pytest.mark.parametrize("aggregation", ["exact", "secure"])
def test_steps_over_frames_are_those_of_one_process(aggregation: str, tmp_path: Path) -> None:
    here = learn_by_steps(aggregation, cohorts=3)
    there = learn_by_steps(aggregation, transport=over_frames(3, tmp_path))
    assert_same(there, here)
    assert there.bounds["scalars"].holds
    every = [(k, h) for k in range(1, 6) for h in range(CONTINUOUS.horizon, 0, -1)]
    assert stages(tmp_path) == [every] * 3
    # a server that begins again gets the same bytes, and no second budget
    again = learn_by_steps(aggregation, transport=over_frames(3, tmp_path))
    assert again.w.tobytes() == here.w.tobytes()


@pytest.mark.parametrize("aggregation", ["exact", "secure"])
def test_a_killed_server_of_a_run_by_steps_is_resumed(aggregation: str, tmp_path: Path) -> None:
    """In the middle of a synchronisation; whoever resumes it hears the same bytes."""
    for after in (9, 17):
        folder = tmp_path / str(after)
        where, run = over_frames(3, folder / "journals"), folder / "run"
        with pytest.raises(KeyboardInterrupt):
            learn_by_steps(
                aggregation, transport=dying(where, after), folder=run, checkpoint_seconds=0
            )
        about: dict[str, Any] = {"env": CONTINUOUS.envs, "features": CONTINUOUS.features}
        once = resume(run, transport=where, progress=False, **about)
        released = stages(folder / "journals")
        assert all(len(set(one)) == len(one) == 15 for one in released)
        again = learn_by_steps(aggregation, transport=over_frames(3, folder / "journals"))
        assert again.w.tobytes() == once.w.tobytes()


@pytest.mark.parametrize("aggregation", ["exact", "secure"])
def test_a_server_that_begins_again_gets_the_same_noise(aggregation: str, tmp_path: Path) -> None:
    """The journal before is put aside, and the secret stays: the same bits, no second budget."""
    first = learn(aggregation, transport=over_frames(3, tmp_path))
    again = learn(aggregation, transport=over_frames(3, tmp_path))
    assert stages(tmp_path) == [[(k, 0) for k in range(1, 7)]] * 3
    assert again.w.tobytes() == first.w.tobytes()


def stages(journals: Path) -> list[list[tuple[int, int]]]:
    """What each of the sites has released, in order."""
    folders = sorted(journals.glob("agents-*.secrets"))
    return [[stage for _, stage, _, _ in releases(folder)] for folder in folders]


def plan() -> Any:
    return learner().prepare(PROBLEM.envs, 60, 3, features=PROBLEM.features).plan


def noise(p: Any, folder: Path | None = None, agent: int = 0) -> Noise:
    return Noise(p.release, NoiseSecret(7, folder).key, [agent], 2)


def test_a_restarted_site_adds_the_same_noise(tmp_path: Path) -> None:
    p = plan().parameters
    words = [np.arange(p.release.shares(1).size, dtype=np.uint64)[None] * k for k in range(1, 7)]
    first = noise(p, tmp_path)
    sent = [first.added(w, k, 1) for k, w in enumerate(words, start=1)]
    for again in (noise(p, tmp_path), first):
        for k, (w, before) in enumerate(zip(words, sent, strict=True), start=1):
            assert again.added(w, k, 1).tobytes() == before.tobytes()
    (tmp_path / "other").mkdir()
    for other in (noise(p, tmp_path / "other"), noise(p, tmp_path, agent=1)):
        assert other.added(words[0], 1, 1).tobytes() != sent[0].tobytes()


def test_every_step_has_noise_of_its_own() -> None:
    p = FedLSVI(n_agents=5, aggregation="secure", rounds=5, privacy=PRIVACY).prepare(
        CONTINUOUS.envs, 60, 3, features=CONTINUOUS.features, cohorts=3
    ).plan.parameters  # fmt: skip
    site = noise(p)
    words = np.zeros((1, sum(map(len, p.release.step_shares(1, 1)))), np.uint64)
    sent = [site.added(words, 1, h) for h in (3, 2, 1)]
    assert len({one.tobytes() for one in sent}) == 3
    assert site.added(words, 1, 2).tobytes() == sent[1].tobytes()
    for k in (0, 6):
        with refused(MessageRefused, "budget-spent", str(k)):
            site.added(words, k, 2)


def test_a_lost_secret_is_not_replaced(tmp_path: Path) -> None:
    NoiseSecret(7, tmp_path)
    NoiseSecret(8, tmp_path)  # another run has a secret of its own
    next(tmp_path.glob("noise-*7.json")).unlink()
    with refused(DamagedFile, "noise-lost"):
        NoiseSecret(7, tmp_path, used=True)


@pytest.mark.parametrize("aggregation", ["exact", "secure"])
def test_other_data_behind_the_same_noise_are_refused(aggregation: str, tmp_path: Path) -> None:
    """The environment does not play the same episodes again: nothing leaves a second time."""
    learn(aggregation, transport=over_frames(3, tmp_path))
    other = problems.simplex(seed=7)
    with refused(MessageRefused, "answered-before", "1"):
        learner(aggregation).learn(
            other.envs, 60, 3, features=PROBLEM.features, progress=False,
            transport=over_frames(3, tmp_path),
        )  # fmt: skip
    assert stages(tmp_path) == [[(k, 0) for k in range(1, 7)]] * 3


def test_nothing_is_sent_off_the_schedule_or_after_it() -> None:
    """A server that would end rounds elsewhere, or go on, hears a refusal."""
    p, cohort = plan().parameters, cohort_of(plan(), 0, 2)
    points = [t for t in range(1, 61) if p.trigger.number(t)]
    assert points[-1] == 60
    site = SitePrivacy(replace(p, aggregation="exact"), 7, (0, 2), None, None)
    assert [site.release_of(t) for t in points] == [1, 2, 3, 4, 5, 6]
    for t in (0, 61, 200, *(t for t in range(1, 60) if t not in points)):
        with refused(MessageRefused, "off-schedule"):
            site.release_of(t)
    cohort.experience.begin(0)
    order = RequestOrder(p)
    order.check(Stop(points[0]), cohort.experience)
    for t in (points[0] + 1, points[1]):
        with refused(MessageRefused, "bad-stop"):
            order.check(Stop(t), cohort.experience)


@pytest.mark.usefixtures("one_key")
def test_a_server_that_knows_the_features_alone_plays_a_private_run(tmp_path: Path) -> None:
    """As federation.toml gives it; the run is that of one process."""
    env = envs.make("river-swim")
    text = settings_file.dump({
        "name": "private", "episodes": 40, "horizon": env.horizon, "one_hot": True,
        "dim": env.n_states * env.n_actions, "n_states": env.n_states,
        "features": {"name": "one-hot"},
        "settings": {"exchange": "one-trip", "aggregation": "secure", "rounds": 4,
                     "privacy": PRIVACY},
    })  # fmt: skip
    (tmp_path / "federation.toml").write_text(text)
    federation = Federation.of(settings_file.read(tmp_path / "federation.toml"))
    federation.check(3)
    plan, p = federation.plan(env, 3), federation.parameters(3)
    assert p.nonnegative
    transport = ThreadTransport(p, endpoint_factories(plan, 3, threads=1), run_id(p, 0))
    opened = federation.open_run(tmp_path / "run", transport.cuts, lambda note: None)
    try:
        run = serve(opened, transport, [], federation.values(p))
    finally:
        transport.close()
    here = FedLSVI(
        n_agents=3,
        exchange="one-trip",
        aggregation="secure",
        privacy=PRIVACY,
        rounds=4,
        stationary=False,
    ).learn(env, 40, 0, progress=False, cohorts=3)
    assert run.taus == here.taus
    assert run.w.tobytes() == here.w.tobytes()
    assert load(tmp_path / "run").epsilon_spent == 2.0


@pytest.mark.usefixtures("one_key")
@pytest.mark.parametrize("preset", ["practical", "paper"])
def test_sites_with_features_of_their_own_play_step_by_step(preset: str, tmp_path: Path) -> None:
    """The server knows sizes alone, and nobody told it that no feature is negative."""
    env = envs.make("continuous-linear", dim=5, horizon=3)
    own = {"aggregation": "secure", "rounds": 4, "privacy": PRIVACY, "preset": preset}
    about: dict[str, Any] = {"name": "steps", "episodes": 40, "horizon": 3, "dim": 5}
    (tmp_path / "federation.toml").write_text(settings_file.dump({**about, "settings": own}))
    federation = Federation.of(settings_file.read(tmp_path / "federation.toml"))
    federation.check(3)
    plan, p = federation.plan(env, 3), federation.parameters(3)
    assert (plan.parameters.nonnegative, p.nonnegative) == (False, False)
    assert plan.parameters.beta == p.beta
    transport = ThreadTransport(p, endpoint_factories(plan, 3, threads=1), run_id(p, 0))
    opened = federation.open_run(tmp_path / "run", transport.cuts, lambda note: None)
    try:
        run = serve(opened, transport, [], federation.values(p))
    finally:
        transport.close()
    assert run.rounds == 4
    assert load(tmp_path / "run").epsilon_spent == 2.0


@pytest.mark.parametrize(
    ("require", "job", "lacks"),
    [
        ({"epsilon": 2.0}, PRIVACY, False),
        ({"epsilon": 1.0}, PRIVACY, True),
        ({"epsilon": 2.0, "delta": 1e-7}, PRIVACY, True),
        ({"epsilon": 2.0}, None, True),
        ({"epsilon": 2.0}, {"epsilon": "2"}, True),
        ({"unit": "user"}, PRIVACY, True),
        ({"unit": "user"}, {**PRIVACY, "unit": "user"}, False),
        ({}, None, False),
    ],
)
def test_a_site_requires_a_budget(require: dict[str, Any], job: Any, lacks: bool) -> None:
    settings = {} if job is None else {"privacy": job}
    assert bool(Requirements.of(require).missing(settings)) is lacks
