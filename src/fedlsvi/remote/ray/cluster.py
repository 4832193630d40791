"""Joining a Ray cluster, or starting one here, and where in it actors go.

`ray` is the library, which `transports.ray` alone imports.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from itertools import cycle, islice
from socket import create_connection
from typing import Any

from fedlsvi.errors import InvalidInput, TransportError
from fedlsvi.remote.ray.tcp import REACH_SECONDS

LOOPBACK = "127.0.0.1"

BUSY_SECONDS = 10.0
"""After so long without an actor it is said what it waits for."""

log = logging.getLogger(__name__)

_joined: str | None = None
"""The address that this process joined a cluster by."""


def connect(ray: Any, address: str | None = None) -> bool:
    """Join the Ray cluster at `address`, or start one on this machine that listens on loopback
    only. Returns whether one was started here."""
    global _joined
    if ray.is_initialized():
        _refuse_other(ray, address)
        return False
    quiet = {"log_to_driver": False, "logging_level": "warning", "configure_logging": True}
    if address is not None:
        _reach(address)
        try:
            ray.init(address=address, **quiet)
        except (OSError, ValueError, RuntimeError) as error:
            raise TransportError(
                f"the Ray at {address!r} cannot be joined from here: {error}. Only a node of the "
                "cluster can join it by host:port, others by ray://host:10001; a cluster that asks "
                "for a token needs RAY_AUTH_MODE and RAY_AUTH_TOKEN here too"
            ) from None
        _joined = address
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # the driver waits for its actors
    _stay_on_loopback(ray)
    cpus = len(os.sched_getaffinity(0))
    try:
        ray.init(
            address="local", num_cpus=cpus, include_dashboard=False, _node_ip_address=LOOPBACK,
            **quiet,
        )  # fmt: skip
    except (OSError, ValueError, RuntimeError) as error:
        raise TransportError(f"Ray could not be started on this machine: {error}") from None
    _joined = None
    return True


def _refuse_other(ray: Any, address: str | None) -> None:
    """One process is in one cluster."""
    if address in (None, "auto", _joined):
        return
    here = ray.get_runtime_context().gcs_address
    if address != here:
        raise InvalidInput(
            f"this process is connected to the Ray at {here} and not to {address!r}: leave the "
            "address out, or call ray.shutdown() first"
        )


def _reach(address: str) -> None:
    """Refuse where nobody listens at host:port; Ray itself would try again for minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not port.isdigit():
        return
    try:
        create_connection((host, int(port)), REACH_SECONDS).close()
    except (OSError, ValueError) as error:
        raise TransportError(f"no Ray cluster at {address!r}: {error}") from None


def _stay_on_loopback(ray: Any) -> None:
    """Ray replaces 127.0.0.1 by an address that others can reach, except where it was told that
    this machine takes part in no cluster; then its processes listen on loopback."""
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # read by the processes it starts
    ray._private.ray_constants.ENABLE_RAY_CLUSTER = False  # read when ray was imported


def lines_allowed(ray: Any) -> bool:
    """Not from outside a cluster, whose nodes are out of reach, nor around Ray's encryption."""
    encrypted = os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")
    return not encrypted and not ray.util.client.ray.is_connected()


def cpus(ray: Any) -> int:
    """How many CPUs the cluster has."""
    return int(ray.cluster_resources().get("CPU", 0))


def places(ray: Any, actors: int) -> list[str]:
    """A node for each actor: CPU after CPU, going round the nodes."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    sizes = {node["NodeID"]: int(node["Resources"].get("CPU", 0)) for node in nodes}
    seats = [
        node for seat in range(max(sizes.values())) for node, size in sizes.items() if seat < size
    ]
    return list(islice(cycle(seats or sizes), actors))


def say_if_busy(ray: Any, asked: Sequence[Any]) -> None:
    """Give actors a while to come; where there is no CPU for them, say so once."""
    ready, missing = ray.wait(list(asked), num_returns=len(asked), timeout=BUSY_SECONDS)
    free = ray.available_resources().get("CPU", 0.0) if missing else 0.0
    if len(missing) > free:
        log.warning(
            "%d of %d actors wait for a free CPU: the cluster has %d, of which %g are free. They "
            "start when others end; or give fewer cohorts",
            len(missing), len(ready) + len(missing), cpus(ray), free,
        )  # fmt: skip
