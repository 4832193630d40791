"""A run on a Ray cluster: shares of the agents in actors, each with its journal."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from os import PathLike, fspath
from pathlib import Path

from fedlsvi.config import cohort_count
from fedlsvi.errors import StoreError
from fedlsvi.protocol.plan import Plan
from fedlsvi.remote.endpoint_factory import guard, makers
from fedlsvi.remote.epoch import take_epoch
from fedlsvi.remote.frame_transport import run_name
from fedlsvi.remote.ray.transport import Ray, cluster_cpus
from fedlsvi.remote.retry_policy import Patience
from fedlsvi.storage import files


def on_ray(
    plan: Plan,
    cohorts: int | None = None,
    address: str | None = None,
    journal: str | Path | None = None,
    patience: Patience | None = None,
    durable: bool = False,
    folder: str | PathLike[str] | None = None,
) -> Ray:
    """A transport to actors that hold the agents of a plan.

    cohorts   number of actors; None is one per CPU of the cluster
    address   of a Ray cluster ("auto", "ray://host:10001"); None starts one on this machine
    journal   folder of the actors' journals, on a disk that a restarted actor can reach; None is a
              temporary one on each node, from which actors recover but a new driver cannot resume;
              it goes when the transport is closed
    folder    the run folder; its journals are in `{folder}.agents`, unless `journal` says where
    durable   the journals also survive the loss of power
    """
    if journal is None and folder is not None:
        journal = f"{fspath(folder)}.agents"
    n_agents = plan.parameters.n_agents
    if cohorts is None:
        cohorts = min(n_agents, cluster_cpus(address))
    cohorts = cohort_count(cohorts, n_agents)
    scratch = None
    if journal is None:
        scratch = tempfile.TemporaryDirectory(prefix="fedlsvi-")
        journal = scratch.name
    # the actors of a driver that was killed end a little later
    made = makers(
        plan, cohorts, Path(journal).absolute(), durable, threads=1, patience=60.0,
        scratch=scratch is not None,
    )  # fmt: skip
    run = run_name(plan.parameters, plan.seed)
    # an actor that died has to start again and replay its requests before it can answer
    waits = patience or Patience(deadline=600.0, attempts=5)
    transport = Ray(plan.parameters, made, run, waits, guard(plan), address, scratch)
    if scratch is None:
        with suppress(StoreError):  # a driver that cannot reach the journals relies on its clock
            files.make_folder(Path(journal))
            take_epoch(transport, Path(journal))
    return transport
