"""The evaluation of a policy from logs on Ray: each actor reads the logs of its agents."""

from __future__ import annotations

from collections.abc import Sequence

from fedlsvi.algorithms.shared.evaluation_site import Evaluation
from fedlsvi.logs.world import LoggedWorld
from fedlsvi.remote.evaluation import FramePasses, placed
from fedlsvi.remote.ray import cluster
from fedlsvi.remote.ray.cluster import ray_library
from fedlsvi.remote.ray.transport import RayTransport
from fedlsvi.remote.retry_policy import RetryPolicy


def on_ray(
    evaluation: Evaluation,
    worlds: Sequence[LoggedWorld],
    cohorts: int | None = None,
    address: str | None = None,
) -> FramePasses:
    """The sites of an evaluation in Ray actors.

    Args:
        evaluation: What is evaluated.
        worlds: One log for each agent; files must be where the actors can read them.
        cohorts: Number of actors; None is one per CPU of the cluster, or one for
            each log where sums are secure.
        address: Of a Ray cluster; None starts one on this machine.
    """
    if cohorts is None and evaluation.aggregation != "secure":
        cluster.connect(address)
        cohorts = min(evaluation.n_agents, max(1, cluster.cpus(ray_library())))
    retry = RetryPolicy(deadline=600.0, attempts=2)
    return placed(RayTransport, evaluation, worlds, cohorts, retry=retry, address=address)
