"""Playing a policy in a Gymnasium environment: mean return with an interval, and recordings."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fedlsvi.checks import check_seed, integer, plural
from fedlsvi.core.random import uniforms
from fedlsvi.envs.allowed import draw_allowed
from fedlsvi.envs.base import Environment
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.gym.action_masks import tells_masks
from fedlsvi.envs.gym.convert import as_environment
from fedlsvi.envs.gym.episodes import Copies, Players
from fedlsvi.envs.gym.ids import needing
from fedlsvi.envs.gym.world import COPIES, GymWorld, Maker, naming, reset_seeds
from fedlsvi.envs.spaces import check_same
from fedlsvi.errors import InvalidInput, StoreError

ANSI, RGB = "ansi", "rgb_array"

RANDOM = 17
"""Stream of the keyed generator for random actions."""

WRITERS: dict[str, tuple[str, str] | None] = {
    ".txt": None,
    ".gif": ("PIL.Image", "Pillow (pip install 'fedlsvi[plot]')"),
    ".mp4": ("imageio_ffmpeg", "imageio-ffmpeg (pip install 'fedlsvi[video]')"),
}
"""Suffix of a recording → the module that writes it and how to get it, where one is needed."""


class Acts(Protocol):
    """What can be played: `fedlsvi.policy.Policy`, or anything with these two."""

    @property
    def horizon(self) -> int:
        """H, the steps it knows."""
        ...

    def actions(
        self, step: int, states: np.ndarray, allowed: np.ndarray | None = None
    ) -> np.ndarray:
        """Actions (n,) at step h = 1 … H in a batch of states; `allowed` (n, A) is given where a
        black box tells which actions are."""
        ...


@dataclass(frozen=True)
class Evaluation:
    """Returns of whole episodes, in the environment's own units."""

    returns: np.ndarray
    """(n,)."""
    lengths: np.ndarray
    """(n,) steps until the episode ended, at most H."""
    confidence: float = 0.95

    @property
    def mean(self) -> float:
        """The mean return."""
        return float(self.returns.mean())

    @property
    def interval(self) -> tuple[float, float] | None:
        """Student's interval of the mean; None where one episode says nothing of the spread."""
        n = len(self.returns)
        if n < 2:
            return None
        from scipy.stats import t

        half = float(t.ppf(0.5 + self.confidence / 2.0, n - 1) * self.returns.std(ddof=1))
        return self.mean - half / n**0.5, self.mean + half / n**0.5

    def __str__(self) -> str:
        found = self.interval
        if found is None:
            return f"{self.mean:.4g} (1 episode: too few for an interval)"
        low, high = found
        share = f"{100 * self.confidence:.0f} %"
        played = plural(len(self.returns), "episode")
        return f"{self.mean:.4g} [{low:.4g}, {high:.4g}] ({share}, {played})"


def evaluate_policy(
    policy: Acts | str,
    env: Any,
    episodes: int = 100,
    seed: int = 0,
    *,
    horizon: int | None = None,
    kwargs: dict[str, Any] | None = None,
    agent: int = 0,
    repeat: int = 1,
    allowed: str | None = None,
    actions: int | Sequence[int] | None = None,
) -> Evaluation:
    """Play whole episodes and return what they earned.

    Args:
        policy: A policy, or "random" for uniform actions (give `horizon` where the spec has none).
        env: Whatever `learn` takes. A table is stepped through Gymnasium as well.
        episodes: Number of episodes.
        seed: Episode t begins with reset(seed=f(seed, agent, t)), as it does for this agent in a
            run.
        horizon: Steps of an episode; the policy's own if left out.
        kwargs: Arguments for the environment.
        agent: Whose first states to take, where agents of an environment of this package differ.
        repeat: Steps for which an action is held, where `env` is not an environment made with it.
        allowed: "env" takes only actions that the environment allows, likewise.
        actions: Points of each dimension of a Box of actions, likewise.

    Returns:
        Returns and lengths of the episodes.
    """
    n = integer("episodes", episodes, 1)
    how = (horizon, kwargs, agent, repeat, allowed, actions)
    with closing(Trial(policy, env, seed, *how)) as trial:
        for at in range(0, n, COPIES):
            trial.play(min(COPIES, n - at))
        return trial.evaluation


