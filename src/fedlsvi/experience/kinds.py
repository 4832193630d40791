"""Which values, source and memory fit a problem. Only what is chosen is imported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from fedlsvi.config import Parameters
from fedlsvi.core.participation_schedule import Attendance, ParticipationSchedule
from fedlsvi.envs.base import Environment
from fedlsvi.envs.gym.world import GymWorld
from fedlsvi.experience.experience import Experience
from fedlsvi.experience.values import (
    FEW_ROWS,
    ROWS,
    BlockValues,
    DiverseValues,
    TabularValues,
)
from fedlsvi.experience.workers import Workers
from fedlsvi.features.base import FeatureMap
from fedlsvi.features.tabular import OneHot, TableFeatures

DENSE_BYTES = 4 * 2**20
"""Up to this size of one agent's dense N it is kept dense; a matter of H, d and S alone, so that no
result depends on how agents are split into cohorts."""


def prefers_sparse(horizon: int, dim: int, n_states: int, n_actions: int) -> bool:
    """Whether a problem with one-hot features is kept by its cells.

    Where pairs share coordinates, d is small and so is the dense N.
    """
    return dim == n_states * n_actions and 8 * horizon * dim * n_states > DENSE_BYTES


def adds_up(p: Parameters, env: Environment) -> bool:
    """Whether agents in one process need no sums of their own: their words are added, and nothing
    asks who sent which. Step by step, each agent's b_h is rounded over its whole history."""
    if p.exchange != "one-trip" or p.aggregation != "exact" or p.privacy is not None:
        return False
    if p.logged or p.diversity or isinstance(env, GymWorld) or env.recorded:
        return False
    sparse = prefers_sparse(p.matrices, p.dim, env.n_states, env.n_actions)
    return env.finite and not (sparse and p.packing == "diagonal")


class Problem(Protocol):
    """What is asked of a plan (`protocol.plan`)."""

    @property
    def envs(self) -> Sequence[Environment]: ...
    @property
    def logs(self) -> Sequence[Any]: ...
    @property
    def features(self) -> FeatureMap: ...
    @property
    def parameters(self) -> Parameters: ...
    @property
    def seed(self) -> int: ...
    @property
    def block(self) -> int | None: ...
    @property
    def players(self) -> Sequence[int]: ...
    @property
    def schedule(self) -> ParticipationSchedule: ...


def empty_values(problem: Problem, agent: int | None = None) -> TabularValues | BlockValues:
    """An empty model; the first broadcast fills it. The agent's environment has the mask; with
    features of its own, None is a model of the shared ones alone."""
    p, env, phi = problem.parameters, problem.envs[agent or 0], problem.features
    if agent is None and p.own_features:
        from fedlsvi.features.columns import first_features

        phi = first_features(phi, p.dim)
    head, stepped = p.head, isinstance(env, GymWorld)
    if env.finite:
        diagonal = p.packing == "diagonal"
        assert isinstance(phi, TableFeatures | OneHot)  # what resolve gives there
        unseen = stepped and env.allowed is not None
        mask = np.ones_like(env.allowed) if unseen else env.allowed
        about = (phi, head, diagonal, mask, unseen)
        return DiverseValues(p.diversity, *about) if p.diversity else TabularValues(*about)
    if stepped and env.allowed is not None:  # states carry their masks
        from fedlsvi.features.columns import WithoutMask

        seen = WithoutMask(phi, env.state_dim)
        return BlockValues(seen, head, FEW_ROWS, seen.allowed)
    # a site that has only logs does not know what others play: the same blocks everywhere
    return BlockValues(phi, head, FEW_ROWS if stepped or p.logged else ROWS, env.allowed)


def experience_of(
    problem: Problem, agents: np.ndarray, values: Any, workers: Workers, together: bool = False
) -> Any:
    """What these agents know and see; each its own, where they come and go. `together`: only what
    they add up to is asked for, where `adds_up`."""
    p = problem.parameters
    if not p.some_away:
        return _always_there(problem, agents, values, workers, together)
    attendance = Attendance(problem.schedule)
    if together and adds_up(p, problem.envs[agents[0]]):
        from fedlsvi.experience.present_together import PresentTogether
        from fedlsvi.experience.table_source import TableSource

        def seen(there: np.ndarray, missed: np.ndarray) -> Experience:
            found = _seen(problem, there, problem.envs, values, workers, together=True)
            assert isinstance(found.source, TableSource)  # what `adds_up` wants
            found.source.missed = missed
            return found

        return PresentTogether(agents, problem, seen, attendance, values, workers)
    from fedlsvi.experience.with_absence import WithAbsence

    each = [_always_there(problem, agents[i : i + 1], values, workers) for i in range(len(agents))]
    shape = (p.horizon, p.packing, p.stationary, p.own_dim + 2 * p.noisy)
    return WithAbsence(agents, each, attendance, *shape, workers)


