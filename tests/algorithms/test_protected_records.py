"""Records under protection: one pass over logs with exact, secure and private sums, and a floor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from expecting import refused
from fedlsvi import PEVI, offline
from fedlsvi.algorithms.fitted_q_evaluation import estimate_value
from fedlsvi.algorithms.pevi import scalars
from fedlsvi.core.privacy_accountant import epsilon_of
from fedlsvi.envs import RandomLinearMDP, RandomMDP
from fedlsvi.errors import InvalidSetting, UnnamedPatientsWarning
from fedlsvi.groups import ProblemSize
from fedlsvi.logs.recording import record_episodes
from fedlsvi.logs.rows import InvalidRecord
from fedlsvi.logs.world import logged_worlds
from fedlsvi.protocol.cohorts import cohort_of
from transports_over_frames import over_frames

SITES = 4
PRIVACY = {"epsilon": 3.0, "delta": 1e-6}


def records(kind: str, episodes: int = 40, ends: tuple[int, ...] = (1,)) -> tuple[Any, Any]:
    """Logs of four sites, and the features to learn them with."""
    env: Any = RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1)
    features = None
    if kind != "one-hot":
        env = RandomLinearMDP(n_states=6, n_actions=3, dim=4, horizon=3, seed=2)
        features = env.phi
    logs = [record_episodes(env, episodes, seed=m, agent=m, ends=ends) for m in range(SITES)]
    if kind == "vectors":
        place = np.random.default_rng(0).random((6, 2))
        for log in logs:
            log["observation"] = place[log["observation"]]
            del log["next_observation"]
        features = _waves
    return logs, features


def _waves(states: np.ndarray) -> np.ndarray:
    waves = np.cos(states @ np.array([[3.0, 1.0, 2.0, 5.0], [1.0, 4.0, 2.0, 0.0]]))
    return np.stack([np.roll(waves, a, axis=1) for a in range(3)], axis=1) / 3.0


def learn(kind: str, **given: Any) -> Any:
    logs, features = records(kind)
    options = {"horizon": 3, "n_actions": 3, "beta": 0.1, "lam": 0.5, "progress": False}
    return offline(logs, features=features, **options | given)


KINDS = ["one-hot", "dense", "vectors"]


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_secure_is_exact_and_both_are_the_plain_sums(kind: str, stationary: bool) -> None:
    """Masks cancel to the bit; fixed point is within its rounding of doubles."""
    plain = learn(kind, stationary=stationary)
    exact = learn(kind, stationary=stationary, aggregation="exact")
    secure = learn(kind, stationary=stationary, aggregation="secure")
    assert np.array_equal(exact.w, secure.w)
    assert np.array_equal(exact.gram_packed, secure.gram_packed)
    np.testing.assert_allclose(exact.w, plain.w, atol=1e-6)
    for run in (plain, exact, secure):
        sent = {name: n for name, n in run.ledger.scalars.items() if n}
        assert sent == scalars(run)


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("kind", ["one-hot", "dense"])
@pytest.mark.parametrize("aggregation", ["float", "exact", "secure"])
def test_in_one_trip_they_teach_the_same(aggregation: str, kind: str, stationary: bool) -> None:
    """u and N of the records hold what H responses would; ends of episodes are a column of N."""
    about = {"stationary": stationary, "aggregation": aggregation}
    steps, trip = (learn(kind, **about, exchange=how) for how in ("stepwise", "one-trip"))
    np.testing.assert_allclose(trip.w, steps.w, atol=1e-9 if aggregation == "float" else 1e-6)
    assert np.array_equal(trip.gram_packed, steps.gram_packed)
    assert {name: n for name, n in trip.ledger.scalars.items() if n} == scalars(trip)


def test_in_one_trip_vectors_are_refused() -> None:
    with refused(InvalidSetting, "one-trip-needs-states"):
        learn("vectors", exchange="one-trip")


def test_in_one_trip_the_end_of_an_episode_is_worth_its_rewards() -> None:
    """By hand, with rewards −1 … 1: an end after step 1 of 2 is followed by one reward of 0, which
    is .5 in [0, 1]."""
    log = {
        "episode": [0, 1], "step": [1, 1], "observation": [0, 0], "action": [0, 0],
        "reward": [1.0, 1.0], "terminated": [True, True],
    }  # fmt: skip
    about = {"horizon": 2, "n_states": 1, "n_actions": 1, "reward_range": (-1.0, 1.0)}
    run = offline([log], **about, beta=0.0, lam=1.0, exchange="one-trip", progress=False)
    assert run.w[0] == pytest.approx([2.0 * (1.0 + 0.5) / (2.0 + 1.0)])


@pytest.mark.parametrize("exchange", ["stepwise", "one-trip"])
@pytest.mark.parametrize("aggregation", ["exact", "secure"])
def test_over_frames_they_are_the_same_bits(aggregation: str, exchange: str) -> None:
    here, there = (
        learn("dense", aggregation=aggregation, exchange=exchange, **where)
        for where in ({}, {"transport": over_frames(SITES)})
    )
    assert np.array_equal(here.w, there.w)
    assert np.array_equal(here.gram_packed, there.gram_packed)


@pytest.mark.parametrize("stationary", [False, True])
def test_a_floor_leaves_out_what_few_episodes_reached(stationary: bool) -> None:
    """By hand: each site's sums of a step are all there or not at all."""
    logs, _ = records("one-hot", ends=(0, 1, 2))
    worlds = logged_worlds(logs, horizon=3, n_actions=3)
    reached = np.zeros((SITES, 3), np.int64)
    for row, world in zip(reached, worlds, strict=True):
        targets = world.log.targets(3, False)
        row[: len(targets)] = targets
    floor = int(np.median(reached[:, 1:]))
    about = {"horizon": 3, "n_actions": 3, "lam": 0.5, "progress": False, "stationary": stationary}
    run = offline(logs, **about, min_round=floor)
    kept = reached * (reached >= floor)
    trip = offline(logs, **about, min_round=floor, exchange="one-trip")
    np.testing.assert_allclose(trip.w, run.w, atol=1e-9)
    if stationary:
        assert np.trace(run.gram[0]) == pytest.approx(0.5 * 12 + reached.sum())
    else:
        assert (kept != reached).any()
        visits = [np.trace(gram) - 0.5 * 12 for gram in run.gram]
        assert visits == pytest.approx(kept.sum(axis=0))


