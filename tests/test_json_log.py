"""The log as JSON lines: levels, codes, rotation, and a file that only its owner reads."""

from __future__ import annotations

import json
import logging
import warnings
from pathlib import Path

import pytest

from fedlsvi import json_log
from fedlsvi.errors import FedLSVIWarning, MessageRefused

log = logging.getLogger("fedlsvi.trial")


def test_a_line_has_level_time_and_the_code_of_its_error(tmp_path: Path) -> None:
    handler = json_log.write_to(tmp_path / "log.jsonl")
    try:
        log.debug("too small")
        log.info("round %d", 7)
        log.warning("refused", extra={"code": "other-run"})
        log.error("failed", exc_info=MessageRefused("line\none", code="bad-stop"))
    finally:
        json_log.stop(handler)
    log.error("after the end")
    found = list(json_log.read(tmp_path / "log.jsonl"))
    assert [line["level"] for line in found] == ["INFO", "WARNING", "ERROR"]
    assert found[0]["message"] == "round 7"
    assert [line.get("code") for line in found] == [None, "other-run", "bad-stop"]
    assert (found[2]["error"], found[2]["text"]) == ("MessageRefused", "line\none")
    assert (tmp_path / "log.jsonl").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("before", [logging.NOTSET, logging.ERROR, logging.DEBUG])
def test_the_level_is_afterwards_what_it_was(before: int, tmp_path: Path) -> None:
    """Also where a second file took the place of the first: nothing else of the process speaks
    more, or less, for a log that has ended."""
    logger = logging.getLogger(json_log.LOGGER)
    level = logger.level
    try:
        logger.setLevel(before)
        first = json_log.write_to(tmp_path / "first.jsonl")
        second = json_log.write_to(tmp_path / "second.jsonl")
        assert log.isEnabledFor(logging.INFO)
        json_log.stop(first)  # has ended already
        assert log.isEnabledFor(logging.INFO)
        json_log.stop(second)
        assert logger.level == before
    finally:
        logger.setLevel(level)


def test_old_files_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read is in order, without a line that a kill has cut."""
    monkeypatch.setattr(json_log, "MOST_BYTES", 2_000)
    handler = json_log.write_to(tmp_path / "log.jsonl")
    try:
        for k in range(200):
            log.warning("%d", k)
    finally:
        json_log.stop(handler)
    assert len(list(tmp_path.iterdir())) == 1 + json_log.KEPT
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"time": "x", "lev')
    numbers = [int(line["message"]) for line in json_log.read(tmp_path / "log.jsonl")]
    assert numbers == list(range(numbers[0], 200))
    assert 20 < len(numbers) < 200


def test_every_line_is_json_whatever_is_logged(tmp_path: Path) -> None:
    handler = json_log.write_to(tmp_path / "log.jsonl")
    try:
        log.warning("\x1b[2J\n\u2028 “ { %s", '"}')
    finally:
        json_log.stop(handler)
    (line,) = (tmp_path / "log.jsonl").read_text().splitlines()[:1]
    assert json.loads(line)["message"].endswith('{ "}')


def test_the_log_of_a_run_has_its_warnings_and_how_it_ended(tmp_path: Path) -> None:
    handler = json_log.write_to(tmp_path / "log.jsonl")

    def fail() -> None:
        with json_log.of_run(handler, "a run"):
            warnings.warn("clipped", FedLSVIWarning, stacklevel=1)
            raise MessageRefused("no", code="bad-stop")

    with pytest.raises(MessageRefused), pytest.warns(FedLSVIWarning, match="clipped"):
        fail()
    log.error("after the end")
    found = list(json_log.read(tmp_path / "log.jsonl"))
    assert [(line["level"], line.get("code")) for line in found] == [
        ("INFO", None), ("WARNING", None), ("ERROR", "bad-stop"),
    ]  # fmt: skip
    assert "clipped" in found[1]["message"]
