"""What the server checks on increments that come in one trip: each step as if it were the last.

At step H of the paper's exchange b is Σφr, because nothing follows; in one trip u_h is that at
every step. So Λ_h and u_h of each step pass the checks of a run of one step (`remote.guard`). Of
N_h = Σφ e_{x'}ᵀ, with n the round's episodes, times H where steps share their sums:

    N finite, |N_ix| and |Σ_x N_ix| ≤ √(n Λ_ii)      (Cauchy and Schwarz: N sums n entries of φ)
    N ≥ 0 where no feature is negative; N·1 = Λ's counts where features are one-hot
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedlsvi.core.statistics import unpack
from fedlsvi.protocol.messages import (
    Increments,
    Layout,
    Model,
    Models,
    Reply,
    Request,
    Signal,
    Start,
    Upload,
)
from fedlsvi.remote.facts import Facts
from fedlsvi.remote.guard import TOLERANCE, Guard, Refusal


class _StepGuard(Guard):
    """The guard of one step, whose model is that of the whole run: another guard checks it."""

    def _check_model(self, h: int, w: np.ndarray, gram: np.ndarray) -> None:
        pass


class TripGuard:
    """The checks of all steps.

    Args:
        layout: Of the run.
        facts: Of the run.
        tolerance: Relative slack for rounding, per episode.
    """

    def __init__(self, layout: Layout, facts: Facts, tolerance: float = TOLERANCE) -> None:
        self.layout, self.tolerance = layout, tolerance
        alone = replace(layout, horizon=1, stationary=False, secure=False, states=0)
        rewards = replace(facts, y_max=np.ones(1))
        self.nonnegative = facts.nonnegative or facts.simplex
        self.vectors = facts.steps
        self._steps = [_StepGuard(alone, rewards, tolerance) for _ in range(layout.matrices)]

    @property
    def length(self) -> int:
        """Episodes of the round, once it has stopped."""
        return self._steps[0].length

    def sends(self, message: Request) -> None:
        """The server sends this."""
        for h, step in enumerate(self._steps):
            match message:
                case Start(w=w, gram=gram):
                    step.sends(replace(message, w=w[h : h + 1].copy(), gram=gram[h : h + 1].copy()))
                case Models(w=w, gram=gram):
                    step.sends(Model(1, w[h], gram[h]))
                case _:
                    step.sends(message)

    def stops(self, signal: Signal) -> None:
        """This signal ends the round: the agents it names must show the determinant."""
        for h, step in enumerate(self._steps, start=1):
            mine = (signal.steps == h) | (self.layout.stationary & (signal.steps > 0))
            agents = signal.agents[mine]
            step.stops(Signal(signal.t, agents, np.ones(len(agents), np.int64)))

    def check(self, first: int, reply: Increments | Upload) -> None:
        """Refuse increments of agents from `first` on that none could have; changes nothing."""
        assert isinstance(reply, Increments)
        for h, step in enumerate(self._steps, start=1):
            try:
                step.upload(first, len(reply.u), 1, self._upload(step, first, h, reply))
            except Refusal as error:
                raise Refusal(
                    error.agent, error.round, h, error.field, error.value, error.bound
                ) from None
        for i, following in enumerate(reply.following):
            table = np.zeros(self.layout.cells)
            table[following.places] = following.values
            shape = (self.layout.tables, self.layout.dim, self.layout.states)
            for h, n in enumerate(table.reshape(shape), start=1):
                self._check_following(first + i, h, n, reply.gram[i, h - 1])

    def _upload(self, step: Guard, first: int, h: int, reply: Increments) -> Upload:
        """A step's increments as the last step of a run would upload them."""
        m = len(reply.u)
        u = step.last[first : first + m] + reply.u[:, h - 1]
        return Upload(1, np.ascontiguousarray(reply.gram[:, h - 1]), u)

    def _check_following(self, agent: int, h: int, n: np.ndarray, gram: np.ndarray) -> None:
        """N_h of one agent against its Λ_h."""
        square = unpack(gram, self.layout.dim, self.layout.packing)
        diagonal = square if square.ndim == 1 else square.diagonal()
        seen = self.length * self.vectors
        slack = self.tolerance * seen + 1e-12
        most = np.sqrt(seen * np.maximum(diagonal, 0.0) + slack) + slack
        row, k = n.sum(axis=1), self._steps[0].round
        worst = float(np.max(np.maximum(np.abs(n).max(axis=1), np.abs(row)) - most))
        if not worst <= slack:
            raise Refusal(agent, k, h, "an entry of N beyond its bound by", worst, "at most 0")
        if self.nonnegative and n.min() < -slack:
            raise Refusal(agent, k, h, "smallest entry of N", float(n.min()), "at least 0")
        if self.layout.packing == "diagonal" and (off := float(np.abs(row - diagonal).max())) > 0.0:
            raise Refusal(agent, k, h, "N·1 − counts", off, "0: every visit leads somewhere")

    def complete(self, k: int, h: int, replies: Sequence[tuple[int, Reply]]) -> None:
        """Take note of the increments of a round: all passed."""
        for first, reply in replies:
            assert isinstance(reply, Increments)
            for number, step in enumerate(self._steps, start=1):
                step.accept(first, self._upload(step, first, number, reply))

    def state(self) -> dict[str, np.ndarray]:
        """What a checkpoint must hold."""
        return {
            "trip_guard.gram": np.stack([step.gram[0] for step in self._steps]),
            "trip_guard.last": np.stack([step.last for step in self._steps]),
        }

    def restore(self, arrays: Mapping[str, np.ndarray], t: int, k: int) -> None:
        """Continue after round k, episode t."""
        grams, lasts = arrays["trip_guard.gram"], arrays["trip_guard.last"]
        for step, gram, last in zip(self._steps, grams, lasts, strict=True):
            step.restore({"guard.gram": gram[None], "guard.last": last}, t, k)
