"""The documentation site: `make docs` builds it into build/docs, and any warning is an error."""

from __future__ import annotations

import re
from typing import Any

import fedlsvi

project = "fedlsvi"
author = "the authors of fedlsvi"
version = release = fedlsvi.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build"]
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]  # the README begins where its page does

html_theme = "furo"
html_title = f"fedlsvi {release}"
html_copy_source = html_show_sourcelink = False
html_show_sphinx = html_show_copyright = False

default_role = "code"  # docstrings mark code with single backticks, as Markdown does
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True}
add_module_names = False
python_maximum_signature_line_length = 88

PARAMETERS = re.compile(r"(\w[\w, ]*?)\s{2,}(\S.*)|([a-zA-Z_]\w*(?: \"\w+\")?):\s+(\S.*)")
"""A line of a docstring that says what a parameter is: its name, then two spaces or more or a
colon, then the text."""


def columns_to_list(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Docstrings list parameters in two columns; the site shows them as a list of definitions."""
    made: list[str] = []
    inside = False
    for line in (line.replace("|", r"\|") for line in lines):
        found = PARAMETERS.fullmatch(line)
        if found and (inside or not made or made[-1] == ""):  # a list begins a paragraph
            term, text = found[1] or found[3], found[2] or found[4]
            made += [*([] if inside else [""]), f"`{term}`", f"    {text}"]
            inside = True
        elif inside and line.startswith("  "):
            made.append(f"    {line.strip()}")
        else:
            made += ["", line] if inside else [line]
            inside = False
    lines[:] = made


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", columns_to_list)