class Trial:
    """A policy on trial, a few episodes at a time; the arguments are those of `evaluate_policy`.

    Attributes:
        world: Where it plays.
    """

    def __init__(
        self,
        policy: Acts | str,
        env: Any,
        seed: int,
        horizon: int | None = None,
        kwargs: dict[str, Any] | None = None,
        agent: int = 0,
        repeat: int = 1,
        allowed: str | None = None,
        actions: int | Sequence[int] | None = None,
    ) -> None:
        seed, H = check_seed(seed), horizon
        agents = np.array([integer("agent", agent, 0)], np.int64)
        if not isinstance(policy, str):
            if not (hasattr(policy, "actions") and hasattr(policy, "horizon")):
                raise InvalidInput(
                    f"policy is of type {type(policy).__name__}: give run.policy, 'random', "
                    "or an object with horizon and actions(step, states)",
                    code="bad-policy",
                )
            H = policy.horizon if horizon is None else horizon
            if policy.horizon < H:
                raise InvalidInput(
                    f"horizon is {H}, but the policy covers only {plural(policy.horizon, 'step')}: "
                    "give a horizon= no larger than that",
                    code="bad-horizon",
                )
        elif policy != "random":
            raise InvalidInput(
                f"policy is '{policy}': give a policy, or 'random'", code="bad-policy"
            )
        self.world = _world(env, H, kwargs, agent, repeat, allowed, actions)
        check_same(policy, self.world)
        self._policy, self._players = policy, Players(self.world, agents, seed, raw=True)
        self._returns: list[np.ndarray] = []
        self._lengths: list[np.ndarray] = []

    def play(self, n: int) -> None:
        """The next n episodes, in lockstep."""
        first, players = 1 + sum(map(len, self._returns)), self._players
        if isinstance(self._policy, str):  # by episode, so that no batch changes a random episode
            draws = uniforms(players.seed, players.agents, first, n, self.world.horizon, RANDOM)
            self._draws = draws[0]
        played = players.play(first, n, self._act)
        self._returns.append(played.rewards[0].sum(axis=1))
        self._lengths.append(played.lengths[0])

    def _act(self, h: int, states: np.ndarray, rows: np.ndarray) -> np.ndarray:
        if not isinstance(self._policy, str):
            return chosen(self._policy, self.world, h, states)
        u, mask = self._draws[rows, h - 1], _masks(self.world, h, states)
        if mask is None:
            mask = np.ones((len(rows), self.world.n_actions), bool)
        return draw_allowed(u, mask)

    @property
    def evaluation(self) -> Evaluation:
        """What was played so far."""
        return Evaluation(np.concatenate(self._returns), np.concatenate(self._lengths))

    def close(self) -> None:
        """Close the copies of the environment."""
        self._players.close()


def record(
    policy: Acts,
    env: Any,
    path: str | Path,
    seed: int = 0,
    *,
    kwargs: dict[str, Any] | None = None,
    frames_per_second: int = 4,
    agent: int = 0,
    repeat: int = 1,
    actions: int | Sequence[int] | None = None,
) -> float:
    """Record the first episode of an agent.

    Args:
        policy: The policy to play.
        env: Whatever `learn` takes.
        path: .txt takes the environment's text rendering, .gif its images (Pillow, which comes with
            Matplotlib), .mp4 too (imageio-ffmpeg, which comes with `fedlsvi[video]`).
        seed: As in `evaluate_policy`.
        kwargs: Arguments for the environment.
        frames_per_second: Speed of .gif and .mp4.
        agent: As in `evaluate_policy`.
        repeat, actions: As in `evaluate_policy`.

    Returns:
        What the episode earned.
    """
    target, seed = Path(path), check_seed(seed)
    rate = integer("frames_per_second", frames_per_second, 1)
    mode = ANSI if target.suffix == ".txt" else RGB
    if target.suffix not in WRITERS:
        raise InvalidInput(f"path is {target}: it must end in .txt, .gif or .mp4", code="bad-path")
    writer = _writer(target.suffix)
    agents = np.array([integer("agent", agent, 0)], np.int64)
    world = _world(env, policy.horizon, kwargs, agent, repeat, actions=actions)
    check_same(policy, world)
    if mode not in world.render_modes:
        known = ", ".join(world.render_modes or ["none"])
        raise InvalidInput(
            f"{world.name} cannot render '{mode}' (it supports {known})", code="cannot-render"
        )
    try:
        world = _world(world, policy.horizon, None, agent, render_mode=mode)
    except InvalidInput:
        raise
    except (TypeError, ValueError, AssertionError, NotImplementedError) as error:
        raise InvalidInput(
            f"the environment has no '{mode}' rendering: {error}", code="cannot-render"
        ) from None
    copies = Copies(world, 1)
    inner = copies.envs[0]
    try:
        row, total = np.zeros(1, np.int64), 0.0
        where = naming(agents, 1, 1, row)
        state = copies.begin(reset_seeds(seed, agents, 1, 1)[0], where)
        frames = [_frame(world.name, inner, mode)]
        for h in range(1, policy.horizon + 1):
            action = chosen(policy, world, h, state)
            state, paid, ended, cut = copies.advance(row, action, h, where)
            total += float(paid[0])
            frames.append(_frame(world.name, inner, mode))
            if ended[0] or cut[0]:
                break
    finally:
        copies.close()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _write(target, frames, rate, total, writer)
    except OSError as error:
        raise StoreError(
            f"cannot write {target}: {error.strerror or error}", code="cannot-write"
        ) from error
    return total


