"""The Gaussian shortcuts of CoopTS against what they shorten."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedlsvi.algorithms.shared import backward_kernels, thompson_kernels
from literal import philox_4x32


def sums(seed: int, d: int, n: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, targets and Λ = I + Σφφᵀ of a small regression."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows, rng.random(n), np.eye(d) + rows.T @ rows


def test_normals_are_keyed_and_standard() -> None:
    """Box–Muller on the keyed uniforms of (seed, stream, agent, episode), worked out in Python."""
    out = np.empty((3, 5))
    thompson_kernels.normals(9, 1, 4, 17, out)
    expected = []
    for block in range(8):
        a, b, c, d = philox_4x32((block, 17, 4, 1), (9, 0))
        u, v = ((a << 32 | b) >> 11) * 2.0**-53, ((c << 32 | d) >> 11) * 2.0**-53
        radius = np.sqrt(-2.0 * np.log(1.0 - u))
        expected += [radius * np.cos(2 * np.pi * v), radius * np.sin(2 * np.pi * v)]
    assert np.allclose(out.ravel(), expected[:15], rtol=1e-12)
    many = np.empty(20000)
    thompson_kernels.normals(0, 1, 0, 1, many)
    assert stats.kstest(many, "norm").pvalue > 1e-3
    other = np.empty((3, 5))
    for key in ((10, 1, 4, 17), (9, 2, 4, 17), (9, 1, 5, 17), (9, 1, 4, 18)):
        thompson_kernels.normals(*key, other)
        assert not np.any(other == out)


def test_perturbing_the_history_is_one_gaussian() -> None:
    """λ = 1: Λ⁻¹(Σφ(y + ε) − ξ) with ε ~ N(0, σ²), ξ ~ N(0, σ²I) has mean ŵ and covariance σ²Λ⁻¹.
    The literal perturbation, sampled; and the identity of covariances, exactly."""
    sigma, d = 0.7, 3
    rows, y, gram = sums(1, d)
    rng = np.random.default_rng(2)
    draws = np.array([
        np.linalg.solve(gram, rows.T @ (y + sigma * rng.normal(size=len(y)))
                        - sigma * rng.normal(size=d))
        for _ in range(20000)
    ])  # fmt: skip
    mean = np.linalg.solve(gram, rows.T @ y)
    cov = sigma**2 * np.linalg.inv(gram)
    assert np.abs(draws.mean(axis=0) - mean).max() < 0.02
    assert np.abs(np.cov(draws.T) - cov).max() < 0.02
    exact = sigma**2 * np.linalg.inv(gram) @ (rows.T @ rows + np.eye(d)) @ np.linalg.inv(gram)
    assert np.allclose(exact, cov, rtol=1e-12)


@pytest.mark.parametrize("diagonal", [False, True])
def test_phe_kernel_samples_that_gaussian(diagonal: bool) -> None:
    """One step, one action per state, features = basis vectors: V(x) of a single sample is the x-th
    coordinate of w. Its mean and covariance over many draws are ŵ and σ²Λ⁻¹."""
    d, sigma = 3, 0.4
    rows, y, gram = sums(3, d)
    u = (rows.T @ y)[None]
    if diagonal:
        gram = np.diag(np.diag(gram))
    mean = np.linalg.solve(gram, u[0])
    top, response = np.array([1e9]), np.zeros((1, d, d))
    values, policy, w = np.zeros((2, d)), np.zeros((1, d), np.int32), np.zeros((1, d))
    draws = np.empty((6000, d))
    noise = np.empty((1, 1, d))
    shift = 100.0  # keeps the clip at 0 out of the way
    moved = (gram @ (mean + shift))[None]
    for t in range(len(draws)):
        thompson_kernels.normals(5, 1, 0, t, noise)
        if diagonal:
            index = np.arange(d)[:, None]
            grams = np.diag(gram)[None].copy()
            thompson_kernels.phe_diagonal(
                index, moved, response, grams, sigma, noise, top, w, values, policy
            )
        else:
            phi = np.eye(d)[:, None, :].copy()
            phi.setflags(write=False)  # as feature tables are
            thompson_kernels.phe_dense(
                phi, moved, response, gram[None], sigma, noise, top, w, values, policy
            )
        draws[t] = values[0] - shift
    assert np.allclose(w[0] - shift, mean, atol=1e-9)
    assert np.abs(draws.mean(axis=0) - mean).max() < 0.02
    assert np.abs(np.cov(draws.T) - sigma**2 * np.linalg.inv(gram)).max() < 0.01


@pytest.mark.parametrize("steps", [1, 2, 4, 25])
def test_langevin_law_is_that_of_the_steps(steps: int) -> None:
    """J literal steps w ← w − 2η(Λw − b) + √(2η/β_K)ξ are affine in (w₀, ξ): mean and covariance
    are computed by running the recursion on moments, and compared with the closed form."""
    d, sigma = 4, 0.3
    rows, y, gram = sums(4, d)
    b = rows.T @ y
    eta, temperature = 0.25 / np.linalg.eigvalsh(gram).max(), 2.0 * sigma**2
    w0 = np.array([1.0, -2.0, 0.5, 3.0])
    mean, cov = w0, np.zeros((d, d))
    step = np.eye(d) - 2.0 * eta * gram
    for _ in range(steps):
        mean = mean - 2.0 * eta * (gram @ mean - b)
        cov = step @ cov @ step + 2.0 * eta * temperature * np.eye(d)
    curvature, basis = np.linalg.eigh(gram)
    target = (b @ basis) / curvature
    # the kernel is affine in the noise: its image of unit vectors is the square root of cov
    chain = np.tile(w0 @ basis, (d + 1, 1))
    noise = np.vstack([np.zeros(d), np.eye(d)])
    thompson_kernels.langevin(target, curvature, steps, sigma, noise, chain)
    turned = chain @ basis.T
    assert np.allclose(turned[0], mean, atol=1e-12)
    root = (turned[1:] - turned[0]).T
    assert np.allclose(root @ root.T, cov, atol=1e-12)


def test_langevin_settles_at_the_posterior() -> None:
    """After many steps the law is N(ŵ, σ²/(D(1 − ηD))), up to step size PHE's."""
    curvature, target = np.array([1.0, 30.0, 400.0]), np.array([0.3, -1.0, 2.0])
    chain = np.full((4, 3), 50.0)
    noise = np.vstack([np.zeros(3), np.eye(3)])
    thompson_kernels.langevin(target, curvature, 10**6, 0.5, noise, chain)
    eta = 0.25 / 400.0
    assert np.allclose(chain[0], target, atol=1e-12)
    width = 0.5 / np.sqrt(curvature * (1.0 - eta * curvature))
    assert np.allclose(np.diag(chain[1:] - chain[0]), width, rtol=1e-12)


