"""What `fedlsvi new` writes runs, passes its check and learns; and a newcomer's first hour."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path
from runpy import run_path

import pytest

from fedlsvi.cli import main
from fedlsvi.cli.new import rendered
from shell import refused

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("forgotten", "here")


ENVIRONMENT = "environment --kind"


@pytest.mark.parametrize(
    "asked",
    ["environment", f"{ENVIRONMENT} vectors", f"{ENVIRONMENT} gymnasium", "features", "algorithm"],
)
def test_a_new_file_passes_its_check_and_learns(
    asked: str, capsys: pytest.CaptureFixture[str]
) -> None:
    what, *kind = asked.split()
    assert main(["new", what, "my-thing", *kind]) == 0
    assert "python my_thing.py" in capsys.readouterr().out
    names = run_path("my_thing.py", run_name="__main__")  # which checks it
    worth = ast.literal_eval(capsys.readouterr().out)
    chance = worth.get("uniform", worth.get("random"))
    assert worth["learned"] > chance + 0.4 * (worth.get("optimal", 3.6) - chance)
    assert "MyThing" in names


def test_a_new_study_can_be_repeated() -> None:
    """In a process of its own: it starts others."""
    assert main(["new", "study", "few-rounds"]) == 0
    path = Path("few_rounds.py")
    small = path.read_text().replace("5_000, range(5)", "60, range(2)")
    assert small != path.read_text()
    path.write_text(small)
    said = [
        subprocess.run(
            [sys.executable, str(path)], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert said[0] == said[1]  # the second time it only reads
    assert re.search("20 rounds are (enough|too few)", said[0])
    assert len(list(Path("runs/few-rounds").iterdir())) == 4


def test_a_new_file_hides_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, "new", "environment", "9-lives").code == "bad-name"
    assert refused(capsys, "new", "environment", "random").code == "module-name-taken"
    assert refused(capsys, "new", "features", "mine", "--kind", "table").code == "usage"
    Path("mine.py").write_text("kept")
    assert refused(capsys, "new", "features", "mine").code == "file-exists"
    assert Path("mine.py").read_text() == "kept"


def test_the_page_on_algorithms_shows_the_file_that_is_written() -> None:
    page = (ROOT / "docs" / "howto-algorithms.md").read_text(encoding="utf-8")
    (block, *_) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    body = block[block.index("@dataclass") :]
    assert body.strip() in rendered("algorithm", "doubling")


def test_a_first_hour(capsys: pytest.CaptureFixture[str]) -> None:
    """`make demo`, then the README's section on one's own environment, word by word."""
    assert re.search(r"^demo:.*\n\t\$\(BIN\)/fedlsvi demo$", (ROOT / "Makefile").read_text(), re.M)
    assert main(["demo", "--episodes", "300", "--quiet"]) == 0
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    section = page[page.index("## Your own environment") :]
    (block, *_) = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    lines = [shlex.split(line, comments=True) for line in block.splitlines()]
    assert [line[0] for line in lines] == ["fedlsvi", "python", "fedlsvi", "fedlsvi"]
    for program, *words in lines:
        capsys.readouterr()
        if program == "fedlsvi":
            assert main(words) == 0
            continue
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True)
        worth = ast.literal_eval(done.stdout.splitlines()[-1])
        assert worth["learned"] > 0.95 * worth["optimal"] > 1.5 * worth["uniform"]
    assert Path("runs/ward/report.html").exists()
