"""The range of rewards that random play meets, for `reward_range="clip"`.

A function of the environment alone: seeds and actions are fixed, so that every process that makes
the environment finds the same range. A scale that followed the rewards of a run would have to be
agreed upon by all agents, and would change the meaning of what they have already summed up.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedlsvi.envs.gym.contract import check_answer, permitted
from fedlsvi.errors import FedLSVIError, InvalidEnvironment

EPISODES = 32
"""Random episodes that are played to see what is paid."""


def observed_range(name: str, env: Any, horizon: int, masked: bool = False) -> tuple[float, float]:
    """The smallest range that holds 0 and every reward of some random episodes.

    Args:
        name: What to call the environment in messages.
        env: A copy to play in.
        horizon: H.
        masked: Take only actions that the environment allows.
    """
    rng, low, high = np.random.default_rng(0), 0.0, 0.0
    for seed in range(1, EPISODES + 1):
        try:
            info = env.reset(seed=seed)[1]
            for h in range(1, horizon + 1):
                k = rng.integers(env.action_space.n)
                chosen = permitted(env, info, k) if masked else env.action_space.start + k
                answer = env.step(chosen)
                check_answer(name, answer, f"step {h} of a random episode")
                _, paid, terminated, truncated, info = answer
                if np.isfinite(paid):
                    low, high = min(low, float(paid)), max(high, float(paid))
                if terminated or truncated:
                    break
        except FedLSVIError:
            raise
        except Exception as error:
            raise InvalidEnvironment(
                f"{name} raised {type(error).__name__}: {error} in a random episode",
                code="environment-raised",
            ) from error
    if low == high:
        raise InvalidEnvironment(
            f'reward_range is "clip", but {name} returned no reward in {EPISODES} random '
            "episodes: give reward_range=(low, high)",
            code="no-reward-seen",
        )
    return low, high