def _always_there(
    problem: Problem, agents: np.ndarray, values: Any, workers: Workers, together: bool = False
) -> Any:
    """What agents know and see of what they play, and of the logs of those that have one."""
    p = problem.parameters
    if not problem.logs:
        return _seen(problem, agents, problem.envs, values, workers, together)
    from fedlsvi.experience.with_logs import WithLogs

    plays = np.flatnonzero(np.isin(agents, problem.players))
    logged = [i for i, m in enumerate(agents) if problem.logs[m] is not None]
    parts = [
        _seen(problem, agents[at], worlds, values, workers) if len(at) else None
        for at, worlds in ((plays, problem.envs), (logged, problem.logs))
    ]
    shape = (p.horizon, p.own_dim, p.packing, p.stationary)
    known = (parts[0], plays, parts[1], np.array(logged, np.int64))
    return WithLogs(agents, *shape, *known, p.logged, workers)


def _seen(
    problem: Problem,
    agents: np.ndarray,
    worlds: Sequence[Any],
    values: Any,
    workers: Workers,
    together: bool = False,
) -> Experience:
    """What agents see in worlds, or logs, of one kind."""
    p, envs, limits = problem.parameters, [worlds[m] for m in agents], None
    if p.privacy is not None:
        from fedlsvi.experience.limits import Limits

        most = p.privacy["episodes_per_user"] if p.privacy["unit"] == "user" else None
        limits = Limits(agents, envs, most)
    about = (envs, agents, values, problem.seed, p.matrices, workers)
    source, memory = _recorded(*about) if envs[0].recorded else _played(*about, p, together)
    # in a private run what is sent may not depend on how many episodes reached a step
    floor = p.min_round if source.recorded and p.privacy is None else 1
    pair = (agents, envs, values, source, memory)
    return Experience(*pair, p.packing, workers, problem.block, limits, floor)


def _recorded(
    envs: Sequence[Any], agents: np.ndarray, values: Any, seed: int, groups: int, workers: Workers
) -> tuple[Any, Any]:
    from fedlsvi.experience.log_source import LogSource

    m, H = len(agents), envs[0].horizon
    if isinstance(values, TabularValues):
        from fedlsvi.experience.transition_counts import TransitionMemory

        after = [env.absorbing_reward for env in envs]
        return LogSource(envs, groups), TransitionMemory(values, m, H, groups, after)
    from fedlsvi.experience.log_buffer import LogBuffer

    return LogSource(envs, groups), LogBuffer(values, m, H, groups, workers)


def _played(
    envs: Sequence[Any],
    agents: np.ndarray,
    values: Any,
    seed: int,
    groups: int,
    workers: Workers,
    p: Parameters,
    together: bool,
) -> tuple[Any, Any]:
    about = (envs, agents, values, seed, groups, workers)
    m, H, env = len(agents), envs[0].horizon, envs[0]
    if not isinstance(values, TabularValues):
        from fedlsvi.experience.buffer import Buffer
        from fedlsvi.experience.vector_sources import ContinuousSource, SteppedVectors

        if not isinstance(env, GymWorld):
            memory = Buffer(values, env.state_dim, m, H, groups, workers)
            return ContinuousSource(*about, p.diversity), memory
        # elsewhere every episode reaches every step; in a private run what is sent when may not
        # depend on how many did, and noise hides the few
        floor = p.min_round if groups == H and p.privacy is None else 1
        after = [env.absorbing_reward for env in envs]
        memory = Buffer(values, env.width, m, H, groups, workers, after, floor)
        return SteppedVectors(*about, p.diversity), memory
    if isinstance(env, GymWorld) or isinstance(values, DiverseValues):
        from fedlsvi.experience.transition_counts import TransitionMemory

        memory_of_counts = TransitionMemory(values, m, H, groups, fits=p.fits)
        if isinstance(env, GymWorld):
            from fedlsvi.experience.stepped_states import SteppedStates

            return SteppedStates(*about), memory_of_counts
        from fedlsvi.experience.table_source import TableSource

        return TableSource(*about), memory_of_counts
    from fedlsvi.experience.table_source import TableSource, payments

    if p.packing == "diagonal" and prefers_sparse(p.matrices, p.dim, env.n_states, env.n_actions):
        from fedlsvi.experience.cell_counts import CellCounts

        transitions = [P for env in {id(env): env for env in envs}.values() for P in env.P]
        cells = CellCounts(values, transitions, payments(envs), m, H, groups, workers)
        return TableSource(*about, cells.spilled_bytes), cells
    if together and adds_up(p, env):
        from fedlsvi.experience.summed_counts import SummedCounts

        tables = 1 if p.stationary else H - 1
        grid = (tables, p.scale_bits, p.n_agents, p.packing)
        added = SummedCounts(values, m, H, groups, workers, *grid)
        return TableSource(*about, added.spilled_bytes), added
    from fedlsvi.experience.dense_counts import DenseCounts

    dense = DenseCounts(values, m, H, groups, workers)
    return TableSource(*about, dense.spilled_bytes), dense
