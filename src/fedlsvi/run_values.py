"""What a run's policies earn: exactly where the model is known, else in episodes played for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedlsvi.envs.base import Environment
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.gym.world import GymWorld

if TYPE_CHECKING:
    from fedlsvi.policy import Policy
    from fedlsvi.run import Run

EPISODES, FEWEST = 50, 5
"""Episodes that measure a policy in a black box, and the fewest that say anything."""

SECONDS = 5.0
"""What a summary may spend on playing; where steps are slow it plays fewer episodes, or none."""


@dataclass(frozen=True)
class Worth:
    """What a policy earns in an episode, in the environment's own units.

    Attributes:
        mean: The mean return.
        standard_error: Of the mean; None where it is exact.
        episodes: How many were played for it; None where it is exact.
    """

    mean: float
    standard_error: float | None = None
    episodes: int | None = None

    def __str__(self) -> str:
        error = "" if self.standard_error is None else f" ± {self.standard_error:.2g}"
        return f"{self.mean:.4g}{error}"


def worth_of(run: Run, env: Environment, episodes: int = EPISODES) -> dict[str, Worth]:
    """What the learned policy is to be measured by; empty where nothing is known.

    Args:
        run: The run.
        env: Agent 0's environment.
        episodes: To play with each policy, where values are not known.
    """
    if env.recorded:
        return {"behaviour": Worth(env.mean_return)}  # type: ignore[attr-defined]
    if isinstance(env, FiniteMDP):
        return _exact(run, env)
    if run.mean_returns is None:
        return {}
    from fedlsvi.envs.gym.play import evaluate_policy

    policies: dict[str, Policy | str] = {"learned": run.final_policy, "random": "random"}
    if run.deployed is not None:
        policies["exploring"] = run.policy
    found = {}
    for name, policy in policies.items():
        played = evaluate_policy(policy, env, episodes, run.seed, horizon=env.horizon).returns
        error = played.std(ddof=1) / len(played) ** 0.5 if len(played) > 1 else None
        found[name] = Worth(
            float(played.mean()), None if error is None else float(error), len(played)
        )
    return found


def _exact(run: Run, env: FiniteMDP) -> dict[str, Worth]:
    law = env.initial_law(0)
    values = {
        "learned": env.policy_values(run.final_policy.table),
        "optimal": env.optimal_values(),
        "uniform": env.uniform_values(),
    }
    if run.deployed is not None:
        values["exploring"] = env.policy_values(run.policy.table)
    return {name: Worth(float(env.original(law @ v[0]))) for name, v in values.items()}


def affordable(env: Any) -> int:
    """How many episodes a summary may play with each policy: fewer where steps are slow, and 0
    where not even `FEWEST` are quick."""
    if not isinstance(env, GymWorld) or env.step_seconds == float("inf"):
        return EPISODES
    found = int(SECONDS / (3 * env.horizon * env.step_seconds)) if env.step_seconds else EPISODES
    return min(EPISODES, found) if found >= FEWEST else 0
