"""The sums that one party of a linear algorithm keeps of the raw episodes that it has seen.

On a finite space u_h = Σφr, N_h[:, x'] = Σφ and Λ_h = λI + Σφφᵀ are all that least-squares value
iteration needs, so memory and the cost of a backward pass do not grow with the number of episodes.
"""

from __future__ import annotations

import numpy as np

from fedlsvi.algorithms.shared import backward_kernels as kernels
from fedlsvi.algorithms.shared.channel import Message
from fedlsvi.core.statistics import factorise, identity, pack, read_only, shared, unpack
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.gym.world import GymWorld
from fedlsvi.errors import InvalidEnvironment
from fedlsvi.experience.finite_kernels import respond
from fedlsvi.experience.kinds import empty_values
from fedlsvi.experience.moments import Moments
from fedlsvi.experience.values import TabularValues
from fedlsvi.protocol.plan import Plan
from fedlsvi.protocol.server import noise_of

LARGEST = 4 * 2**30
"""Bytes that the sums of all parties of a run may take in total."""


SMALL = 2**22
"""Numbers of a black box's sums that are kept densely; above it, transitions are counted."""


def keeps_sums(plan: Plan) -> bool:
    """Whether sums over (h, feature, next state) are the way to remember this problem."""
    env, p = plan.envs[0], plan.parameters
    if isinstance(env, GymWorld):
        return env.finite and p.horizon * p.dim * env.n_states <= SMALL
    return isinstance(env, FiniteMDP)


def check_room(name: str, numbers: int, parties: int = 1) -> None:
    """Refuse sums of so many numbers per party that do not fit, before anything is allocated."""
    size = 8 * numbers * parties
    if size > LARGEST:
        raise InvalidEnvironment(
            f"{name} would need {size / 2**30:.1f} GiB for sums over (h, feature, next state), "
            f"but the limit is {LARGEST / 2**30:g} GiB: use features with a smaller dimension, or "
            'choose "fed-lsvi", "periodic" or "low-switching"',
            code="sums-too-large",
        )