WAYS = [*((kind, "stepwise") for kind in KINDS), ("one-hot", "one-trip"), ("dense", "one-trip")]


@pytest.mark.parametrize(("kind", "exchange"), WAYS)
@pytest.mark.parametrize("aggregation", ["exact", "secure"])
def test_private_sums_are_the_exact_ones_and_the_noise_of_one_release(
    kind: str, exchange: str, aggregation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the noise taken away, a private run is the exact one on a coarser grid."""
    about = {"exchange": exchange, "aggregation": aggregation}
    noisy = learn(kind, **about, privacy=PRIVACY)
    assert noisy.parameters.rounds == 1
    release = noisy.parameters.release
    assert epsilon_of(release.mu, PRIVACY["delta"]) == pytest.approx(PRIVACY["epsilon"], rel=1e-6)

    monkeypatch.setattr(
        "fedlsvi.privacy.noise.discrete_gaussian",
        lambda key, label, sigma: np.zeros(sigma.size, np.int64),
    )
    monkeypatch.setattr(
        "fedlsvi.privacy.noise.randomly_rounded", lambda key, label, c, sigma: c >> 16
    )
    quiet, exact = (learn(kind, **about, **more) for more in ({"privacy": PRIVACY}, {}))
    shift = np.diagonal(quiet.gram - exact.gram, axis1=1, axis2=2)
    np.testing.assert_allclose(quiet.gram - exact.gram - _diagonals(shift), 0.0, atol=1e-3)
    assert (shift >= -1e-3).all()
    assert not np.allclose(noisy.w, quiet.w, atol=1e-3)


def _diagonals(rows: np.ndarray) -> np.ndarray:
    return np.stack([np.diag(row) for row in rows])


def test_noise_is_for_one_episode_of_one_log() -> None:
    """Neighbouring logs are no farther apart than the noise assumes, whatever the values are."""
    logs, features = records("dense", episodes=3, ends=())
    learner = PEVI(SITES, aggregation="exact", privacy=PRIVACY)
    other = [dict(log) for log in logs]
    first = other[0]["episode"] == other[0]["episode"][0]
    other[0]["action"] = np.where(first, (other[0]["action"] + 1) % 3, other[0]["action"])
    other[0]["reward"] = np.where(first, 1.0 - other[0]["reward"], other[0]["reward"])
    uploads = []
    for part in (logs, other):
        worlds = logged_worlds(part, horizon=3, n_actions=3)
        plan = learner.prepare(worlds, None, features=features).plan
        cohort = cohort_of(plan, 0, 1)
        cohort.experience.begin(0)
        cohort.experience.close(3)
        sent = []
        for h in range(3, 0, -1):
            gram, b = cohort.experience.summarise(h)
            sent.append((gram[0], b[0]))
            large = 1e3 * np.random.default_rng(h).normal(size=4)  # V is 0 or at its ceiling
            cohort.values.update(h, large, np.eye(4))
        uploads.append(sent)
    release = plan.parameters.release
    scale = 2.0**release.bits
    total = 0.0
    for h, ((gram, b), (gram2, b2)) in zip((3, 2, 1), zip(*uploads, strict=True), strict=True):
        sigma, sigma_b = release.step_shares(h, 1)
        total += float(np.square(scale * (gram - gram2) / sigma).sum())
        total += float(np.square(scale * (b - b2) / sigma_b).sum())
    assert 0.0 < np.sqrt(total) <= release.mu


def test_patients_that_come_too_often_are_refused() -> None:
    """By the column of the log, for learning and for the estimate, whatever the blocks are."""
    logs, _ = records("one-hot")
    for log in logs:
        log["patient"] = log["episode"] // 3
    about = {"horizon": 3, "n_actions": 3, "aggregation": "secure", "progress": False}
    privacy = PRIVACY | {"unit": "user", "episodes_per_user": 3}
    run = offline(logs, **about, privacy=privacy)
    assert run.counts["named_users"] == 1
    worlds = logged_worlds(logs, horizon=3, n_actions=3)
    assert [world.log.per_patient for world in worlds] == [3] * SITES
    few = privacy | {"episodes_per_user": 2}
    with refused(InvalidRecord, "user-too-often"):
        offline(logs, **about, privacy=few)
    with refused(InvalidRecord, "user-too-often"):
        estimate_value(run.policy, worlds, run.plan.features, aggregation="secure", privacy=few)
    unnamed, _ = records("one-hot")
    with pytest.warns(UnnamedPatientsWarning):
        assert offline(unnamed, **about, privacy=few).counts["named_users"] == 0
    silent = logged_worlds(unnamed, horizon=3, n_actions=3)
    with pytest.warns(UnnamedPatientsWarning):
        estimate_value(run.policy, silent, run.plan.features, aggregation="secure", privacy=few)


@pytest.mark.parametrize("exchange", ["stepwise", "one-trip"])
def test_the_theorems_penalty_knows_the_noise(exchange: str) -> None:
    """What noise adds to φᵀΛ⁻¹b is at most a share of β‖φ‖ that the theorem's β did not have."""
    about = {"preset": "paper", "aggregation": "secure", "exchange": exchange}
    size = ProblemSize(40, 3, 12, one_hot=True, states=4)
    plain, private = (
        PEVI(SITES, **about, **more).settings.resolve(size) for more in ({}, {"privacy": PRIVACY})
    )
    release = private.release
    assert release is not None
    wider = private.beta - plain.beta
    assert wider == pytest.approx(release.theory_width(1.0, private.noise_times, 0.05))
    summed = float(release.factors.summed.max())
    repaired = 1.0 + release.gram_norm(private.noise_times * summed, 0.05)
    noise = release.sigma * np.sqrt(12 * private.noise_times)  # of b, at least σ, in d directions
    assert wider * np.sqrt(repaired) > noise


def test_what_cannot_be_is_refused() -> None:
    with refused(InvalidSetting, "privacy-needs-integers"):
        PEVI(SITES, privacy=PRIVACY)
    with refused(InvalidSetting, "too-few-sites"):
        PEVI(2, aggregation="secure")
    logs, _ = records("one-hot")
    with refused(InvalidSetting, "bad-value_range"):  # an end is worth more than values may be
        offline(logs, horizon=3, n_actions=3, reward_range=(-1.0, 1.0), value_range=0.5,
                aggregation="exact", privacy=PRIVACY, progress=False)  # fmt: skip
    assert replace(PEVI(3).settings, min_round=2).min_round == 2
