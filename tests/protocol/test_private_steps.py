"""Private runs whose agents answer step by step: noise in every step, and what is made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from sklearn.preprocessing import FunctionTransformer

import problems
from expecting import refused
from fedlsvi import STOP, FedLSVI, load, resume
from fedlsvi.config import Settings
from fedlsvi.core.statistics import full
from fedlsvi.envs.gym.convert import as_environment
from fedlsvi.errors import InvalidEnvironment, InvalidSetting, MessageRefused, TransportError
from fedlsvi.features import RBFFeatures, SklearnFeatures
from fedlsvi.groups import ProblemSize
from fedlsvi.privacy import gram_repair
from fedlsvi.privacy import noise as private_noise
from fedlsvi.privacy.noise import StepNoise
from fedlsvi.protocol import protected
from fedlsvi.protocol.cohorts import cohort_of
from fedlsvi.protocol.private_steps import PrivateSteps
from fedlsvi.report.protections import protections
from repeats import repeats
from transports_over_frames import assert_same, over_frames

PRIVACY = {"epsilon": 2.0, "delta": 1e-6}
KEY = bytes(range(32))


class Fading(gymnasium.Env[Any, Any]):
    """A walk on [0, 1]² whose episodes often end early. Every reset tells who plays: user 0, 1, …
    of so many, one after the other, or nobody."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    users = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        x = self.np_random.random(2, np.float32)
        return x, ({"user": f"u{(seed or 0) % self.users}"} if self.users else {})

    def step(self, action: int) -> Any:
        x = self.np_random.random(2, np.float32)
        return x, float(x[action]), bool(self.np_random.random() < 0.3), False, {}


def fading() -> Any:
    env = as_environment(Fading, horizon=3, reward_range=(0.0, 1.0))
    return problems.Problem("fading", env, None, features="rbf")  # type: ignore[arg-type]


PROBLEMS = {
    "finite": problems.simplex(),
    "continuous": problems.continuous(),
    "stationary": problems.chain(),
    "stepped": fading(),
}


def learn(name: str, aggregation: Any = "secure", **options: Any) -> Any:
    settings = {"privacy": PRIVACY, **options.pop("settings", {})}
    problem = PROBLEMS[name]
    return FedLSVI(n_agents=5, aggregation=aggregation, rounds=6, **settings).learn(
        problem.envs, 60, 3, features=problem.features, progress=False, keep_models=True, **options
    )


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise that is always zero, and nothing added to Λ for it."""
    nothing = lambda key, label, sigma: np.zeros(sigma.size, np.int64)  # noqa: E731
    monkeypatch.setattr(private_noise, "discrete_gaussian", nothing)
    monkeypatch.setattr(private_noise, "randomly_rounded", lambda key, label, c, r: c >> 16)
    monkeypatch.setattr(gram_repair, "SHIFT", 0.0)


@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("aggregation", ["secure", "exact"][: repeats(1, 2)])
def test_without_noise_it_is_the_same_algorithm(aggregation: str, name: str) -> None:
    settings: dict[str, Any] = {"lam": 0.5, "beta": 0.5}
    private = learn(name, aggregation, settings=settings)
    usual = learn(name, "float", settings={**settings, "privacy": None, "gamma": 1.0, "cap": "off",
                                           "policy": "explore"})  # fmt: skip
    assert private.taus == usual.taus
    rounding = 60 * 5 * 5 * 2.0**-private.parameters.scale_bits
    for (w, gram), (other_w, other_gram) in zip(private.models, usual.models, strict=True):
        assert np.abs(full(gram) - full(other_gram)).max() < rounding
        assert np.abs(w - other_w).max() < 1e3 * rounding


@pytest.fixture
def sums(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Of every round, the noisy ΣΛ_h and b_h of all steps, as the server has them."""
    seen: list[Any] = []
    original = PrivateSteps._upload

    def spy(self: Any, h: int, replies: Any) -> Any:
        upload = original(self, h, replies)
        if h == self.layout.horizon:
            seen.append({})
        at = min(h, self.layout.matrices) - 1
        seen[-1][h] = (self.repair.noisy[at].copy(), upload.b[0].copy())
        return upload

    monkeypatch.setattr(PrivateSteps, "_upload", spy)
    return seen


