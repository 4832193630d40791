"""The Ray cluster of a run: joining one, starting one here, and placing actors on its nodes."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import cycle, islice
from pathlib import Path
from socket import create_connection
from typing import Any

from fedlsvi.errors import InvalidInput, TransportError
from fedlsvi.remote.ray.tcp import REACH_SECONDS

LOOPBACK = "127.0.0.1"

BUSY_SECONDS = 10.0
"""How long actors may wait for a CPU before a warning says so."""

LONGEST_FOLDER = 40
"""Bytes of the name of Ray's folder: its sockets are below it, whose names have 107 at most."""

REMOVE_SECONDS = 5.0
"""How long workers that are being ended may go on writing logs."""

log = logging.getLogger(__name__)

_joined: str | None = None
"""The address by which this process joined a cluster."""

_folders: set[Path] = set()
"""Of clusters that were started here: sockets, and logs, in which the text of an error may quote a
state. They are their owner's alone and are removed when the cluster ends."""


def ray_library() -> Any:
    """The module `ray`; InvalidInput with what to install if it is missing."""
    try:
        import ray
    except ImportError:
        raise InvalidInput(
            'transport "ray" needs Ray: install it with pip install "fedlsvi[ray]"',
            code="missing-ray",
        ) from None
    return ray


def connect(address: str | None = None, ray: Any = None) -> bool:
    """Join the Ray cluster at `address`, or start one on this machine, on loopback only.

    Args:
        address: What `ray.init` takes; None starts a cluster, unless this process is in one.
        ray: The module.

    Returns:
        Whether a cluster was started here.
    """
    global _joined
    ray = ray or ray_library()
    if ray.is_initialized():
        _refuse_other(ray, address)
        return False
    quiet: dict[str, Any] = {
        "log_to_driver": False,
        "logging_level": "warning",
        "configure_logging": True,
    }
    if address is not None:
        _check_reachable(address)
        try:
            ray.init(address=address, **quiet)
        except (OSError, ValueError, RuntimeError) as error:
            raise TransportError(
                f"cannot join the Ray cluster at {address!r} from here: {error}. Only a node of "
                "the cluster can join by host:port, other machines by ray://host:10001; a cluster "
                "that requires a token needs RAY_AUTH_MODE and RAY_AUTH_TOKEN here too",
                code="ray-not-joined",
            ) from None
        _joined = address
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # the driver waits for its actors
    _stay_on_loopback(ray)
    quiet |= {"include_dashboard": False, "num_cpus": len(os.sched_getaffinity(0))}
    folders: list[Path] = []
    try:
        folders.append(_private_folder())
        inside = str(folders[0] / "ray")  # to which Ray gives everybody access
        ray.init(address="local", _node_ip_address=LOOPBACK, _temp_dir=inside, **quiet)
    except (OSError, ValueError, RuntimeError) as error:
        _remove(folders)
        raise TransportError(
            f"cannot start Ray on this machine: {error}", code="ray-not-started"
        ) from None
    _folders.update(folders)
    # Ray ends with this process, if nobody ends it before, and its folder after it
    atexit.unregister(end)
    atexit.register(end, ray)
    _joined = None
    return True


def _private_folder() -> Path:
    """A new folder for its owner alone, with a name that is short enough."""
    base = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    if len(os.fsencode(base)) + len("/fedlsvi-12345678/ray") > LONGEST_FOLDER:
        base = "/tmp"
    return Path(tempfile.mkdtemp(prefix="fedlsvi-", dir=base))


def end(ray: Any) -> None:
    """End the cluster that was started here, and remove its folder."""
    ray.shutdown()
    _remove(_folders)
    _folders.clear()


def _remove(folders: Iterable[Path]) -> None:
    until = time.monotonic() + REMOVE_SECONDS
    for folder in folders:
        while folder.exists():
            with suppress(OSError):
                shutil.rmtree(folder)
            if time.monotonic() > until:
                log.warning("the folder of Ray %s could not be removed: remove it", folder)
                break


def keep_logs() -> None:
    """An actor has failed: its log has the details, so the folder of its cluster stays."""
    for folder in _folders:
        log.warning(
            "an actor failed: Ray's logs are kept in %s/ray/session_latest/logs, for you alone; "
            "remove that folder once you have read them",
            folder,
        )
    _folders.clear()


def _refuse_other(ray: Any, address: str | None) -> None:
    """A process is in one cluster at a time."""
    if address in (None, "auto", _joined):
        return
    here = ray.get_runtime_context().gcs_address
    if address != here:
        raise InvalidInput(
            f"this process is connected to the Ray cluster at {here}, not to {address!r}: omit the "
            "address, or call ray.shutdown() first",
            code="other-ray-cluster",
        )


def _check_reachable(address: str) -> None:
    """Fail at once if nobody listens at host:port; Ray itself would retry for minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not port.isdigit():
        return
    try:
        create_connection((host, int(port)), REACH_SECONDS).close()
    except (OSError, ValueError) as error:
        raise TransportError(
            f"there is no Ray cluster at {address!r}: {error}", code="no-ray-cluster"
        ) from None


def _stay_on_loopback(ray: Any) -> None:
    """Ray replaces 127.0.0.1 by an address that others can reach, unless it is told that this
    machine takes part in no cluster; then its processes listen on loopback. The variable is public
    and reaches the processes that Ray starts; this process read it when it imported Ray, perhaps
    long ago, so the private constant is set too."""
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    ray._private.ray_constants.ENABLE_RAY_CLUSTER = False


def tcp_allowed(ray: Any) -> bool:
    """Whether frames may bypass Ray: not from outside a cluster, whose nodes are out of reach, and
    not around Ray's encryption."""
    encrypted = os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")
    return not encrypted and not ray.util.client.ray.is_connected()


def cpus(ray: Any) -> int:
    """How many CPUs the cluster has."""
    return int(ray.cluster_resources().get("CPU", 0))


def nodes_for(ray: Any, actors: int) -> list[str]:
    """A node for each actor: one CPU after another, round-robin over the nodes."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    sizes = {node["NodeID"]: int(node["Resources"].get("CPU", 0)) for node in nodes}
    seats = [
        node for seat in range(max(sizes.values())) for node, size in sizes.items() if seat < size
    ]
    return list(islice(cycle(seats or sizes), actors))


def warn_if_busy(ray: Any, calls: Sequence[Any]) -> None:
    """Give actors a while to answer; if there is no CPU for them, warn once."""
    ready, missing = ray.wait(list(calls), num_returns=len(calls), timeout=BUSY_SECONDS)
    free = ray.available_resources().get("CPU", 0.0) if missing else 0.0
    if len(missing) > free:
        text = (
            "%d of %d actors are waiting for a free CPU: the cluster has %d, and %g are free. "
            "They start when others end; or use fewer cohorts"
        )
        log.warning(text, len(missing), len(ready) + len(missing), cpus(ray), free)
