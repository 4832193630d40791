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
from fedlsvi.algorithms.shared.settings import LinearSettings, ServedSettings
from fedlsvi.algorithms.shared.stepped_buffer import stepped_buffer
from fedlsvi.core import theory
from fedlsvi.core.statistics import Packing, factorise, identity, pack, shared, unpack
from fedlsvi.envs.continuous import ContinuousMDP
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.gym.world import GymWorld
from fedlsvi.errors import InvalidSetting
from fedlsvi.experience.continuous import ContinuousExperience
from fedlsvi.experience.values import BlockValues, TabularValues
from fedlsvi.experience.workers import Workers
from fedlsvi.protocol.plan import Plan
from fedlsvi.protocol.session import Player
from fedlsvi.run import Run


class FiniteFollowers(Stateless):
    """All M agents on finite states: they play the server's policy and keep nothing."""

    def __init__(self, plan: Plan) -> None:
        self.packing, self.pooled = plan.parameters.packing, plan.parameters.stationary
        values = plan.values()
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
        if self.pooled:
            take_over(self.values, w, gram, self.packing)
        else:
            rebuild(self.values, w, gram, self.packing)


class ContinuousFollowers(Stateless):
    """All M agents where states are real vectors."""

    values: BlockValues

    def __init__(self, plan: Plan) -> None:
        self.plan, self.packing, self.dim = plan, plan.parameters.packing, plan.parameters.dim
        self.get_ready()
        self.receive(*start(plan))

    def get_ready(self) -> None:
        """Make what they play with."""
        experience: Any = self.plan.cohort(0, len(self.plan.envs)).experience
        self.experience, self.values = experience, experience.values

    @property
    def policy(self) -> Any:
        """The values that they follow now, frozen."""
        return self.values.frozen()

    def play(self, t: int) -> Message:
        """Episode t of every agent: (states, actions, rewards), states (M, H, 1, s)."""
        self.experience.begin(t - 1)
        self.experience.explore(1)
        seen = self.experience.history(t - 1, t)
        if not self.plan.knows_values:
            played: Any = self.experience
            self.plan.returns.put(played.agents, t, played.returns(t - 1, t))
        return seen["states"][:, :-1], seen["actions"], seen["rewards"]

    def receive(self, w: np.ndarray, gram: np.ndarray) -> None:
        """Build Q and π from the server's model."""
        for h, one in enumerate(unpack(gram, self.dim, self.packing), start=1):
            self.values.update(h, w[h - 1], one)


class SteppedFollowers(ContinuousFollowers):
    """All M agents in a black box whose states are real vectors."""

    def get_ready(self) -> None:
        values = self.plan.values()
        assert isinstance(values, BlockValues)
        self.values, self._explorer = values, Explorer(self.plan, np.arange(len(self.plan.envs)))

    def play(self, t: int) -> Message:
        """Episode t of every agent; steps after its end have the action −1."""
        seen = self._explorer.play(t, 1, self.values)
        return (self._explorer.log, *seen[1:]) if self.plan.parameters.stationary else seen

    def receive(self, w: np.ndarray, gram: np.ndarray) -> None:
        take_over(self.values, w, gram, self.packing)


