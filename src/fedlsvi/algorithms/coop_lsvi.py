"""Coop-LSVI: agents replan alone every episode and sometimes exchange all raw transitions.

Dubey, Pentland (2021), "Provably efficient cooperative multi-agent reinforcement learning with
function approximation", arXiv 2103.04972. Agent m plans with Λ_h = λI + S_h + δS_h: what was
synchronised and its own data since. When log det(Λ_h)/det(λI + S_h) > S_thr/Δt for some h of some
agent, all upload what they have seen since the last time and receive what the others have.

Checked: the algorithm box (own unsynchronised data is used, the trigger is a log-determinant, raw
transitions travel). Its tuples leave rewards out; we send them. From memory: S_thr, taken as
T·log(MT)/(dM) like CoopTS's code, and the widening of β for agents that differ, which is Fed-LSVI's
here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fedlsvi.algorithms.shared.channel import Message
from fedlsvi.algorithms.shared.comparator import Comparator, Play, Segment
from fedlsvi.algorithms.shared.planner import Planner
from fedlsvi.algorithms.shared.regret_meter import GroupMeter
from fedlsvi.algorithms.shared.settings import ServedSettings, threshold_of
from fedlsvi.checks import number
from fedlsvi.protocol.plan import Plan
from fedlsvi.run import Run


@dataclass(frozen=True)
class CoopSettings(ServedSettings):
    """Settings of Coop-LSVI.

    Attributes:
        threshold: S_thr of the trigger; "auto" is T·log(MT)/(dM), below 0 is every episode.
    """

    threshold: float | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threshold != "auto":
            number("threshold", self.threshold, -math.inf, '"auto" is T·log(MT)/(dM)')


class CoopAgent(Planner):
    """An agent that replans after every episode and keeps what it has not shared yet."""

    strict = True
    """Whether a tie with the threshold does not trigger."""

    def __init__(self, plan: Plan, m: int, meter: GroupMeter, settings: Any) -> None:
        super().__init__(plan, m, meter)
        self.threshold, self.length = threshold_of(settings.threshold, plan.parameters), 0
        H = plan.parameters.horizon
        sizes = ((H + self.pooled, np.uint32), (H, np.int32), (H, float))
        self._unsent = tuple(np.empty((1, steps, 16), dtype) for steps, dtype in sizes)

    def episode(self, t: int) -> Message:
        """Play, add to the sums, and keep a copy for the others."""
        seen = super().episode(t)
        if self.length == self._unsent[0].shape[2]:
            self._unsent = tuple(np.concatenate([a, a], axis=2) for a in self._unsent)
        for kept, new in zip(self._unsent, seen, strict=True):
            kept[:, :, self.length] = new[:, :, 0]
        self.length += 1
        return seen

    def triggered(self) -> int:
        """The lowest h with log det(S + δS + λI)/det(S + λI) > S_thr/Δt; 0 if there is none."""
        grown, limit = self.sums.growth(), self.threshold / self.length
        fires = grown > limit if self.strict else grown >= limit
        return int(fires.argmax()) + 1 if fires.any() else 0

    def unsent(self) -> Message:
        """Its episodes since the last synchronisation: (states, actions, rewards), (1, H, n)."""
        return tuple(a[:, :, : self.length] for a in self._unsent)

    def synchronise(self, others: Message) -> None:
        """Add everybody else's episodes."""
        self.sums.add(others)
        self.sums.mark()
        self.length = 0

    def state(self) -> dict[str, np.ndarray]:
        names = ("states", "actions", "rewards")
        unsent = {n: np.ascontiguousarray(a) for n, a in zip(names, self.unsent(), strict=True)}
        return super().state() | unsent

    def restore(self, state: dict[str, np.ndarray]) -> None:
        self._unsent = tuple(np.array(state[n]) for n in ("states", "actions", "rewards"))
        self.length = self._unsent[0].shape[2]
        if self.length == 0:
            self._unsent = tuple(np.empty((*a.shape[:2], 16), a.dtype) for a in self._unsent)
        super().restore(state)


class CoopPlay(Play):
    """Lock-step episodes; one agent's trigger synchronises everybody."""

    algorithm = "coop-lsvi"
    agent_type: type[CoopAgent] = CoopAgent

    def __init__(self, plan: Plan, settings: Any, keep_models: bool) -> None:
        super().__init__(plan, settings, keep_models)
        self.agents = [
            self.agent_type(plan, m, self.regret_meter.group([m]), settings)
            for m in range(plan.parameters.n_agents)
        ]
        self.values = self.agents[0].sums.values

    def parties(self) -> dict[str, Any]:
        return {f"agent{agent.m}": agent for agent in self.agents}

    def advance(self) -> Segment:
        before = sum(agent.planning for agent in self.agents)
        last = min(self.t + self.pause, self.episodes)
        fired: list[tuple[int, int]] = []
        t = self.t
        while t < last and not fired:
            t += 1
            for agent in self.agents:
                agent.episode(t)
            fired = [(a.m, h) for a in self.agents if (h := a.triggered())]
            if fired:
                self.channel.signal(np.array([m for m, _ in fired]), t)
                self.channel.stop(t)
                self.exchange()
            for agent in self.agents:
                agent.plan()
        self.planning = sum(agent.planning for agent in self.agents) - before
        return Segment(t, int(bool(fired)), fired, len(fired))

    def exchange(self) -> None:
        """Send everybody's unsent episodes to the server, and from there to everybody else."""
        sent = [self.channel.send(a.m, "up_raw", *a.unsent()) for a in self.agents]
        for agent in self.agents:
            others = [part for m, part in enumerate(sent) if m != agent.m]
            if others:
                union = tuple(np.concatenate(arrays) for arrays in zip(*others, strict=True))
                agent.synchronise(self.channel.send(agent.m, "down_raw", *union))
            else:
                agent.synchronise(tuple(array[:0] for array in sent[0]))

    def report(self) -> tuple[np.ndarray, np.ndarray]:
        sums = self.agents[0].sums
        return sums.w, sums.grams


class CoopLSVI(Comparator):
    """Raw transitions both ways, triggered by log-determinants. Other settings: as `FedLSVI`."""

    name = "coop-lsvi"
    masks = "known"
    settings_type = CoopSettings
    play_type = CoopPlay
    sums_of = "agents"
    published = True


def scalars(run: Run) -> dict[str, int]:
    """Per synchronisation after n episodes: MnHρ up, M(M − 1)nHρ down, M + 2s of signals. Where
    steps share their data an episode has its last state too, Hρ + s."""
    p, rho = run.parameters, run.raw_scalars_per_step
    M, shared, waiting, signals = p.n_agents, 0, 0, 0
    for r in run.records:  # a record without a round interrupts a long one
        waiting += r.length
        if r.rounds:
            shared, waiting, signals = shared + waiting, 0, signals + M + 2 * r.signals
    raw = M * shared * (p.horizon * rho + (rho - 2 if p.stationary else 0))
    return {"signal": signals, "up_raw": raw, "down_raw": (M - 1) * raw}
