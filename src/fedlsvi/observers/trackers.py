"""TensorBoard, MLflow, Weights & Biases and Trackio: each needs its own package, none is on."""

from __future__ import annotations

from importlib import import_module
from os import PathLike
from typing import Any

from fedlsvi.errors import InvalidInput
from fedlsvi.observers.metrics import metrics
from fedlsvi.protocol.records import RoundRecord


def _package(name: str, *modules: str) -> Any:
    """The first of these modules that is installed."""
    for module in modules:
        try:
            return import_module(module)
        except ImportError:
            continue
    raise InvalidInput(f"this observer needs {name}: pip install {name}", code="package-missing")


class TensorBoard:
    """Scalars for TensorBoard; `tensorboard --logdir folder` shows them against episodes."""

    def __init__(self, folder: str | PathLike[str], **options: Any) -> None:
        """Make the writer, with tensorboardX or else PyTorch.

        Args:
            folder: Where to write.
            **options: Of `SummaryWriter`.

        Raises:
            InvalidInput: Neither package is installed.
        """
        module = _package("tensorboardX", "tensorboardX", "torch.utils.tensorboard")
        self._writer = module.SummaryWriter(str(folder), **options)

    def __call__(self, record: RoundRecord) -> None:
        """A round has ended."""
        for name, value in metrics(record).items():
            self._writer.add_scalar(name, value, record.last)

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()


class MLflow:
    """Metrics of an MLflow run: the active one, or a new one."""

    def __init__(self, parameters: dict[str, Any] | None = None, **options: Any) -> None:
        """Start a run if none is active.

        Args:
            parameters: To log with the run.
            **options: Of `start_run`.

        Raises:
            InvalidInput: MLflow is not installed.
        """
        self._mlflow = _package("mlflow", "mlflow")
        self._own = self._mlflow.active_run() is None
        if self._own:
            self._mlflow.start_run(**options)
        if parameters:
            self._mlflow.log_params(parameters)

    def __call__(self, record: RoundRecord) -> None:
        """A round has ended."""
        self._mlflow.log_metrics(metrics(record), step=record.last)

    def close(self) -> None:
        """End the run, if it was started here."""
        if self._own:
            self._mlflow.end_run()


class WandB:
    """Metrics of a new Weights & Biases run; options are those of `wandb.init`."""

    package = "wandb"

    def __init__(self, **options: Any) -> None:
        self._run = _package(self.package, self.package).init(**options)

    def __call__(self, record: RoundRecord) -> None:
        """A round has ended."""
        self._run.log({"episode": record.last, **metrics(record)}, step=record.last)

    def close(self) -> None:
        """End the run."""
        self._run.finish()


class Trackio(WandB):
    """Metrics of a new Trackio run, kept on this machine unless `space_id` or `server_url` names
    another place; options are those of `trackio.init`."""

    package = "trackio"