def _world(
    env: Any,
    horizon: int | None,
    kwargs: dict[str, Any] | None,
    agent: int,
    repeat: int = 1,
    allowed: str | None = None,
    actions: int | Sequence[int] | None = None,
    **shown: Any,
) -> GymWorld:
    """A world of H steps to play in, also where the table is known; `shown` is how it renders."""
    if not isinstance(env, Environment):
        env = as_environment(
            env,
            horizon=horizon,
            kwargs=kwargs,
            tables=False,
            repeat=repeat,
            allowed=allowed,
            actions=actions,
        )
        kwargs = None
    if isinstance(env, list):
        raise InvalidInput(
            f"env is a list of {len(env)} environments: give one agent's environment",
            code="bad-env",
        )
    H = env.horizon if horizon is None else integer("horizon", horizon, 1)
    maker = getattr(env, "maker", None)
    if maker is None:
        as_environment(env, kwargs=kwargs)  # refuses them: it is made already
        maker = _own(env, agent)
    options = {**(kwargs or {}), **shown}
    if isinstance(env, GymWorld) and env.horizon == H and not options:
        return env
    make = partial(maker, **options)
    probe = make(H)
    try:
        announced = env.allowed is not None and tells_masks(probe)
        masked = announced and not isinstance(env, FiniteMDP)  # which knows all of its masks
        made = GymWorld(make, probe, env.name, H, env.reward_range, masked=masked)
        made.table_masks = env.allowed if isinstance(env, FiniteMDP) else None
        return made
    finally:
        probe.close()


def chosen(policy: Acts, world: GymWorld, h: int, states: np.ndarray) -> np.ndarray:
    """What a policy does in states that a world shows, among the actions that it allows there."""
    mask = world.masks_at(states)
    if mask is not None:
        return policy.actions(h, world.observed(states), mask)
    actions = policy.actions(h, states)
    table = _masks(world, h, states)
    if table is not None:  # a policy that came as a file may hold any action
        wrong = ~table[np.arange(len(actions)), actions]
        if wrong.any():
            bad = int(np.flatnonzero(wrong)[0])
            raise InvalidInput(
                f"the policy takes action {actions[bad]} in state {states[bad]} at step {h}, which "
                f"{world.name} does not allow: play a policy that was learned with these masks",
                code="action-not-allowed",
            )
    return actions


def _masks(world: GymWorld, h: int, states: np.ndarray) -> np.ndarray | None:
    """Which actions are allowed: by the table where it is known, else by what infos tell."""
    if world.table_masks is not None:
        table: np.ndarray = world.table_masks[(h - 1) % len(world.table_masks), states]
        return table
    return world.masks_at(states)


def _own(env: Environment, agent: int) -> Maker:
    """An agent's environment of this package, played through Gymnasium."""

    def make(horizon: int, **options: Any) -> Any:
        from fedlsvi.envs.gym.export import MDPEnv

        return MDPEnv(env, agent=agent, **options)

    return make


def _frame(name: str, env: Any, mode: str) -> Any:
    """What the environment draws: a text, or uint8 (height, width, 3)."""
    with needing(name):
        drawn = env.render()
    if mode == ANSI and isinstance(drawn, str):
        return drawn
    if mode == RGB and _is_picture(drawn):
        return np.ascontiguousarray(drawn[:, :, :3], np.uint8)
    made = getattr(env, "render_mode", None)
    why = "" if made == mode else f", and was made with render_mode={made!r}"
    raise InvalidInput(
        f"{name} rendered {_seen(drawn)}{why}: it must support render_mode='{mode}' and return "
        f"{'a text' if mode == ANSI else 'an array of integers (height, width, 3)'}",
        code="cannot-render",
    )


def _is_picture(drawn: Any) -> bool:
    """Integers (height, width, 3); a fourth layer is opacity."""
    whole = isinstance(drawn, np.ndarray) and drawn.dtype.kind in "iu"
    return whole and drawn.ndim == 3 and drawn.shape[2] in (3, 4)


def _seen(drawn: Any) -> str:
    """A drawing in a word or two."""
    if isinstance(drawn, np.ndarray):
        return f"an array {drawn.shape} of {drawn.dtype}"
    return "nothing" if drawn is None else f"a {type(drawn).__name__}"


def _writer(suffix: str) -> Any:
    """The module that writes files of this suffix."""
    needed = WRITERS[suffix]
    if needed is None:
        return None
    try:
        return import_module(needed[0])
    except ImportError:
        raise InvalidInput(
            f"{suffix} needs {needed[1]}: install it, or use a file name that ends in .txt",
            code="missing-package",
        ) from None


def _write(target: Path, frames: list[Any], rate: int, total: float, writer: Any) -> None:
    """Write the frames, `rate` of them a second; a text ends with the return."""
    if target.suffix == ".txt":
        parts = [f"step {h}\n{drawn}" for h, drawn in enumerate(frames)]
        target.write_text("\n".join([*parts, f"return {total:g}\n"]))
    elif target.suffix == ".gif":
        images = [writer.fromarray(drawn) for drawn in frames]
        images[0].save(target, save_all=True, append_images=images[1:], duration=1000 // rate)
    else:
        height, width = frames[0].shape[:2]
        film = writer.write_frames(str(target), (width, height), fps=rate, macro_block_size=2)
        film.send(None)  # it opens the file
        for drawn in frames:
            film.send(drawn)
        film.close()
