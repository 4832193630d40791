"""Worlds whose states are vectors: simulators that take keyed draws, and black boxes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from fedlsvi.core.perturbation import choose_perturbed, directions
from fedlsvi.core.random import uniforms
from fedlsvi.core.value import take_rows
from fedlsvi.envs.continuous import ContinuousMDP
from fedlsvi.envs.gym.episodes import Played, Players
from fedlsvi.envs.gym.world import COPIES, GymWorld
from fedlsvi.errors import FedLSVIError, InvalidEnvironment
from fedlsvi.experience.values import BlockValues
from fedlsvi.experience.vector_round import VectorRound
from fedlsvi.experience.workers import Workers, contiguous_runs

LOOKAHEAD_BYTES = 32 * 2**20
"""Memory for the whitened feature rows of the episodes explored last."""

Scratch = list[tuple[np.ndarray, ...]]


class ContinuousSource:
    """Agents in continuous MDPs, all episodes of a call side by side; arguments as for
    `SteppedVectors`."""

    recorded = False

    def __init__(
        self,
        envs: Sequence[ContinuousMDP],
        agents: np.ndarray,
        values: BlockValues,
        seed: int,
        groups: int,
        workers: Workers,
        diversity: float = 0.0,
    ) -> None:
        self.agents, self.values, self.seed, self.workers = agents, values, seed, workers
        self.diversity, self._runs, env = diversity, contiguous_runs(envs), envs[0]
        m, self._horizon, dim = len(agents), env.horizon, values.features.dim
        self._draws = env.draws_at_reset + env.horizon * env.draws_per_step
        self.block = max(1, LOOKAHEAD_BYTES // (8 * m * env.horizon * dim))
        self.round = VectorRound(m, env.horizon, dim, groups)
        self._scratch = [values.scratch() for _ in range(workers.threads)]

    def begin(self, t: int) -> None:
        """A new round, with the policy that `values` holds now."""
        self.round.begin()

    def play(self, first: int, n: int) -> None:
        """Append episodes to the round."""
        u = uniforms(self.seed, self.agents, first, n, self._draws)
        rows, H = self.round.rows(n), self._horizon
        for lo, hi, env in self._runs:
            k0, k, m = env.draws_at_reset, env.draws_per_step, hi - lo
            flat = u[lo:hi].reshape(m * n, -1)
            dim = self.values.features.dim
            push = perturbations(self.diversity, self.seed, self.agents[lo:hi], first, n, dim)
            episodes = (env.name, self.agents[lo:hi], first, first + n - 1)
            with naming_errors(*episodes, 0):
                x = env.reset(flat[:, :k0], np.repeat(self.agents[lo:hi], n))
            states, rewards = np.empty((m * n, H, x.shape[1])), np.empty((m * n, H))
            actions = np.empty((m * n, H), np.int32)
            for h in range(1, H + 1):
                a, whitened = greedy_rows(self.values, self.workers, self._scratch, h, x, push)
                draws = flat[:, k0 + (h - 1) * k : k0 + h * k]
                with naming_errors(*episodes, h):
                    r, following = env.step(h, x, a, draws)
                states[:, h - 1], actions[:, h - 1], rewards[:, h - 1] = x, a, r
                rows[lo:hi, :, h - 1] = whitened.reshape(m, n, -1)
                x = following
            lengths, ended = np.full(m * n, H), np.zeros(m * n, bool)
            parts = (states, actions, rewards, lengths, ended, np.asarray(x))
            played = Played(*(part.reshape(m, n, *part.shape[1:]) for part in parts))
            self.round.blocks.append((lo, hi, played))

    def close(self, first: int, length: int) -> None:
        """The round has ended."""
        self._closed = first, earned(self.round, len(self.agents), [0.0] * len(self.agents))

    def returns(self, first: int, last: int) -> np.ndarray:
        """(m, n) returns of episodes first+1 … last of the round that has ended."""
        t, paid = self._closed
        return in_units(self._runs, paid[:, first - t : last - t])

    def fewest(self, first: int, last: int) -> None:
        """Nothing: every episode reaches every step."""

    def state(self) -> dict[str, np.ndarray]:
        """Nothing."""
        return {}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Nothing."""