class EpisodeBuffer:
    """The server's copy of all episodes, relabelled from the start in every backward pass."""

    def __init__(self, plan: Plan) -> None:
        p = plan.parameters
        self.packing = p.packing
        self.experience = self.memory(plan)
        self.values = self.experience.values
        self.experience.begin(0)
        one = identity(p.dim, p.lam, p.packing)
        self.gram = shared(one[None], p.horizon) if p.stationary else np.stack([one] * p.horizon)
        self.matrices, self.w = p.matrices, np.zeros((p.horizon, p.dim))

    def memory(self, plan: Plan) -> Any:
        """Where the episodes are kept."""
        worlds: Any = plan.envs
        everyone, packing = np.arange(len(worlds)), plan.parameters.packing
        workers = Workers(plan.threads)
        return ContinuousExperience(worlds, everyone, plan.values(), plan.seed, packing, workers)  # type: ignore[arg-type]

    def add(self, episodes: Message) -> None:
        """Append one episode of each agent."""
        states, actions, rewards = episodes
        at = self.experience.t + self.experience.length
        last = np.zeros_like(states[:, :1])  # x_{H+1} did not travel: V_{H+1} = 0 needs none
        part = {"states": np.concatenate([states, last], axis=1)}
        self.experience.extend(at, part | {"actions": actions, "rewards": rewards})
        self.experience.begin(at)
        self.experience.length = actions.shape[2]

    def backward_pass(self) -> None:
        """The backward pass over everything in the buffer."""
        H, d = self.w.shape
        for h in range(H, 0, -1):
            local, b = self.experience.summarise(h)
            gram = unpack(local.sum(axis=0), d, self.packing) if local.size else np.empty(0)
            if gram.size:  # else it is that of step h + 1
                self.gram[h - 1] += gram
                gram = self.gram[h - 1]
            self.w[h - 1] = factorise(self.gram[h - 1]).solve(b.sum(axis=0))
            self.values.update(h, self.w[h - 1], gram)

    def model(self) -> Message:
        """(w, Λ) as it travels."""
        return self.w, pack(self.gram[: self.matrices], self.packing)

    def state(self) -> dict[str, np.ndarray]:
        """Everything: the whole history, and Λ."""
        last = self.experience.t + self.experience.length
        seen: dict[str, np.ndarray] = self.experience.history(0, last)
        return seen | {"sums": self.gram}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Put back what `state` gave."""
        self.gram[:] = state["sums"]
        part = {k: state[k] for k in ("states", "actions", "rewards")}
        self.experience.extend(0, part)
        self.experience.begin(part["actions"].shape[2])


class SteppedBuffer(EpisodeBuffer):
    """The server's copy of what was seen in a black box: episodes, or counts of transitions."""

    def memory(self, plan: Plan) -> Any:
        return stepped_buffer(plan)

    def add(self, episodes: Message) -> None:
        self.experience.take(episodes)

    def state(self) -> dict[str, np.ndarray]:
        """Everything that is kept, where the run stands, and Λ."""
        last = self.experience.t + self.experience.length
        kept: dict[str, np.ndarray] = self.experience.history(0, last) | self.experience.state()
        return kept | {"sums": self.gram, "at": np.array([last])}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Put back what `state` gave."""
        kept = dict(state)
        self.gram[:], last = kept.pop("sums"), int(kept.pop("at")[0])
        if "lengths" in kept:
            self.experience.extend(0, kept)
        else:
            self.experience.restore(kept)
        self.experience.begin(last)


def take_over(values: Any, w: np.ndarray, gram: np.ndarray, packing: Packing) -> None:
    """Build Q and π from a model whose steps may share one Λ."""
    grams = unpack(gram, w.shape[1], packing)
    for h in range(len(w), 0, -1):
        own = h <= len(grams) if len(grams) > 1 else h == len(w)
        values.update(h, w[h - 1], grams[min(h, len(grams)) - 1] if own else np.empty(0))


def start(plan: Plan) -> Message:
    """The model before the first episode, w = 0 and Λ = λI, which is never sent."""
    p = plan.parameters
    gram = np.stack([identity(p.dim, p.lam, p.packing)] * p.matrices)
    return np.zeros((p.horizon, p.dim)), pack(gram, p.packing)


@dataclass(frozen=True)
class CentralisedSettings(ServedSettings):
    """Settings: as `LinearSettings`. `stationary="auto"` is Fed-LSVI's in a black box, and False
    where the world is known; True is for black boxes."""


class CentralisedPlay(Play):
    """Play, upload, back up, download; every episode."""

    algorithm = "centralised"
    goes_on = True

    def __init__(self, plan: Plan, settings: LinearSettings, keep_models: bool) -> None:
        super().__init__(plan, settings, keep_models)
        finite, stepped = hasattr(plan.envs[0], "n_states"), isinstance(plan.envs[0], GymWorld)
        vectors = SteppedFollowers if stepped else ContinuousFollowers
        buffer = SteppedBuffer if stepped else EpisodeBuffer
        self.agents: FiniteFollowers | ContinuousFollowers
        self.agents = FiniteFollowers(plan) if finite else vectors(plan)
        dense = keeps_sums(plan) and not plan.parameters.stationary
        self.pool = LSVISums(plan) if dense else buffer(plan)
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
        return self.pool.w, self.pool.gram

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

    def play(self, plan: Plan, cohorts: int | None, keep_models: bool) -> Player:
        if plan.parameters.stationary and not isinstance(plan.envs[0], GymWorld):
            raise InvalidSetting(
                "stationary=True works for 'centralised' only on black-box environments: leave it "
                'out, or use the algorithm "periodic" with period=1, which pools the same episodes',
                code="bad-stationary",
            )
        return super().play(plan, cohorts, keep_models)


def scalars(run: Run) -> dict[str, int]:
    """T(MHρ + MH(P + d)); where steps share their data, T(M(Hρ + s) + M(P + Hd))."""
    p, rho = run.parameters, run.raw_scalars_per_step
    raw = p.horizon * rho + (rho - 2 if p.stationary else 0)
    model = theory.scalars_model(p.dim, p.horizon, p.packing, p.stationary)
    episodes = p.n_agents * p.episodes
    return {"up_raw": episodes * raw, "down_model": episodes * model}
