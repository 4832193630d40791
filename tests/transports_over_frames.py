"""A transport of frames between threads, and short runs that tests of transports compare."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedlsvi import FedLSVI
from fedlsvi.protocol.plan import Plan
from fedlsvi.remote.codec import run_id
from fedlsvi.remote.endpoint_factory import endpoint_factories, guard_for
from fedlsvi.remote.frame_transport import ThreadTransport
from fedlsvi.remote.retry_policy import RetryPolicy
from patience import PATIENCE


def over_frames(
    cohorts: int, folder: Path | None = None, retry: RetryPolicy | None = None
) -> Callable[[Plan], ThreadTransport]:
    """A function that makes the transport for a plan."""

    def make(plan: Plan) -> ThreadTransport:
        made = endpoint_factories(plan, cohorts, folder, durable=False, threads=1)
        run = run_id(plan.parameters, plan.seed)
        return ThreadTransport(
            plan.parameters, made, run, retry or RetryPolicy(PATIENCE, 2), guard_for(plan)
        )

    return make


def dying(make: Any, after: int) -> Any:
    """Makes a transport whose server dies when it has asked so often."""

    def made(plan: Any) -> Any:
        transport = make(plan)
        inner, count = transport.exchange, 0

        def exchange(frames: Any, deadline: float) -> Any:
            nonlocal count
            count += 1
            if count == after:
                raise KeyboardInterrupt
            yield from inner(frames, deadline)

        transport.exchange = exchange
        return transport

    return made


def learn(
    problem: Any, aggregation: Any = "float", exchange: Any = "stepwise",
    stationary: Any = "auto", **options: Any,
) -> Any:  # fmt: skip
    """A short run of five agents on a problem."""
    learner = FedLSVI(
        n_agents=5, gamma=6.0, beta=0.5, lam=0.5, aggregation=aggregation, exchange=exchange,
        stationary=stationary,
    )  # fmt: skip
    return learner.learn(
        problem.envs, episodes=60, seed=3, features=problem.features, progress=False, **options
    )


def assert_same(one: Any, other: Any) -> None:
    """Two runs are equal to the last bit, and in what they counted."""
    assert one.taus == other.taus
    assert one.w.tobytes() == other.w.tobytes()
    assert one.gram.tobytes() == other.gram.tobytes()
    if one.regret is not None:
        assert np.array_equal(one.regret, other.regret)
    for category in ("init", "up_stats", "down_model"):
        assert one.ledger.scalars[category] == other.ledger.scalars[category]
