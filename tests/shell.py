"""The command, called as the shell would."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedlsvi import cli
from fedlsvi.errors import FedLSVIError


class Refusal(str):
    """The sentence that the command printed; `code` is the error's, or "usage"."""

    code = "usage"


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> Refusal:
    """The one sentence that the command prints; the folder is as it was."""
    assert not Path("pyproject.toml").exists(), (
        "use the fixture `here`: others write in this folder"
    )
    before = _files()
    codes = ["usage"]

    def words(error: FedLSVIError) -> str:
        codes.append(error.code)
        return in_shell_words(error)

    in_shell_words = cli.in_shell_words
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "in_shell_words", words)
        exit_code = cli.main(list(arguments))
    out, err = capsys.readouterr()
    assert exit_code == 2, err
    assert out == ""
    assert err.startswith("fedlsvi: error: ")
    assert err.count("\n") == 1
    assert _files() == before
    said = Refusal(err)
    said.code = codes[-1]
    return said


def _files() -> list[Path]:
    """All that is in this folder, but for what Python keeps of modules that it has read."""
    return sorted(path for path in Path().rglob("*") if "__pycache__" not in path.parts)
