"""A count agrees with its noun wherever one is written: "1 episode", never "1 episodes"."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from html import unescape
from itertools import pairwise
from pathlib import Path

import pytest

from fedlsvi import FedLSVI
from fedlsvi.algorithms import make
from fedlsvi.cli import main
from fedlsvi.envs import RandomLinearMDP
from fedlsvi.report import Comparison, write_report

SOURCE = Path(__file__).parents[1] / "src" / "fedlsvi"
NOUNS = (
    "actions|agents|algorithms|cohorts|episodes|files|minutes|problems|rounds|runs|scalars|seeds|"
    "settings|sites|states|steps|transitions"
)
PLURAL = re.compile(rf"^ (?:logged |more |new )?({NOUNS})\b(?!/)")
ONE = re.compile(rf"(?<![\d.,–-])1 (?:logged |more |new )?({NOUNS})\b|about 0 (?:minutes|hours)")

MANY = {
    "cli/federate.py": {"scalars"},  # the last column of a table
    "cli/new.py": {"path"},  # a file, which runs
    "cli/templates/study.py": {"rounds"},  # of 5,000 episodes; the file stands alone
    "envs/hard.py": {"d - 1"},  # an exponent
    "experiments/claims/periods.py": {"points[0].outcome.episodes / k"},  # never every episode
    "experiments/reproduce.py": {"spent / 60.0"},  # 1.0 minutes
    "observers/traffic.py": {"f'about {high:,}' if close else f'{low:,} to {high:,}'"},
    "remote/audit.py": {"compared"},  # packed matrices
    "remote/endpoint.py": {"message.gram.size"},
    "remote/flare/job.py": {"flare_log.line(shown(said))"},  # whatever a site said
}
"""File → expressions before a plural that are never the number 1."""


def counted(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and expression of the counts in f-strings that stand before a plural."""
    for node in ast.walk(tree):
        for count, text in pairwise(node.values if isinstance(node, ast.JoinedStr) else []):
            told = isinstance(text, ast.Constant) and PLURAL.match(str(text.value))
            if told and isinstance(count, ast.FormattedValue):
                yield node.lineno, ast.unparse(count.value)


def test_a_count_that_may_be_one_is_written_by_plural() -> None:
    found = []
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE).as_posix()
        for line, count in counted(ast.parse(path.read_text(encoding="utf-8"))):
            constant = re.fullmatch(r"[A-Z][A-Z_]+(\[\d\])?", count)
            if not constant and count not in MANY.get(name, ()):
                found.append(f"{name}:{line}: {count}")
    assert found == []


def test_no_article_before_the_name_of_a_type() -> None:
    """Or "ax is a int"; "of type int" is right for every name."""
    found = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for text, named in pairwise(node.values if isinstance(node, ast.JoinedStr) else []):
                article = isinstance(text, ast.Constant) and re.search(
                    r"\b(is|gave) a $", str(text.value)
                )
                if article and "type(" in ast.unparse(named):
                    found.append(f"{path.name}:{text.lineno}")
    assert found == []


@pytest.mark.usefixtures("here", "sketched")
def test_one_of_everything_is_told_as_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One agent that plays one episode of one step, once: everything that is printed of it."""
    env = RandomLinearMDP(3, 2, 2, horizon=1, seed=0)
    run = FedLSVI(1).learn(env, 1, progress=False)
    alone = make("independent", n_agents=1).learn(env, 1, progress=False)
    told = []
    for runs in ([run], [run, alone]):
        pages = write_report(runs, tmp_path / str(len(runs)))
        told.append(unescape(re.sub(r"<[^>]+>", " ", pages[0].read_text(encoding="utf-8"))))
    both = Comparison([run])
    shown = (run, run.policy, run.ledger, both)
    told += [repr(one) for one in shown] + [one._repr_html_() for one in shown]
    about = ["--env", "random-linear", "--episodes", "1"]
    for line in (
        ["run", *about, "--set", "env.horizon=1", "--out", "runs/one"],
        ["list", "runs"],
        ["evaluate", "runs/one", "--episodes", "1"],
        ["resume", "runs/one", "--episodes", "2"],
        ["compare", *about, "--algorithms", "fed-lsvi", "--seeds", "0", "--jobs", "1"],
    ):
        assert main(line) == 0, line
        told += capsys.readouterr()
    for text in told:
        wrong = ONE.search(text)
        assert wrong is None, text[max(0, wrong.start() - 80) : wrong.end() + 20]
