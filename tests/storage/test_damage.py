"""Truncated, altered, missing and foreign files, and a full disk (reliability 9, 10, 12)."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import fedlsvi
from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.envs import RandomLinearMDP
from fedlsvi.errors import DamagedFile, StoreError, WrongVersion
from fedlsvi.storage import files


def learn(folder: Path | None = None, observers: Any = (), seconds: float = 0.0) -> fedlsvi.Run:
    env = RandomLinearMDP(6, 3, 4, horizon=3, seed=1, initial="uniform")
    learner = FedLSVI(n_agents=3, gamma=12.0, beta=0.5, lam=1.0)
    return learner.learn(
        env, 120, seed=3, progress=False, threads=1, folder=folder, checkpoint_seconds=seconds,
        observers=observers,
    )  # fmt: skip


class Stop(Exception):
    pass


def stop(record: fedlsvi.protocol.records.RoundRecord) -> None:
    if record.k == 5:
        raise Stop


@pytest.fixture(scope="module")
def expected() -> bytes:
    return learn().w.tobytes()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was broken off after five rounds, with checkpoints 4 and 5."""
    folder = tmp_path_factory.mktemp("damage") / "run"
    with pytest.raises(Stop):
        learn(folder, [stop])
    return folder


@pytest.fixture
def run(template: Path, tmp_path: Path) -> Path:
    shutil.copytree(template, tmp_path / "run")
    return tmp_path / "run"


def flip(path: Path, at: int | None = None) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 0x10
    path.write_bytes(bytes(data))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


@pytest.mark.parametrize("name", ["000005.safetensors", "000005.json"])
@pytest.mark.parametrize("harm", [flip, truncate, Path.unlink])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    run: Path, expected: bytes, name: str, harm: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    harm(run / "checkpoints" / name)
    resumed = fedlsvi.resume(run, progress=False)
    assert resumed.w.tobytes() == expected
    if not (name.endswith(".json") and harm is Path.unlink):  # without a manifest it never was
        said = capsys.readouterr().err
        assert "notice: the newest checkpoint cannot be used" in said
        assert name in said


def test_every_flipped_byte_of_a_manifest_is_noticed(run: Path) -> None:
    manifest = run / "checkpoints" / "000005.json"
    whole = manifest.read_bytes()
    for at in range(0, len(whole), 37):
        flip(manifest, at)
        assert fedlsvi.load(run).rounds in (4, 5)  # 5 where only white space changed
        if fedlsvi.load(run).rounds == 5:
            assert json.loads(manifest.read_bytes()) == json.loads(whole)
        manifest.write_bytes(whole)


def test_records_cut_short_fall_back_too(run: Path, expected: bytes) -> None:
    truncate(run / "records.jsonl")
    assert fedlsvi.resume(run, progress=False).w.tobytes() == expected


@pytest.mark.parametrize("name", ["records.jsonl", "regret.bin"])
def test_an_altered_past_is_refused(run: Path, name: str) -> None:
    flip(run / name, 3)
    for call in (fedlsvi.load, fedlsvi.resume):
        with refused(DamagedFile, "damaged", name, "fedlsvi run"):
            call(run)


@pytest.mark.parametrize("name", ["settings.toml", "parameters.json", "versions.json"])
def test_altered_settings_are_refused(run: Path, name: str) -> None:
    flip(run / name)
    with pytest.raises(DamagedFile) as caught:
        fedlsvi.resume(run)
    assert caught.value.code in ("altered", "damaged")
    assert name in str(caught.value)


def test_both_checkpoints_damaged(run: Path) -> None:
    for path in (run / "checkpoints").glob("*.safetensors"):
        truncate(path)
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    with refused(DamagedFile, "damaged", ".safetensors", "settings.toml"):
        fedlsvi.resume(run)
    assert before == {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}


def test_a_run_killed_before_its_first_checkpoint_starts_over(run: Path, expected: bytes) -> None:
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").mkdir()
    with refused(StoreError, "no-checkpoint"):
        fedlsvi.load(run)
    assert fedlsvi.resume(run, progress=False).w.tobytes() == expected