@pytest.mark.parametrize("preset", ["practical", "paper"])
def test_models_are_those_of_the_formulas(sums: list[Any], preset: str) -> None:
    run = learn("continuous", cohorts=3, settings={"preset": preset})
    p, release = run.parameters, run.parameters.release
    for k, (steps, (w, gram)) in enumerate(zip(sums, run.models, strict=True), start=1):
        for h, (noisy, b) in steps.items():
            values, vectors = np.linalg.eigh(noisy)
            summed = release.factors.summed[k - 1]
            r = release.sigma * np.sqrt(2.0 * p.dim * summed)
            lifted = np.maximum(values, 0.0) + p.lam + 0.1 * r
            if preset == "paper":  # of three sites two must do: 3/2 of the variance
                tail = np.sqrt(2.0 * np.log(2.0 * p.horizon * 6 / p.confidence))
                r = release.sigma * np.sqrt(1.5 * summed) * (np.sqrt(2.0 * p.dim) + tail)
                lifted = np.maximum(values + 2.0 * r, 0.0) + p.lam
            literal = (vectors * lifted) @ vectors.T
            assert np.allclose(full(gram)[h - 1], literal, rtol=1e-9, atol=1e-9)
            assert np.allclose(w[h - 1], np.linalg.solve(literal, b), rtol=1e-6, atol=1e-9)


