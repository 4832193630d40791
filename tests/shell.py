"""The command, called as the shell would."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedlsvi.cli import main


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one sentence that the command says; the folder is as it was."""
    assert not Path("pyproject.toml").exists(), (
        "use the fixture `here`: others write in this folder"
    )
    before = sorted(Path().rglob("*"))
    try:
        code = main(list(arguments))
    except SystemExit as leaving:  # argparse
        code = int(leaving.code or 0)
    out, err = capsys.readouterr()
    assert code == 2, err
    assert out == ""
    assert err.startswith("fedlsvi: error: ")
    assert err.count("\n") == 1
    assert sorted(Path().rglob("*")) == before
    return err
