"""Private runs: noise in the sums, what the server makes of them, settings, the budget's end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import problems
from expecting import refused
from fedlsvi import STOP, FedLSVI, load, resume
from fedlsvi.config import Settings
from fedlsvi.core.statistics import full
from fedlsvi.errors import InvalidInput, InvalidSetting, MessageRefused, UnknownName
from fedlsvi.groups import ProblemSize
from fedlsvi.privacy import gram_repair
from fedlsvi.privacy import noise as private_noise
from fedlsvi.privacy.noise import PrefixNoise
from fedlsvi.protocol import one_trip, protected
from fedlsvi.protocol.messages import Stop
from fedlsvi.report.protections import protections

PRIVACY = {"epsilon": 2.0, "delta": 1e-6}
PROBLEM = problems.simplex()
KEY = bytes(range(32))


def learner(aggregation: Any = "secure", **settings: Any) -> FedLSVI:
    privacy = settings.pop("privacy", PRIVACY)
    return FedLSVI(
        n_agents=5, exchange="one-trip", aggregation=aggregation, rounds=6, privacy=privacy,
        **settings,
    )  # fmt: skip


def learn(aggregation: Any = "secure", problem: Any = PROBLEM, **options: Any) -> Any:
    settings = options.pop("settings", {})
    return learner(aggregation, **settings).learn(
        problem.envs, 60, 3, features=problem.features, progress=False, keep_models=True, **options
    )


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise that is always zero, nothing added to Λ for it, and no mean taken off values, which
    would change what directions without data are worth."""
    nothing = lambda key, label, sigma: np.zeros(sigma.size, np.int64)  # noqa: E731
    monkeypatch.setattr(private_noise, "discrete_gaussian", nothing)
    monkeypatch.setattr(private_noise, "randomly_rounded", lambda key, label, c, r: c >> 16)
    monkeypatch.setattr(gram_repair, "SHIFT", 0.0)
    monkeypatch.setattr(one_trip, "constant_direction", lambda values: np.zeros(values.dim))


@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("aggregation", ["exact", "secure"])
def test_without_noise_it_is_the_same_algorithm(aggregation: str, stationary: bool) -> None:
    problem = problems.chain() if stationary else PROBLEM
    settings: dict[str, Any] = {"lam": 0.5, "beta": 0.5, "stationary": stationary}
    private = learn(aggregation, problem, settings=settings)
    usual = FedLSVI(
        n_agents=5, gamma=1.0, cap="off", rounds=6, exchange="one-trip", **settings
    ).learn(problem.envs, 60, 3, features=problem.features, progress=False, keep_models=True)
    assert private.taus == usual.taus
    rounding = 60 * 5 * 2.0**-private.parameters.scale_bits
    for (w, gram), (other_w, other_gram) in zip(private.models, usual.models, strict=True):
        assert np.abs(full(gram) - full(other_gram)).max() < rounding
        assert np.abs(w - other_w).max() < 1e3 * rounding