def test_sums_have_the_noise_of_sites_and_nothing_else(
    sums: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever knows every site's key can take the noise off again: one-hot counts are left, and
    the responses of the last step are sums of rewards of all rounds."""
    monkeypatch.setattr(protected, "new_noise_key", lambda: KEY)
    PROBLEMS["one-hot"] = problems.one_hot()
    run = learn("one-hot", cohorts=3, settings={"stationary": False})
    del PROBLEMS["one-hot"]
    release, H = run.parameters.release, run.parameters.horizon
    parties = [StepNoise(KEY, first, release, 3 - 1) for first in (0, 1, 3)]
    before = np.zeros(release.dim)
    for record, steps in zip(run.records, sums, strict=True):
        for h, (noisy, b) in steps.items():
            drawn = sum(
                site.grams[h - 1].words(record.k, since=0).view(np.int64) for site in parties
            )
            counts = noisy - np.ldexp(drawn.astype(float), -release.bits)
            assert np.array_equal(counts, np.rint(counts))
            assert counts.min() >= 0.0
            assert counts.sum() == 5 * record.last
            fresh = sum(site.response(record.k, h) for site in parties)
            response = b - np.ldexp(fresh.astype(float), -release.bits)
            assert response.min() >= -1e-3
            assert np.all(response <= release.targets[h - 1] * counts + 1e-3)
        last = steps[H][1] - np.ldexp(
            sum(site.response(record.k, H) for site in parties).astype(float), -release.bits
        )
        assert np.all(last >= before - 1e-3)  # rewards only add up
        before = last


def test_noise_is_fresh_for_every_round_and_step_and_of_the_size_that_is_needed() -> None:
    release = learn("continuous").parameters.release
    site = StepNoise(KEY, 0, release, 2)
    every = {(k, h): site.response(k, h) for k in range(1, 7) for h in (1, 2, 3)}
    assert len({noise.tobytes() for noise in every.values()}) == len(every)
    sigma = [release.step_shares(h, 2)[1][0] for h in (1, 2, 3)]
    many = np.concatenate([
        StepNoise(KEY, party, release, 2).response(1, h) / sigma[h - 1]
        for party in range(150) for h in (1, 2, 3)
    ])  # fmt: skip
    assert abs(many.mean()) < 4.0 / np.sqrt(many.size)
    assert abs(many.var() - 1.0) < 4.0 * np.sqrt(2.0 / many.size)
    grams = [gram.words(1).tobytes() for gram in site.grams]
    assert len(set(grams)) == 3
    for k in (0, 7):
        with refused(MessageRefused, "budget-spent", "6"):
            site.response(k, 1)


@pytest.mark.parametrize("name", PROBLEMS)
def test_rounds_end_by_the_schedule_and_the_ledger_by_its_formula(name: str) -> None:
    run = learn(name, cohorts=3)
    assert run.rounds == 6
    assert run.taus == learn("finite").taus
    assert all(record.signals == 5 for record in run.records)
    assert len({str(record.triggers) for record in run.records[:-1]}) == 1
    assert run.bounds["scalars"].holds
    with refused(InvalidSetting, "bad-policy"):  # one more pass would be one more release
        run.policy_at(0.0)
    assert run.summary(values=False)["epsilon_spent"] == 2.0


@pytest.mark.parametrize("aggregation", ["exact", "secure"])
@pytest.mark.parametrize("name", ["continuous", "stepped"][: repeats(1, 2)])
def test_resumed_it_goes_on_with_the_same_noise(
    tmp_path: Path, name: str, aggregation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protected, "new_noise_key", lambda: KEY)
    whole = learn(name, aggregation, cohorts=3)
    stop = lambda record: STOP if record.k == 3 else None  # noqa: E731
    learn(name, aggregation, folder=tmp_path / "run", observers=[stop], checkpoint_seconds=0,
          cohorts=3)  # fmt: skip
    monkeypatch.undo()
    problem = PROBLEMS[name]
    run = resume(tmp_path / "run", env=problem.envs, features=problem.features, progress=False)
    assert run.w.tobytes() == whole.w.tobytes()
    assert run.rounds == 6


def test_the_report_says_how_the_budget_was_divided(tmp_path: Path) -> None:
    learn("continuous", folder=tmp_path / "run", cohorts=3)
    run = load(tmp_path / "run")
    rows = dict(protections(run))
    assert "ε = 2 spent of 2" in rows["differential privacy"]
    mu_gram, mu_b = run.parameters.release.split
    assert f"{mu_gram:.3g}" in rows["noise"]
    assert f"{mu_b:.3g}" in rows["noise"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"aggregation": "float"}, "privacy-needs-integers"),
        ({"privacy": {"epsilon": 1e-12, "delta": 1e-9}}, "too-few-bits"),
    ],
)
def test_bad_settings_get_a_sentence(changes: dict[str, Any], code: str) -> None:
    usual = {"n_agents": 5, "aggregation": "exact", "privacy": PRIVACY}
    with refused(InvalidSetting, code):
        Settings(**{**usual, **changes}).resolve(ProblemSize(60, 3, 4, False))  # type: ignore[arg-type]


def test_nothing_waits_for_others_in_a_private_run() -> None:
    """Which steps are sent may not depend on how many episodes reached them."""
    learner = FedLSVI(n_agents=5, aggregation="exact", privacy=PRIVACY, stationary=False)
    made = learner.prepare(PROBLEMS["stepped"].envs, 2000, 3, features="rbf").plan
    assert made.parameters.min_round == 10
    assert cohort_of(made, 0, 2).experience.memory.floor == 1


def test_more_after_an_end_than_values_may_be_is_refused() -> None:
    env = as_environment(Fading, horizon=3, reward_range=(-1.0, 1.0))
    learner = FedLSVI(n_agents=5, aggregation="exact", privacy=PRIVACY, value_range=0.5)
    with refused(InvalidSetting, "bad-value_range", "0.5"):
        learner.learn(env, 60, 3, features="rbf", progress=False)


def test_a_reward_beyond_what_noise_was_made_for_is_not_sent() -> None:
    class Generous(problems.Drift):
        def step(self, h: int, x: Any, a: Any, u: Any) -> Any:
            r, following = super().step(h, x, a, u)
            return 1.5 * r, following

    learner = FedLSVI(n_agents=5, aggregation="exact", rounds=6, privacy=PRIVACY)
    with refused(InvalidEnvironment, "reward-out-of-range"):
        learner.learn(Generous(3, 0.1), 60, 3, progress=False)


def by_user(users: int, most: int, **options: Any) -> Any:
    """Sixty episodes of five agents, by so many users who take turns at random."""
    kind = type("Named", (Fading,), {"users": users})
    env = as_environment(kind, horizon=3, reward_range=(0.0, 1.0))
    privacy = {**PRIVACY, "unit": "user", "episodes_per_user": most}
    learner = FedLSVI(n_agents=5, aggregation="secure", rounds=6, privacy=privacy)
    return learner.learn(env, 60, 3, features="rbf", progress=False, **options)


@pytest.mark.parametrize("cohorts", [3, 5][: repeats(1, 2)])
def test_a_user_who_comes_too_often_is_noticed(cohorts: int, tmp_path: Path) -> None:
    """300 episodes by 30 users: about ten each, and of each site's agents fewer."""
    run = by_user(30, 60, cohorts=cohorts, folder=tmp_path / "run")
    assert run.counts["named_users"] == 1
    assert "reported who played" in dict(protections(load(tmp_path / "run")))["users"]
    with refused(InvalidEnvironment, "user-too-often", "3"):
        by_user(30, 3, cohorts=cohorts)
    nobody = by_user(0, 3, cohorts=cohorts, folder=tmp_path / "nobody")
    assert nobody.counts["named_users"] == 0
    assert "promise" in dict(protections(load(tmp_path / "nobody")))["users"]


def test_users_are_counted_across_restarts(tmp_path: Path) -> None:
    """Three of six rounds are within the bound; the rest is noticed after a restart too."""
    stop = lambda record: STOP if record.k == 4 else None  # noqa: E731
    where = tmp_path / "run"
    half = by_user(30, 6, cohorts=3, folder=where, observers=[stop], checkpoint_seconds=0)
    assert half.rounds == 4
    with refused(InvalidEnvironment, "user-too-often", "6"):
        by_user(30, 6, cohorts=3)
    kind = type("Named", (Fading,), {"users": 30})
    world = as_environment(kind, horizon=3, reward_range=(0.0, 1.0))
    with refused(InvalidEnvironment, "user-too-often", "6"):
        resume(where, env=world, features="rbf", progress=False)


def test_users_are_counted_at_sites(tmp_path: Path) -> None:
    here = by_user(30, 60, cohorts=3)
    there = by_user(30, 60, transport=over_frames(3, tmp_path / "a"))
    assert here.taus == there.taus
    with refused(TransportError, "agent-failed", "InvalidEnvironment"):  # what the server hears
        by_user(30, 3, transport=over_frames(3, tmp_path / "b"))


@pytest.mark.parametrize("aggregation", ["secure", "exact"][: repeats(1, 2)])
def test_stepped_worlds_over_frames(
    aggregation: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from fedlsvi.remote import site_noise

    for module in (protected, site_noise):
        monkeypatch.setattr(module, "new_noise_key", lambda: KEY)
    here = learn("stepped", aggregation, cohorts=3)
    assert_same(learn("stepped", aggregation, transport=over_frames(3, tmp_path)), here)


def test_features_fitted_to_states_are_in_no_budget() -> None:
    """Centres are means of observed states: refused unless these are said to be public."""
    env = problems.continuous().envs
    seen = np.random.default_rng(0).random((40, 1))
    about: dict[str, Any] = {"epsilon": 5.0, "delta": 1e-6}
    for features in (RBFFeatures.from_states(seen, 3), SklearnFeatures(FunctionTransformer())):
        options: dict[str, Any] = {"n_agents": 3, "aggregation": "exact", "rounds": 4}
        with refused(InvalidSetting, "fitted-features"):
            FedLSVI(**options, privacy=about).prepare(env, 40, 0, features=features)
        public = about | {"public_features": True}
        FedLSVI(**options, privacy=public).prepare(env, 40, 0, features=features)
        FedLSVI(n_agents=3).prepare(env, 40, 0, features=features)
    with refused(InvalidSetting, "bad-public_features"):
        FedLSVI(**options, privacy=about | {"public_features": 1})
