"""Sphinx configuration. `make docs` builds the site into build/docs; any warning is an error."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import fedlsvi

project = "fedlsvi"
author = "the authors of fedlsvi"
version = release = fedlsvi.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build"]
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]  # the README starts below the first heading level

html_theme = "furo"
html_title = f"fedlsvi {release}"
html_copy_source = html_show_sourcelink = False
html_show_sphinx = html_show_copyright = False

default_role = "code"  # docstrings mark code with single backticks, as in Markdown
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True}
add_module_names = False
python_maximum_signature_line_length = 88

napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # attributes as one list, beside those documented in the class body
autodoc_mock_imports = ["obp"]  # an extra that the documentation needs nothing of
napoleon_use_rtype = False


def plain_bars(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Outside code, |x| is an absolute value and not a reference to a substitution."""
    lines[:] = [re.sub(r"(`[^`]*`)|\|", lambda bar: bar[1] or r"\|", line) for line in lines]


STUDIES = Path(__file__).resolve().parents[1] / "studies"


def bring_studies(app: Any) -> None:
    """Pages that lie beside the studies' scripts are pages of the site while it is built."""
    folder = Path(app.srcdir) / "studies"
    folder.mkdir(exist_ok=True)
    for page in STUDIES.glob("*.md"):
        text = page.read_text(encoding="utf-8").replace("](../docs/", "](../")
        (folder / page.name).write_text(text, encoding="utf-8")
    for table in STUDIES.glob("*.csv"):
        shutil.copy(table, folder)


def link_studies(app: Any, name: str, source: list[str]) -> None:
    """Links that lead to a study in the repository lead to its page of the site."""
    up = "../" * name.count("/")
    source[0] = source[0].replace(f"](../{up}studies/", f"]({up}studies/")


def remove_studies(app: Any, error: Exception | None) -> None:
    """The folder of the pages is as it was."""
    shutil.rmtree(Path(app.srcdir) / "studies")


def setup(app: Any) -> None:
    """Called by Sphinx; before napoleon, which has priority 500."""
    app.connect("autodoc-process-docstring", plain_bars, priority=400)
    app.connect("builder-inited", bring_studies)
    app.connect("source-read", link_studies)
    app.connect("build-finished", remove_studies)
