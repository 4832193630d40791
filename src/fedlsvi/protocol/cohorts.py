"""The agents of a plan, in cohorts."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from fedlsvi.errors import InvalidEnvironment, InvalidSetting
from fedlsvi.experience.kinds import adds_up, empty_values, experience_of
from fedlsvi.experience.values import BlockValues, TabularValues
from fedlsvi.experience.workers import Workers
from fedlsvi.protocol.agent import Cohort

if TYPE_CHECKING:
    from fedlsvi.protocol.plan import Plan


def cohort_of(
    plan: Plan,
    lo: int,
    hi: int,
    values: TabularValues | BlockValues | None = None,
    workers: Workers | None = None,
    together: bool = False,
) -> Cohort:
    """Agents lo … hi−1, with memories of their own; values and threads may be shared. `together`:
    what they send is added up here, where that is the same to the bit."""
    check_source(plan)
    p = plan.parameters
    if p.own_features and hi - lo > 1:
        raise InvalidSetting(
            f"agents {lo} to {hi - 1} have coefficients of their own, so they cannot share one "
            "policy: give each agent its own cohort, cohorts=n_agents",
            code="policies-differ",
        )
    if not plan.same_masks(lo if values is None else 0, hi):
        raise InvalidSetting(
            f"agents {lo} to {hi - 1} share one policy but not the same allowed actions: give "
            "each agent its own cohort, cohorts=n_agents",
            code="masks-differ",
        )
    values = empty_values(plan, lo) if values is None else values
    workers = Workers(plan.threads) if workers is None else workers
    agents = np.arange(lo, hi)
    experience = experience_of(plan, agents, values, workers, together)
    about = (agents, p.horizon, p.packing, values, experience, p.trigger)
    trip = plan.layout if p.exchange == "one-trip" else None
    own = None
    if p.own_features:
        from fedlsvi.protocol.own_features import OwnFeatures

        own = OwnFeatures(p.dim, p.own_features, p.horizon, p.matrices, p.lam, p.packing)
    return Cohort(*about, trip, p.fits, together and adds_up(p, plan.envs[lo]), own)


def cohorts_of(plan: Plan, n: int, together: bool = False) -> list[Cohort]:
    """All agents, in n equal shares; where masks or policies differ, in so many more. `together` as
    in `cohort_of`."""
    M = plan.parameters.n_agents
    n = M if plan.parameters.own_features else n
    cuts = {M * c // n for c in range(n + 1)}
    if not plan.same_masks(0, M):
        cuts |= {m for m in range(1, M) if not plan.same_masks(m - 1, m + 1)}
    spans = pairwise(sorted(cuts))
    return [cohort_of(plan, lo, hi, together=together) for lo, hi in spans]


def check_source(plan: Plan) -> None:
    """Refuse to be optimistic about a log, or to be pessimistic and play."""
    for env in plan.worlds if not plan.logs else [plan.envs[m] for m in plan.players]:
        if env.recorded != plan.parameters.pessimistic:
            raise InvalidEnvironment(
                f"{env.name} is a log, but an optimistic learner needs an environment to play "
                "in: learn from the log with PEVI"
                if env.recorded
                else f"pevi learns from logs, but {env.name} is not a log: give data=",
                code="needs-world" if env.recorded else "needs-records",
            )
