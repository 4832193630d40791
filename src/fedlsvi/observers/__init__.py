"""Observers of a run: each is called with the record of every round, and closed at the end.

    FedLSVI(8).learn(env, 10_000, observers=[CSVLog("rounds.csv"), TensorBoard("logs")])

Anything that can be called with a `RoundRecord` is an observer; `close()` is called if it is there.
The trackers import their packages when they are made, not before.
"""

from fedlsvi.observers.files import CSVLog, JSONLLog
from fedlsvi.observers.metrics import metrics
from fedlsvi.observers.trackers import MLflow, TensorBoard, WandB

__all__ = ["CSVLog", "JSONLLog", "MLflow", "TensorBoard", "WandB", "metrics"]
