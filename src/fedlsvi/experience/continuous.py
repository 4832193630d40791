"""Experience in a continuous state space: the buffer D_h, relabelled in blocks.

max and clip make b_h = Σφ(r + V_{h+1}(x')) non-linear in the model, so every synchronisation
evaluates V_{h+1} at every next state in the history. Raw states are kept; features are recomputed
block by block, so that memory is one block per thread and the time goes into matrix products.
Blocks are cut by the agent's own episode numbers and summed in order: no result depends on threads,
cohorts or how exploration was cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from fedlsvi.core.perturbation import choose_perturbed
from fedlsvi.core.random import uniforms
from fedlsvi.core.statistics import Packing, pack
from fedlsvi.core.trigger import Rule
from fedlsvi.core.value import take_rows
from fedlsvi.envs.continuous import ContinuousMDP
from fedlsvi.errors import FedLSVIError, InvalidEnvironment
from fedlsvi.experience.trigger_search import Firing, RowTrigger
from fedlsvi.experience.values import BlockValues
from fedlsvi.experience.workers import Workers, contiguous_runs, grown

LOOKAHEAD_BYTES = 32 * 2**20
"""Memory for the whitened feature rows of the episodes explored last."""


class ContinuousExperience:
    """The history of a cohort's agents, agent · step · episode."""

    def __init__(
        self,
        envs: Sequence[ContinuousMDP],
        agents: np.ndarray,
        values: BlockValues,
        seed: int,
        packing: Packing,
        workers: Workers,
    ) -> None:
        self.agents, self.values, self.seed = agents, values, seed
        self.packing, self.workers = packing, workers
        self._groups = contiguous_runs(envs)
        env = envs[0]
        m, self._horizon, self.dim = len(agents), env.horizon, values.features.dim
        self._draws = env.draws_at_reset + env.horizon * env.draws_per_step
        self.states = np.empty((m, env.horizon + 1, 64, env.state_dim))
        self.actions = np.empty((m, env.horizon, 64), np.int32)
        self.rewards = np.empty((m, env.horizon, 64))
        self.block = max(1, LOOKAHEAD_BYTES // (8 * m * env.horizon * self.dim))
        self._trigger = RowTrigger(m, env.horizon, self.dim)
        self._scratch = [values.scratch() for _ in range(workers.threads)]

    def begin(self, t: int) -> None:
        """A new round after episode t, with the policy that `values` holds now."""
        self.t, self.length, self._last = t, 0, 0
        self._trigger.begin()

    def explore(self, n: int) -> None:
        """Every agent plays its next n episodes."""
        at = self.t + self.length
        self._make_room(at + n)
        new = slice(at, at + n)
        u = uniforms(self.seed, self.agents, at + 1, n, self._draws)
        rows = self._trigger.extend(n)
        for lo, hi, env in self._groups:
            k0, k = env.draws_at_reset, env.draws_per_step
            flat = u[lo:hi].reshape((hi - lo) * n, -1)
            with naming_errors(env.name, self.agents[lo:hi], at + 1, at + n, 0):
                x = env.reset(flat[:, :k0], np.repeat(self.agents[lo:hi], n))
            for h in range(1, self._horizon + 1):
                a, whitened = greedy_rows(self.values, self.workers, self._scratch, h, x)
                draws = flat[:, k0 + (h - 1) * k : k0 + h * k]
                with naming_errors(env.name, self.agents[lo:hi], at + 1, at + n, h):
                    r, following = env.step(h, x, a, draws)
                self.states[lo:hi, h - 1, new] = x.reshape(hi - lo, n, -1)
                self.actions[lo:hi, h - 1, new] = a.reshape(hi - lo, n)
                self.rewards[lo:hi, h - 1, new] = r.reshape(hi - lo, n)
                rows[lo:hi, :, h - 1] = whitened.reshape(hi - lo, n, -1)
                x = following
            self.states[lo:hi, self._horizon, new] = x.reshape(hi - lo, n, -1)
        self.length += n
        self._last = n

    def first_firing(self, rule: Rule, n: int) -> Firing:
        """Search the first n of the episodes explored last."""
        return self._trigger.search(self.length - self._last, n, rule)

    def close(self, length: int) -> None:
        """End the round after `length` episodes; later ones are overwritten by the next round."""
        self.length = length

    def summarise(self, h: int) -> tuple[np.ndarray, np.ndarray]:
        """See `FiniteExperience.summarise`."""
        return self._statistics(h), self.responses(h)

    def returns(self, first: int, last: int) -> np.ndarray:
        """(m, n) returns of episodes first+1 … last, in the environment's own units."""
        found: np.ndarray = self.rewards[:, :, first:last].sum(axis=1)
        for lo, hi, env in self._groups:
            found[lo:hi] = env.original(found[lo:hi])
        return found

    def _statistics(self, h: int) -> np.ndarray:
        """Λ_h^loc of the round just closed, (m, P)."""
        m = len(self.agents)
        grams = np.zeros((m, self.dim, self.dim))

        def add(lo: int, hi: int) -> None:
            for i in range(lo, hi):
                for at in range(self.t, self.t + self.length, self.values.size):
                    end = min(at + self.values.size, self.t + self.length)
                    phi = self._chosen(i, h, at, end)
                    grams[i] += phi.T @ phi

        self.workers.map(add, 0, m)
        return pack(grams, self.packing)

    def responses(self, h: int) -> np.ndarray:
        """b_h = Σφ(r + V_{h+1}(x')) over the whole history, (m, d)."""
        m, total, size = len(self.agents), self.t + self.length, self.values.size
        cuts = range(0, total, size)
        parts = np.empty((m * len(cuts), self.dim))

        def relabel(lo: int, hi: int, scratch: list[tuple[np.ndarray, ...]]) -> None:
            buffers = scratch.pop()  # one set of buffers per thread; a list pops atomically
            values, greedy = np.zeros(size), np.empty(size, np.int32)
            for part in range(lo, hi):
                i, at = part // len(cuts), cuts[part % len(cuts)]
                end = min(at + size, total)
                if h < self._horizon:
                    self.values.block(h + 1, self.states[i, h, at:end], buffers, values, greedy)
                targets = self.rewards[i, h - 1, at:end] + values[: end - at]
                np.matmul(targets, self._chosen(i, h, at, end), out=parts[part])
            scratch.append(buffers)

        self.workers.map(relabel, 0, len(parts), self._scratch)
        b: np.ndarray = parts.reshape(m, len(cuts), self.dim).sum(axis=1)
        return b

    def state(self) -> dict[str, np.ndarray]:
        """Nothing beyond the history."""
        return {}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Nothing beyond the history."""

    def history(self, first: int, last: int) -> dict[str, np.ndarray]:
        """The episodes after `first` up to `last`, for a checkpoint that only appends."""
        cut = slice(first, last)
        return {
            "states": np.ascontiguousarray(self.states[:, :, cut]),
            "actions": np.ascontiguousarray(self.actions[:, :, cut]),
            "rewards": np.ascontiguousarray(self.rewards[:, :, cut]),
        }

    def extend(self, first: int, part: dict[str, np.ndarray]) -> None:
        """Put back what `history` gave."""
        last = first + part["actions"].shape[2]
        self._make_room(last)
        for name, array in part.items():
            getattr(self, name)[:, :, first:last] = array

    def _chosen(self, i: int, h: int, at: int, end: int) -> np.ndarray:
        """φ(x_h, a_h) of agent i's episodes at+1 … end."""
        features = self.values.features
        return features.chosen(self.states[i, h - 1, at:end], self.actions[i, h - 1, at:end])

    def _make_room(self, need: int) -> None:
        size = self.actions.shape[2]
        if need <= size:
            return
        for name in ("states", "actions", "rewards"):
            setattr(self, name, grown(getattr(self, name), max(need, 2 * size), size, axis=2))


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
    scratch: list[tuple[np.ndarray, ...]],
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
                z, beta = values.targets[h - 1], values.betas[h - 1]
                choose_perturbed(y, z, beta, perturbation[cut], greedy[cut])
            take_rows(y, greedy[cut], whitened[cut])
        scratch.append(buffers)

    workers.map(choose, 0, -(-n // size))
    return greedy, whitened