def literal_models(
    phi: np.ndarray, gram: np.ndarray, u: np.ndarray, following: np.ndarray, p: Any, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """(w, Λ) of all steps from noisy sums, from the formulas of studies/protections.md,
    after round k."""
    H, d = u.shape
    r = p.release.sigma * np.sqrt(2.0 * d * p.release.factors.summed[k - 1])
    ws, grams, V = np.zeros((H, d)), np.zeros((H, d, d)), np.zeros(len(phi))
    for h in range(H - 1, -1, -1):
        values, vectors = np.linalg.eigh(gram[h])
        lifted = [max(value, 0.0) + p.lam + 0.1 * r for value in values]
        grams[h] = sum(v * np.outer(q, q) for v, q in zip(lifted, vectors.T, strict=True))
        inverse = np.linalg.inv(grams[h])
        mean = V.mean() if h + 1 < H else 0.0
        response = u[h] + (following[h] @ (V - mean) if h + 1 < H else 0.0)
        ws[h] = mean * np.ones(d) + inverse @ response  # φᵀ1 = 1: features on the simplex
        width = np.sqrt(np.einsum("xai,ij,xaj->xa", phi, inverse, phi))
        V = np.clip(
            (phi @ ws[h] + p.beta * p.taper_factors[h] * width).max(axis=1), 0.0, p.ceilings[h]
        )
    return ws, grams


def test_models_are_those_of_the_formulas(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the pass after the last round too, which takes nothing but what was released."""
    seen = []
    original = one_trip.OneTrip.broadcast

    def spy(self: Any, message: Any) -> Any:
        replies = original(self, message)
        if isinstance(message, Stop):
            seen.append((self.repair.noisy.copy(), self.u.copy(), self.following.copy()))
        return replies

    monkeypatch.setattr(one_trip.OneTrip, "broadcast", spy)
    run = learn(cohorts=3, settings={"policy": "exploit"})
    for k, (sums, (w, gram)) in enumerate(zip(seen, run.models, strict=True), start=1):
        literal_w, literal_gram = literal_models(PROBLEM.phi, *sums, run.parameters, k)
        assert np.allclose(full(gram), literal_gram, rtol=1e-9, atol=1e-9)
        assert np.allclose(w, literal_w, rtol=1e-7, atol=1e-7)
    without_bonus = replace(run.parameters, beta=0.0)
    literal_w, _ = literal_models(PROBLEM.phi, *seen[-1], without_bonus, 6)
    assert np.allclose(run.policy_w, literal_w, rtol=1e-7, atol=1e-7)
    assert run.bounds["scalars"].measured == run.bounds["scalars"].bound
    assert run.epsilon_spent == 2.0


def test_rounds_end_by_the_schedule_whatever_is_seen() -> None:
    one, other = learn(problem=PROBLEM), learn(problem=problems.simplex(seed=9))
    assert one.taus == other.taus
    assert one.rounds == 6 == len(one.records)
    assert all(set(record.triggers) == {(m, 1) for m in range(5)} for record in one.records[:-1])


def test_sums_have_the_noise_of_all_rounds_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever knows every site's key can take the noise off again: whole counts are left."""
    problem, seen = problems.one_hot(), list[np.ndarray]()
    monkeypatch.setattr(protected, "new_noise_key", lambda: KEY)
    original = one_trip.OneTrip.broadcast

    def spy(self: Any, message: Any) -> Any:
        replies = original(self, message)
        if isinstance(message, Stop):
            seen.append(self.following.copy())
        return replies

    monkeypatch.setattr(one_trip.OneTrip, "broadcast", spy)
    run = learn(problem=problem, cohorts=3, settings={"stationary": False})
    release = run.parameters.release
    parties = [PrefixNoise(KEY, first, release.shares(3 - 1), release) for first in (0, 1, 3)]
    for record, following in zip(run.records, seen, strict=True):
        drawn = sum(noise.words(record.k, since=0).view(np.int64) for noise in parties)
        counts = following.ravel() - np.ldexp(drawn[-following.size :], -release.bits)
        assert np.array_equal(counts, np.rint(counts))
        assert counts.min() == 0.0
        assert np.all(counts.reshape(len(following), -1).sum(axis=1) == 5 * record.last)


def test_a_key_of_its_own_for_every_run() -> None:
    assert learn(cohorts=3).w.tobytes() != learn(cohorts=3).w.tobytes()


@pytest.mark.parametrize("aggregation", ["exact", "secure"])
def test_resumed_it_goes_on_with_the_same_noise(tmp_path: Path, aggregation: str) -> None:
    folder = tmp_path / "run"
    stop = lambda record: STOP if record.k == 3 else None  # noqa: E731
    learn(aggregation, folder=folder, observers=[stop], checkpoint_seconds=0, cohorts=3)
    runs = []
    for copy in ("a", "b"):
        (tmp_path / copy).mkdir()
        for path in folder.rglob("*"):
            if path.is_file():
                target = tmp_path / copy / path.relative_to(folder)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())
        runs.append(resume(tmp_path / copy, env=PROBLEM.envs, features=PROBLEM.features,
                           progress=False))  # fmt: skip
    assert runs[0].w.tobytes() == runs[1].w.tobytes()
    assert runs[0].rounds == 6
    with refused(InvalidInput, "cannot-continue"):
        runs[0].learn_more(10)


def test_the_report_says_what_was_spent(tmp_path: Path) -> None:
    run = learn(folder=tmp_path / "run", cohorts=3)
    assert run.summary()["epsilon_spent"] == 2.0
    rows = dict(protections(load(tmp_path / "run")))
    assert "ε = 2 spent of 2" in rows["differential privacy"]
    assert "3 sites" in rows["noise"]
    assert "reveal nothing" in rows["signals"]
    assert learn("exact").summary()["epsilon_spent"] == 2.0


def test_a_longer_run_is_another_run() -> None:
    run = FedLSVI(n_agents=5, exchange="one-trip", aggregation="exact", privacy=PRIVACY).learn(
        PROBLEM.envs, 60, 3, features=PROBLEM.features, progress=False
    )
    with refused(InvalidInput, "budget-spent", "60"):
        run.learn_more(10)


def release(rounds: int) -> Any:
    known = {"n_agents": 3, "aggregation": "exact", "exchange": "one-trip", "privacy": PRIVACY}
    return (
        Settings(**known, rounds=rounds).resolve(ProblemSize(4000, 2, 2, False, states=3)).release
    )


def test_after_the_last_round_there_is_no_noise_to_be_had() -> None:
    noise = PrefixNoise(KEY, 0, np.full(4, 100), release(6))
    noise.words(6)
    for k in (0, 7):
        with refused(MessageRefused, "budget-spent", "6"):
            noise.words(k)


def test_uploads_add_up_to_the_noise_of_a_prefix() -> None:
    """Literally: w_k is D·z rounded at random, so that B·z is off by a few roundings; the same on
    whatever way it is asked for."""
    sigma, whole, plan = np.array([64, 1000, 2**20]), np.zeros(3, np.uint64), release(40)
    noise = PrefixNoise(KEY, 2, sigma, plan)
    d = np.ldexp(plan.factors.mixing.astype(float), -16)
    for k in range(1, 41):
        whole = whole + noise.words(k)
        fresh = PrefixNoise(KEY, 2, sigma, plan)
        assert np.array_equal(whole, fresh.words(k, since=0))
        expected = d[:k].sum(axis=0)[:k] @ np.array(noise._new)
        away = np.abs(whole.view(np.int64) - expected)
        assert away.max() <= 6.0 * plan.rounding * np.sqrt(k)


@pytest.mark.parametrize("parties", [1, 2])
def test_noise_has_the_covariance_that_hides_a_round(parties: int) -> None:
    """C·w of many draws: independent, and with no less than the σ that privacy needs, which shares
    of several parties have only together."""
    plan, many = release(5), 20_000
    sigma = np.full(many, -(-(2**16) // round(np.sqrt(parties))))
    drawn = np.zeros((5, many))
    for party in range(parties):
        noise = PrefixNoise(KEY, party, sigma, plan)
        drawn += np.array([noise.words(k).view(np.int64) for k in range(1, 6)], float)
    new = np.linalg.inv(np.ldexp(plan.factors.mixing.astype(float), -16)) @ drawn
    needed = parties * float(sigma[0]) ** 2
    spread = np.cov(new) / needed
    assert np.allclose(spread, np.eye(5), atol=5.0 * np.sqrt(2.0 / many))


@pytest.mark.parametrize(
    ("changes", "kind", "code"),
    [
        ({"privacy": {"epsilon": 0.0, "delta": 1e-6}}, InvalidSetting, "bad-epsilon"),
        ({"privacy": {"epsilon": -1.0, "delta": 1e-6}}, InvalidSetting, "bad-epsilon"),
        ({"privacy": {"epsilon": 1.0, "delta": 0.0}}, InvalidSetting, "bad-delta"),
        ({"privacy": {"epsilon": 1.0, "delta": 1.0}}, InvalidSetting, "bad-delta"),
        ({"privacy": {"epsilon": 1.0, "delta": 1 / 300}}, InvalidSetting, "bad-delta"),
        ({"privacy": {"epsilon": 1.0}}, InvalidSetting, "bad-delta"),
        ({"privacy": {**PRIVACY, "sigma": 1.0}}, UnknownName, "unknown-key"),
        ({"privacy": {**PRIVACY, "unit": "agent"}}, InvalidSetting, "bad-unit"),
        ({"privacy": {**PRIVACY, "unit": "user"}}, InvalidSetting, "bad-episodes_per_user"),
        ({"privacy": {**PRIVACY, "episodes_per_user": 2}}, InvalidSetting,
         "bad-episodes_per_user"),
        ({"privacy": {**PRIVACY, "colluders": 4}}, InvalidSetting, "bad-colluders"),
        ({"privacy": 1.0}, InvalidSetting, "bad-privacy"),
        ({"aggregation": "float"}, InvalidSetting, "privacy-needs-integers"),
        ({"gamma": 5.0}, InvalidSetting, "privacy-needs-schedule"),
        ({"cap": 2.0}, InvalidSetting, "privacy-needs-schedule"),
        ({"overshoot": "keep"}, InvalidSetting, "privacy-needs-schedule"),
        ({"privacy": {"epsilon": 1e-12, "delta": 1e-9}}, InvalidSetting, "too-few-bits"),
    ],
)  # fmt: skip
def test_bad_settings_get_a_sentence(changes: dict[str, Any], kind: Any, code: str) -> None:
    usual = {"n_agents": 5, "exchange": "one-trip", "aggregation": "exact", "privacy": PRIVACY}
    with refused(kind, code):
        Settings(**{**usual, **changes}).resolve(ProblemSize(60, 3, 4, False, states=5))  # type: ignore[arg-type]


def test_two_honest_sites_are_the_least() -> None:
    privacy = {**PRIVACY, "colluders": 2}
    with refused(InvalidSetting, "bad-colluders", "2"):
        learn(settings={"privacy": privacy}, cohorts=3)
    assert learn(settings={"privacy": privacy}, cohorts=4).rounds == 6


@pytest.mark.parametrize("preset", ["practical", "paper"])
def test_a_noisy_gram_matrix_becomes_positive(preset: str) -> None:
    run = learn(settings={"preset": preset, "privacy": {"epsilon": 0.1, "delta": 1e-6}})
    for _, gram in run.models:
        assert np.linalg.eigvalsh(full(gram)).min() >= 0.99 * run.parameters.lam