@pytest.mark.parametrize("name", ["versions.json", "checkpoints/000005.json"])
def test_another_format_is_refused_with_the_way_out(run: Path, name: str) -> None:
    content = files.read_json(run / name, {str: Any})
    files.write_json(run / name, {**content, "format": 2})
    for call in (fedlsvi.load, fedlsvi.resume):
        with refused(WrongVersion, "wrong-format", "format 2", "format 1"):
            call(run)


def test_nothing_in_a_folder_can_execute(template: Path) -> None:
    suffixes = {path.suffix for path in template.rglob("*") if path.is_file()}
    assert suffixes <= {".toml", ".json", ".jsonl", ".bin", ".safetensors", ""}
    source = Path(files.__file__).parent
    for path in source.glob("*.py"):
        text = path.read_text()
        assert not any(
            word in text
            for word in ("import pickle", "allow_pickle=True", " eval(", "exec(", "import_module")
        )


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
@pytest.mark.parametrize("nth", [1, 2, 3, 4, 5])
def test_a_full_disk_leaves_the_last_checkpoint(
    run: Path, expected: bytes, call: str, nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ENOSPC at each write, fsync and rename of the next checkpoint."""
    checkpoints = {p.name: p.read_bytes() for p in (run / "checkpoints").iterdir()}
    original, count = getattr(os, call), 0

    def full(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count == nth:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with refused(StoreError, "cannot-write", str(run), "No space left on device"):
            fedlsvi.resume(run, progress=False, checkpoint_seconds=0)
    assert not list(run.glob("**/.*.tmp"))
    kept = {p.name: p.read_bytes() for p in (run / "checkpoints").iterdir()}
    if nth <= 2:
        assert kept.items() >= {k: v for k, v in checkpoints.items() if k[:6] == "000005"}.items()
    assert fedlsvi.resume(run, progress=False).w.tobytes() == expected


def test_a_full_disk_at_the_start_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with refused(StoreError, "cannot-make-folder", "No space left"):
            learn(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with refused(StoreError, "cannot-make-folder"):
        learn(tmp_path / "file" / "run")


def test_other_libraries_are_mentioned(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = files.read_json(run / "versions.json", {str: Any})
    content["versions"]["numpy"] = "1.0.0"
    files.write_json(run / "versions.json", content)
    fedlsvi.resume(run, progress=False)
    assert "numpy 1.0.0 →" in capsys.readouterr().err


def test_paths_that_cannot_be_looked_at(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is missing or damaged: a sentence says what the system says."""
    long = run.parent / ("x" * 300)
    for look in (fedlsvi.load, fedlsvi.resume, learn):
        with refused(StoreError, "cannot-read", "File name too long"):
            look(long)
    (run / "records.jsonl").unlink()
    (run / "records.jsonl").mkdir()
    with refused(StoreError, "not-a-file", "records.jsonl") as caught:
        fedlsvi.load(run)
    assert not isinstance(caught.value, DamagedFile)

    def closed(path: Path) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    for name, said in (("iterdir", run), ("exists", run)):
        with monkeypatch.context() as patch:
            patch.setattr(Path, name, closed)
            with refused(StoreError, "cannot-read", str(said), "Permission denied"):
                learn(run)


def test_hints_can_be_pasted_into_a_shell(template: Path, tmp_path: Path) -> None:
    folder = tmp_path / "ünï cødé"
    shutil.copytree(template, folder)
    again = f"`fedlsvi resume '{folder}'`"
    with refused(StoreError, "folder-exists", again):
        learn(folder)
    flip(folder / "parameters.json")
    with refused(DamagedFile, "altered", f"`fedlsvi run '{folder}/settings.toml'`"):
        fedlsvi.resume(folder)
    shutil.rmtree(folder)
    shutil.copytree(template, folder)
    for path in (folder / "checkpoints").iterdir():
        path.unlink()
    with refused(StoreError, "no-checkpoint", again):
        fedlsvi.load(folder)
