"""The optimistic model (w_h, Λ_h) turned into values and a greedy policy (eq. 2).

`TabularValues` keeps tables for a finite state space and renews one step's rows when that step's
model arrives; `BlockValues` evaluates blocks of continuous states on demand. Every cohort, the
regret meter and an exported policy use these two classes, so all of them see the same numbers.

Where not every action is allowed in every state, both know the mask, and V and π are those of the
allowed actions. Scores φᵀw + β‖φ‖_{Λ⁻¹} do not depend on it: `TabularValues` then keeps them too,
so that another mask needs no other model. Where every agent and episode has a policy of its own
(`diversity=`), nobody tabulates these: `DiverseValues` keeps the scores, and an action is chosen
when its state is visited (`core.perturbation`).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, Self, cast

import numpy as np

from fedlsvi.core.heads import Head
from fedlsvi.core.perturbation import act_perturbed, directions, score_all
from fedlsvi.core.statistics import DenseFactor, DiagonalFactor, factorise, read_only
from fedlsvi.core.value import (
    EVERY,
    UNKEPT,
    backup,
    backup_diagonal,
    settle,
    step_bonuses,
    take_rows,
)
from fedlsvi.errors import InvalidInput
from fedlsvi.features.base import FeatureMap
from fedlsvi.features.columns import WithoutMask
from fedlsvi.features.tabular import OneHot, TableFeatures

ROWS = 1024
"""Feature rows whitened by one matrix product. The shape is always the same, because a product of
another shape may round differently and a run must not depend on how its work is cut."""
FEW_ROWS = 256
"""The same for episodes of a black box, which come by the dozen."""


Mask = Callable[[int, np.ndarray], np.ndarray]
"""mask(h, x (n, s)) → bool (n, A): the actions that are allowed at step h in a batch of states."""


class Headed:
    """What has a head.

    Attributes:
        head: What turns a model into values.
        noise: (H,) σ̂_h of the model in force, where the bonus knows the noise; then w_h travels
            with σ̂_h behind it. Before the first model it is c_h/2. None elsewhere.
        policy: (H, S), where states are finite.
    """

    policy: np.ndarray | None = None

    def __init__(self, head: Head) -> None:
        self.head = head
        self.noise = 0.5 * head.ceilings if head.knows_noise else None

    @property
    def beta(self) -> float:
        """β; agents hear it with the first message."""
        return self.head.beta

    @beta.setter
    def beta(self, beta: float) -> None:
        self.head = self.head.with_beta(beta)

    @property
    def betas(self) -> np.ndarray:
        """β_h of every step, (H,)."""
        return self.head.betas

    @property
    def ceilings(self) -> np.ndarray:
        """(H,) upper clips."""
        return self.head.ceilings

    @property
    def bonuses(self) -> np.ndarray:
        """The bonus of every step as `core.value` takes it, (H, 3)."""
        return step_bonuses(self.betas, self.noise, self.ceilings)

    def with_noise(self, w: np.ndarray) -> np.ndarray:
        """w (H, d) as it travels."""
        return w if self.noise is None else np.column_stack([w, self.noise])

    def take_noise(self, h: int, w: np.ndarray) -> np.ndarray:
        """w_h alone, of what travels."""
        if self.noise is None:
            return w
        self.noise[h - 1] = w[-1]
        return np.ascontiguousarray(w[:-1])


class TabularValues(Headed):
    """V_h and π_h over all states, with the whitened feature rows of the greedy actions.

    Args:
        features: φ as a table.
        head: What turns a model into values.
        diagonal: Whether features are one-hot and Λ is its diagonal.
        allowed: Bool (1 or H, S, A); None allows every action.
        unseen: Whether masks become known state by state, as a black box shows them (`show`).
    """

    policy: np.ndarray

    def __init__(
        self,
        features: TableFeatures | OneHot,
        head: Head,
        diagonal: bool = False,
        allowed: np.ndarray | None = None,
        unseen: bool = False,
    ) -> None:
        n_states, n_actions, self.dim = features.n_states, features.n_actions, features.dim
        super().__init__(head)
        horizon = len(head.ceilings)
        # empty arrays tell the compiled loops that features are one-hot
        empty = np.empty((0, 0, 0))
        self.phi = read_only(empty if diagonal else features.table)
        self.index = read_only(features.index if diagonal else np.empty((0, 0), np.int64))
        self.values = np.zeros((horizon + 1, n_states))
        self.policy = np.zeros((horizon, n_states), np.int32)
        self.rows = np.zeros((horizon, n_states, 0 if diagonal else self.dim))
        self.norms = np.zeros((horizon, n_states))
        self.slots = np.zeros((horizon, n_states), np.int64)
        self._states = np.arange(n_states)
        self.allowed = None if allowed is None else np.array(allowed, np.bool_)
        kept = (0, 0, 0) if allowed is None else (horizon, n_states, n_actions)
        self.scores = np.empty(kept)
        self.unseen, self.shown = unseen, np.full(n_states, not unseen)
        self._models: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # where masks become known
        self.needs_mask = False  # whether who acts must say what is allowed
        self._stale = False  # whether `marks` are those of a mask that is no more
        self._whitened = np.empty((0 if diagonal else n_states * n_actions, self.dim))
        # of the step updated last: steps below it may share them
        self._gram, self._factor = np.empty(0), cast("DenseFactor | DiagonalFactor", None)

    @property
    def marks(self) -> tuple[np.ndarray, ...]:
        """What the trigger needs of the greedy actions: whitened rows y, ‖y‖² and, for one-hot
        features, the coordinate that is 1."""
        if self._stale:
            self._stale = False
            for h in range(len(self.policy), 0, -1):
                self.update(h, *self._models[h])
        return self.rows, self.norms, self.slots

    def update(self, h: int, w: np.ndarray, gram: np.ndarray) -> None:
        """Rebuild Q_h, V_h and π_h from the step's model; a 1-d gram is a diagonal one, and an
        empty one is that of the step before this one in time, h + 1."""
        fresh = gram.size > 0
        if fresh:
            self._gram, self._factor = gram, factorise(gram)
        if self.unseen:
            self._models[h] = w.copy(), gram.copy()
        w = self.take_noise(h, w)
        gram, factor = self._gram, self._factor
        values, greedy = self.values[h - 1], self.policy[h - 1]
        bonus, top, mask, scores = self.bonuses[h - 1], self.ceilings[h - 1], EVERY, UNKEPT
        if self.allowed is not None:
            mask, scores = at_step(self.allowed, h), self.scores[h - 1]
        if isinstance(factor, DiagonalFactor):
            backup_diagonal(self.index, w, gram, bonus, top, values, greedy, mask, scores)
            self.slots[h - 1] = self.index[self._states, greedy]
            self.norms[h - 1] = 1.0 / gram[self.slots[h - 1]]
        else:
            n_states, n_actions, dim = self.phi.shape
            if fresh:
                factor.whiten(self.phi.reshape(-1, dim), out=self._whitened)
            whitened = self._whitened.reshape(n_states, n_actions, dim)
            target = w @ factor.lower
            norms = self.norms[h - 1]
            backup(whitened, target, bonus, top, values, greedy, norms, mask, scores)
            take_rows(whitened, greedy, self.rows[h - 1])

    def another(self, beta: float) -> TabularValues:
        """Tables of its own, to be filled with another β, the same at every step."""
        made = copy(self)
        made.head, made.noise = self.head.even(beta), None
        for name in ("values", "policy", "rows", "norms", "slots", "_whitened", "scores", "shown"):
            setattr(made, name, getattr(self, name).copy())
        made.allowed = None if self.allowed is None else self.allowed.copy()
        made._models = dict(self._models)
        return made

    def copied(self) -> Self:
        """The model as it is now, in tables of its own."""
        made: Any = self.another(self.beta)
        made.head, made.noise = self.head, None if self.noise is None else self.noise.copy()
        return cast("Self", made)

    def act(self, h: int, states: np.ndarray, allowed: np.ndarray | None = None) -> np.ndarray:
        """π_h at a batch of states; with `allowed` (n, A), the best of those actions."""
        actions: np.ndarray = self.policy[h - 1, states]
        if allowed is None:
            return actions
        if not len(self.scores):
            raise InvalidInput(
                "this policy was learned with every action allowed, so it has no second choice: "
                'learn with the mask (FiniteMDP(allowed=...), or allowed="env")',
                code="no-second-choice",
            )
        actions, values = np.empty(len(states), np.int32), np.empty(len(states))
        settle(self.scores[h - 1][states], allowed, self.ceilings[h - 1], values, actions)
        return actions

    def free(self) -> TabularValues:
        """What acts elsewhere: where masks came from a black box they have to be given (`told`)."""
        if not self.unseen:
            return self
        made = self.copied()
        assert made.allowed is not None
        made.policy[:], made.needs_mask = self.policy_under(None), True
        return made

    def policy_under(self, allowed: np.ndarray | None) -> np.ndarray:
        """π (H, S) of the same model where `allowed` (1 or H, S, A) is the mask; None is all."""
        if self.allowed is None:
            assert allowed is None
            return self.policy
        every = np.ones((1, *self.scores.shape[1:]), np.bool_)
        mask, policy = every if allowed is None else allowed, np.empty_like(self.policy)
        values = np.empty(policy.shape[1])
        for h, greedy in enumerate(policy, start=1):
            settle(self.scores[h - 1], np.array(at_step(mask, h)), 0.0, values, greedy)
        return policy

    def show(self, states: np.ndarray, allowed: np.ndarray) -> None:
        """In these states a black box allows the actions of `allowed` (n, A): V and π are renewed
        there at once, `marks` when they are next asked for."""
        assert self.allowed is not None
        self.allowed[0, states] = allowed
        self.shown[states] = True
        if not self._models:  # nothing was broadcast yet
            return
        self._stale = True
        values, greedy = np.empty(len(states)), np.empty(len(states), np.int32)
        for h in range(1, len(self.policy) + 1):
            settle(self.scores[h - 1][states], allowed, self.ceilings[h - 1], values, greedy)
            self.values[h - 1, states], self.policy[h - 1, states] = values, greedy


class DiverseValues(TabularValues):
    """`TabularValues` that also knows φᵀw, ‖y‖² and y of every pair (x, a).

    Attributes:
        diversity: σ.
        means: (H, S, A) of φᵀw.
        open_means: The same, −∞ where an action is not allowed.
        pair_norms: (H, S, A) of ‖φ‖²_{Λ⁻¹}.
        pair_rows: (H, S·A, d) of y; (H, S·A, 0) where features are one-hot.
    """

    def __init__(self, diversity: float, *about: Any) -> None:
        super().__init__(*about)
        self.diversity = diversity
        horizon, n_states = self.policy.shape
        n_actions = self.phi.shape[1] if self.phi.size else self.index.shape[1]
        self.means = np.zeros((horizon, n_states, n_actions))
        self.open_means = self.means if self.allowed is None else self.means.copy()
        self.pair_norms = np.zeros((horizon, n_states, n_actions))
        self.pair_rows = np.zeros((horizon, n_states * n_actions, self.rows.shape[2]))

    @property
    def n_actions(self) -> int:
        """A."""
        return int(self.means.shape[2])

    def update(self, h: int, w: np.ndarray, gram: np.ndarray) -> None:
        """Rebuild step h, the scores of all actions included."""
        super().update(h, w, gram)
        w = w if self.noise is None else w[:-1]
        means, norms = self.means[h - 1], self.pair_norms[h - 1]
        if isinstance(self._factor, DiagonalFactor):
            means[:], norms[:] = w[self.index], 1.0 / self._gram[self.index]
        else:
            whitened = self._whitened.reshape(*means.shape, self.dim)
            score_all(whitened, w @ self._factor.lower, means, norms)
            self.pair_rows[h - 1] = self._whitened
        if self.allowed is not None:
            self.open_means[h - 1] = np.where(at_step(self.allowed, h), means, -np.inf)

    def show(self, states: np.ndarray, allowed: np.ndarray) -> None:
        """As for tables that all follow; what the trigger needs of pairs knows no mask."""
        super().show(states, allowed)
        self.open_means[:, states] = np.where(allowed, self.means[:, states], -np.inf)

    def another(self, beta: float) -> DiverseValues:
        """Tables of its own, to be filled with another β."""
        made = super().another(beta)
        assert isinstance(made, DiverseValues)
        for name in ("means", "pair_norms", "pair_rows"):
            setattr(made, name, getattr(self, name).copy())
        made.open_means = made.means if self.allowed is None else self.open_means.copy()
        return made

    def frozen(self) -> DiverseValues:
        """The model as it is now."""
        return self.copied()

    @property
    def tables(self) -> tuple[np.ndarray, ...]:
        """What `core.perturbation` takes for the model of all steps."""
        return self.open_means, self.pair_norms, self.pair_rows

    def tables_under(self, allowed: np.ndarray | None) -> tuple[np.ndarray, ...]:
        """The same where `allowed` (1 or H, S, A) is the mask; None is all."""
        means = self.means if allowed is None else np.where(allowed, self.means, -np.inf)
        return means, self.pair_norms, self.pair_rows

    @property
    def bonus_sizes(self) -> np.ndarray:
        """The bonus of every step, and σ, (H, 4)."""
        return np.column_stack([self.bonuses, np.full(len(self.policy), self.diversity)])

    @property
    def marks(self) -> tuple[np.ndarray, ...]:
        """What the trigger needs, of pairs x·A + a in the place of states."""
        horizon = len(self.policy)
        slots = np.zeros((horizon, 0), np.int64)
        if self.index.size:
            slots = np.tile(self.index.ravel(), (horizon, 1))
        return self.pair_rows, self.pair_norms.reshape(horizon, -1), slots

    def directions(self, seed: int, agents: np.ndarray, first: int, n: int) -> np.ndarray:
        """ζ of each agent and episode, (m·n, d); (m·n, 0) where each ζ_i is drawn when needed."""
        if self.pair_rows.shape[2] == 0:
            return np.empty((len(agents) * n, 0))
        return directions(seed, agents, first, n, self.dim).reshape(-1, self.dim)

    def act_in(self, h: int, x: np.ndarray, seed: int, who: tuple[np.ndarray, ...]) -> np.ndarray:
        """Actions (n,) at step h in states x (n,); who: agents, episodes and ζ of these."""
        chosen = np.empty(len(x), np.int32)
        model = (self.open_means[h - 1], self.pair_norms[h - 1], self.pair_rows[h - 1])
        x = np.ascontiguousarray(x, np.int64)
        agents, episodes, zeta = who
        bonus = self.bonus_sizes[h - 1]
        act_perturbed(x, model, self.index, bonus, seed, agents, episodes, zeta, chosen)
        return chosen


def at_step(allowed: np.ndarray, h: int) -> np.ndarray:
    """The mask (S, A) of step h, of one for all steps or one for each."""
    mask: np.ndarray = allowed[h - 1 if len(allowed) > 1 else 0]
    return mask


class BlockValues(Headed):
    """V_h and π_h at any batch of continuous states, evaluated ROWS feature rows at a time."""

    def __init__(
        self,
        features: FeatureMap,
        head: Head,
        rows: int = ROWS,
        allowed: Mask | None = None,
    ) -> None:
        super().__init__(head)
        self.features, self.rows, self.allowed = features, rows, allowed
        horizon = len(head.ceilings)
        self.needs_mask = False  # whether who acts must say what is allowed
        self.size = max(1, rows // features.n_actions)
        self.factors: list[DenseFactor | None] = [None] * horizon
        self.targets: list[np.ndarray] = [np.zeros(features.dim)] * horizon
        self.weights: list[np.ndarray] = [np.zeros(features.dim)] * horizon

    def update(self, h: int, w: np.ndarray, gram: np.ndarray) -> None:
        """Take the step's model; its factor serves every later block. An empty gram is that of
        step h + 1."""
        w = self.take_noise(h, w)
        factor = factorise(gram) if gram.size else self.factors[h]
        assert isinstance(factor, DenseFactor)  # features of continuous states are never one-hot
        self.factors[h - 1], self.targets[h - 1] = factor, w @ factor.lower
        self.weights[h - 1] = w

    def frozen(self) -> BlockValues:
        """The model as it is now; factors are replaced by `update`, never changed in place."""
        copy = BlockValues(self.features, self.head, self.rows, self.allowed)
        copy.noise = None if self.noise is None else self.noise.copy()
        copy.factors, copy.targets = list(self.factors), list(self.targets)
        return copy

    def another(self, beta: float) -> BlockValues:
        """A model of its own, with the same factors and another β, the same at every step."""
        made = self.frozen()
        made.head, made.noise = self.head.even(beta), None
        return made

    def free(self) -> BlockValues:
        """What acts elsewhere: where masks came from a black box they have to be given (`told`)."""
        if not isinstance(self.features, WithoutMask):
            return self
        made = self.under(None)
        made.features, made.needs_mask = self.features.features, True
        return made

    def under(self, allowed: Mask | None) -> BlockValues:
        """The same model, where another mask holds."""
        made = self.frozen()
        made.allowed = allowed
        return made

    def mask(self, h: int, states: np.ndarray) -> np.ndarray:
        """Bool (n, A) of a batch of states, as the kernels take it."""
        if self.allowed is None or h > len(self.factors):
            return EVERY
        return np.ascontiguousarray(self.allowed(h, states), np.bool_)

    def scratch(self) -> tuple[np.ndarray, ...]:
        """Buffers for `block`: one set per thread."""
        shape = (self.size, self.features.n_actions, self.features.dim)
        return np.zeros(shape), np.empty(shape), np.empty(self.size)

    def block(
        self,
        h: int,
        states: np.ndarray,
        scratch: tuple[np.ndarray, ...],
        values: np.ndarray,
        greedy: np.ndarray,
    ) -> np.ndarray:
        """Fill values and greedy for up to `size` states; returns the whitened rows (n, A, d)."""
        phi, whitened, norms = scratch
        factor = self.factors[h - 1]
        assert factor is not None
        n = len(states)
        self.features.fill(states, phi[:n])
        dim = phi.shape[2]
        factor.whiten(phi.reshape(-1, dim), out=whitened.reshape(-1, dim))
        bonus, top, mask = self.bonuses[h - 1], self.ceilings[h - 1], self.mask(h, states)
        found = (values[:n], greedy[:n], norms)
        backup(whitened[:n], self.targets[h - 1], bonus, top, *found, mask, UNKEPT)
        return whitened[:n]

    def act(self, h: int, states: np.ndarray, allowed: np.ndarray | None = None) -> np.ndarray:
        """π_h at a batch of states, with the very numbers the agents see; with `allowed` (n, A),
        the best of those actions."""
        if allowed is not None:
            known = allowed
            return self.under(lambda h, x: known[: len(x)]).act_quickly(h, states)
        greedy, values = np.empty(len(states), np.int32), np.empty(len(states))
        scratch = self.scratch()
        for at in range(0, len(states), self.size):
            cut = slice(at, at + self.size)
            self.block(h, states[cut], scratch, values[cut], greedy[cut])
        return greedy

    def act_quickly(self, h: int, states: np.ndarray) -> np.ndarray:
        """`act` without padding to whole blocks: the last bit of a score may differ."""
        factor = self.factors[h - 1]
        assert factor is not None
        phi = np.empty((len(states), self.features.n_actions, self.features.dim))
        self.features.fill(states, phi)
        whitened = factor.whiten(phi.reshape(-1, self.features.dim)).reshape(phi.shape)
        greedy, values = np.empty(len(states), np.int32), np.empty(len(states))
        bonus, top, norms = self.bonuses[h - 1], self.ceilings[h - 1], np.empty(len(states))
        mask = self.mask(h, states)
        backup(whitened, self.targets[h - 1], bonus, top, values, greedy, norms, mask, UNKEPT)
        return greedy
