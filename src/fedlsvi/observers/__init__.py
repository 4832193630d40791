"""Observers of a run: each is called with the record of every round, and closed at the end.

    FedLSVI(8).learn(env, 10_000, observers=[CSVLog("rounds.csv"), TensorBoard("logs")])

Anything that can be called with a `RoundRecord` is an observer; `close()` is called if it is there.
The trackers import their packages when they are made, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedlsvi.observers.metrics import metrics as metrics  # at once: the module has its name
from fedlsvi.registry import lazy_exports

if TYPE_CHECKING:
    from fedlsvi.observers.files import CSVLog as CSVLog
    from fedlsvi.observers.files import JSONLLog as JSONLLog
    from fedlsvi.observers.prometheus import Prometheus as Prometheus
    from fedlsvi.observers.trackers import MLflow as MLflow
    from fedlsvi.observers.trackers import TensorBoard as TensorBoard
    from fedlsvi.observers.trackers import Trackio as Trackio
    from fedlsvi.observers.trackers import WandB as WandB

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "files": "CSVLog JSONLLog",
        "metrics": "metrics",
        "prometheus": "Prometheus",
        "trackers": "MLflow TensorBoard Trackio WandB",
    },
)
