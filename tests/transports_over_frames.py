"""A transport of frames between threads, for the tests of transports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedlsvi.protocol.plan import Plan
from fedlsvi.remote.codec import run_id
from fedlsvi.remote.endpoint_factory import endpoint_factories, guard_for
from fedlsvi.remote.retry_policy import RetryPolicy
from fedlsvi.remote.threads import ThreadTransport


def over_frames(
    cohorts: int, folder: Path | None = None, retry: RetryPolicy | None = None
) -> Callable[[Plan], ThreadTransport]:
    """A function that makes the transport for a plan."""

    def make(plan: Plan) -> ThreadTransport:
        made = endpoint_factories(plan, cohorts, folder, durable=False, threads=1)
        run = run_id(plan.parameters, plan.seed)
        return ThreadTransport(
            plan.parameters, made, run, retry or RetryPolicy(60.0, 2), guard_for(plan)
        )

    return make
