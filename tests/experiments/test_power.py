"""Simulated studies: as often better than practice as brute force says; models fitted to logs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from expecting import refused
from fedlsvi.cli import main
from fedlsvi.envs import FiniteMDP, RandomMDP, logged_worlds, record_episodes, write_records
from fedlsvi.errors import InvalidSetting
from fedlsvi.experiments.power import Power, power
from fedlsvi.logs.fitted_model import fitted_model
from fedlsvi.logs.rows import InvalidRecord

WARD = RandomMDP(n_states=3, n_actions=3, horizon=3, seed=4)
LAW = np.random.default_rng(0).dirichlet(np.full(3, 0.5), size=(3, 3))


def pill() -> FiniteMDP:
    """State 0 is ill: action 0 pays .5 and action 1 pays 1 with probability .7, and then it is
    over, in state 1 (well, paid on the way) or 2."""
    P = np.zeros((3, 2, 3))
    P[0, 0, 1], P[0, 1, 1], P[0, 1, 2], P[1, :, 1], P[2, :, 2] = 1.0, 0.7, 0.3, 1.0, 1.0
    paid = np.zeros((3, 2, 3))
    paid[0, 0, 1], paid[0, 1, 1] = 0.5, 1.0
    return FiniteMDP(P, paid, horizon=2)


def brute_force(
    env: FiniteMDP, law: NDArray[np.float64], n: int, lam: float, beta: float, studies: int
) -> NDArray[np.float64]:
    """The values that tabular PEVI learns from the records of n patients, all studies at once, from
    counts alone: w = Σ(r + V)/(λ + N), less β/√(λ + N). An end is a state like others."""
    rng, H, S, A = np.random.default_rng(1), env.horizon, env.n_states, env.n_actions
    N = np.zeros((studies, H, S, A, S))
    u = np.zeros((studies, H, S, A))
    every = np.arange(studies)
    for _ in range(n):
        x = rng.choice(S, size=studies, p=env.initial_law(0))
        for h in range(H):
            a = (rng.random(studies)[:, None] > law[h, x].cumsum(1)).sum(1)
            y = (rng.random(studies)[:, None] > env.transition(h + 1)[x, a].cumsum(1)).sum(1)
            paid = env.reward(h + 1)[x, a]
            if env.reward_on_transition is not None:
                paid = env.reward_on_transition[0][x, a, y]
            N[every, h, x, a, y] += 1.0
            u[every, h, x, a] += paid
            x = y
    V, chosen = np.zeros((studies, S)), np.zeros((studies, H, S), np.int64)
    for h in range(H - 1, -1, -1):
        visits = lam + N[:, h].sum(-1)
        ahead = np.einsum("kxay,ky->kxa", N[:, h], V)
        score = (u[:, h] + ahead) / visits - beta / np.sqrt(visits)
        chosen[:, h] = score.argmax(-1)
        V = score.max(-1).clip(0.0, H - h)
    return np.array([env.policy_values(one)[0] @ env.initial_law(0) for one in chosen])


@pytest.mark.parametrize(
    ("env", "law", "patients", "margin", "beta"),
    [(WARD, LAW, 5, 0.36, 0.1), (pill(), np.full((2, 3, 2), 0.5), 3, 0.09, 0.3)],
)
def test_power_is_that_of_brute_force(
    env: FiniteMDP, law: NDArray[np.float64], patients: int, margin: float, beta: float
) -> None:
    found = power(env=env, behaviour=law, sites=2, patients=[patients], margin=margin, studies=900,
                  seed=1, jobs=1, lam=0.01, beta=beta)  # fmt: skip
    values = brute_force(env, law, 2 * patients, 0.01, beta, 20_000)
    exact = float((values >= found.practice + margin).mean())
    assert 0.2 < exact < 0.8  # where a wrong power would show
    assert abs(found.sizes[0].power - exact) < 0.05


def small(**given: object) -> Power:
    asked = {"sites": 3, "patients": (5, 40), "margin": 0.2, "studies": 6, "jobs": 1}
    return power(env=WARD, behaviour=LAW, **asked | given)  # type: ignore[arg-type]


def test_processes_change_nothing() -> None:
    assert (small().values == small(jobs=2).values).all()


def test_a_study_is_protected_and_pays_for_it() -> None:
    """Exact sums are those of floats up to rounding; noise for ε = .01 leaves nothing to learn."""
    plain = small()
    assert np.allclose(plain.values, small(aggregation="exact").values)
    noisy = small(aggregation="secure", privacy={"epsilon": 0.01, "delta": 1e-6})
    assert noisy.values[1].mean() < plain.values[1].mean() - 0.1
    assert "ε = 0.01" in noisy.paragraph()
    assert "secure" in noisy.paragraph()


def test_the_least_size_has_only_enough_ones_above_it() -> None:
    found = small(studies=30, margin=0.42)
    assert found.sizes[0].power < 0.8 <= found.sizes[1].power
    assert found.enough == 40
    assert small(margin=3.0).enough is None


def test_a_model_of_one_log_worked_by_hand() -> None:
    """Two patients are ill (0); one gets better (1) and is treated once more, the other's record
    ends. Rewards are costs, so that 0 is the best of them."""
    log = {"episode": [0, 0, 1], "step": [1, 2, 1], "observation": [0, 1, 0], "action": [0, 1, 1],
           "reward": [-1.0, -0.5, -1.0], "terminated": [False, True, True]}  # fmt: skip
    data = {name: np.array(column) for name, column in log.items()}
    worlds = logged_worlds(data, horizon=3, n_states=2, n_actions=2, reward_range=(-1.0, 0.0))
    practice = fitted_model(worlds, stationary=True)
    env, law, (end, unknown) = practice
    assert law[0, 0].tolist() == [0.5, 0.5]
    assert env.P[0, 0, 0].tolist() == [0.0, 1.0, 0.0, 0.0]
    assert env.P[0, 1, 0, unknown] == env.P[0, 1, 1, end] == 1.0
    assert practice.value == -1.25  # (−1 − .5 − 1)/2
    assert practice.worth(np.zeros((3, 4), np.int64)) == -3.0  # unknown costs 1 at every step left


def test_practice_in_the_model_earns_what_the_log_did() -> None:
    logs = logged_worlds([record_episodes(WARD, 50, LAW, seed=m) for m in range(2)], like=WARD)
    earned = float(np.mean([world.mean_return for world in logs]))
    assert fitted_model(logs).value == pytest.approx(earned, abs=1e-12)


def test_a_long_log_is_as_good_as_the_truth() -> None:
    logs = [record_episodes(WARD, 20_000, LAW)]
    asked = {"sites": 2, "patients": (8,), "margin": 0.3, "studies": 60, "jobs": 1}
    there, here = power(logs, **asked), power(env=WARD, behaviour=LAW, **asked)  # type: ignore[arg-type]
    assert there.practice == pytest.approx(here.practice, abs=0.02)
    assert abs(there.sizes[0].gain - here.sizes[0].gain) < 0.05


@pytest.mark.parametrize(
    ("given", "code"),
    [({"sites": None}, "sites-missing"), ({"patients": (0,)}, "bad-patients"),
     ({"margin": -1.0}, "bad-margin"), ({"env": None}, "power-needs-model"),
     ({"privacy": {"epsilon": 1.0, "delta": 1e-6}}, "privacy-needs-integers")],
)  # fmt: skip
def test_what_cannot_be_simulated_is_refused(given: dict[str, object], code: str) -> None:
    asked = {"env": WARD, "sites": 3, "patients": (5,), "studies": 2, "jobs": 1}
    with refused(InvalidSetting, code):
        power(**asked | given)  # type: ignore[arg-type]


def test_a_model_has_numbered_states() -> None:
    log = record_episodes(WARD, 5)
    log["observation"] = log["observation"][:, None] + 0.5
    del log["next_observation"]
    with refused(InvalidRecord, "model-needs-states"):
        fitted_model(logged_worlds(log))


@pytest.mark.usefixtures("here")
def test_the_command_writes_a_paragraph_a_table_and_a_figure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for m, site in enumerate(("north", "south")):
        write_records(record_episodes(WARD, 100, LAW, seed=m), f"{site}.parquet")
    asked = ["power", "north.parquet", "south.parquet", "--patients", "5,20", "--studies", "4",
             "--jobs", "1", "--set", "stationary=true"]  # fmt: skip
    assert main([*asked, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    folder = Path(found["folder"])
    assert {path.name for path in folder.iterdir()} == {"power.json", "protocol.md", "power.png"}
    assert [size["patients"] for size in found["sizes"]] == [5, 20]
    assert found["sites"] == 2
    assert found["paragraph"] in (folder / "protocol.md").read_text()
    assert main(["power", "--env", "river-swim", "--sites", "2", "--patients", "3", "--studies",
                 "2", "--jobs", "1", "--out", "w"]) == 0  # fmt: skip
    assert "RiverSwim" in capsys.readouterr().out


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("words", [[], ["--env", "river-swim", "--patients", "3,x"]])
def test_the_command_refuses_in_a_sentence(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["power", *words]) == 2
    assert capsys.readouterr().err.startswith("fedlsvi: error: ")
