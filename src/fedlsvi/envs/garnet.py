"""Random finite MDPs: GARNET, and the instance of Fed-UCBVI."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.validation import count, fraction
from fedlsvi.errors import InvalidEnvironment


class Garnet(FiniteMDP):
    """GARNET(S, A, b) (Archibald, McKinnon & Thomas 1995), stationary.

    Every pair has b successors drawn without replacement; b − 1 uniform cuts of the unit stick give
    their probabilities. r(x,a) ~ U[0,1].
    """

    registry_name = "garnet"

    def __init__(
        self,
        n_states: int = 20,
        n_actions: int = 4,
        branching: int = 3,
        horizon: int = 10,
        seed: int = 0,
        initial: Any = 0,
    ) -> None:
        S, A = count("n_states", n_states), count("n_actions", n_actions)
        b, H, seed = (
            count("branching", branching),
            count("horizon", horizon),
            count("seed", seed, 0),
        )
        if b > S:
            raise InvalidEnvironment(
                f"branching is {b}, but there are {plural(S, 'state')}: give branching of at "
                f"most {S}",
                code="bad-branching",
            )
        rng = np.random.default_rng(seed)
        successors = rng.permuted(np.tile(np.arange(S), (S * A, 1)), axis=1)[:, :b]
        cuts = np.sort(rng.random((S * A, b - 1)), axis=1)
        P = np.zeros((S * A, S))
        np.put_along_axis(P, successors, np.diff(cuts, prepend=0.0, append=1.0, axis=1), axis=1)
        r = rng.random((S, A))
        super().__init__(P.reshape(S, A, S), r, horizon=H, initial=initial, name="Garnet")
        self.record(n_states=S, n_actions=A, branching=b, horizon=H, seed=seed, initial=initial)


class RandomMDP(FiniteMDP):
    """The instance of Fed-UCBVI (Labbi et al. 2025): P_h(·|x,a) ~ Dirichlet(1), r_h ~ U[0,1].

    With epsilon > 0 agent m meets (1−ε)P + εP^m, where its own law P^m is drawn from
    (seed, agent); rewards are common. First states are uniform unless `initial` says otherwise.
    """

    registry_name = "random-mdp"

    def __init__(
        self,
        n_states: int = 5,
        n_actions: int = 5,
        horizon: int = 4,
        seed: int = 0,
        epsilon: float = 0.0,
        agent: int = 0,
        initial: Any = "uniform",
    ) -> None:
        S, A = count("n_states", n_states), count("n_actions", n_actions)
        H, seed, agent = count("horizon", horizon), count("seed", seed, 0), count("agent", agent, 0)
        epsilon = fraction("epsilon", epsilon, zero=True)
        rng = np.random.default_rng(seed)
        P = rng.dirichlet(np.ones(S), size=(H, S, A))
        r = rng.random((H, S, A))
        if epsilon > 0.0:
            own = np.random.default_rng([seed, 1 + agent]).dirichlet(np.ones(S), size=(H, S, A))
            P = (1.0 - epsilon) * P + epsilon * own
        super().__init__(P, r, horizon=H, initial=initial, name="RandomMDP")
        self.record(
            n_states=S,
            n_actions=A,
            horizon=H,
            seed=seed,
            epsilon=epsilon,
            agent=agent,
            initial=initial,
        )
