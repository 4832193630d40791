"""Files that repeat a fact of the project agree with where it is decided."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from dataclasses import fields
from importlib.util import module_from_spec, spec_from_file_location
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import fedlsvi
from fedlsvi.config import Settings

ROOT = Path(__file__).parents[2]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_citation_is_of_this_version() -> None:
    assert re.findall(r"^version: (.+)$", read("CITATION.cff"), re.MULTILINE) == [
        fedlsvi.__version__
    ]
    assert f"## [{fedlsvi.__version__}]" in read("CHANGELOG.md")


def test_the_workflow_runs_on_every_supported_python() -> None:
    classifiers = tomllib.loads(read("pyproject.toml"))["project"]["classifiers"]
    supported = [found[1] for row in classifiers if (found := re.search(r":: (3\.\d+)$", row))]
    matrix = re.search(r"python: \[(.+)\]", read(".github/workflows/test.yml"))
    assert matrix is not None
    assert re.findall(r"3\.\d+", matrix[1]) == supported


def test_the_hooks_are_the_checks_of_make_test() -> None:
    recipe = re.search(r"^lint:.*\n((?:\t.+\n)+)", read("Makefile"), re.MULTILINE)
    assert recipe is not None
    checks = re.findall(r"\$\(BIN\)/(.+)", recipe[1])
    assert re.findall(r"entry: \.venv/bin/(.+)", read(".pre-commit-config.yaml")) == checks


@pytest.mark.parametrize(("user", "by"), [(0, ""), (1000, "sudo -n ")])
def test_make_installs_programs_as_root_or_by_sudo(tmp_path: Path, user: int, by: str) -> None:
    """Nothing is installed here: all that the recipe may call writes down what it was asked."""
    said = tmp_path / "said"
    for name, text in {
        "id": f"echo {user}",
        "apt-get": f'echo "apt-get $*" >> {said}',
        "sudo": f'echo "sudo $*" >> {said}',
        "env": f'shift; echo "$*" >> {said}',
        "sh": "",
    }.items():
        if text:
            (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
            (tmp_path / name).chmod(0o755)
        else:
            (tmp_path / name).symlink_to("/bin/sh")
    make = shutil.which("make")
    assert make is not None
    for ci in ("", "true"):
        done = subprocess.run([make, "programs", f"CI={ci}"], cwd=ROOT, env={"PATH": str(tmp_path)},
                              capture_output=True, text=True, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert said.exists() == bool(ci)
    lines = said.read_text(encoding="utf-8").splitlines()
    assert lines[0] == f"{by}apt-get update -qq"
    assert lines[1].startswith(by)
    assert [line.split()[-1] for line in lines[1::2]] == ["chromium", "prometheus", "systemd"]


def test_constraints_name_exact_versions_and_no_index() -> None:
    for line in read("constraints.txt").splitlines():
        assert re.fullmatch(r"[\w.-]+==[\w.]+", line), line


APART = {"trackio"}
"""Extras for an environment of their own: they take none of the versions that others are pinned to.
All versions of Trackio that have what we use want Pillow < 13."""


def test_constraints_meet_every_extra() -> None:
    """Each package that an extra asks for is pinned, at a version that the extra takes."""
    pins = {
        canonicalize_name(name): version
        for name, version in (line.split("==") for line in read("constraints.txt").splitlines())
    }
    project = tomllib.loads(read("pyproject.toml"))["project"]
    extras = project["optional-dependencies"]
    apart = {Requirement(line).name for name in APART for line in extras.pop(name)}
    assert apart.isdisjoint(pins)
    for requirement in map(Requirement, chain(project["dependencies"], *extras.values())):
        if requirement.name == "fedlsvi":
            assert not requirement.extras & APART
        else:
            assert requirement.name not in apart
            pin = pins.get(canonicalize_name(requirement.name))
            assert pin is not None, requirement.name
            assert requirement.specifier.contains(pin), (str(requirement), pin)


def test_the_readme_is_short_and_lists_every_page() -> None:
    page = read("README.md")
    assert page.count("\n") <= 110
    elsewhere = {"index.md", "contributing.md", "changelog.md", "roadmap.md"}  # they show others
    for path in (ROOT / "docs").glob("*.md"):
        assert f"(docs/{path.name}" in page or path.name in elsewhere, path


def test_the_sidebar_lists_nothing_twice() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    trees = re.findall(r"```\{toctree\}\n(.*?)```", index, re.S)
    captions = re.findall(r"^:caption: (.*)$", index, re.M)
    pages = [row for tree in trees for row in tree.split() if not row.startswith(":")]
    entries = [row for row in pages if (ROOT / "docs" / f"{row}.md").exists()]
    assert len(entries) > 20
    assert len(set(entries)) == len(entries)
    assert len(set(captions)) == len(captions)
    titles = [
        (ROOT / "docs" / f"{row}.md").read_text(encoding="utf-8").split("\n", 1)[0]
        for row in entries
    ]
    assert len(set(titles)) == len(titles)
    assert not {title.removeprefix("# ") for title in titles} & set(captions)


def test_the_page_of_deviations_is_what_settings_and_docstrings_say() -> None:
    """Otherwise: python docs/deviations.py."""
    spec = spec_from_file_location("deviations", ROOT / "docs" / "deviations.py")
    assert spec is not None
    assert spec.loader is not None
    deviations = module_from_spec(spec)
    spec.loader.exec_module(deviations)
    for path, tables in zip(deviations.WRITTEN, (2, 1, 9), strict=True):
        page = path.read_text(encoding="utf-8")
        assert page.count("<!-- end -->") == tables
        assert deviations.written(page) == page
    used = re.findall(r"^\| `(\w+)`", deviations.defaults(), re.MULTILINE)
    assert sorted(used) == [
        "beta", "bonus", "cap", "diversity", "lam", "policy", "rounds", "stationary", "taper",
    ]  # fmt: skip
    others = re.findall(r"`(\w+)`", deviations.options())
    assert {*used, *others, *deviations.THE_PAPERS_OWN} == {f.name for f in fields(Settings)}
