"""What every environment has: a name, a horizon, actions, and a record to rebuild it from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from fedlsvi.errors import InvalidEnvironment, InvalidFeatures
from fedlsvi.features.base import FeatureMap


class Environment(ABC):
    """An episodic Markov decision process with H steps (h = 1..H) and rewards in [0, 1].

    It holds no random state: whoever steps it hands in the uniforms, `draws_at_reset` of them for
    the first state and `draws_per_step` for every step, so that a trajectory is a function of them.
    """

    name: str
    horizon: int
    n_actions: int
    reward_range: tuple[float, float] = (0.0, 1.0)
    """The rewards that 0 and 1 stand for, in the environment's own units."""

    finite: bool = False
    """Whether states are the numbers 0 … n_states − 1; elsewhere they are vectors."""

    n_states: int
    """S, where states are numbers."""

    state_dim: int
    """Numbers in a state, where it is a vector."""

    low: np.ndarray | None = None
    high: np.ndarray | None = None
    """Bounds of a vector's entries, where they are known."""

    first_observation: int = 0
    """What the environment that was read into arrays calls state 0."""

    first_action: int = 0

    after_end: bool = False
    """Whether the last state is the one after an episode's end, which nobody observes."""

    stationary: bool = False
    """Whether neither the law of the next state nor the reward depends on the step h, so that what
    was seen at one step tells about all of them. A class that knows this says so."""

    recorded: bool = False
    """Whether it is a log, which cannot be played (`fedlsvi.logs`)."""

    repeats: bool = False
    """Whether the same actions may lead to the same episode again and again: nothing, or nothing
    that is known of, is left to chance after the first state."""

    allowed: Any = None
    """Which actions are allowed in which state; None is all of them (`fedlsvi.envs.allowed`)."""

    users: dict[tuple[int, int], int] | None = None
    """(agent, episode) → a number that stands for who plays, where the world says so and somebody
    asks."""

    draws_at_reset: int = 1
    draws_per_step: int = 1

    registry_name: ClassVar[str | None] = None
    """Name under which `fedlsvi.envs.make` builds this very class."""

    made_with: dict[str, Any] | None = None
    """The parameters of the constructor; None where they are not known."""

    made_as: str | None = None
    """The registered name that makes it again, where it is not that of its class."""

    @abstractmethod
    def default_features(self) -> FeatureMap:
        """The environment's own feature map, bound."""

    def bind_features(self, features: FeatureMap) -> None:  # noqa: B027 (most do not care)
        """A learner chose these features: what was seen often in a log may be a matter of them."""

    @property
    def knows_values(self) -> bool:
        """Whether V* and V^π are known, so that regret can be measured."""
        return True

    @property
    def width(self) -> int:
        """Numbers that are kept of a state that is a vector."""
        return self.state_dim

    @property
    def absorbing_reward(self) -> float:
        """The image of 0 in [0, 1]: what every step after the end of an episode pays."""
        low, high = self.reward_range
        return (0.0 - low) / (high - low)

    def original(self, value: Any) -> Any:
        """A value of a whole episode in the environment's own units."""
        return in_own_units(value, self.horizon, self.reward_range)

    def describe(self) -> dict[str, Any]:
        """The parameters of the constructor, ready for JSON."""
        return plain(self.made_with or {})  # type: ignore[no-any-return]

    def spec(self) -> dict[str, Any]:
        """{"name": registered name or None, "params": {...}}: `from_spec` rebuilds from a name."""
        # a subclass of a registered class is another problem, so the name is not inherited
        name = self.made_as or vars(type(self)).get("registry_name")
        return {"name": name, "params": self.describe()}

    def record(self, name: str | None = None, /, **parameters: Any) -> None:
        """Remember how this environment was made; constructors and the registry call it."""
        self.made_with = parameters
        if name is not None:
            self.made_as = name

    def __repr__(self) -> str:
        inside = ", ".join(f"{key}={value!r}" for key, value in self.describe().items())
        return f"{type(self).__name__}({inside})"


def no_features(seen: str) -> InvalidFeatures:
    """The error for an environment without default features; `seen` says what it shows."""
    return InvalidFeatures(
        f"{seen} and has no default features",
        code="missing-features",
        hint="give features=, e.g. FourierFeatures(), RBFFeatures(), TileFeatures() or a function "
        "from states (n, s) to (n, A, d)",
    )


def units(reward_range: Any) -> tuple[float, float]:
    """A reward range, checked: the rewards that 0 and 1 stand for."""
    try:
        low, high = (float(value) for value in reward_range)
    except (TypeError, ValueError):
        low = high = np.nan
    if not (low < high and np.isfinite([low, high, high - low]).all()):
        raise InvalidEnvironment(
            f"reward_range is {reward_range!r}: give two finite numbers (low, high) with "
            "low < high, the rewards that map to 0 and 1",
            code="bad-reward_range",
        )
    return low, high


def in_own_units(value: Any, horizon: int, reward_range: tuple[float, float]) -> Any:
    """low·H + (high − low)·value, where rewards were mapped from [low, high] into [0, 1]."""
    low, high = reward_range
    return low * horizon + (high - low) * value


def comes_back(value: Any) -> bool:
    """Whether settings files and JSON give a value back as it is: they have no None, tuples or
    arrays, and no keys but words."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and comes_back(item) for key, item in value.items())
    if isinstance(value, list):
        return all(comes_back(item) for item in value)
    number = value.item() if isinstance(value, np.generic) else value
    return type(number) in (str, bool, int, float)


def plain(value: Any) -> Any:
    """Arrays, tuples and NumPy numbers as the lists and numbers that JSON knows."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
