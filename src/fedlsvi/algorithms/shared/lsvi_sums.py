"""The sums that one party of a linear algorithm keeps of the raw episodes that it has seen.

On a finite space u_h = Σφr, N_h[:, x'] = Σφ and Λ_h = λI + Σφφᵀ are all that least-squares value
iteration needs, so memory and the cost of a backward pass do not grow with the number of episodes.
"""

from __future__ import annotations

import numpy as np

from fedlsvi.algorithms.shared import backward_kernels as kernels
from fedlsvi.algorithms.shared.channel import Message
from fedlsvi.core.statistics import factorise, identity, pack, read_only, unpack
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.gym.world import GymWorld
from fedlsvi.errors import InvalidEnvironment
from fedlsvi.experience.finite_kernels import respond
from fedlsvi.experience.values import TabularValues
from fedlsvi.protocol.plan import Plan

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
        u: Σφr, (H, d).
        response: Σφ by next state, (H, d, S).
        gram: Λ, (H, d, d), or its diagonal (H, d) where features are one-hot.
        w: The model of the last backward pass, (H, d).
        values: V and π of the last backward pass.
    """

    def __init__(self, plan: Plan) -> None:
        p, env = plan.parameters, plan.envs[0]
        assert isinstance(env, FiniteMDP | GymWorld)
        values = plan.values()
        assert isinstance(values, TabularValues)
        self.values, self.packing = values, p.packing
        self.u = np.zeros((p.horizon, p.dim))
        self.response = np.zeros((p.horizon, p.dim, env.n_states))
        self.gram = np.stack([identity(p.dim, p.lam, p.packing)] * p.horizon)
        self.w = np.zeros((p.horizon, p.dim))
        self.base = np.empty((p.horizon, p.dim if self.gram.ndim == 2 else 0))
        self.logdet = np.empty(p.horizon)
        self.mark()

    def add(self, episodes: Message) -> None:
        """Add raw episodes: (states, actions, rewards), each (m, H, n)."""
        v = self.values
        kernels.fold(*episodes, v.phi, v.index, self.u, self.response, self.gram)

    def backward_pass(self) -> None:
        """Compute w, V and π from all sums, h = H … 1."""
        v, diagonal = self.values, self.gram.ndim == 2
        if v.allowed is not None:
            self._masked_pass()
            return
        kernel = kernels.backward_diagonal if diagonal else kernels.backward_dense
        phi, sums = v.index if diagonal else v.phi, (self.u, self.response, self.gram)
        kernel(phi, *sums, v.betas, v.ceilings, self.w, v.values, v.policy)

    def _masked_pass(self) -> None:
        """`backward_pass` where not every action is allowed, one step after the other."""
        v, b = self.values, np.empty(self.w.shape[1])
        for h in range(len(self.w), 0, -1):
            respond(v.values[h], self.u[h - 1], self.response[h - 1], b)
            self.w[h - 1] = factorise(self.gram[h - 1]).solve(b)
            v.update(h, self.w[h - 1], self.gram[h - 1])

    def mark(self) -> None:
        """Measure `growth` from here on."""
        if self.gram.ndim == 2:
            self.base[:] = self.gram
        else:
            self.logdet[:] = 0.0
            self.logdet[:] = self.growth()

    def growth(self) -> np.ndarray:
        """log det Λ_h minus its value at `mark`, (H,)."""
        grown = np.empty(len(self.gram))
        kernels.growth(self.gram, self.base, self.logdet, grown)
        return grown

    def model(self) -> Message:
        """(w, Λ) as it travels: H(P + d) scalars."""
        return self.w, pack(self.gram, self.packing)

    def state(self) -> dict[str, np.ndarray]:
        """Arrays from which `restore` and `backward_pass` continue."""
        sums = {"u": self.u, "response": self.response, "sums": self.gram}
        return sums | {"base": self.base, "logdet": self.logdet}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Put back what `state` gave."""
        self.u[:], self.response[:], self.gram[:] = state["u"], state["response"], state["sums"]
        self.base[:], self.logdet[:] = state["base"], state["logdet"]


def rebuild(values: TabularValues, w: np.ndarray, gram: np.ndarray, packing: str) -> None:
    """Fill V, π and what the trigger needs from a received model (w, packed Λ)."""
    full = unpack(gram, w.shape[1], packing)  # type: ignore[arg-type]
    v, w = values, read_only(w)
    if v.allowed is not None:
        for h in range(len(w), 0, -1):
            v.update(h, w[h - 1], full[h - 1])
    elif full.ndim == 2:
        kernels.rebuild_diagonal(
            v.index, w, read_only(full), v.betas, v.ceilings, v.values, v.policy, v.slots, v.norms
        )
    else:
        kernels.rebuild_dense(
            v.phi, w, full, v.betas, v.ceilings, v.values, v.policy, v.rows, v.norms
        )
