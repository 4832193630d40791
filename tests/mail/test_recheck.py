"""Anyone who has the files can check a merged study again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from expecting import refused
from fedlsvi import load
from fedlsvi.errors import DamagedFile, FedLSVIError, InvalidInput, WrongVersion
from fedlsvi.remote.mail.attest import Statement, attest, hashes_of, recheck
from fedlsvi.remote.mail.merge import merge
from mailing import contributions, logs, study_of

PRIVATE = {"aggregation": "secure", "privacy": {"epsilon": 3.0, "delta": 1e-6}}


def attested(folder: Path, **changes: Any) -> tuple[Path, list[Path]]:
    study = study_of(folder, **changes)
    paths = contributions(study, folder, logs())
    merge(study, paths, folder / "run", print)
    attest(folder / "run").write(folder / "statement.json")
    return folder / "statement.json", paths


@pytest.mark.parametrize(
    "settings",
    [{"aggregation": "exact"}, {"aggregation": "secure", "stationary": True}, PRIVATE],
    ids=["exact", "secure", "private"],
)
def test_what_was_merged_follows_from_the_files(settings: dict[str, Any], tmp_path: Path) -> None:
    path, paths = attested(tmp_path, settings=settings)
    assert recheck(Statement.read(path), paths).settings["aggregation"] == settings["aggregation"]
    assert recheck(Statement.read(path), paths[::-1])


def test_a_flipped_bit_in_any_file_is_found(tmp_path: Path) -> None:
    """At a few places of every file: head, frames and signature."""
    path, paths = attested(tmp_path)
    statement = Statement.read(path)
    for file in paths:
        data = file.read_bytes()
        for at in range(5, len(data), len(data) // 9):
            wrong = bytearray(data)
            wrong[at] ^= 1 << (at % 8)
            file.write_bytes(wrong)
            with pytest.raises(FedLSVIError):
                recheck(statement, paths)
        file.write_bytes(data)
    assert recheck(statement, paths)


def test_a_flipped_bit_in_any_model_is_found(tmp_path: Path) -> None:
    """In a statement that was sealed again, and in one that was not."""
    path, paths = attested(tmp_path)
    statement = Statement.read(path)
    for h, model in enumerate(statement.models):
        for what in ("w", "gram"):
            other = dict(model) | {what: format(int(model[what], 16) ^ 1, "064x")}
            models = [*statement.models[:h], other, *statement.models[h + 1 :]]
            with refused(DamagedFile, "model-differs", f"step {h + 1}"):
                recheck(replace(statement, models=models), paths)
    with refused(DamagedFile, "model-differs"):
        recheck(replace(statement, models=statement.models[:-1]), paths)
    text = path.read_text()
    path.write_text(text.replace(statement.models[0]["w"], statement.models[1]["w"]))
    with refused(DamagedFile, "damaged"):
        Statement.read(path)


def test_a_model_of_the_run_that_was_changed_is_found(tmp_path: Path) -> None:
    """By its own hash when it is read, or, if that was changed too, by the statement."""
    _, paths = attested(tmp_path)
    run = load(tmp_path / "run")
    wrong = run.w.copy()
    wrong[1, 0] = np.nextafter(wrong[1, 0], 1.0)
    made = attest(tmp_path / "run")
    changed = list(hashes_of(wrong, run.gram_packed))
    assert [a == b for a, b in zip(changed, made.models, strict=True)] == [True, False, True]
    with refused(DamagedFile, "model-differs", "step 2", "w"):
        recheck(replace(made, models=changed), paths)


def test_other_files_studies_and_versions(tmp_path: Path) -> None:
    path, paths = attested(tmp_path)
    statement, data = Statement.read(path), logs()
    before = [file.read_bytes() for file in paths]
    data["north"]["reward"] = 1.0 - data["north"]["reward"]
    with refused(DamagedFile, "not-merged", "north"):
        recheck(statement, contributions(study_of(tmp_path), tmp_path, data))
    for file, content in zip(paths, before, strict=True):
        file.write_bytes(content)
    with refused(InvalidInput, "sites-missing", "north", "south"):
        recheck(statement, paths[:1])
    with refused(DamagedFile, "not-attested"):
        recheck(replace(statement, study=statement.study | {"seed": 7}), paths)
    for files in ({}, dict(list(statement.files.items())[1:]), statement.files | {"x": {}}):
        with refused(DamagedFile, "not-attested"):
            recheck(replace(statement, files=files), paths)
    with refused(WrongVersion, "other-version", "99"):
        recheck(replace(statement, versions=statement.versions | {"fedlsvi": "99"}), paths)
    with refused(InvalidInput, "no-study"):
        attest(tmp_path)
