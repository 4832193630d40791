"""Observers: files, and trackers against modules that only pretend."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.envs import RiverSwim
from fedlsvi.errors import InvalidInput, StoreError
from fedlsvi.observers import CSVLog, JSONLLog, MLflow, TensorBoard, Trackio, WandB, metrics
from fedlsvi.protocol.records import RoundRecord
from fedlsvi.run import Run


def _learn(*observers: Any) -> Run:
    return FedLSVI(2).learn(RiverSwim(3, 4), 60, observers=observers, progress=False)


def test_files_hold_every_round(tmp_path: Path) -> None:
    run = _learn(CSVLog(tmp_path / "a" / "rounds.csv"), JSONLLog(tmp_path / "rounds.jsonl"))
    with (tmp_path / "a" / "rounds.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["episode"]) for row in rows] == [r.last for r in run.records]
    assert float(rows[-1]["regret"]) == pytest.approx(run.records[-1].regret)
    assert float(rows[-1]["scalars/total"]) == run.ledger.total
    lines = (tmp_path / "rounds.jsonl").read_text().splitlines()
    assert [RoundRecord.from_dict(json.loads(line)) for line in lines] == run.records


def _episodes(folder: Path) -> tuple[list[int], list[int]]:
    """Last episodes of the rounds in rounds.csv and in rounds.jsonl."""
    with (folder / "rounds.csv").open() as file:
        rows = [int(row["episode"]) for row in csv.DictReader(file)]
    lines = (folder / "rounds.jsonl").read_text().splitlines()
    return rows, [json.loads(line)["last"] for line in lines]


def test_a_resumed_run_goes_on_with_its_files(tmp_path: Path) -> None:
    """Rounds that are played again replace what was written of them; a new run starts over."""
    records = _learn().records
    ends = [record.last for record in records]
    assert len(records) > 4

    def log(part: list[RoundRecord]) -> None:
        for observer in (CSVLog(tmp_path / "rounds.csv"), JSONLLog(tmp_path / "rounds.jsonl")):
            for record in part:
                observer(record)
            observer.close()

    log(records[:4])
    for name in ("rounds.csv", "rounds.jsonl"):
        with (tmp_path / name).open("a") as file:
            file.write("12")  # a line that a kill left unfinished
    log(records[2:])
    assert _episodes(tmp_path) == (ends, ends)
    log(records[4:4])
    assert _episodes(tmp_path) == (ends, ends)
    log(records[:2])
    assert _episodes(tmp_path) == (ends[:2], ends[:2])


def test_what_is_not_known_is_left_out() -> None:
    record = _learn().records[0]
    assert "mean_return" not in metrics(record)
    assert metrics(record)["round"] == 1.0
    assert all(isinstance(value, float) for value in metrics(record).values())


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with refused(StoreError, "cannot-write", str(tmp_path)):
        CSVLog(tmp_path / "file" / "rounds.csv")


class Pretender(ModuleType):
    """A module that notes what is called, as (name, arguments)."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.calls: list[tuple[str, Any]] = []

    def note(self, name: str, result: Any = None) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, args or kwargs))
            return result

        return call

    def names(self) -> list[str]:
        return [name for name, _ in self.calls]


def test_tensorboard(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Pretender("tensorboardX")
    writer = SimpleNamespace(add_scalar=module.note("add"), close=module.note("close"))
    module.SummaryWriter = module.note("open", writer)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tensorboardX", module)
    run = _learn(TensorBoard("logs"))
    assert module.calls[0] == ("open", ("logs",))
    assert ("add", ("regret", run.records[-1].regret, 60)) in module.calls
    assert module.names()[-1] == "close"


def test_tensorboard_writes_a_real_file(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    _learn(TensorBoard(tmp_path))
    assert list(tmp_path.glob("events.out.*"))


@pytest.mark.parametrize("active", [None, "mine"])
def test_mlflow(monkeypatch: pytest.MonkeyPatch, active: str | None) -> None:
    module = Pretender("mlflow")
    for name in ("start_run", "log_params", "log_metrics", "end_run"):
        setattr(module, name, module.note(name))
    module.active_run = lambda: active  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", module)
    run = _learn(MLflow({"n_agents": 2}))
    began = ["start_run"] if active is None else []
    ended = ["end_run"] if active is None else []
    assert module.names() == [*began, "log_params", *["log_metrics"] * run.rounds, *ended]


@pytest.mark.parametrize("tracker", [WandB, Trackio])
def test_wandb_and_what_is_called_like_it(
    tracker: type[WandB], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = Pretender(tracker.package)
    session = SimpleNamespace(log=module.note("log"), finish=module.note("finish"))
    module.init = module.note("init", session)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, tracker.package, module)
    run = _learn(tracker(project="lake"))
    assert module.calls[0] == ("init", {"project": "lake"})
    assert module.names() == ["init", *["log"] * run.rounds, "finish"]
    assert module.calls[-2][1][0]["episode"] == 60


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with refused(InvalidInput, "package-missing", "wandb"):
        WandB()
