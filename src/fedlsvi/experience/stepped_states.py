"""Black boxes whose observations are numbers of states; several episodes per agent in lockstep.

The state after the end is a state like the others, absorbing and paying r₀, the image of a reward
of 0, as it is in an environment whose table is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedlsvi.envs.gym.episodes import Act, Played, Players
from fedlsvi.envs.gym.world import COPIES, GymWorld
from fedlsvi.experience.state_round import StateRound
from fedlsvi.experience.values import DiverseValues, TabularValues
from fedlsvi.experience.vector_sources import in_units
from fedlsvi.experience.workers import Workers, contiguous_runs


class SteppedStates:
    """Agents that follow one table of actions, or one policy for each agent and episode."""

    recorded = False

    def __init__(
        self,
        envs: Sequence[GymWorld],
        agents: np.ndarray,
        values: TabularValues,
        seed: int,
        groups: int,
        workers: Workers,
    ) -> None:
        self.agents, self.values, self.seed = agents, values, seed
        self._runs, self.block = contiguous_runs(envs), COPIES
        self._players = [Players(env, agents[lo:hi], seed) for lo, hi, env in self._runs]
        self.round = StateRound(len(agents), envs[0].horizon, groups, values, workers)

    def begin(self, t: int) -> None:
        """A new round, with the policy that `values` holds now."""
        self.round.begin()

    def play(self, first: int, n: int) -> None:
        """Append episodes to the round."""
        log, new = self.round, slice(self.round.logged, self.round.logged + n)
        for (lo, hi, env), players in zip(self._runs, self._players, strict=True):
            act = self._act(env, self.agents[lo:hi], first, n)
            played = players.play(first, n, act)
            close_off(played, env)
            states = played.states.transpose(0, 2, 1)
            if log.diverse:
                _act_after(played, env, act)
                actions = played.actions.transpose(0, 2, 1)
                log.pairs[lo:hi, :, new] = states * log.n_actions + actions
            log.states[lo:hi, :-1, new], log.states[lo:hi, -1, new] = states, played.last
            log.rewards[lo:hi, :, new] = played.rewards.transpose(0, 2, 1)
        log.took(n)
        self.block = self._runs[0][2].lookahead(self.block)

    def _act(self, env: GymWorld, agents: np.ndarray, first: int, n: int) -> Act:
        """What episodes first … first + n − 1 of these agents do."""
        values, log = self.values, self.round
        if isinstance(values, DiverseValues):
            episodes = np.tile(np.arange(first, first + n), len(agents))
            who = np.repeat(agents, n), episodes, values.directions(self.seed, agents, first, n)

            def act_apart(h: int, x: np.ndarray, live: np.ndarray) -> np.ndarray:
                if values.unseen:
                    self._take_masks(env, x)
                return values.act_in(h, x, self.seed, tuple(part[live] for part in who))

            return act_apart

        def act(h: int, x: np.ndarray, live: np.ndarray) -> np.ndarray:
            if values.unseen:
                self._take_masks(env, x)
            actions: np.ndarray = log.policy[h - 1, x]
            return actions

        return act

    def _take_masks(self, env: GymWorld, x: np.ndarray) -> None:
        """States that are seen for the first time show which actions they allow; no episode of the
        round was there before, so that the policy is still one table."""
        new = np.unique(x[~self.values.shown[x]])
        if len(new):
            self.values.show(new, env.allowed[0, new])
            self.round.policy[:, new] = self.values.policy[:, new]

    def close(self, first: int, length: int) -> None:
        """The round has ended."""
        self._closed = first, self.round.rewards[:, :, :length].sum(axis=1)

    def returns(self, first: int, last: int) -> np.ndarray:
        """(m, n) returns of episodes first+1 … last of the round that has ended."""
        t, paid = self._closed
        return in_units(self._runs, paid[:, first - t : last - t])

    def fewest(self, first: int, last: int) -> None:
        """Nothing: every episode reaches every step, if only in the state after its end."""

    def state(self) -> dict[str, np.ndarray]:
        """The masks that were seen."""
        if not self.values.unseen:
            return {}
        assert self.values.allowed is not None
        shown = self.values.shown.astype(np.uint8)
        return {"masks": self.values.allowed[0].astype(np.uint8), "shown": shown}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Continue from `state`."""
        if self.values.unseen:
            shown = np.flatnonzero(state["shown"])
            self.values.show(shown, state["masks"][shown].astype(bool))


def close_off(played: Played, env: GymWorld) -> None:
    """Fill in what follows the ends: the absorbing state and its reward."""
    over = np.arange(env.horizon) >= played.lengths[:, :, None]
    played.states[over] = env.n_states - 1
    played.rewards[over] = env.absorbing_reward
    # an episode that ended at its very last step lies behind the end too
    played.last[played.ended] = env.n_states - 1


def _act_after(played: Played, env: GymWorld, act: Any) -> None:
    """Actions in the state after the end, which is a state like the others."""
    lengths = played.lengths.ravel()
    actions = played.actions.reshape(len(lengths), -1)
    for h in range(int(lengths.min()) + 1, env.horizon + 1):
        over = np.flatnonzero(lengths < h)
        actions[over, h - 1] = act(h, np.full(len(over), env.n_states - 1), over)
