"""Linear MDPs made to be hard to explore."""

from __future__ import annotations

import itertools

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.envs.linear import LinearMDP
from fedlsvi.envs.validation import count, fraction
from fedlsvi.errors import InvalidEnvironment


class HardChain(LinearMDP):
    """The hard instance of Zhou, Gu & Szepesvári (2021), in d + 1 feature dimensions.

    States x_1..x_{H+1} and one absorbing state that pays 1 per step; actions a ∈ {±1}^{d−1}. From
    x_h one goes to x_{h+1}, or with probability δ + ⟨u_h, a⟩ to the absorbing state, where δ = 1/H
    and u_h ∈ {±Δ}^{d−1} is hidden, Δ = gap·δ/(d−1). With α² = 1/(1+(d−1)Δ) and β² = Δα²:

        φ(x_h, a) = (α, βa, 0),                φ(absorbing, ·) = (0, 0, 1),
        μ_h(x_{h+1}) = ((1−δ)/α, −u_h/β, 0),   μ_h(absorbing) = (δ/α, u_h/β, 1),   θ = (0, 0, 1).

    gap ∈ (0, 1] is the largest relative change that an action makes to δ.
    """

    registry_name = "hard-chain"

    def __init__(self, dim: int = 4, horizon: int = 6, gap: float = 1.0, seed: int = 0) -> None:
        d, H = count("dim", dim, 2), count("horizon", horizon)
        gap, seed = fraction("gap", gap), count("seed", seed, 0)
        if d > 12:
            raise InvalidEnvironment(
                f"dim is {d}, which would mean 2^{d - 1} actions: give at most 12", code="bad-dim"
            )
        if H < 2:
            raise InvalidEnvironment(
                f"horizon must be at least 2, got {H}: the reward comes after the first step",
                code="bad-horizon",
            )
        delta = 1.0 / H
        Delta = gap * delta / (d - 1)
        alpha = np.sqrt(1.0 / (1.0 + (d - 1) * Delta))
        beta = np.sqrt(Delta) * alpha
        actions = np.array(list(itertools.product((-1.0, 1.0), repeat=d - 1)))
        u = Delta * np.random.default_rng(seed).choice((-1.0, 1.0), size=(H, d - 1))

        absorbing = H + 1
        phi = np.zeros((H + 2, len(actions), d + 1))
        phi[:absorbing, :, 0] = alpha
        phi[:absorbing, :, 1:d] = beta * actions
        phi[absorbing, :, d] = 1.0
        mu = np.zeros((H, d + 1, H + 2))
        step = np.arange(H)
        mu[step, 0, step + 1] = (1.0 - delta) / alpha
        mu[step, 1:d, step + 1] = -u / beta
        mu[:, 0, absorbing] = delta / alpha
        mu[:, 1:d, absorbing] = u / beta
        mu[:, d, absorbing] = 1.0
        super().__init__(phi, mu, np.eye(d + 1)[d], horizon=H, name="HardChain")
        self.record(dim=d, horizon=H, gap=gap, seed=seed)


class CombinationLock(LinearMDP):
    """A lock that opens only for the same action at every step.

    Three states, φ one-hot over d latent variables. (s₀, a₀) is latent 0, with
    μ₀ = .99·s₀ + .01·s₁; every other pair is one of the latents 1..d−1, which lead to the bad
    states s₁, s₂ with probabilities .8 and .2 in an order drawn per step and latent. Opening pays
    θ_H = e₀; before that every latent but 0 pays a distracting U(.005, .008).

    At H = 10 with ten actions V* ≈ .916, and the uniform policy is worth about .058.
    """

    registry_name = "combination-lock"

    def __init__(
        self, horizon: int = 10, n_actions: int = 10, dim: int = 10, seed: int = 0
    ) -> None:
        H, A = count("horizon", horizon), count("n_actions", n_actions, 2)
        d, seed = count("dim", dim, 2), count("seed", seed, 0)
        if d > 3 * A:
            raise InvalidEnvironment(
                f"dim is {d}, but 3 states and {plural(A, 'action')} make only {3 * A} pairs: "
                f"give dim of at most {3 * A}",
                code="bad-dim",
            )
        rng = np.random.default_rng(seed)
        # every latent but 0 appears at least once, the rest of the pairs are spread at random
        others = np.append(np.arange(1, d), rng.integers(1, d, size=3 * A - d))
        latent = np.append(0, rng.permutation(others)).reshape(3, A)
        mu = np.zeros((H, d, 3))
        mu[:, 0, :2] = 0.99, 0.01
        likely = rng.integers(1, 3, size=(H, d - 1, 1)) == np.array([1, 2])
        mu[:, 1:, 1:] = np.where(likely, 0.8, 0.2)
        theta = rng.uniform(0.005, 0.008, size=(H, d))
        theta[:, 0] = 0.0
        theta[-1] = np.eye(d)[0]
        super().__init__(np.eye(d)[latent], mu, theta, horizon=H, name="CombinationLock")
        self.record(horizon=H, n_actions=A, dim=d, seed=seed)
