"""From the rows of a log to transitions (h, x, a, r, x'), episode by episode, with every check.

A transition's next state is the observation of the next row of its episode, or its own
next_observation. After a row that is `terminated` nothing follows, nor after step H (`per_step`),
unless steps share one model. An episode that stops before H without having ended was cut: where its
last row has no next_observation, that row has no target and is left out, and counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedlsvi.logs.rows import InvalidRecord, Rows

ON, ENDED, CUT = 0, 1, 2
"""What follows a transition: a state, the end of the episode, or nobody knows."""

DATED = "step-dated"
"""Code of the error for rows that have times in place of steps, and are yet to be ordered."""


Agent = int | str | None
"""What a log calls an agent; None where it has no such column."""


@dataclass(frozen=True)
class Limits:
    """What a log must keep to; None is not known yet.

    Attributes:
        horizon: H, the most steps of an episode.
        n_states: States are 0 … n_states−1; None where they are vectors, or before they are known.
        n_actions: Actions are 0 … n_actions−1.
        reward_range: The rewards that 0 and 1 stand for.
    """

    horizon: int | None = None
    n_states: int | None = None
    n_actions: int | None = None
    reward_range: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True)
class Transitions:
    """n transitions of one agent.

    Attributes:
        row: (n,) rows of the log, from 1.
        episode: (n,) the agent's episodes, numbered from 0 in the order of the log.
        h: (n,) steps, 1 … H.
        state: (n,) or (n, s).
        action: (n,).
        reward: (n,) in [0, 1].
        following: As `state`; 0 where `fate` is not ON.
        fate: (n,) ON, ENDED or CUT.
        probability: (n,) that the behaviour chose the action; None where it is not known.
    """

    row: np.ndarray
    episode: np.ndarray
    h: np.ndarray
    state: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    following: np.ndarray
    fate: np.ndarray
    probability: np.ndarray | None

    def __len__(self) -> int:
        return len(self.h)

    def per_step(self, horizon: int) -> Transitions:
        """The same for a model of each step: V_{H+1} = 0, so nothing follows step H."""
        over = self.h == horizon
        if not over.any():
            return self
        fate, following = self.fate.copy(), self.following.copy()
        fate[over], following[over] = ENDED, 0
        return replace(self, fate=fate, following=following)

    def where(self, chosen: np.ndarray) -> Transitions:
        """Some of them."""
        return Transitions(
            *(None if part is None else part[chosen] for part in vars(self).values())  # type: ignore[arg-type]
        )


class TransitionReader:
    """Turns one agent's rows into transitions; remembers the last row between two blocks.

    Args:
        limits: What the log must keep to.
        first_step: The number of an episode's first step, 0 or 1.
    """

    def __init__(self, limits: Limits, first_step: int) -> None:
        self.limits, self.first_step = limits, first_step
        self.episodes = 0
        self._held: tuple[np.ndarray, ...] | None = None
        self._ids: list[Any] | None = None

    def feed(self, rows: Rows) -> Transitions | None:
        """The transitions that these rows complete; the last row waits for the next block."""
        self._check_values(rows)
        return self._pass(rows)

    def feed_some(self, rows: Rows, chosen: np.ndarray) -> Transitions | None:
        """`feed` for those rows of a block that are this agent's."""
        parts = {
            name: part[chosen] if isinstance(part, np.ndarray) else part
            for name, part in vars(rows).items()
        }
        return self.feed(Rows(**parts | {"row": rows.numbers[chosen]}))

    def _pass(self, rows: Rows) -> Transitions | None:
        held, row, self._ids = self._held, rows.numbers, rows.ids
        known = rows.following is not None
        following = np.zeros_like(rows.state) if rows.following is None else rows.following
        chance = np.ones(len(row)) if rows.probability is None else rows.probability
        parts: tuple[np.ndarray, ...] = (
            row, rows.episode, rows.step, rows.state, rows.action, rows.reward, rows.terminated,
            following, chance,
        )  # fmt: skip
        self._behaviour = rows.probability is not None
        self._next_given = known
        if held is not None:
            parts = tuple(np.concatenate(pair) for pair in zip(held, parts, strict=True))
        else:
            self._begin(int(row[0]), int(rows.step[0]))
        self._held = tuple(part[-1:].copy() for part in parts)
        if len(parts[0]) < 2:
            return None
        return self._complete(parts, last=False)

    def finish(self) -> Transitions | None:
        """The transition of the last row."""
        if self._held is None:
            return None
        return self._complete(self._held, last=True)

    def _begin(self, row: int, step: int) -> None:
        if step != self.first_step:
            raise self._first_missing(row, step)
        self.episodes = 1

    def _first_missing(self, row: int, step: int) -> InvalidRecord:
        return InvalidRecord(
            f"an episode starts at step {step} instead of {self.first_step}: add the missing "
            "steps, or leave the episode out",
            code="step-missing",
            row=row,
        )

    def _complete(self, parts: tuple[np.ndarray, ...], last: bool) -> Transitions:
        row, episode, step, state, action, reward, terminated, following, probability = parts
        n = len(row) if last else len(row) - 1
        h = step - self.first_step + 1
        H = self.limits.horizon
        same = np.zeros(n, bool)
        if not last:
            same = episode[1:] == episode[:-1]
            self._check_order(row, episode, step, terminated, same)
        if H is not None and (long := h[:n] > H).any():
            bad = int(np.flatnonzero(long)[0])
            raise InvalidRecord(
                f"episode {self._called(episode[bad])} has a step {step[bad]}, but the horizon "
                f"is {H}",
                code="episode-too-long",
                row=int(row[bad]),
                hint="raise horizon=, or leave the later steps out",
                shell_hint="raise --horizon, or leave the later steps out",
            )
        fate = np.full(n, CUT, np.int8)
        after = np.zeros_like(state[:n])
        if not last:
            fate[same] = ON
            after[same] = state[1:][same]
        if self._next_given:
            known = ~same if not last else np.ones(n, bool)
            if not last:
                self._check_next(row, state, following, same)
            fate[known] = ON
            after[known] = following[:n][known]
        over = terminated[:n]
        fate[over] = ENDED
        after[over] = 0
        number = self.episodes - 1 + np.concatenate(([0], np.cumsum(~same)))
        if not last:
            self.episodes = int(number[-1]) + 1
        low, high = self.limits.reward_range
        paid = (reward[:n] - low) / (high - low)
        behaviour = probability[:n] if self._behaviour else None
        return Transitions(
            row[:n], number[:n], h[:n], state[:n], action[:n], paid, after, fate, behaviour
        )

    def _called(self, number: int) -> Any:
        """What the log calls an episode."""
        return number if self._ids is None else self._ids[number]

    def _check_order(
        self, row: np.ndarray, episode: np.ndarray, step: np.ndarray, terminated: np.ndarray,
        same: np.ndarray,
    ) -> None:  # fmt: skip
        """Every episode is one run of rows with consecutive steps, and episodes rise."""
        ahead = np.diff(step)
        rise = np.diff(episode)
        wrong = (same & ((ahead != 1) | terminated[:-1])) | (
            ~same & ((rise < 0) | (step[1:] != self.first_step))
        )
        if not wrong.any():
            return
        i = int(np.flatnonzero(wrong)[0])
        at, here, before = int(row[i + 1]), int(step[i + 1]), int(step[i])
        number = self._called(episode[i + 1])
        if not same[i] and rise[i] < 0:
            raise InvalidRecord(
                f"episode {number} comes after episode {self._called(episode[i])}: sort the log by "
                "episode and step, and number every episode once",
                code="episode-disorder",
                row=at,
            )
        if not same[i]:
            raise self._first_missing(at, here)
        if here == before:
            sentence, code = (
                f"step {here} of episode {number} appears twice: remove one of the rows, number "
                "every episode once",
                "step-doubled",
            )
        elif here < before:
            sentence = (
                f"step {here} of episode {number} comes after step {before}: sort the log by "
                "episode and step"
            )
            code = "step-disorder"
        elif here > before + 1:
            sentence = (
                f"step {before + 1} of episode {number} is missing before step {here}: add it"
            )
            code = "step-missing"
        else:
            sentence = (
                f"episode {number} continues after a row with terminated = true: correct that row"
            )
            code = "row-after-end"
        raise InvalidRecord(f"{sentence}, or leave the episode out",
                            code=code, row=at)  # fmt: skip

    def _check_next(
        self, row: np.ndarray, state: np.ndarray, following: np.ndarray, same: np.ndarray
    ) -> None:
        """A next_observation is the observation of the next row."""
        apart = (state[1:] != following[:-1]).reshape(len(same), -1).any(axis=1) & same
        if apart.any():
            i = int(np.flatnonzero(apart)[0])
            raise InvalidRecord(
                f"next_observation is {following[i].tolist()}, but the next row's observation is "
                f"{state[i + 1].tolist()}: make them agree",
                code="next-differs",
                row=int(row[i]),
            )

    def _check_values(self, rows: Rows) -> None:
        """Actions, states and rewards are within their ranges."""
        at = rows.numbers
        n_actions, n_states = self.limits.n_actions, self.limits.n_states
        outside(at, "action", rows.action, n_actions, "action-outside")
        if rows.state.ndim == 1:
            outside(at, "observation", rows.state, n_states, "state-outside")
            if rows.following is not None:
                outside(at, "next_observation", rows.following, n_states, "state-outside")
        low, high = self.limits.reward_range
        wrong = (rows.reward < low) | (rows.reward > high)
        if wrong.any():
            bad = int(np.flatnonzero(wrong)[0])
            raise InvalidRecord(
                f"reward is {rows.reward[bad]:g}, outside ({low:g}, {high:g})",
                code="reward-outside",
                row=int(at[bad]),
                hint="give reward_range=(low, high) that contains every reward",
                shell_hint="give --reward-range LOW HIGH that contains every reward",
            )


