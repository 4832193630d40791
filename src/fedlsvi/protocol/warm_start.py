"""What a run may know before its first episode: logs of its agents, or a model learned before.

**Logs are round 0.** Before the first episode the server asks once, as at the end of any round:
Stop, then backward through the steps. Agents answer with the sums over their logs
(`experience.with_logs`). Nobody signals, because nobody has to wait.

**A model is a prior.** Of an earlier run the server knows Λ' and w', and so the sums over all that
was seen in it, Σφφᵀ = Λ' − λ'I and Σφy = Λ'w'. With a weight ρ they are in the sums of this run
from the start:

    Λ_h = λI + ρ(Λ'_h − λ'I) + Σ_m Λ_h^loc,   b_h = ρΛ'_h w'_h + Σ_m b_h.

ρ = 1 counts an episode of that run as one of this, ρ = 0.1 ten as one. The targets y in it stay
what they were, r + V'(x') with the values of that run: next states are not in a model, so they
cannot be labelled again. Where the run ended with a pass without the bonus, w' is that pass's.
Agents hear of the prior by the model that begins every run, and need not know that it is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedlsvi.config import Parameters
from fedlsvi.core.statistics import factorise
from fedlsvi.errors import InvalidSetting
from fedlsvi.protocol.messages import Reply, Request, Signal
from fedlsvi.protocol.server import Agents, Aggregation, Server, Sums

if TYPE_CHECKING:
    from fedlsvi.protocol.plan import Plan

LARGEST = 1e75
"""No number of an earlier run is larger: products of four of them stay finite."""


class LogsFirst:
    """The agents as Algorithm 1 sees them in round 0: what they have recorded is there already."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents

    def broadcast(self, message: Request) -> Sequence[Reply]:
        """Deliver to every cohort."""
        return self._agents.broadcast(message)

    def wait(self, t: int, left: int) -> Signal:
        """Nobody plays, and nobody signals."""
        return Signal.silence()


def read_logs(server: Server, agents: Agents) -> None:
    """Round 0: one synchronisation over the logs, before the first episode."""
    server.k -= 1
    server.round(LogsFirst(agents))


@dataclass(frozen=True)
class Prior:
    """The sums of an earlier run, and how much they count.

    Attributes:
        w: (H, d), its weights.
        gram: (H, d, d) or (H, d), its Λ; (1, …) where steps share it.
        lam: Its λ.
        weight: ρ, above 0.
        samples: How many transitions at most are in one of its Gram matrices.
        title: Where it came from.
        features: Fingerprint of its features; None where nobody knows it.
        reward_range: What rewards 0 and 1 stand for in it; None likewise.
    """

    w: np.ndarray
    gram: np.ndarray
    lam: float
    weight: float
    samples: int
    title: str = "a run"
    features: str | None = None
    reward_range: tuple[float, float] | None = None

    def check(self, p: Parameters) -> None:
        """Refuse a prior of another size than the run's, and one whose numbers are no sums."""
        square = (p.dim,) if p.packing == "diagonal" else (p.dim, p.dim)
        for what, there, here in (
            ("horizon and dimension", self.w.shape, (p.horizon, p.dim)),
            ("Gram matrices of the shape", self.gram.shape, (p.matrices, *square)),
        ):
            if there != here:
                raise InvalidSetting(
                    f"the model of {self.title} has {what} {there}, but this run has {here}: use "
                    "the same environment, features and `stationary`",
                    code="other-prior",
                )
        for what, numbers in (("weights", self.w), ("Gram matrices", self.gram)):
            # a comparison with NaN is false
            if numbers.dtype.kind != "f" or not (np.abs(numbers) < LARGEST).all():
                raise InvalidSetting(
                    f"the model of {self.title} has {what} that are not finite or exceed "
                    f"{LARGEST:g}: start from another run",
                    code="bad-prior",
                )
        if self.gram.ndim == 3 and not np.allclose(self.gram, self.gram.swapaxes(1, 2)):
            raise InvalidSetting(
                f"the model of {self.title} has Gram matrices that are not symmetric: start from "
                "another run",
                code="bad-prior",
            )

    def begin(self, server: Server) -> None:
        """Put the sums into a server that has not begun."""
        seen = self.weight * (self.gram - self._ridge())
        server.gram[: len(seen)] += seen
        b = self.responses()
        for h, row in enumerate(server.w):
            row[:] = factorise(server.gram[h]).solve(b[h])
        server.sums = PriorSums(server.sums, b)

    def energy(self, y_max: np.ndarray) -> np.ndarray:
        """(H,) ρΣy² at most, and so wᵀΛw of the sums alone; y_max (H,) the largest targets."""
        return np.asarray(self.weight * self.samples * y_max**2)

    def responses(self) -> np.ndarray:
        """b₀ = ρΛ'w', (H, d)."""
        grams = np.broadcast_to(self.gram, (len(self.w), *self.gram.shape[1:]))
        if grams.ndim == 2:
            return np.asarray(self.weight * grams * self.w)
        return np.asarray(self.weight * np.einsum("hij,hj->hi", grams, self.w))

    def _ridge(self) -> np.ndarray:
        """λ'I, or its diagonal."""
        dim = self.gram.shape[-1]
        return np.full(dim, self.lam) if self.gram.ndim == 2 else self.lam * np.eye(dim)


class PriorSums:
    """Adds b₀ to what agents send; Λ₀ is in the server's Λ from the start."""

    def __init__(self, sums: Aggregation, b: np.ndarray) -> None:
        self._sums, self._b = sums, b

    def __call__(self, uploads: Sequence[Reply], h: int) -> Sums:
        """Σ_m Λ_h^loc and b₀ + Σ_m b_h."""
        gram, b = self._sums(uploads, h)
        return gram, self._b[h - 1] + b


def logged_counts(plan: Plan) -> dict[str, int]:
    """What there is in the logs, for summaries: agents that have one, those that have nothing
    else, episodes, transitions, how many of these have no target, and the shortest log."""
    p, logs = plan.parameters, [log for log in plan.logs if log is not None]
    return {
        "logged_agents": len(logs),
        "logged_only": p.n_agents - len(plan.players),
        "logged_episodes": sum(min(p.logged, log.log.episodes) for log in logs),
        "logged_transitions": sum(log.log.transitions for log in logs),
        "left_out": sum(log.log.cut(p.horizon, p.stationary) for log in logs),
        "shortest_log": min((log.log.episodes for log in logs), default=0),
    }
