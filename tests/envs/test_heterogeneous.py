"""Agents ξ-close to a linear MDP (Definition 2)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlsvi.envs import HardChain, LinearMDP, RandomLinearMDP, check_env, from_spec, xi_close

REFERENCE = RandomLinearMDP(6, 3, 4, 3, seed=1)

settings = st.tuples(
    st.floats(0.0, 1.0), st.sampled_from(["mix", "exact"]), st.sampled_from(["linear", "point"])
)


def distances(env: LinearMDP, agent: object) -> tuple[np.ndarray, np.ndarray]:
    """½ Σ|P^m − ⟨φ,μ⟩| and |r^m − ⟨φ,θ⟩|, from the parameters of the reference."""
    P = np.einsum("xai,hiy->hxay", env.phi, env.mu)
    r = np.einsum("xai,hi->hxa", env.phi, env.theta)
    return 0.5 * np.abs(agent.P - P).sum(-1), np.abs(agent.r - r)  # type: ignore[attr-defined]


@given(settings, st.integers(0, 100))
def test_every_agent_is_xi_close_to_the_reference(
    setting: tuple[float, str, str], seed: int
) -> None:
    xi, mode, noise = setting
    for agent in xi_close(REFERENCE, 3, xi, mode, noise, seed):
        kernel, reward = distances(REFERENCE, agent)
        assert kernel.max() <= xi + 1e-9
        assert reward.max() <= xi + 1e-9
        assert np.allclose(kernel, agent.kernel_distance, atol=1e-12)
        assert np.allclose(reward, agent.reward_distance, atol=1e-12)
        assert np.array_equal(agent.default_features()(np.arange(6)), REFERENCE.phi)
        assert agent.reference is REFERENCE


@pytest.mark.parametrize("noise", ["linear", "point"])
def test_exact_reaches_xi_wherever_the_noise_is_that_far_away(noise: str) -> None:
    """At w = 1 the agent is the noise itself, so `exact` with ξ = 1 measures how far that is."""
    xi = 0.2
    far = xi_close(REFERENCE, 2, 1.0, "exact", noise, seed=3)
    near = xi_close(REFERENCE, 2, xi, "exact", noise, seed=3)
    for there, here in zip(far, near, strict=True):
        for reach, distance in (
            (there.kernel_distance, here.kernel_distance),
            (there.reward_distance, here.reward_distance),
        ):
            assert np.allclose(distance, np.minimum(reach, xi), atol=1e-12)
            assert (np.abs(distance - xi) <= 1e-12).mean() > 0.3


def residual(agent: object) -> float:
    """How far the agent's kernel is from its best fit that is linear in φ."""
    phi = REFERENCE.phi.reshape(-1, REFERENCE.dim)
    rows = agent.P[0].reshape(len(phi), -1)  # type: ignore[attr-defined]
    fit = phi @ np.linalg.lstsq(phi, rows, rcond=None)[0]
    return float(np.abs(rows - fit).max())


def test_mixed_linear_noise_keeps_agents_linear_and_points_do_not() -> None:
    assert residual(xi_close(REFERENCE, 1, 0.3, "mix", "linear")[0]) < 1e-10
    assert residual(xi_close(REFERENCE, 1, 0.3, "mix", "point")[0]) > 1e-2


def test_agents_differ_and_depend_on_seed_and_index_alone() -> None:
    three, five = (xi_close(REFERENCE, n, 0.2, seed=4) for n in (3, 5))
    assert [env.fingerprint for env in three] == [env.fingerprint for env in five[:3]]
    assert len({env.fingerprint for env in five}) == 5
    assert xi_close(REFERENCE, 1, 0.2, seed=5)[0].fingerprint != three[0].fingerprint


def test_xi_zero_is_the_reference_itself() -> None:
    for mode in ("mix", "exact"):
        agent = xi_close(REFERENCE, 1, 0.0, mode)[0]
        assert agent.fingerprint == REFERENCE.fingerprint


def test_features_off_the_simplex_take_point_noise() -> None:
    agent = xi_close(HardChain(), 2, 0.1, "exact", "point")[1]
    assert agent.kernel_distance.max() == pytest.approx(0.1, abs=1e-12)
    check_env(agent)


def test_initial_states_per_agent_carry_over() -> None:
    reference = RandomLinearMDP(6, 3, 4, 3, initial=[2, 5])
    agents = xi_close(reference, 2, 0.1)
    assert [agents[m].initial_law(m).argmax() for m in range(2)] == [2, 5]


def test_an_agent_is_rebuilt_from_its_record_when_the_reference_is_named() -> None:
    agent = xi_close(REFERENCE, 3, 0.2, "exact", "point", 9)[2]
    assert from_spec(agent.spec()).fingerprint == agent.fingerprint  # type: ignore[attr-defined]
    nameless = LinearMDP(REFERENCE.phi, REFERENCE.mu, REFERENCE.theta)
    assert xi_close(nameless, 1, 0.1)[0].spec()["name"] is None
