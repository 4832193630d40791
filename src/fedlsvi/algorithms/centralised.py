"""Centralised LSVI-UCB: every trajectory goes to the server after every episode.

LSVI-UCB (Jin, Yang, Wang, Jordan 2020) on the pooled data of M agents. All agents follow the same
π_t; after each episode they upload what they saw, the server backs up through all steps on all data
and sends (w, Λ), from which each agent builds its Q. Least squares cannot learn faster from the
same episodes. The cost grows with T: M·H·ρ raw scalars up and M·H(P + d) down after every episode.

Checked: with M = 1 it is LSVI-UCB, and with any M it is Fed-LSVI at γ = 1 (tests against literal
implementations of both). From memory: Jin et al. clip at H only from above; we clip at [0, c_h]
like Fed-LSVI.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from fedlsvi.algorithms.shared.channel import Message
from fedlsvi.algorithms.shared.comparator import Comparator, Play, Segment
from fedlsvi.algorithms.shared.contract import Stateless
from fedlsvi.algorithms.shared.explorer import Explorer
from fedlsvi.algorithms.shared.lsvi_sums import LSVISums, keeps_sums, rebuild
from fedlsvi.algorithms.shared.received import (
    ReceivedStates,
    received_memory,
    received_vectors,
)
from fedlsvi.algorithms.shared.settings import LinearSettings, ServedSettings
from fedlsvi.core import theory
from fedlsvi.core.statistics import Packing, factorise, identity, pack, shared, unpack
from fedlsvi.envs.continuous import ContinuousMDP
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.gym.world import GymWorld
from fedlsvi.experience.kinds import empty_values
from fedlsvi.experience.values import BlockValues, TabularValues
from fedlsvi.protocol.cohorts import cohort_of
from fedlsvi.protocol.plan import Plan
from fedlsvi.protocol.server import noise_of
from fedlsvi.run import Run


class FiniteFollowers(Stateless):
    """All M agents on finite states: they play the server's policy and keep nothing."""

    def __init__(self, plan: Plan) -> None:
        self.packing, self.pooled = plan.parameters.packing, plan.parameters.stationary
        values = empty_values(plan)
        assert isinstance(values, TabularValues)
        self.values, self._explorer = values, Explorer(plan, np.arange(len(plan.envs)))
        self.receive(*start(plan))

    @property
    def policy(self) -> Any:
        """The table that they follow now, (H, S)."""
        return self.values.policy

    def play(self, t: int) -> Message:
        """Episode t of every agent: (states, actions, rewards), each (M, H, 1); with the states
        after step H where steps share their data."""
        seen = self._explorer.play(t, 1, self.values.policy)
        return (self._explorer.log[:, :, :1], *seen[1:]) if self.pooled else seen

    def receive(self, w: np.ndarray, gram: np.ndarray) -> None:
        """Build Q and π from the server's model."""
        rebuild(self.values, w, gram, self.packing)


class VectorFollowers(Stateless):
    """All M agents where states are real vectors: they play the server's policy and keep nothing.

    In a black box steps after the end of an episode have the action −1.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan, self.packing = plan, plan.parameters.packing
        everyone = np.arange(len(plan.envs))
        self._explorer: Explorer | None = None
        if isinstance(plan.envs[0], GymWorld):
            values = empty_values(plan)
            assert isinstance(values, BlockValues)
            self.values, self._explorer = values, Explorer(plan, everyone)
        else:
            experience: Any = cohort_of(plan, 0, len(everyone)).experience
            self._source, self.values = experience.source, experience.values
        self.receive(*start(plan))

    @property
    def policy(self) -> Any:
        """The values that they follow now, frozen."""
        return self.values.frozen()

    def play(self, t: int) -> Message:
        """Episode t of every agent: (states, actions, rewards), states (M, H, 1, s), or
        (M, H + 1, 1, s) where steps share their data."""
        pooled = self.plan.parameters.stationary
        if self._explorer is not None:
            seen = self._explorer.play(t, 1, self.values)
            return (self._explorer.log, *seen[1:]) if pooled else seen
        self._source.begin(t - 1)
        self._source.play(t, 1)
        self._source.close(t - 1, 1)
        blocks = [played for _, _, played in self._source.round.blocks]
        states, actions, rewards, last = (
            np.concatenate([getattr(played, name) for played in blocks])
            for name in ("states", "actions", "rewards", "last")
        )
        if not self.plan.knows_values:
            agents = np.arange(len(states))
            self.plan.returns.put(agents, t, self._source.returns(t - 1, t))
        if pooled:
            states = np.concatenate([states, last[:, :, None]], axis=2)
        return tuple(np.swapaxes(part, 1, 2) for part in (states, actions, rewards))

    def receive(self, w: np.ndarray, gram: np.ndarray) -> None:
        """Build Q and π from the server's model."""
        take_over(self.values, w, gram, self.packing)