class LSVISums:
    """Sums over episodes, and the optimistic model and policy that follow from them.

    Attributes:
        u: Σφr, (G, d) of G groups of steps: H, or 1 where all share their data.
        response: Σφ by next state, (G, d, S).
        gram: Λ, (G, d, d), or its diagonal (G, d) where features are one-hot.
        w: The model of the last backward pass, (H, d).
        values: V and π of the last backward pass.
    """

    def __init__(self, plan: Plan) -> None:
        p, env = plan.parameters, plan.envs[0]
        assert isinstance(env, FiniteMDP | GymWorld)
        values = empty_values(plan)
        assert isinstance(values, TabularValues)
        self.values, self.packing = values, p.packing
        self.u = np.zeros((p.matrices, p.dim))
        self.response = np.zeros((p.matrices, p.dim, env.n_states))
        self.gram = np.stack([identity(p.dim, p.lam, p.packing)] * p.matrices)
        self.w = np.zeros((p.horizon, p.dim))
        self.lam = p.lam
        # Σr² and the like, (G, 1, …): of one party
        self.moments = None if values.noise is None else Moments.empty(p.matrices, 1, env.n_states)
        self.base = np.empty((p.matrices, p.dim if self.gram.ndim == 2 else 0))
        self.logdet = np.empty(p.matrices)
        self.mark()

    def add(self, episodes: Message) -> None:
        """Add raw episodes: (states, actions, rewards), each (m, H, n); states are (m, H + 1, n)
        where steps share their data."""
        v = self.values
        kernels.fold(*episodes, v.phi, v.index, self.u, self.response, self.gram)
        if self.moments is not None:
            self._count(self.moments, *episodes)

    def _count(
        self, kept: Moments, states: np.ndarray, actions: np.ndarray, rewards: np.ndarray
    ) -> None:
        """Add Σr² and the like of raw episodes."""
        for i in range(actions.shape[1]):
            g = i if len(self.gram) > 1 else 0
            for own, r in zip(states, rewards[:, i], strict=True):
                kept.totals[g, 0] += r @ r, r.size
                if i + 1 < states.shape[1]:
                    np.add.at(kept.paid[g, 0], own[i + 1], r)
                    np.add.at(kept.arrivals[g, 0], own[i + 1], 1.0)

    def backward_pass(self) -> None:
        """Compute w, V and π from all sums, h = H … 1."""
        v, diagonal = self.values, self.gram.ndim == 2
        if v.allowed is not None or v.noise is not None:
            self._stepwise_pass()
            return
        kernel = kernels.backward_diagonal if diagonal else kernels.backward_dense
        phi, sums = v.index if diagonal else v.phi, (self.u, self.response, self.gram)
        kernel(phi, *sums, v.bonuses, v.ceilings, self.w, v.values, v.policy)

    def _stepwise_pass(self) -> None:
        """`backward_pass` where not every action is allowed, or the bonus knows the noise, one step
        after the other."""
        v, b = self.values, np.empty(self.w.shape[1])
        for h in range(len(self.w), 0, -1):
            g = min(h, len(self.gram)) - 1
            respond(v.values[h], self.u[g], self.response[g], b)
            factor = factorise(self.gram[g])
            self.w[h - 1] = w = factor.solve(b)
            if self.moments is not None:
                behind = Moments(*(part[g] for part in self.moments)).behind(b[None], v.values[h])
                top = float(v.ceilings[h - 1])
                w = np.append(w, noise_of(factor, w, behind.sum(axis=0), self.lam, top))
            v.update(h, w, self.gram[g])

    def mark(self) -> None:
        """Measure `growth` from here on."""
        if self.gram.ndim == 2:
            self.base[:] = self.gram
        else:
            self.logdet[:] = 0.0
            self.logdet[:] = self.growth()

    def growth(self) -> np.ndarray:
        """log det Λ_h minus its value at `mark`, (G,)."""
        grown = np.empty(len(self.gram))
        kernels.growth(self.gram, self.base, self.logdet, grown)
        return grown

    @property
    def grams(self) -> np.ndarray:
        """Λ of every step, (H, …)."""
        H = len(self.w)
        return self.gram if len(self.gram) == H else shared(self.gram, H)

    def model(self) -> Message:
        """(w, Λ) as it travels: H(P + d) scalars, or P + Hd."""
        return self.values.with_noise(self.w), pack(self.gram, self.packing)

    def state(self) -> dict[str, np.ndarray]:
        """Arrays from which `restore` and `backward_pass` continue."""
        sums = {"u": self.u, "response": self.response, "sums": self.gram}
        if self.moments is not None and self.values.noise is not None:
            sums |= self.moments._asdict() | {"noise": self.values.noise}
        return sums | {"base": self.base, "logdet": self.logdet}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Put back what `state` gave."""
        self.u[:], self.response[:], self.gram[:] = state["u"], state["response"], state["sums"]
        self.base[:], self.logdet[:] = state["base"], state["logdet"]
        if self.moments is not None and self.values.noise is not None:
            for name, part in self.moments._asdict().items():
                part[:] = state[name]
            self.values.noise[:] = state["noise"]


def rebuild(values: TabularValues, w: np.ndarray, gram: np.ndarray, packing: str) -> None:
    """Fill V, π and what the trigger needs from a received model (w, packed Λ)."""
    v, w = values, read_only(w)
    full = unpack(gram, v.dim, packing)  # type: ignore[arg-type]
    if v.allowed is not None or v.noise is not None:
        for h in range(len(w), 0, -1):
            v.update(h, w[h - 1], full[min(h, len(full)) - 1])
    elif full.ndim == 2:
        kernels.rebuild_diagonal(
            v.index, w, read_only(full), v.bonuses, v.ceilings, v.values, v.policy, v.slots, v.norms
        )
    else:
        kernels.rebuild_dense(
            v.phi, w, full, v.bonuses, v.ceilings, v.values, v.policy, v.rows, v.norms
        )
