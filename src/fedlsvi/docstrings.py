"""What a Google docstring says of each parameter, to show it where there is no editor."""

from __future__ import annotations

import inspect

SECTIONS = ("Args:", "Attributes:")


def parameter_texts(docstring: str | None) -> dict[str, str]:
    """Name → text, of the sections Args and Attributes; each text is one line."""
    texts: dict[str, str] = {}
    within, name, entry = False, "", 0
    for line in inspect.cleandoc(docstring or "").splitlines():
        indent = len(line) - len(line.lstrip())
        if line and indent == 0:
            within, entry = line in SECTIONS, 0
        elif within and line:
            entry = entry or indent  # of the section's first line
            if indent == entry:
                name, _, text = line.strip().partition(": ")
                texts[name] = text
            else:
                texts[name] += f" {line.strip()}"
    return texts