class EpisodeBuffer:
    """The server's copy of all episodes, or counts of their transitions, summed again in every
    backward pass. It is the memory of Fed-LSVI's agents, filled by messages instead of playing."""

    def __init__(self, plan: Plan) -> None:
        p = plan.parameters
        self.packing, self.lam, self.t = p.packing, p.lam, 0
        self.values = empty_values(plan)
        self.memory = received_memory(plan, self.values)
        one = identity(p.dim, p.lam, p.packing)
        self.gram = shared(one[None], p.horizon) if p.stationary else np.stack([one] * p.horizon)
        self.matrices, self.w = p.matrices, np.zeros((p.horizon, p.dim))

    def add(self, episodes: Message) -> None:
        """Append one episode of each agent."""
        n = episodes[1].shape[2]
        if isinstance(self.values, TabularValues):
            self.memory.add(ReceivedStates(episodes, self.values), self.t, n)
        else:
            self.memory.take(received_vectors(episodes), self.t, n)
        self.t += n

    def backward_pass(self) -> None:
        """The backward pass over everything in the buffer."""
        H, d = self.w.shape
        for h in range(H, 0, -1):
            local, b = self.memory.upload(h, self.values)
            gram = np.empty(0)
            if local.size:  # else it is that of step h + 1
                self.gram[h - 1] += unpack(local.sum(axis=0), d, self.memory.wire)
                gram = self.gram[h - 1]
            factor, total = factorise(self.gram[h - 1]), b.sum(axis=0)
            self.w[h - 1] = w = factor.solve(total[:d])
            if self.values.noise is not None:
                top = float(self.values.ceilings[h - 1])
                w = np.append(w, noise_of(factor, w, total, self.lam, top))
            self.values.update(h, w, gram)

    @property
    def grams(self) -> np.ndarray:
        """Λ of every step, (H, …)."""
        return self.gram

    def model(self) -> Message:
        """(w, Λ) as it travels."""
        return self.values.with_noise(self.w), pack(self.gram[: self.matrices], self.packing)

    def state(self) -> dict[str, np.ndarray]:
        """Everything that is kept, where the run stands, and Λ."""
        kept: dict[str, np.ndarray] = self.memory.history(0, self.t) | self.memory.state()
        if self.values.noise is not None:
            kept["noise"] = self.values.noise
        return kept | {"sums": self.gram, "at": np.array([self.t])}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Put back what `state` gave."""
        kept = dict(state)
        self.gram[:], self.t = kept.pop("sums"), int(kept.pop("at")[0])
        if self.values.noise is not None:
            self.values.noise[:] = kept.pop("noise")
        if "lengths" in kept:
            self.memory.extend(0, kept)
        else:
            self.memory.restore(kept)


def take_over(values: Any, w: np.ndarray, gram: np.ndarray, packing: Packing) -> None:
    """Build Q and π from a model whose steps may share one Λ."""
    grams = unpack(gram, values.features.dim, packing)
    for h in range(len(w), 0, -1):
        own = h <= len(grams) if len(grams) > 1 else h == len(w)
        values.update(h, w[h - 1], grams[min(h, len(grams)) - 1] if own else np.empty(0))


def start(plan: Plan) -> Message:
    """The model before the first episode, w = 0 and Λ = λI, which is never sent."""
    p = plan.parameters
    gram = np.stack([identity(p.dim, p.lam, p.packing)] * p.matrices)
    w = np.zeros((p.horizon, p.dim))
    return np.column_stack([w, 0.5 * p.ceilings]) if p.noisy else w, pack(gram, p.packing)


@dataclass(frozen=True)
class CentralisedSettings(ServedSettings):
    """Settings: as `LinearSettings`. `stationary="auto"` is Fed-LSVI's in a black box, and False
    where the world is known: LSVI-UCB was published with a model for every step."""


class CentralisedPlay(Play):
    """Play, upload, back up, download; every episode."""

    algorithm = "centralised"
    goes_on = True

    def __init__(self, plan: Plan, settings: LinearSettings, keep_models: bool) -> None:
        super().__init__(plan, settings, keep_models)
        finite = plan.envs[0].finite
        self.agents: FiniteFollowers | VectorFollowers
        self.agents = FiniteFollowers(plan) if finite else VectorFollowers(plan)
        self.pool = LSVISums(plan) if keeps_sums(plan) else EpisodeBuffer(plan)
        self.values = self.agents.values
        self.meter = self.regret_meter.group(range(plan.parameters.n_agents))

    def parties(self) -> dict[str, Any]:
        return {"agents": self.agents, "server": self.pool}

    def advance(self) -> Segment:
        last = min(self.t + self.segment_length, self.episodes)
        for t in range(self.t + 1, last + 1):
            episodes = self.agents.play(t)
            self.meter.record(t, 1, self.agents.policy)
            self.pool.add(self.channel.gather("up_raw", *episodes))
            began = perf_counter()
            self.pool.backward_pass()
            self.planning += perf_counter() - began
            self.agents.receive(*self.channel.broadcast("down_model", *self.pool.model()))
        return Segment(last, rounds=last - self.t)

    def report(self) -> tuple[np.ndarray, np.ndarray]:
        return self.pool.w, self.pool.grams

    def resumed(self) -> None:
        self.pool.w[:] = self.w
        self.agents.receive(*self.pool.model())


class Centralised(Comparator):
    """LSVI-UCB on all trajectories, pooled after every episode. Settings: as `FedLSVI`."""

    name = "centralised"
    masks = "known"
    settings_type = CentralisedSettings
    play_type = CentralisedPlay
    worlds = (FiniteMDP, ContinuousMDP, GymWorld)
    published = True
    sums_of = "server"
    counts_where_large = True


def scalars(run: Run) -> dict[str, int]:
    """T(MHρ + MH(P + d)); where steps share their data, T(M(Hρ + s) + M(P + Hd))."""
    p, rho = run.parameters, run.raw_scalars_per_step
    raw = p.horizon * rho + (rho - 2 if p.stationary else 0)
    model = theory.scalars_model(p.dim, p.horizon, p.packing, p.stationary, p.noisy)
    episodes = p.n_agents * p.episodes
    return {"up_raw": episodes * raw, "down_model": episodes * model}
