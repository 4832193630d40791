"""What "auto" and None stand for, worked out by hand from each paper's formula."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fedlsvi.algorithms import registry
from fedlsvi.algorithms.shared.settings import PRACTICAL
from fedlsvi.core import theory
from fedlsvi.envs import FiniteMDP
from fedlsvi.groups import ProblemSize

COOPERATIVE = ["coop-lsvi", "coopts-phe", "coopts-lmc"]
RANDOMISED = ["coopts-phe", "coopts-lmc"]


def standstill(n_states: int = 1, n_actions: int = 1, horizon: int = 1) -> FiniteMDP:
    """Everything leads to state 0, where it begins: with one action, n episodes of one agent make
    det Λ_h = λ^{d−1}(λ + n), whatever the policy."""
    P = np.zeros((n_states, n_actions, n_states))
    P[:, :, 0] = 1.0
    return FiniteMDP(P, np.full((n_states, n_actions), 0.5), horizon=horizon)


def prepared(name: str, env: FiniteMDP, M: int, T: int, **settings: Any) -> Any:
    return registry.make(name, n_agents=M, **settings).prepare(env, T, 0).player


def learned(name: str, env: FiniteMDP, M: int, T: int, **settings: Any) -> Any:
    return registry.make(name, n_agents=M, **settings).learn(env, T, 0, progress=False)


def test_an_asynchronous_agent_speaks_when_its_determinant_has_grown_by_one_in_m_squared() -> None:
    """α = 1/M² = 1/4. Agents 0 and 1 in turn, Λ_0 = Λ_1 = Λser = 1; n is what is unsent:

    k     1     2     3     4     5     6     7     8     9     10     11    12     13     14
    Λ_m   1     1     2     3     4     5     4     5     7      9      7     9     11      9
    + n   2     2     3     4     5     6     6     7     8     10      9    11     12     12
    5Λ/4  1.25  1.25  2.5   3.75  5     6.25  5     6.25  8.75  11.25  8.75  11.25  13.75  11.25
    says  yes   yes   yes   yes   (tie) no    yes   yes   no    no     yes   no     no     yes
    Λser  2     3     4     5                 7     9                  11                  14
    """
    run = learned("async-coop", standstill(), 2, 7, lam=1.0)
    spoke = [(m, record.last) for record in run.records for m, _ in record.triggers]
    assert spoke == [(0, 1), (1, 1), (0, 2), (1, 2), (0, 4), (1, 4), (0, 6), (1, 7)]
    assert run.counts == {"events": 8, "uploaded": 13}


@pytest.mark.parametrize("name", COOPERATIVE)
def test_cooperating_agents_exchange_at_t_log_mt_over_dm(name: str) -> None:
    """T = 10, M = d = 2: S_thr = 10·log 20/4 = 7.49. Δt·log(1 + Δt) is 6.44 at 4 and 8.96 at 5;
    then Λ = 1 + 10, and 5·log(16/11) = 1.87 is too little for a second exchange."""
    run = learned(name, standstill(2), 2, 10, lam=1.0)
    assert run.taus == [1, 6, 11]
    assert [record.triggers for record in run.records] == [[(0, 1), (1, 1)], []]
    agents = prepared(name, standstill(2, 2), 5, 100).agents  # d = 4
    assert [agent.threshold for agent in agents] == pytest.approx([5.0 * math.log(500.0)] * 5)


@pytest.mark.parametrize(
    ("lam", "ends"),
    [(1.0, [1, 3, 7, 15, 20]), (0.5, [1, 3, 8, 19, 20])],
)
def test_rare_switching_has_a_budget_of_dh_log_hk(lam: float, ends: list[int]) -> None:
    """d = H = 2, K = 20: B = ⌈4·log 40⌉ = ⌈14.76⌉ = 15 and η = (1 + 20/(2λ))^{4/15}.

    λ = 1:  η = 11^{4/15} = 1.895. 1 + n passes 1.90, 3.79, 7.58, 15.16 at 2, 4, 8, 16.
    λ = ½:  η = 21^{4/15} = 2.252. ½ + n passes 1.13, 3.38, 7.88, 19.14 at 1.5, 3.5, 8.5, 19.5.
    """
    run = learned("rare-switch", standstill(2, horizon=2), 1, 20, lam=lam)
    assert [record.last for record in run.records] == ends
    assert run.counts == {"switches": 4, "most_switches": 4}


@pytest.mark.parametrize(("epsilon", "apart"), [(0.0, 0.0), (0.1, 84.0)])
def test_late_cells_of_ucbvi(epsilon: float, apart: float) -> None:
    """S = H = 2, A = 1, M = 3, T = 10, δ = .05: 14εTHM = 14·.1·10·2·3 = 84, 182M = 546,
    6SAH/δ = 480, 6e(2T + 1) = 126e."""
    player = prepared("fed-ucbvi", standstill(2, horizon=2), 3, 10, epsilon=epsilon)
    beta = math.log(480.0) + math.log(126.0) + 1.0
    assert player.agents.late == pytest.approx(apart + 546.0 * beta, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "settings", "sigma"),
    [
        ("coopts-phe", {"preset": "paper"}, 6.0),  # H√d
        ("coopts-lmc", {"preset": "paper", "value_range": 1.0}, 6.0),
        ("coopts-phe", {}, 0.0375),  # 1/80 of the value range
        ("coopts-lmc", {}, 0.075),  # 1/40
        ("coopts-phe", {"value_range": 2.0}, 0.025),
        ("coopts-lmc", {"value_range": 7.0}, 0.075),  # no value is above H
        ("coopts-lmc", {"preset": "paper", "sigma": 0.25}, 0.25),
    ],
)
def test_scale_of_the_noise(name: str, settings: dict[str, Any], sigma: float) -> None:
    """H = 3, d = 4."""
    agents = prepared(name, standstill(2, 2, 3), 2, 10, **settings).agents
    assert [agent.sigma for agent in agents] == pytest.approx([sigma, sigma])


def test_radii_of_plus_plus_in_the_paper() -> None:
    """H = d = 4, λ = 1/H²: H√(dλ) = 2, H²√(dλ) = 8, d^{3/2} = 8. K = MT = 30, δ = .05:
    ℓ = log(dHK/(δλ)) = log(480·20·16) = log 153,600. d³H² = 1,024."""
    env, ell = standstill(2, 2, 4), math.log(153_600.0)
    agent = prepared("lsvi-ucb-pp", env, 3, 10, preset="paper").agent
    radii = [2.0 + 2.0 * ell, 2.0 + 32.0 * ell, 8.0 + 128.0 * ell]
    assert np.allclose(agent.gram, 1.0 / 16.0, rtol=1e-15)
    assert list(agent.radii) == pytest.approx(radii, rel=1e-12)
    assert list(agent.factors) == pytest.approx([4096.0, 2048.0])
    scaled = {"c": 0.5, "c_D": 0.25, "c_sigma": 0.125}
    agent = prepared("lsvi-ucb-pp", env, 3, 10, preset="paper", **scaled).agent
    assert list(agent.radii) == pytest.approx([radius / 2.0 for radius in radii], rel=1e-12)
    assert list(agent.factors) == pytest.approx([1024.0, 256.0])


@pytest.mark.parametrize(
    ("settings", "radii"),
    [
        ({}, [0.1, 0.1, 0.4]),
        ({"value_range": 2.0}, [0.05, 0.05, 0.1]),
        ({"value_range": 7.0}, [0.1, 0.1, 0.4]),
        ({"c": 1.0}, [2.0, 2.0, 8.0]),
    ],
)
def test_radii_of_plus_plus_in_practice(settings: dict[str, Any], radii: list[float]) -> None:
    """H = 4, R = min(H, value_range), c = .05: β = β̄ = cR/√H = cR/2, β̃ = Rβ. c_D = 1/(4d³H) makes
    4c_Dd³H² = H, and c_σ = 1/(2d³H²) makes 2c_σd³H² = 1, whatever d is. λ = .001/H²."""
    agent = prepared("lsvi-ucb-pp", standstill(2, 2, 4), 3, 10, **settings).agent
    assert np.allclose(agent.gram, 0.001 / 16.0, rtol=1e-14)
    assert list(agent.radii) == pytest.approx(radii)
    assert list(agent.factors) == pytest.approx([4.0, 1.0])


@pytest.mark.parametrize(("first", "second", "step"), [(0.5, 1.0, 1), (0.1, 1.0, 2)])
def test_plus_plus_names_the_lowest_step_that_doubled(
    first: float, second: float, step: int
) -> None:
    """Two steps through states 0 and 1, d = 1, λ = .01. Without radii, D and c_σ, σ̄² = H = 2, so
    det Σ_h grows by 1 + φ²/(2λ) = 1 + 50φ²: 51 for φ = 1, 13.5 for φ = ½, 1.5 for φ = .1. The
    second step always grows more; the first is named where it has doubled too."""
    P = np.zeros((2, 1, 2))
    P[:, :, 1] = 1.0
    phi = np.array([first, second]).reshape(2, 1, 1)
    env = FiniteMDP(P, np.zeros((2, 1)), horizon=2, phi=phi)
    run = learned("lsvi-ucb-pp", env, 1, 1, c=0.0, c_D=0.0, c_sigma=0.0, lam=0.01)
    growth = [1.0 + 50.0 * first**2, 1.0 + 50.0 * second**2]
    assert run.gram[:, 0, 0] == pytest.approx([0.01 * grown for grown in growth])
    assert run.records[0].triggers == [(0, step)]


@pytest.mark.parametrize("preset", ["practical", "paper"])
@pytest.mark.parametrize("name", ["independent", "low-switching", "rare-switch"])
def test_agents_that_learn_alone_do_not_pay_for_those_who_differ(name: str, preset: str) -> None:
    """ξ = .01, T = 50, H = 4, d = 6: 2Hξ√(dT) = .08·√300 ≈ 1.39 for any M, not eight times that
    for 64. Where agents share one model it grows with M; where ξ = 0 there is nothing to pay."""

    def width(algorithm: str, M: int) -> float:
        settings = {"n_agents": M, "preset": preset, "confidence": 0.1}
        far, near = (
            registry.make(algorithm, **settings, xi=xi)
            .settings.resolve(ProblemSize(50, 4, 6, True))
            .beta
            for xi in (0.01, 0.0)
        )
        if preset == "paper":  # Theorem 2 halves p inside of the logarithm
            near = theory.beta_homogeneous(6, 4, M, 50, 0.05, 1.0)
        return float(far - near)

    alone = 0.08 * math.sqrt(300.0)
    assert width(name, 1) == pytest.approx(alone, rel=1e-9)
    assert width(name, 64) == pytest.approx(alone, rel=1e-9)
    assert width("centralised", 64) == pytest.approx(8.0 * alone, rel=1e-9)
    assert width("fed-lsvi", 64) == pytest.approx(8.0 * alone, rel=1e-9)


@pytest.mark.parametrize(
    "name", ["fed-ucbvi", "fedq-hoeffding", "fedq-bernstein", "fedq-advantage"]
)
def test_the_papers_preset_keeps_the_papers_constant(name: str) -> None:
    """c = 1 with preset="paper", the study's with preset="practical", and what is given with both:
    the number in force is the one that multiplies the bonus."""
    for preset, c in (("paper", 1.0), ("practical", PRACTICAL[name])):
        player = prepared(name, standstill(2, 2, 3), 2, 50, preset=preset)
        assert player.tables.c == c
        assert prepared(name, standstill(2, 2, 3), 2, 50, preset=preset, c=0.3).tables.c == 0.3
    assert PRACTICAL[name] < 1.0  # the theorems' constants do not learn