@pytest.mark.parametrize("steps", [1, 6])
def test_lmc_kernels_agree_where_both_apply(steps: int) -> None:
    """One-hot features through the dense kernel and through the diagonal one. Eigenvectors have no
    order, so the two would use the noise differently: compared without it."""
    S, A, H, N = 3, 2, 2, 4
    d = S * A
    rng = np.random.default_rng(6)
    counts = rng.integers(1, 9, size=(H, d)).astype(float)
    u, response = rng.random((H, d)), rng.random((H, d, S))
    top = np.full(H, 1e9)
    phi, index = np.eye(d).reshape(S, A, d).copy(), np.arange(d).reshape(S, A)
    phi.setflags(write=False)  # as feature tables are
    quiet, start = np.zeros((H, N, d)), rng.random((H, N, d))
    results = []
    for dense in (True, False):
        chain = start.copy()
        w, values = np.zeros((H, d)), np.zeros((H + 1, S))
        policy = np.zeros((H, S), np.int32)
        gram = np.stack([np.diag(c) for c in counts]) if dense else counts
        kernel = thompson_kernels.lmc_dense if dense else thompson_kernels.lmc_diagonal
        kernel(phi if dense else index, u, response, gram, 0.7, steps, quiet, top, w, chain,
               values, policy)  # fmt: skip
        results.append((w, chain, values, policy))
    for one, two in zip(*results, strict=True):
        assert np.allclose(one, two, atol=1e-10)


def test_growth_is_the_difference_of_log_determinants() -> None:
    rng = np.random.default_rng(8)
    rows = rng.normal(size=(2, 30, 5))
    base = np.stack([np.eye(5)] * 2)
    gram = base + np.einsum("hni,hnj->hij", rows, rows)
    out, logdet = np.empty(2), np.zeros(2)
    backward_kernels.growth(gram, np.empty((2, 0)), logdet, out)
    assert np.allclose(out, np.linalg.slogdet(gram)[1])
    entries, before = 1.0 + rng.random((2, 600)) * 1e6, np.ones((2, 600))
    backward_kernels.growth(entries, before, logdet, out)
    assert np.allclose(out, np.log(entries).sum(axis=1))
