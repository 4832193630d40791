"""What agents learn from: the worlds they play in, what they recorded before, an earlier run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from fedlsvi.envs.base import Environment
from fedlsvi.errors import InvalidInput

if TYPE_CHECKING:
    from fedlsvi.logs.sources import Columns


@dataclass(frozen=True, eq=False)
class Data:
    """How `learn` reads its environment, and what there is besides; it takes one of these as
    `data=`, or the fields as keywords, which its docstring explains.

    Attributes:
        logs: `data` of `learn`: what agents have recorded before.
    """

    logs: Any = None
    columns: Columns | None = None
    horizon: int | None = None
    reward_range: tuple[float, float] | Literal["clip"] | None = None
    repeat: int = 1
    clip_rewards: bool = False
    actions: int | Sequence[int] | None = None
    allowed: Any = None
    at_least: int = 1
    env_kwargs: dict[str, Any] | None = None
    warm_start: Any = None
    warm_weight: float = 1.0

    @classmethod
    def of(cls, data: Any, **given: Any) -> Data:
        """The object that `learn` was given as `data`, or one of its keywords."""
        keywords = cls(**given)
        if not isinstance(data, cls):
            return replace(keywords, logs=data)
        if keywords.given:
            raise InvalidInput(
                f"data= is a Data, which has {', '.join(keywords.given)} itself: give that in it",
                code="data-twice",
            )
        return data

    @property
    def given(self) -> list[str]:
        """The fields that are not left out."""
        values = [(field.name, getattr(self, field.name), field.default) for field in fields(self)]
        return [
            name for name, value, usual in values
            if (value is not None if usual is None else value != usual)
        ]  # fmt: skip

    def open(self, env: Any, n_agents: int) -> tuple[Any, dict[str, Any]]:
        """The environments, one for all agents or a list, and what `FedLSVI.prepare` takes of logs
        and of an earlier run; nothing, where there is neither."""
        before: dict[str, Any] = {}
        of_env = (self.horizon, self.reward_range, self.env_kwargs, self.allowed, self.actions,
                  self.logs)  # fmt: skip
        as_it_is = all(value is None for value in of_env) and self.repeat == 1
        if not isinstance(env, Environment) or not as_it_is or self.clip_rewards:
            from fedlsvi.logs.agent_data import worlds_and_logs

            env, logs = worlds_and_logs(
                env, self.logs, n_agents, self.columns, self.allowed, self.at_least,
                horizon=self.horizon, reward_range=self.reward_range, kwargs=self.env_kwargs,
                repeat=self.repeat, clip_rewards=self.clip_rewards, actions=self.actions,
            )  # fmt: skip
            if logs:
                before["logs"] = logs
        if self.warm_start is not None:
            from fedlsvi.warm_start import prior_of

            before["prior"] = prior_of(self.warm_start, self.warm_weight)
        return env, before