def outside(row: np.ndarray, name: str, column: np.ndarray, n: int | None, code: str) -> None:
    """Refuse numbers that are not 0 … n−1; n is None where it is not known yet."""
    wrong = column < 0 if n is None else (column < 0) | (column >= n)
    if wrong.any():
        bad = int(np.flatnonzero(wrong)[0])
        bound = "0 or above" if n is None else f"from 0 to {n - 1}"
        raise InvalidRecord(f"{name} is {column[bad]}: give numbers {bound}", code=code,
                            row=int(row[bad]))  # fmt: skip


def read(blocks: Iterator[Rows], limits: Limits) -> Iterator[tuple[Agent, Transitions]]:
    """All transitions of a log, some at a time, each with its agent."""
    readers: dict[Agent, TransitionReader] = {}
    first_step, dims = 1, None
    for rows in blocks:
        if len(rows) == 0:
            continue
        if rows.dated:
            raise InvalidRecord("step is a time: the rows have to be put in order first",
                                code=DATED, row=rows.first)  # fmt: skip
        if not readers:
            first_step = 0 if rows.step[0] == 0 else 1
            dims = rows.state.shape[1:]
        if rows.state.shape[1:] != dims:
            raise InvalidRecord(
                f"observation has shape {rows.state.shape[1:]}, but the first row's has {dims}: "
                "use one shape in all rows",
                code="bad-width",
                row=int(rows.numbers[0]),
            )
        present: list[Agent] = [None]
        if rows.agent is not None:
            present = list(np.unique(rows.agent).tolist())
        for agent in present:
            reader = readers.setdefault(agent, TransitionReader(limits, first_step))
            if rows.agent is None or len(present) == 1:
                found = reader.feed(rows)
            else:
                found = reader.feed_some(rows, rows.agent == agent)
            if found is not None:
                yield agent, found
    for agent, reader in readers.items():
        found = reader.finish()
        if found is not None:
            yield agent, found
    if not readers:
        raise InvalidRecord("the log has no rows: give a log with at least one episode",
                            code="no-records")  # fmt: skip
