"""Evaluation from logs under protection: exact, secure and private sums, and a floor."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

import fedlsvi
from expecting import refused
from fedlsvi.algorithms.fitted_q_evaluation import agreed, estimate_value
from fedlsvi.algorithms.shared.evaluation_site import EvaluationSite, Pass
from fedlsvi.cli import main
from fedlsvi.config import Parameters
from fedlsvi.core.privacy_accountant import composed, epsilon_of, mu_of
from fedlsvi.envs import RandomLinearMDP, RandomMDP, logged_worlds, record_episodes, write_records
from fedlsvi.errors import InvalidSetting
from fedlsvi.remote.evaluation import in_threads

SITES = 4
PRIVACY = {"epsilon": 3.0, "delta": 1e-6}


class Case:
    """Logs of four sites, a policy that was learned from others, and features."""

    def __init__(self, kind: str, episodes: int = 40, ends: tuple[int, ...] = (1,)) -> None:
        env: Any = RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1)
        if kind == "dense":
            env = RandomLinearMDP(n_states=6, n_actions=3, dim=4, horizon=3, seed=2)
        others = record_episodes(env, 60, seed=9)
        run = fedlsvi.offline(others, env=env, progress=False)
        self.policy, self.features = run.policy, run.plan.features
        self.logs = [
            record_episodes(env, episodes + m, seed=m, agent=m, ends=ends) for m in range(SITES)
        ]
        self.worlds = logged_worlds(self.logs, like=env)

    def estimate(self, **given: Any) -> Any:
        about = (self.policy, self.worlds, self.features)
        return estimate_value(*about, **{"lam": 0.5, "repeats": 3, **given})

    def agreed(self, **given: Any) -> Any:
        T = max(world.log.episodes for world in self.worlds)
        sizes = {"policy": self.policy, "features": self.features, "n_agents": SITES,
                 "episodes": T, "horizon": 3, "dim": self.features.dim,
                 "one_hot": self.features.one_hot, "nonnegative": self.features.nonnegative,
                 "lam": 0.5, "value_range": None, "stationary": False, "seed": 0,
                 "confidence": 0.05, "repeats": 0}  # fmt: skip
        return agreed(**sizes | given)


def numbers(found: Any) -> dict[str, Any]:
    """What an estimate says, without what it cost."""
    return {name: n for name, n in found.row().items() if name not in ("scalars", "epsilon")}


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("kind", ["one-hot", "dense"])
def test_secure_is_exact_and_both_are_the_plain_sums(kind: str, stationary: bool) -> None:
    """Masks cancel to the bit; fixed point is within its rounding of doubles."""
    case = Case(kind)
    plain = case.estimate(stationary=stationary)
    exact = case.estimate(stationary=stationary, aggregation="exact")
    secure = case.estimate(stationary=stationary, aggregation="secure")
    assert numbers(exact) == numbers(secure)
    for name, number in numbers(plain).items():
        assert numbers(exact)[name] == pytest.approx(number, abs=1e-6), name
    # each pass sends what one of doubles sends; sites exchange keys before it
    assert exact.ledger.scalars == plain.ledger.scalars
    assert secure.ledger.scalars["up_stats"] == plain.ledger.scalars["up_stats"]
    assert secure.ledger.scalars["init"] > plain.ledger.scalars["init"]
    few = case.estimate(aggregation="secure", cohorts=3, stationary=stationary)
    assert few.ledger.scalars["up_stats"] < secure.ledger.scalars["up_stats"]
    assert numbers(few) == numbers(secure)


def test_plain_passes_have_the_numbers_that_they_had() -> None:
    """The number of a run of frames is a hash of them, so a site of before knows the passes."""
    own = Case("dense").agreed(repeats=1)
    for one in own.passes:
        beta = {"lower": own.beta, "upper": -own.beta}.get(one.kind, -0.0)
        assert str(own.parameters(one)) == str(Parameters(
            n_agents=SITES, episodes=own.episodes, horizon=4, dim=4, gamma=1.0, beta=beta,
            lam=0.5, xi=0.0, value_range=None, preset="practical", overshoot="cut",
            packing="packed", confidence=0.05, rounds=1, pessimistic=True,
        ))  # fmt: skip


@pytest.mark.parametrize("stationary", [False, True])
def test_a_floor_leaves_out_what_few_episodes_reached(stationary: bool) -> None:
    """An agent's sums of a step are all there or not at all, in every pass."""
    case = Case("one-hot", 30)
    own = case.agreed(stationary=stationary)
    site = EvaluationSite(own, case.worlds)
    reached = np.array([[0 if rows is None else len(np.unique(rows.episode)) for rows in log.steps]
                        for log in site.logs])  # fmt: skip
    floor = int(reached[:, 0].max() if stationary else np.median(reached[:, 1:]))
    floored = EvaluationSite(case.agreed(stationary=stationary, min_round=floor), case.worlds)
    for log, before, counts in zip(floored.logs, site.logs, reached, strict=True):
        assert (log.first is None) == (len(before.earned) < floor)
        for rows, known, n in zip(log.steps, before.steps, counts, strict=True):
            assert (rows is None) == (n < floor)
            assert rows is None or len(rows.action) == len(known.action)
    assert any(log.first is None for log in floored.logs) == stationary
    found = case.estimate(stationary=stationary, min_round=floor)
    assert found.episodes == sum(len(log.earned) for log in floored.counted)
    assert numbers(found) != numbers(case.estimate(stationary=stationary))
    exact = case.estimate(stationary=stationary, min_round=floor, aggregation="secure")
    assert exact.value == pytest.approx(found.value, abs=1e-6)
    with refused(InvalidSetting, "bad-min_round"):
        case.estimate(min_round=100)


