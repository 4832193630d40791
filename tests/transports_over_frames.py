"""A transport of frames between threads, for the tests of transports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedlsvi.protocol.plan import Plan
from fedlsvi.remote.endpoint_factory import guard, makers
from fedlsvi.remote.frame_transport import run_name
from fedlsvi.remote.retry_policy import Patience
from fedlsvi.remote.threads import Local


def over_frames(
    cohorts: int, folder: Path | None = None, patience: Patience | None = None
) -> Callable[[Plan], Local]:
    """A function that makes the transport for a plan."""

    def make(plan: Plan) -> Local:
        made = makers(plan, cohorts, folder, durable=False, threads=1)
        run = run_name(plan.parameters, plan.seed)
        return Local(plan.parameters, made, run, patience or Patience(60.0, 2), guard(plan))

    return make
