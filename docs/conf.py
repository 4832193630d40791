"""Sphinx configuration. `make docs` builds the site into build/docs; any warning is an error."""

from __future__ import annotations

import re
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
napoleon_use_rtype = False


def plain_bars(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Outside code, |x| is an absolute value and not a reference to a substitution."""
    lines[:] = [re.sub(r"(`[^`]*`)|\|", lambda bar: bar[1] or r"\|", line) for line in lines]


def setup(app: Any) -> None:
    """Called by Sphinx; before napoleon, which has priority 500."""
    app.connect("autodoc-process-docstring", plain_bars, priority=400)
