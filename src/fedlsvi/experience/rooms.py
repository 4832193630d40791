"""The three parts of an experience, and the protocols that hold them together.

A **source** plays or reads the next episodes of some agents and writes them into the **round**
under way; it knows no statistics. A round answers where in it the trigger fires first. When it has
ended, a **memory** takes it in and sums: Λ^loc of the round, and b_h of everything it was ever
given, for any values. A memory knows no world. `groups` is how many equal groups of steps have sums
of their own: H, or 1 where no step differs from another ("stationary").
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from fedlsvi.core.trigger import Rule
from fedlsvi.experience.trigger_search import Firing

Arrays = dict[str, np.ndarray]


class Round(Protocol):
    """Episodes of the round under way, as a memory takes them in."""

    def make_room(self, n: int) -> bool:
        """Whether n more episodes fit; where not, a memory has to count what there is first."""
        ...

    def search(self, before: int, n: int, rule: Rule) -> Firing:
        """Where in the first n of the last episodes the trigger fires; `before` precede them."""
        ...

    def cut(self, beyond: int, length: int) -> bool:
        """Drop the last `beyond` episodes and keep `length`. False where that cannot be done any
        more, because they were counted; the round is empty then and has to be played again."""
        ...


class Source(Protocol):
    """Where episodes come from.

    Attributes:
        block: Episodes that are best played at once.
        round: What was played since `begin`.
        recorded: Whether a restart reads the episodes again in place of restoring sums.
    """

    block: int
    round: Any
    recorded: bool

    def begin(self, t: int) -> None:
        """Empty the round; the policy is frozen from now on."""
        ...

    def play(self, first: int, n: int) -> None:
        """Append episodes first … first + n − 1 of every agent to the round."""
        ...

    def close(self, first: int, length: int) -> None:
        """The round has ended; its episodes are first + 1 … first + length."""
        ...

    def returns(self, first: int, last: int) -> np.ndarray | None:
        """(m, n) returns of episodes first + 1 … last of the round that has ended, in the worlds'
        own units; None where values are known and nobody asks."""
        ...

    def fewest(self, first: int, last: int) -> int | None:
        """Episodes in the emptiest Λ_h^loc of an agent, where the source knows it."""
        ...

    def state(self) -> Arrays:
        """What was learned about the worlds themselves, such as masks."""
        ...

    def restore(self, state: Arrays) -> None:
        """Continue from `state`."""
        ...


class Increment(NamedTuple):
    """What one round adds to the sums of one group of steps, of all agents.

    Attributes:
        gram: (m, P) of Λ.
        u: (m, d) of Σφr.
        agents, places, values: Entries of N = Σφe_{x'}ᵀ that are not zero: agent, place in
            (d, columns), value; agents in order.
        columns: S, or S + 1 where x' = S is the end of an episode.
    """

    gram: np.ndarray
    u: np.ndarray
    agents: np.ndarray
    places: np.ndarray
    values: np.ndarray
    columns: int


class Added(NamedTuple):
    """What one round of all agents of a cohort adds to the sums of all groups of steps.

    Attributes:
        words: Λ, then u, then N, in fixed point.
        alike: Scalars of Λ and u of one agent.
        cells: (m,) entries of N that each agent has set.
    """

    words: np.ndarray
    alike: int
    cells: np.ndarray


class Memory(Protocol):
    """Sums over the rounds that it was given.

    Attributes:
        dim: d.
    """

    dim: int

    def spill(self, round_: Any) -> None:
        """Count a round that is too long to be kept, and empty it."""
        ...

    def add(self, round_: Any, first: int, length: int) -> None:
        """A round has ended: its episodes are first + 1 … first + length."""
        ...

    def upload(self, h: int, values: Any) -> tuple[np.ndarray, np.ndarray]:
        """Λ_h^loc of the round that has ended, (m, P), and b_h of all rounds, (m, d). Steps that
        share a Gram matrix give it at h = H, and an empty one, (m, 0), before. Called once for
        each step of a round, from H down to 1."""
        ...

    def responses(self, h: int, values: Any) -> np.ndarray:
        """b_h = Σφ(r + V_{h+1}(x')) of all rounds with the V_{h+1} of `values`, (m, d). Where their
        bonus knows the noise, Σ(r + V_{h+1}(x'))² and the number of terms behind it, (m, d + 2)."""
        ...

    def fit(self, h: int, w: np.ndarray, values: Any) -> np.ndarray:
        """How well w fits the targets y = r + V_{h+1}(x') of step h alone, whatever steps share,
        (m, 5) as `core.model_fit` has it; zeros where step h is not remembered."""
        ...

    def fewest(self, first: int, last: int) -> int | None:
        """Episodes in the emptiest Λ_h^loc of an agent in that round; None where all are in all."""
        ...

    def state(self) -> Arrays:
        """What a checkpoint must hold between rounds, apart from `history`."""
        ...

    def restore(self, state: Arrays) -> None:
        """Continue from `state`."""
        ...

    def history(self, first: int, last: int) -> Arrays:
        """Raw episodes first + 1 … last, where they are kept."""
        ...

    def extend(self, first: int, part: Arrays) -> None:
        """Put back what `history` gave."""
        ...


class CountingMemory(Memory, Protocol):
    """A memory of numbered states, which can hand over what a round added."""

    def take_increment(self, h: int) -> Increment:
        """What the round that has ended adds to the sums of step h; it is not kept, so that the
        next round's is its own (`exchange="one-trip"`). A bonus that knows the noise needs more
        (`moments`)."""
        ...


class AddingMemory(Protocol):
    """A memory that adds agents while it sums them, and keeps nothing between rounds."""

    def take_added(self) -> Added:
        """What the round that has ended adds."""
        ...
