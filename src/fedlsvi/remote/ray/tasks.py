"""Runs spread over a Ray cluster: functions submitted as tasks, in the manner of
`concurrent.futures`. A task whose node is lost is played again elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from fedlsvi.errors import FedLSVIError
from fedlsvi.registry import VARIABLE
from fedlsvi.remote.ray import cluster


class Tasks:
    """Each function that is submitted takes one CPU of the cluster.

    Args:
        ray: The module.
    """

    def __init__(self, ray: Any) -> None:
        self._ray, self._running = ray, set[Any]()
        # what `--import` named has to be imported there too; on other nodes it must have the path
        extensions = os.environ.get(VARIABLE)
        self._options = {"num_cpus": 1, "max_retries": 3} | (
            {"runtime_env": {"env_vars": {VARIABLE: extensions}}} if extensions else {}
        )

    def submit(self, function: Callable[..., Any], *given: Any) -> Future[Any]:
        """Call a function of a module somewhere in the cluster."""
        reference = self._ray.remote(function).options(**self._options).remote(*given)
        self._running.add(reference)
        future: Future[Any] = reference.future()
        future.add_done_callback(lambda _: self._running.discard(reference))
        return future

    def cancel(self) -> None:
        """End what still runs."""
        for reference in list(self._running):
            self._ray.cancel(reference, force=True)


@contextmanager
def tasks(address: str | None = None) -> Iterator[tuple[Tasks, int]]:
    """Tasks of a cluster, and how many run at once: one on each CPU.

    Args:
        address: Of a Ray cluster; None starts one on this machine.
    """
    ray = cluster.ray_library()
    started = cluster.connect(address, ray)
    submitted = Tasks(ray)
    try:
        yield submitted, cluster.cpus(ray)
    except ray.exceptions.RayError as error:
        raise FedLSVIError(
            "Ray lost a process that was playing a run, perhaps because memory ran out "
            f"({type(error).__name__}): repeat the command; finished runs are kept",
            code="worker-killed",
        ) from None
    finally:
        submitted.cancel()
        if started:
            cluster.end(ray)
