"""One trip per synchronisation, where states are finite (`exchange="one-trip"`).

Step by step, agents answer H requests one after another, because b_h needs V_{h+1} of the new
model. But b_h = u_h + N_h V_{h+1} with u_h = Σφr and N_h = Σφ e_{x'}ᵀ, which no model enters. So
agents send what a round added to Λ_h, u_h and N_h of all steps at once and keep no history; the
server adds them up and carries out lines 7–12 of Algorithm 1 alone; the models of all steps go out
together. The rounds and models are those of the paper up to rounding. The pass after the last round
needs nothing but u and N either: the server has its weights alone, and sends them.

`Server` does not know: `OneTrip` stands between it and the transport and answers for the agents.

In a private run the sums are noisy, and whatever is computed from them is as private as they are.
Λ is repaired (`privacy.gram_repair`), and values go without their mean: b_h = u_h + N_h V_{h+1}
has the noise of N times ‖V‖, and most of ‖V‖ is its mean. But features of a linear MDP span the
constant, φᵀθ = 1 for all pairs (sum φᵀμ(x') over x'), so N·1 = Σφ = ΣΛθ, and for any number v

    w = Λ⁻¹(u + N V) = vθ + Λ⁻¹(u + N(V − v·1)),

which is used with v the mean of V over states. Only V − v meets the noise, and a direction that
was not seen is worth v instead of 0. Pessimism wants 0 there: it uses vΛ⁻¹(Λ̃θ) in place of vθ, with
Λ̃ the sums as they arrived, before they were repaired. Where no θ exists v is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from fedlsvi.config import Parameters
from fedlsvi.core.statistics import unpack
from fedlsvi.experience.finite_kernels import respond
from fedlsvi.experience.values import TabularValues
from fedlsvi.privacy.gram_repair import GramRepair
from fedlsvi.privacy.sums import sums_of
from fedlsvi.protocol.messages import (
    Exploit,
    Layout,
    Model,
    Models,
    Reply,
    Request,
    Signal,
    Start,
    Stop,
    Upload,
    gram_of,
)


class Transported(Protocol):
    """The transport below."""

    def broadcast(self, message: Request) -> Sequence[Reply]: ...
    def wait(self, t: int, left: int) -> Signal: ...
    def last_releases(self, p: Parameters, k: int, h: int) -> list[int]: ...
    def use_values(self, ahead: Callable[[int], np.ndarray]) -> None: ...


class OneTrip:
    """The agents as Algorithm 1 sees them: asked once, they answer step by step.

    Args:
        transport: The way to the agents.
        values: Turns the model of a step into V_h; this object's own.
        layout: The sizes.
        parameters: The numbers in force.

    Attributes:
        u: (H, d), Σφr of all agents and rounds; (1, d) where steps share it.
        following: (H−1, d, S), N of all agents and rounds; (1, d, S).
        repair: Of a private run, makes noisy Gram matrices positive definite.
        theta: (d,) of a private run, φᵀθ = 1 for all pairs; zeros elsewhere.
    """

    def __init__(
        self, transport: Transported, values: TabularValues, layout: Layout, parameters: Parameters
    ) -> None:
        self.transport, self.values, self.layout = transport, values, layout
        self._sum, self._after = sums_of(parameters, layout), parameters.after
        H, d, rows = layout.horizon, layout.dim, layout.responses
        self.u = np.zeros((layout.matrices, rows))
        self.following = np.zeros((layout.tables, rows, layout.states))
        self._models = np.zeros((layout.matrices, layout.packed))
        self._w = np.zeros((H, layout.weights))
        self._head, self._exploits = values, False  # whose V_{h+1} the responses have
        self.repair, self.parameters = GramRepair.of(parameters, layout), parameters
        self.theta = np.zeros(d) if self.repair is None else constant_direction(values)
        transport.use_values(self._ahead)

    def wait(self, t: int, left: int) -> Signal:
        """The first signal of the round that began after episode t."""
        return self.transport.wait(t, left)

    def broadcast(self, message: Request) -> Sequence[Reply]:
        """Deliver what agents must hear, and answer the rest from their sums."""
        H = self.layout.horizon
        match message:
            case Start(gram=gram):
                self._head, self._exploits, self._models = self.values, False, gram.copy()
                for h in range(H, 0, -1):
                    self._update(h, message.w[h - 1])
            case Stop(t=t):
                self._gram, u, following = self._sum.every_step(self.transport.broadcast(message))
                self.u += u
                self.following += following
                if self.repair is not None:
                    every = slice(0, self.layout.matrices)
                    k = self.parameters.release_number(t)
                    rounds = self.transport.last_releases(self.parameters, k, 1)
                    self._gram = self.repair(every, self._gram, rounds)
                return [self._upload(H)]
            case Exploit(beta=beta):
                self.transport.broadcast(message)
                self._head, self._exploits = self.values.another(beta), True
                self._gram = np.empty((0, self.layout.packed))
                return [self._upload(H)]
            case Model(h=h, w=w, gram=gram):
                self._w[h - 1, : len(w)] = w
                if not self._exploits:
                    gram_of(self._models, h, H)[:] = gram
                if h > 1:
                    self._update(h, w)
                    return [self._upload(h - 1)]
                grams = self._models[:0] if self._exploits else self._models
                # the pass after the last round has w_h alone
                return self.transport.broadcast(Models(self._w[:, : len(w)].copy(), grams.copy()))
        return self.transport.broadcast(message)

    def _update(self, h: int, w: np.ndarray) -> None:
        """V_h of the head, from the weights and Λ_h."""
        gram = gram_of(self._models, h, self.layout.horizon)
        self._head.update(h, w, unpack(gram, self.layout.dim, self.layout.packing))

    def _ahead(self, h: int) -> np.ndarray:
        """V_{h+1} of all columns of N_h: the states, and behind them the end of episodes that ended
        early, where logs have one."""
        value: np.ndarray = self._head.values[h]
        if len(value) < self.layout.states:
            value = np.append(value, (self.layout.horizon - h) * self._after)
        return value

    def _upload(self, h: int) -> Upload:
        """Σ_m Λ_h^loc, and Σ_m b_h = u_h + N_h V_{h+1} over the whole history."""
        at, H = min(h, len(self.u)) - 1, self.layout.horizon
        b = self.u[at].copy()
        if h < H:
            value, following = self._ahead(h), self.following[at]
            mean = float(value.mean()) if self.theta.any() else 0.0
            respond(value - mean if mean else value, self.u[at], following, b)
            if self.repair is not None:
                pessimistic = self.parameters.pessimistic
                gram = (self.repair.noisy if pessimistic else self.repair.repaired)[at]
                b += mean * (gram * self.theta if gram.ndim == 1 else gram @ self.theta)
            if self.layout.noisy:  # Σy² and n, from Σr² and n (`experience.moments`)
                b[-2] += following[-2] @ value + following[-1] @ value**2
                b[-1] = self.u[at, -1]
        return Upload(h, gram_of(self._gram, h, H)[None].copy(), b[None])

    def state(self) -> dict[str, np.ndarray]:
        """What a checkpoint must hold."""
        sums = {"one_trip.u": self.u, "one_trip.following": self.following}
        return sums if self.repair is None else sums | self.repair.state()

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Continue from `state`."""
        self.u[:], self.following[:] = arrays["one_trip.u"], arrays["one_trip.following"]
        if self.repair is not None:
            self.repair.restore(arrays)


def constant_direction(values: TabularValues) -> np.ndarray:
    """(d,) θ with φ(x,a)ᵀθ = 1 for all pairs; zeros where there is none."""
    if not values.phi.size:  # one-hot
        return np.ones(values.dim)
    rows = values.phi.reshape(-1, values.dim)
    theta: np.ndarray = np.linalg.lstsq(rows, np.ones(len(rows)), rcond=None)[0]
    exact = np.allclose(rows @ theta, 1.0, rtol=0.0, atol=1e-9)
    return theta if exact else np.zeros(values.dim)
