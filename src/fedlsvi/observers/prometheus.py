"""Metrics for Prometheus (extra `metrics`): a page with the numbers of runs that go on.

    FedLSVI(8).learn(env, 10_000, observers=[Prometheus(9464)])    # http://127.0.0.1:9464/metrics

Whoever can reach the port can read the numbers, so it is open on loopback unless told otherwise.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from fedlsvi.errors import InvalidInput
from fedlsvi.protocol.messages import SCALAR_BYTES
from fedlsvi.protocol.records import RoundRecord

PORT, LOOPBACK = 9464, "127.0.0.1"

DIRECTIONS = {
    "init": "down", "down_model": "down", "down_raw": "down", "up_stats": "up", "up_raw": "up",
    "signal": "both",
}  # fmt: skip
"""Category of the ledger → where it travels, as an agent sees it."""


@dataclass
class Progress:
    """A run in numbers; None is unknown.

    Attributes:
        rounds, episodes: Done so far; episodes are those of each agent.
        planned: How many episodes there will be.
        scalars: By category of the ledger.
        seconds: By phase.
        ended: When the last round ended, as seconds since 1970.
        regret, mean_return: Where the environment tells.
        epsilon: What has been spent.
    """

    rounds: int = 0
    episodes: int = 0
    planned: int | None = None
    scalars: Mapping[str, int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    ended: float | None = None
    regret: float | None = None
    mean_return: float | None = None
    epsilon: float | None = None


def package() -> Any:
    """The package `prometheus_client`, or what to install."""
    try:
        import prometheus_client.core
    except ImportError:
        raise InvalidInput(
            'metrics need prometheus-client: pip install "fedlsvi[metrics]"',
            code="package-missing",
        ) from None
    return prometheus_client


class Families:
    """Metrics under construction: each name once, with a sample for each run or site."""

    def __init__(self) -> None:
        self._core = package().core
        self._families: dict[str, Any] = {}

    def counter(self, name: str, text: str, value: float, **labels: str) -> None:
        """A sample of a number that only grows."""
        self._add(self._core.CounterMetricFamily, name, text, value, labels)

    def gauge(self, name: str, text: str, value: float | None, **labels: str) -> None:
        """A sample of a number that goes up and down; none where it is unknown."""
        if value is not None:
            self._add(self._core.GaugeMetricFamily, name, text, value, labels)

    def _add(self, kind: Any, name: str, text: str, value: float, labels: dict[str, str]) -> None:
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = kind(name, text, labels=list(labels))
        family.add_metric(list(labels.values()), value)

    def all(self) -> Iterable[Any]:
        """The metrics."""
        return self._families.values()


def add_progress(to: Families, run: str, p: Progress) -> None:
    """The metrics of one run."""
    to.counter("fedlsvi_rounds", "Synchronisations done.", p.rounds, run=run)
    to.counter("fedlsvi_episodes", "Episodes of each agent.", p.episodes, run=run)
    to.gauge("fedlsvi_episodes_planned", "Episodes that each agent will play.", p.planned, run=run)
    for category, count in p.scalars.items():
        labels = {"run": run, "category": category, "direction": DIRECTIONS.get(category, "both")}
        to.counter("fedlsvi_scalars", "Scalars sent.", count, **labels)
        to.counter("fedlsvi_bytes", "Bytes of these scalars.", SCALAR_BYTES * count, **labels)
    for phase, spent in p.seconds.items():
        to.counter("fedlsvi_phase_seconds", "Seconds by phase.", spent, run=run, phase=phase)
    ended = "When the last round ended, in seconds since 1970."
    to.gauge("fedlsvi_last_round_timestamp_seconds", ended, p.ended, run=run)
    to.gauge("fedlsvi_regret", "Cumulative group regret.", p.regret, run=run)
    to.gauge("fedlsvi_mean_return", "Mean return of the last round.", p.mean_return, run=run)
    to.gauge("fedlsvi_epsilon_spent", "ε of differential privacy so far.", p.epsilon, run=run)


class Exporter:
    """A page of metrics, which asks for the numbers whenever somebody reads it.

    Args:
        fill: Puts the metrics in.
        port: 0 is any that is free.
        address: Where it listens.

    Attributes:
        port: Where it listens.

    Raises:
        InvalidInput: The package is missing, or the port is in use.
    """

    def __init__(
        self, fill: Callable[[Families], None], port: int = PORT, address: str = LOOPBACK
    ) -> None:
        client, self._fill = package(), fill
        registry = client.CollectorRegistry()
        registry.register(self)
        try:
            self._server, self._thread = client.start_http_server(port, address, registry)
        except (OSError, OverflowError) as error:
            raise InvalidInput(
                f"metrics cannot be served at {address}:{port} ({error}): choose another port",
                code="bad-port",
            ) from None
        self.port: int = self._server.server_port

    def collect(self) -> Iterable[Any]:
        """What the page shows now."""
        families = Families()
        self._fill(families)
        return families.all()

    def close(self) -> None:
        """Let go of the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Prometheus:
    """Serves the numbers of one run, or of several one after another, to Prometheus.

    Attributes:
        port: Where it listens.
    """

    def __init__(self, port: int = PORT, address: str = LOOPBACK, run: str = "run") -> None:
        """Open the page.

        Args:
            port: 0 is any that is free.
            address: Where it listens; elsewhere than on loopback everybody can read it.
            run: The label of the run.

        Raises:
            InvalidInput: The package is missing, or the port is in use.
        """
        self.run = run
        self._runs: dict[str, Progress] = {}
        self._exporter = Exporter(self._fill, port, address)
        self.port = self._exporter.port

    def __call__(self, record: RoundRecord) -> None:
        """A round has ended."""
        before = self._runs.get(self.run, Progress())
        self._runs[self.run] = Progress(
            rounds=record.k, episodes=record.last, scalars=dict(record.scalars),
            seconds=Counter(before.seconds) + Counter(record.seconds), ended=time.time(),
            regret=record.regret, mean_return=record.mean_return,
        )  # fmt: skip

    def of(self, run: str) -> Callable[[RoundRecord], None]:
        """An observer of one more run on the same page, which stays open when that run ends."""

        def observe(record: RoundRecord) -> None:
            self.run = run
            self(record)

        return observe

    def _fill(self, families: Families) -> None:
        for run, progress in self._runs.copy().items():
            add_progress(families, run, progress)

    def close(self) -> None:
        """Let go of the port."""
        with suppress(OSError):
            self._exporter.close()