@pytest.mark.parametrize("aggregation", ["exact", "secure"])
@pytest.mark.parametrize("kind", ["one-hot", "dense"])
def test_a_private_estimate_is_the_exact_one_and_noise(
    kind: str, aggregation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the noise taken away, and what makes room for it, it is the exact one on a coarser
    grid; all passes together spend what was given."""
    case = Case(kind)
    noisy = case.estimate(aggregation=aggregation, privacy=PRIVACY)
    assert (noisy.epsilon, noisy.delta) == (3.0, 1e-6)
    assert noisy.low is noisy.pessimistic is noisy.behaviour_high is noisy.importance is None
    own = case.agreed(aggregation=aggregation, privacy=PRIVACY)
    spent = [own.parameters(one).release.mu for one in own.passes]
    assert epsilon_of(math.hypot(*spent), 1e-6) == pytest.approx(3.0, rel=1e-6)

    monkeypatch.setattr(
        "fedlsvi.privacy.noise.discrete_gaussian",
        lambda key, label, sigma: np.zeros(sigma.size, np.int64),
    )
    monkeypatch.setattr(
        "fedlsvi.privacy.noise.randomly_rounded", lambda key, label, c, sigma: c >> 16
    )
    monkeypatch.setattr("fedlsvi.privacy.gram_repair.SHIFT", 0.0)
    quiet = case.estimate(aggregation=aggregation, privacy=PRIVACY)
    exact = case.estimate(aggregation=aggregation)
    for name in ("value", "unseen", "behaviour"):
        assert getattr(quiet, name) == pytest.approx(getattr(exact, name), abs=2e-3), name
    assert quiet.episodes == exact.episodes
    assert abs(noisy.value - quiet.value) > 1e-3


@pytest.mark.parametrize("stationary", [False, True])
def test_noise_is_for_one_episode_of_one_log(stationary: bool) -> None:
    """Logs that differ in one episode are no farther apart, over all passes, than the noise
    assumes, whatever the values are."""
    case = Case("dense", 3, ends=())
    other = [dict(log) for log in case.logs]
    first = other[0]["episode"] == other[0]["episode"][0]
    other[0]["action"] = np.where(first, (other[0]["action"] + 1) % 3, other[0]["action"])
    other[0]["reward"] = np.where(first, 1.0 - other[0]["reward"], other[0]["reward"])
    own = case.agreed(stationary=stationary, aggregation="exact", privacy=PRIVACY)
    total = 0.0
    for one in own.passes:
        uploads, release = [], own.parameters(one).release
        for logs in (case.logs, other):
            worlds = logged_worlds(logs, horizon=3, n_states=6, n_actions=3)
            cohort = EvaluationSite(own, worlds[:1]).cohort(one)
            cohort.experience.close(3)
            sent = []
            for h in range(4, 0, -1):
                sent.append(cohort.experience.summarise(h))
                large = 1e3 * np.random.default_rng(h).normal(size=4)  # V is 0 or at its ceiling
                cohort.values.update(h, large, np.eye(4))
            uploads.append(sent)
        for h, before, after in zip((4, 3, 2, 1), *uploads, strict=True):
            for x, y, sigma in zip(before, after, release.step_shares(h, 1), strict=True):
                total += float(np.square(2.0**release.bits * (x - y)[0] / sigma).sum())
    assert 0.0 < math.sqrt(total) <= mu_of(3.0, 1e-6)


def test_releases_of_the_same_records_add_up() -> None:
    """μ² adds: of a release twice, √2 times the μ."""
    assert composed([2.0], 1e-6) == pytest.approx(2.0)
    assert mu_of(composed([2.0, 2.0], 1e-6), 1e-6) == pytest.approx(math.sqrt(2) * mu_of(2.0, 1e-6))
    assert Pass("behaviour") in Case("one-hot", 3).agreed(privacy=PRIVACY).passes


def test_what_cannot_be_is_refused() -> None:
    case = Case("one-hot", 5)
    with refused(InvalidSetting, "privacy-needs-integers"):
        case.estimate(privacy=PRIVACY)
    with refused(InvalidSetting, "bad-delta"):
        case.estimate(privacy={"epsilon": 1.0}, aggregation="exact")


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("aggregation", ["exact", "secure"])
def test_over_frames_it_is_the_same(aggregation: Any, stationary: bool) -> None:
    """The value and its bounds to the bit; repeats of the bootstrap pass as sums there."""
    case = Case("dense", 10)
    how: dict[str, Any] = {"aggregation": aggregation, "stationary": stationary, "min_round": 4}
    here = case.estimate(**how)
    for cohorts in (3, SITES):
        there = case.estimate(**how, transport=in_threads, cohorts=cohorts)
        for name, number in numbers(here).items():
            exact = name in ("value", "unseen", "pessimistic", "optimistic")
            wanted = number if exact else pytest.approx(number, abs=1e-6)
            assert getattr(there, name) == wanted, name


@pytest.mark.parametrize("aggregation", ["exact", "secure"])
def test_a_private_estimate_over_frames_has_the_noise_of_its_sites(
    aggregation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case("one-hot", 10)
    how: dict[str, Any] = {"aggregation": aggregation, "privacy": PRIVACY}
    noisy = [numbers(case.estimate(**how, transport=in_threads)) for _ in range(2)]
    assert noisy[0] != noisy[1]  # no seed makes it again
    monkeypatch.setattr(
        "fedlsvi.privacy.noise.discrete_gaussian",
        lambda key, label, sigma: np.zeros(sigma.size, np.int64),
    )
    monkeypatch.setattr(
        "fedlsvi.privacy.noise.randomly_rounded", lambda key, label, c, sigma: c >> 16
    )
    here, there = (case.estimate(**how, **more) for more in ({}, {"transport": in_threads}))
    assert numbers(here) == numbers(there)


def test_the_command_takes_the_same_protections(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    case, folder = Case("one-hot", 10), str(tmp_path / "run")
    run = fedlsvi.offline(case.logs, horizon=3, n_actions=3, progress=False, folder=folder)
    command = ["evaluate", folder]
    for m, log in enumerate(case.logs):
        write_records(log, tmp_path / f"{m}.parquet")
        command += ["--data", str(tmp_path / f"{m}.parquet")]
    capsys.readouterr()
    protected = [*command, "--aggregation", "secure", "--min-round", "3"]
    assert main([*protected, "--repeats", "2", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    about = (run.policy, case.worlds, case.features)
    wanted = estimate_value(*about, repeats=2, aggregation="secure", min_round=3)
    assert found["value"] == wanted.value
    assert main([*protected, "--privacy", "3", "1e-6"]) == 0
    assert "ε = 3" in capsys.readouterr().out
    assert main(["report", folder]) == 0
    assert "ε = 3" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
