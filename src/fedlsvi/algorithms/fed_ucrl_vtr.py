"""Fed-UCRL-VTR: value-targeted regression whose sums agents send when a determinant has grown.

Derived here from UCRL-VTR (Jia, Yang, Szepesvári, Wang 2020; Ayoub, Jia, Szepesvári, Wang, Yang
2020, "Model-based reinforcement learning with value-targeted regression", ICML 2020), for linear
mixture MDPs: P_h(x'|x,a) = ⟨φ(x'|x,a), θ_h⟩ with known φ and known rewards. With the V that was in
force when a step was played,

    X = Σ_{x'} φ(x'|x,a) V_{h+1}(x'),   y = V_{h+1}(x'),   M_h += XXᵀ,   u_h += yX,

    θ_h = M_h⁻¹u_h,   Q_h = clip(r_h + Xᵀθ_h + β_h‖X‖_{M_h⁻¹}, 0, c_h),   V_h = max_a Q_h.

V is frozen within a round, so the sums of a round are plain sums that nobody relabels: agents keep
no history, and a synchronisation is one trip. An agent asks for it when det M_h has grown by
`growth` through its own steps, 1 + 1/M by default. Nothing is regressed at step H, as V_{H+1} = 0.

Checked: value targets, the confidence set by regression on them, and regret Õ(d√(H³·steps)) of
UCRL-VTR for linear mixtures (abstract). From memory: the radius of the paper's preset, the
self-normalised bound β_h = v_{h+1}√(2 log(1/p) + d log(1 + MT·v²/λd)) + √(λd). The practical preset
has c·v_{h+1}. Where an environment names no kernels, they are all S²A indicators of (x, a, x').
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
from numba import njit

from fedlsvi.algorithms.shared.channel import Message
from fedlsvi.algorithms.shared.comparator import Comparator, Play, Segment
from fedlsvi.algorithms.shared.explorer import Explorer
from fedlsvi.algorithms.shared.fedq import as_model
from fedlsvi.algorithms.shared.settings import TabularSettings
from fedlsvi.checks import number
from fedlsvi.core.statistics import pack, packed_size, unpack
from fedlsvi.core.value import choose
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.errors import InvalidEnvironment
from fedlsvi.protocol.plan import Plan
from fedlsvi.run import Run

LARGEST = 512
"""The most coordinates of φ(x'|x,a)."""


@dataclass(frozen=True)
class VTRSettings(TabularSettings):
    """Settings of value-targeted regression, in addition to `TabularSettings`.

    Attributes:
        ridge: λ > 0 of M_h = λI + ΣXXᵀ.
        growth: The factor by which an agent's own steps let det M_h grow before it asks for a
            synchronisation; None is 1 + 1/M.
    """

    algorithm: ClassVar[str] = "fed-ucrl-vtr"

    ridge: float = 1.0
    growth: float | None = None

    def check(self) -> None:
        """λ and the factor make sense."""
        super().check()
        number("ridge", self.ridge, 0.0, "ridge=1 is the theorem's", strict=True)
        if self.growth is not None:
            number("growth", self.growth, 1.0, "growth=2 lets a determinant double", strict=True)


def kernels_of(env: FiniteMDP) -> np.ndarray:
    """φ(x'|x,a) with its coordinates on the first axis, (d, S, A, S).

    Raises:
        InvalidEnvironment: It names none, and there are too many triples (x, a, x').
    """
    if env.mixture is not None:
        return env.mixture
    S, A = env.n_states, env.n_actions
    if S * A * S > LARGEST:
        raise InvalidEnvironment(
            f"value-targeted regression needs φ(x'|x,a), which {env.name} does not have, and its "
            f"{S * A * S} triples (x, a, x') are more than {LARGEST}: give a LinearMixtureMDP, or "
            'choose "fed-ucbvi"',
            code="needs-kernels",
        )
    return np.eye(S * A * S).reshape(-1, S, A, S)


@njit(cache=True, nogil=True)
def first_growing(log, actions, n, targets, inverse, log_growth, when, steps):  # type: ignore[no-untyped-def]
    """The first of n episodes in which the determinant of some agent has grown by the factor.

    `targets` (H − 1, S, A, d) has X of every pair, `inverse` (H − 1, d, d) is M⁻¹ of the server.
    when[i] is that episode (1 … n) for the agents that reach it first, else 0; steps[i] is the
    lowest such h. Returns the episode, or 0.
    """
    last, dim = targets.shape[0], targets.shape[3]
    best = n + 1
    for i in range(log.shape[0]):
        when[i], steps[i] = 0, 0
        own, grown = inverse.copy(), np.zeros(last)
        for e in range(min(n, best)):
            for h in range(last):
                x = targets[h, log[i, h, e], actions[i, h, e]]
                z = own[h] @ x
                gain = x @ z
                grown[h] += np.log1p(gain)
                for j in range(dim):
                    for k in range(dim):
                        own[h, j, k] -= z[j] * z[k] / (1.0 + gain)
                if grown[h] >= log_growth and when[i] == 0:
                    when[i], steps[i] = e + 1, h + 1
            if when[i] > 0:
                best = e + 1
                break
    for i in range(log.shape[0]):
        if when[i] > best:
            when[i] = 0
    return best if best <= n else 0


@njit(cache=True, nogil=True)
def sum_targets(log, actions, n, targets, values, gram, response):  # type: ignore[no-untyped-def]
    """gram (m, H − 1, d, d) += XXᵀ and response (m, H − 1, d) += V_{h+1}(x')X over n episodes."""
    for i in range(log.shape[0]):
        for h in range(targets.shape[0]):
            for e in range(n):
                x = targets[h, log[i, h, e], actions[i, h, e]]
                y = values[h + 1, log[i, h + 1, e]]
                for j in range(x.size):
                    response[i, h, j] += y * x[j]
                    for k in range(x.size):
                        gram[i, h, j, k] += x[j] * x[k]


class VTRModel:
    """What everybody computes from (θ, M): X, Q, V and π.

    Attributes:
        theta, gram: (H − 1, d) and (H − 1, d, d).
        targets: X of every pair under V, (H − 1, S, A, d).
        inverse: M⁻¹.
        Q, values, policy: As ever, (H, S, A), (H + 1, S) and (H, S).
    """

    def __init__(self, plan: Plan, ridge: float, betas: np.ndarray) -> None:
        env: Any = plan.envs[0]
        p, S, A = plan.parameters, env.n_states, env.n_actions
        self.kernels, self.ceilings, self.betas = kernels_of(env), p.ceilings, betas
        self.reward = np.broadcast_to(env.r, (p.horizon, S, A))
        d = len(self.kernels)
        self.theta = np.zeros((p.horizon - 1, d))
        self.gram = np.stack([ridge * np.eye(d)] * (p.horizon - 1)) if p.horizon > 1 else (
            np.empty((0, d, d))
        )  # fmt: skip
        self.targets = np.zeros((p.horizon - 1, S, A, d))
        self.inverse = np.zeros(self.gram.shape)
        self.Q, self.values = np.zeros((p.horizon, S, A)), np.zeros((p.horizon + 1, S))
        self.policy = np.zeros((p.horizon, S), np.int32)
        self.plan()

    def plan(self) -> None:
        """The backward pass, h = H … 1."""
        for h in range(len(self.Q) - 1, -1, -1):
            score = self.reward[h].copy()
            if h < len(self.theta):
                X = np.ascontiguousarray(np.moveaxis(self.kernels @ self.values[h + 1], 0, -1))
                self.targets[h], self.inverse[h] = X, np.linalg.inv(self.gram[h])
                norm2 = np.einsum("xai,ij,xaj->xa", X, self.inverse[h], X, optimize=True)
                score += X @ self.theta[h] + self.betas[h] * np.sqrt(np.maximum(norm2, 0.0))
            self.Q[h] = np.clip(score, 0.0, self.ceilings[h])
            choose(score, self.policy[h])
            self.values[h] = self.Q[h].max(axis=1)

    def receive(self, theta: np.ndarray, packed: np.ndarray) -> None:
        """Take over a model as it travels."""
        self.theta[:], self.gram[:] = theta, unpack(packed, theta.shape[1], "packed")
        self.plan()


class VTRAgents(VTRModel):
    """All agents: they follow one policy, and sum what they see in a round."""

    def __init__(
        self, plan: Plan, settings: VTRSettings, betas: np.ndarray, log_growth: float
    ) -> None:
        super().__init__(plan, settings.ridge, betas)
        self.m, self.log_growth, self._guess = plan.parameters.n_agents, log_growth, 1
        self._explorer, self.length = Explorer(plan, np.arange(self.m)), 0
        self.visits = np.zeros(self.Q.shape, np.int64)

    def play(self, t: int, left: int) -> list[tuple[int, int]]:
        """Play episodes t + 1 …, at most `left`; returns who ended the round, at which step."""
        when, steps = np.zeros(self.m, np.int64), np.zeros(self.m, np.int64)
        n = min(left, self._guess)
        while True:
            self._explorer.play(t + 1, n, self.policy)
            log, actions, _ = self._explorer.buffers
            about = (self.targets, self.inverse, self.log_growth, when, steps)
            self.length = first_growing(log, actions, n, *about)
            if self.length > 0 or n == left:
                break
            n = min(2 * n, left)
        self.length = self.length or left
        self._guess = self.length + 1
        return [(int(i), int(steps[i])) for i in np.flatnonzero(when)]

    def sums(self) -> Message:
        """ΔM, packed, and Δu of every agent."""
        log, actions, _ = self._explorer.buffers
        H, n = len(self.Q), self.length
        np.add.at(self.visits, (np.arange(H)[:, None], log[0, :H, :n], actions[0, :, :n]), 1)
        gram = np.zeros((self.m, *self.gram.shape))
        response = np.zeros((self.m, *self.theta.shape))
        sum_targets(log, actions, n, self.targets, self.values, gram, response)
        return pack(gram, "packed"), response

    def state(self) -> dict[str, np.ndarray]:
        """Agent 0's visits, which are only reported."""
        return {"visits": self.visits}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Put back what `state` gave."""
        self.visits[:] = state["visits"]


class VTRServer:
    """M and u, summed."""

    def __init__(self, plan: Plan, ridge: float) -> None:
        d, steps = len(kernels_of(plan.envs[0])), plan.parameters.horizon - 1  # type: ignore[arg-type]
        self.gram = np.tile(ridge * np.eye(d), (steps, 1, 1))
        self.response = np.zeros((steps, d))

    def add(self, gram: np.ndarray, response: np.ndarray) -> Message:
        """Add the sums of all agents; returns the model as it travels, (θ, M)."""
        self.gram += unpack(gram.sum(axis=0), self.response.shape[1], "packed")
        self.response += response.sum(axis=0)
        return self.model()

    def model(self) -> Message:
        """(θ, M)."""
        theta = np.linalg.solve(self.gram, self.response[..., None])[..., 0]
        return theta, pack(self.gram, "packed")

    def state(self) -> dict[str, np.ndarray]:
        """All sums."""
        return {"gram": self.gram, "response": self.response}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Put back what `state` gave."""
        self.gram[:], self.response[:] = state["gram"], state["response"]


class VTRPlay(Play):
    """Play until a determinant has grown, add, regress, plan."""

    algorithm = "fed-ucrl-vtr"

    def __init__(self, plan: Plan, settings: VTRSettings, keep_models: bool) -> None:
        super().__init__(plan, settings, keep_models)
        M = plan.parameters.n_agents
        self.agents = VTRAgents(plan, settings, radii(plan, settings), self.log_growth())
        self.server = VTRServer(plan, settings.ridge)
        self.counts = {"kernels": len(self.agents.kernels)}
        self.meter = self.regret_meter.group(range(M))

    def log_growth(self) -> float:
        """The logarithm of the factor."""
        growth = self.settings.growth
        return math.log1p(1.0 / self.parameters.n_agents) if growth is None else math.log(growth)

    def parties(self) -> dict[str, Any]:
        return {"agents": self.agents, "server": self.server}

    def advance(self) -> Segment:
        agents = self.agents
        fired = agents.play(self.t, self.episodes - self.t)
        last = self.t + agents.length
        self.meter.record(self.t + 1, agents.length, agents.policy)
        if last == self.episodes:  # the budget ends the round for everybody
            fired = [(m, 0) for m in range(self.parameters.n_agents)]
        self.channel.signal(np.array([m for m, _ in fired]), last)
        self.channel.stop(last)
        began = perf_counter()
        model = self.server.add(*self.channel.gather("up_stats", *agents.sums()))
        agents.receive(*self.channel.broadcast("down_model", *model))
        self.planning += perf_counter() - began
        return Segment(last, 1, fired, len(fired))

    def followed(self) -> np.ndarray:
        return self.agents.policy

    def report(self) -> tuple[np.ndarray, np.ndarray]:
        return as_model(self.values, self.agents.Q, self.agents.visits)

    def resumed(self) -> None:
        self.agents.receive(*self.server.model())


def radii(plan: Plan, settings: VTRSettings) -> np.ndarray:
    """β_h of steps 1 … H − 1."""
    p, v = plan.parameters, plan.parameters.ceilings[1:]
    if settings.preset == "practical":
        practical: np.ndarray = settings.scale * v
        return practical
    d = len(kernels_of(plan.envs[0]))  # type: ignore[arg-type]
    played = p.n_agents * p.episodes
    width = 2.0 * math.log(1.0 / p.confidence) + d * np.log1p(played * v**2 / (settings.ridge * d))
    paper: np.ndarray = settings.scale * (v * np.sqrt(width) + math.sqrt(settings.ridge * d))
    return paper


class FedUCRLVTR(Comparator):
    """Federated value-targeted regression. Settings: `VTRSettings`."""

    name = "fed-ucrl-vtr"
    settings_type = VTRSettings
    play_type = VTRPlay
    tabular = True
    needs_table = True
    sums_of = "server"


def scalars(run: Run) -> dict[str, int]:
    """M(H − 1)(d(d + 1)/2 + d) up and down per round, and signals; d counts kernels."""
    p, K = run.parameters, run.rounds
    d = run.counts["kernels"]
    model = K * p.n_agents * (p.horizon - 1) * (packed_size(d, "packed") + d)
    signals = K * p.n_agents + 2 * sum(r.signals for r in run.records)
    return {"signal": signals, "up_stats": model, "down_model": model}
