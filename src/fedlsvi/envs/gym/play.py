"""Playing a policy in a Gymnasium environment: mean return with an interval, and recordings."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.envs.base import Environment
from fedlsvi.envs.gym.convert import as_environment
from fedlsvi.envs.gym.players import Players
from fedlsvi.envs.gym.recording import ANSI, RGB, WRITERS, frame, write, writer_of
from fedlsvi.envs.gym.world import COPIES, GymWorld, Maker, naming, reset_seeds
from fedlsvi.envs.spaces import check_same
from fedlsvi.envs.validation import check_seed, count
from fedlsvi.errors import InvalidInput, StoreError


class Acts(Protocol):
    """What can be played: `fedlsvi.policy.Policy`, or anything with these two."""

    @property
    def horizon(self) -> int:
        """H, the steps it knows."""
        ...

    def actions(self, step: int, states: np.ndarray) -> np.ndarray:
        """Actions (n,) at step h = 1 … H in a batch of states."""
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
        return f"{self.mean:.4g} [{low:.4g}, {high:.4g}] ({share}, {len(self.returns)} episodes)"


def evaluate_policy(
    policy: Acts | str,
    env: Any,
    episodes: int = 100,
    seed: int = 0,
    *,
    horizon: int | None = None,
    kwargs: dict[str, Any] | None = None,
    agent: int = 0,
) -> Evaluation:
    """Play whole episodes and return what they earned.

    policy   a policy, or "random" for uniform actions (then `horizon` where the spec has none)
    env      whatever `learn` takes; a table is stepped through Gymnasium all the same
    seed     episode t begins with reset(seed=f(seed, agent, t)), as that of this agent in a run
    agent    whose first states they are, where agents of an environment of this package differ
    """
    n, H, seed = count("episodes", episodes), horizon, check_seed(seed)
    agents = np.array([count("agent", agent, 0)], np.int64)
    if not isinstance(policy, str):
        H = policy.horizon if horizon is None else horizon
        if policy.horizon < H:
            raise InvalidInput(
                f"horizon is {H}, the policy knows {plural(policy.horizon, 'step')}: give "
                "horizon= up to that"
            )
    elif policy != "random":
        raise InvalidInput(f"policy is '{policy}': give a policy, or 'random'")
    world = _world(env, H, kwargs, agent)
    check_same(policy, world)
    rng = np.random.default_rng([seed, 1])

    def act(h: int, states: np.ndarray, rows: np.ndarray) -> np.ndarray:
        if isinstance(policy, str):
            return rng.integers(world.n_actions, size=len(rows))
        return policy.actions(h, states)

    players = Players(world, agents, seed, raw=True)
    returns, lengths = np.empty(n), np.empty(n, np.int64)
    try:
        for at in range(0, n, COPIES):
            size = min(COPIES, n - at)
            played = players.play(at + 1, size, act)
            returns[at : at + size] = played.rewards[0].sum(axis=1)
            lengths[at : at + size] = played.lengths[0]
    finally:
        players.close()
    return Evaluation(returns, lengths)


def record(
    policy: Acts,
    env: Any,
    path: str | Path,
    seed: int = 0,
    *,
    kwargs: dict[str, Any] | None = None,
    frames_per_second: int = 4,
    agent: int = 0,
) -> float:
    """Play the first episode of an agent into a file, and return what it earned.

    .txt takes the environment's text rendering, .gif its images (Pillow, which comes with
    Matplotlib), .mp4 too (imageio-ffmpeg, which comes with `fedlsvi[video]`).
    """
    target, seed = Path(path), check_seed(seed)
    rate = count("frames_per_second", frames_per_second)
    mode = ANSI if target.suffix == ".txt" else RGB
    if target.suffix not in WRITERS:
        raise InvalidInput(f"path is {target}: end it in .txt, .gif or .mp4")
    writer = writer_of(target.suffix)
    agents = np.array([count("agent", agent, 0)], np.int64)
    world = _world(env, policy.horizon, kwargs, agent)
    check_same(policy, world)
    if mode not in world.render_modes:
        known = ", ".join(world.render_modes or ["none"])
        raise InvalidInput(f"{world.name} cannot render '{mode}' (it knows {known})")
    try:
        world = _world(world, policy.horizon, None, agent, render_mode=mode)
    except InvalidInput:
        raise
    except (TypeError, ValueError, AssertionError, NotImplementedError) as error:
        raise InvalidInput(f"the environment has no '{mode}' rendering: {error}") from None
    copies = world.episodes(1)
    inner = copies.envs[0]
    try:
        row, total = np.zeros(1, np.int64), 0.0
        state = copies.begin(reset_seeds(seed, agents, 1, 1)[0], naming(agents, 1, 1, row, 1))
        frames = [frame(world.name, inner, mode)]
        for h in range(1, policy.horizon + 1):
            where = naming(agents, 1, 1, row, h + 1)
            state, paid, ended, cut = copies.advance(row, policy.actions(h, state), where)
            total += float(paid[0])
            frames.append(frame(world.name, inner, mode))
            if ended[0] or cut[0]:
                break
    finally:
        copies.close()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write(target, frames, rate, total, writer)
    except OSError as error:
        raise StoreError(f"cannot write {target}: {error.strerror or error}") from error
    return total


def _world(
    env: Any, horizon: int | None, kwargs: dict[str, Any] | None, agent: int, **shown: Any
) -> GymWorld:
    """A world of H steps to play in, also where the table is known; `shown` is how it renders."""
    if not isinstance(env, Environment):
        env = as_environment(env, horizon=horizon, kwargs=kwargs, tables=False)
        kwargs = None
    if isinstance(env, list):
        raise InvalidInput(f"env is a list of {len(env)}: give the environment of one agent")
    H = env.horizon if horizon is None else count("horizon", horizon)
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
        return GymWorld(make, probe, env.name, H, env.reward_range)
    finally:
        probe.close()


def _own(env: Environment, agent: int) -> Maker:
    """An agent's environment of this package, played through Gymnasium."""

    def make(horizon: int, **options: Any) -> Any:
        from fedlsvi.envs.gym.export import MDPEnv

        return MDPEnv(env, agent=agent, **options)

    return make
