"""Metrics of federations, from the status that a server writes: a page for Prometheus.

It is served by a process of its own (`fedlsvi federate metrics`), so that an alert still finds it
when the server's job has died. Sites need no route to it: what the server knows of them is here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import get_args

from fedlsvi.observers.prometheus import Families, Progress, add_progress
from fedlsvi.remote.server_status import RunStatus, SiteState, State


def fill(look: Callable[[], Sequence[RunStatus]]) -> Callable[[Families], None]:
    """What puts in the metrics of the federations that `look` returns."""

    def put(families: Families) -> None:
        for status in look():
            add(families, status)

    return put


def add(to: Families, status: RunStatus) -> None:
    """The metrics of a federation and its sites."""
    run = status.name
    add_progress(to, run, Progress(
        rounds=status.round, episodes=status.episode, planned=status.episodes,
        scalars=status.scalars, seconds=status.seconds, ended=status.ended,
        epsilon=status.epsilon,
    ))  # fmt: skip
    to.gauge("fedlsvi_job_began_timestamp_seconds", "When the job began.", status.began, run=run)
    to.gauge(
        "fedlsvi_server_timestamp_seconds", "When the server's job last wrote its status.",
        status.written, run=run,
    )  # fmt: skip
    for state in get_args(State):
        to.gauge("fedlsvi_run_state", "1 for the state that the job is in.",
                 float(state == status.state), run=run, state=state)  # fmt: skip
    for site in status.sites:
        labels = {"run": run, "site": site.name}
        for kind in get_args(SiteState):
            to.gauge("fedlsvi_site_state", "1 for the state that the site is in.",
                     float(kind == site.state), **labels, state=kind)  # fmt: skip
        heard = "When its last answer came, in seconds since 1970."
        to.gauge("fedlsvi_site_heard_timestamp_seconds", heard, site.heard, **labels)
        for direction, size in (("up", site.up), ("down", site.down)):
            to.counter("fedlsvi_site_bytes", "Bytes to and from a site in this job.", size,
                       **labels, direction=direction)  # fmt: skip
        for code, times in site.refused.items():
            to.counter("fedlsvi_site_refused", "Answers that were refused in this job.", times,
                       **labels, code=code)  # fmt: skip
