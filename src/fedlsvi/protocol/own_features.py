"""An agent with coefficients of its own (`own_features=`): what it sends, and how it reads models.

What travels is about the shared features alone. The agent sends what a round adds to S_m, and s_m;
it reads a model (w_h, Λ_h) as ((w_h, v_h), J_h), the model of all its features
(`core.elimination`). Every agent has its own, so a cohort has one agent.
"""

from __future__ import annotations

import numpy as np

from fedlsvi.core.elimination import OwnBlock
from fedlsvi.core.statistics import Packing, pack, unpack

GRAM, RESPONSES, DEPLOYED = "own.gram", "own.b", "own.deployed"


class OwnFeatures:
    """The sums of an agent over all rounds, with its own block eliminated.

    Args:
        shared: d_s.
        own: d_o, how many of the last features are its own.
        horizon: H.
        groups: Gram matrices: H, or 1 where steps share theirs.
        lam: λ.
        packing: How Gram matrices travel.

    Attributes:
        b: (H, d) responses of the model in force.
        blocks: Of each group of steps.
        deployed: (H, d) weights of the pass after the last round; 0 before it.
    """

    def __init__(
        self, shared: int, own: int, horizon: int, groups: int, lam: float, packing: Packing
    ) -> None:
        self.shared, self.own, self.lam, self.packing = shared, own, lam, packing
        self.dim = shared + own
        self.b, self.deployed = np.zeros((2, horizon, self.dim))
        self.blocks = [self._block(np.zeros((self.dim, self.dim)))] * groups

    def _block(self, gram: np.ndarray) -> OwnBlock:
        return OwnBlock.of(gram, self.own, self.lam)

    def _at(self, h: int) -> int:
        return min(h, len(self.blocks)) - 1

    def leaving(
        self, h: int, gram: np.ndarray, b: np.ndarray, away: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """What the round adds to S_m, (1, P), and s_m, (1, d_s), in place of Λ^loc and b_h; of an
        agent that is away the last response stays in force.

        Where the bonus knows the noise, Σy² − b_oᵀPb_o and n less the own directions in force
        stand behind s_m: RSS_h of the pooled regression is their sum's.
        """
        if gram.size:
            i = self._at(h)
            before = self.blocks[i]
            after = self._block(before.gram + unpack(gram[0], self.dim, self.packing))
            self.blocks[i] = after
            gram = pack((after.schur - before.schur)[None], self.packing)
        if not away:
            self.b[h - 1] = b[0, : self.dim]
        return gram, self.responses(h, b)

    def responses(self, h: int, b: np.ndarray) -> np.ndarray:
        """s_m, (1, d_s), of responses b_h, and what is behind it."""
        block, known, behind = self.blocks[self._at(h)], b[0, : self.dim], b[0, self.dim :].copy()
        if behind.size:
            behind -= block.explained(known), block.directions(self.lam)
        return np.append(block.response(known), behind)[None]

    def joined(self, h: int, w: np.ndarray, gram: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(w_h, v_h) and J_h as messages would have them; an empty Λ_h stays empty."""
        whole = self.completed(h, w)
        if not gram.size:
            return whole, gram
        joint = self.blocks[self._at(h)].joint(unpack(gram, self.shared, self.packing))
        return whole, pack(joint, self.packing).copy()

    def completed(self, h: int, w: np.ndarray, b: np.ndarray | None = None) -> np.ndarray:
        """(w_h, v_h), of responses b_h (d,) or those in force, with what is behind w_h."""
        known, behind = w[: self.shared], w[self.shared :]
        b = self.b[h - 1] if b is None else b
        return np.concatenate([known, self.blocks[self._at(h)].coefficients(b, known), behind])

    def state(self) -> dict[str, np.ndarray]:
        """What a checkpoint must hold."""
        grams = np.stack([block.gram for block in self.blocks])
        return {GRAM: grams, RESPONSES: self.b, DEPLOYED: self.deployed}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Continue from `state`."""
        self.blocks = [self._block(gram.copy()) for gram in state[GRAM]]
        self.b[:], self.deployed[:] = state[RESPONSES], state[DEPLOYED]