class SteppedVectors:
    """Agents in black boxes whose observations are vectors; several episodes in lockstep.

    Args:
        envs: One world for each agent.
        agents: Their numbers, (m,).
        values: Whose policy is followed.
        seed: Seed of the run.
        groups: Groups of steps with one determinant each.
        workers: Threads.
        diversity: σ of the policies that differ between agents and episodes.
    """

    recorded = False

    def __init__(
        self,
        envs: Sequence[GymWorld],
        agents: np.ndarray,
        values: BlockValues,
        seed: int,
        groups: int,
        workers: Workers,
        diversity: float = 0.0,
    ) -> None:
        self.agents, self.values, self.seed, self.workers = agents, values, seed, workers
        self.diversity, self._runs, env = diversity, contiguous_runs(envs), envs[0]
        self._players = [Players(env, agents[lo:hi], seed) for lo, hi, env in self._runs]
        m, self._horizon, self._dim = len(agents), env.horizon, values.features.dim
        self._after = [env.absorbing_reward for env in envs]
        self.block = max(1, min(COPIES, LOOKAHEAD_BYTES // (8 * m * env.horizon * self._dim)))
        self.round = VectorRound(m, env.horizon, self._dim, groups)
        self._scratch = [values.scratch() for _ in range(workers.threads)]

    def begin(self, t: int) -> None:
        """A new round, with the policy that `values` holds now."""
        self.round.begin()

    def play(self, first: int, n: int) -> None:
        """Append episodes to the round."""
        rows = self.round.rows(n)
        for (lo, hi, _), players in zip(self._runs, self._players, strict=True):
            whitened = rows[lo:hi].reshape((hi - lo) * n, self._horizon, self._dim)
            about = (self.seed, self.agents[lo:hi], first, n, self._dim)
            perturb = perturbations(self.diversity, *about)

            def act(
                h: int, x: np.ndarray, live: np.ndarray, out: Any = whitened, by: Any = perturb
            ) -> np.ndarray:
                push = None if by is None else by[live]
                chosen = greedy_rows(self.values, self.workers, self._scratch, h, x, push)
                actions, out[live, h - 1] = chosen
                return actions

            self.round.blocks.append((lo, hi, players.play(first, n, act)))
        self.block = self._runs[0][2].lookahead(self.block)

    def close(self, first: int, length: int) -> None:
        """The round has ended."""
        self._closed = first, earned(self.round, len(self.agents), self._after)

    def returns(self, first: int, last: int) -> np.ndarray:
        """(m, n) returns of episodes first+1 … last of the round that has ended."""
        t, paid = self._closed
        return in_units(self._runs, paid[:, first - t : last - t])

    def fewest(self, first: int, last: int) -> None:
        """Nothing: the memory knows which steps were reached."""

    def state(self) -> dict[str, np.ndarray]:
        """Nothing."""
        return {}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Nothing."""


def perturbations(
    diversity: float, seed: int, agents: np.ndarray, first: int, n: int, dim: int
) -> np.ndarray | None:
    """σζ of each agent and episode, (m·n, d); None where all follow one policy."""
    if diversity == 0.0:
        return None
    return diversity * directions(seed, agents, first, n, dim).reshape(-1, dim)


def earned(round_: VectorRound, n_agents: int, after: Sequence[float]) -> np.ndarray:
    """(m, n) returns in rewards of [0, 1], what follows the ends included."""
    rows = []
    for i in range(n_agents):
        blocks = list(round_.episodes(i))
        # one reward after the other: a sum that numpy regroups would round differently
        paid = [np.cumsum(played.rewards, axis=1)[:, -1] for played in blocks]
        left = [(played.rewards.shape[1] - played.lengths) * after[i] for played in blocks]
        rows.append(
            np.concatenate([np.empty(0), *(p + q for p, q in zip(paid, left, strict=True))])
        )
    return np.stack(rows)


def in_units(runs: Sequence[tuple[int, int, Any]], returns: np.ndarray) -> np.ndarray:
    """Returns (m, n) in the units of each agent's world."""
    converted = returns.copy()
    for lo, hi, env in runs:
        converted[lo:hi] = env.original(converted[lo:hi])
    return converted


@contextmanager
def naming_errors(name: str, agents: np.ndarray, first: int, last: int, h: int) -> Iterator[None]:
    """Turn what an environment raises into an error that says where it was."""
    try:
        yield
    except FedLSVIError:
        raise
    except Exception as error:
        where = f"step {h}" if h else "the reset"
        raise InvalidEnvironment(
            f"{name} raised {type(error).__name__}: {error} in {where} of episodes {first} to "
            f"{last} of agents {agents[0]} to {agents[-1]}. Correct it, then continue a run that "
            "has a folder with: fedlsvi resume",
            code="environment-raised",
        ) from error


def greedy_rows(
    values: BlockValues,
    workers: Workers,
    scratch: Scratch,
    h: int,
    x: np.ndarray,
    perturbation: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Greedy actions at states x (n, s), and the whitened rows of those actions (n, d).

    Args:
        values: The model in force.
        workers: Threads to share the work.
        scratch: Buffers of `BlockValues.scratch`, one set per thread.
        h: The step, 1 … H.
        x: The states.
        perturbation: σζ (n, d) of each state's episode, where their policies differ.
    """
    n, size = len(x), values.size
    greedy, whitened = np.empty(n, np.int32), np.empty((n, values.features.dim))

    def choose(lo: int, hi: int) -> None:
        buffers = scratch.pop()  # a list pops atomically
        best = np.empty(size)
        for at in range(lo * size, min(hi * size, n), size):
            cut = slice(at, min(at + size, n))
            y = values.block(h, x[cut], buffers, best, greedy[cut])
            if perturbation is not None:
                z, bonus = values.targets[h - 1], values.bonuses[h - 1]
                mask = values.mask(h, x[cut])
                choose_perturbed(y, z, bonus, perturbation[cut], greedy[cut], mask)
            take_rows(y, greedy[cut], whitened[cut])
        scratch.append(buffers)

    workers.map(choose, 0, -(-n // size))
    return greedy, whitened
