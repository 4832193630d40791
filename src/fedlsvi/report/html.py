"""Parts of a self-contained HTML page: no address outside, no script, nothing to load."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files

from fedlsvi.report.intervals import median

LONG = 20
"""Letters beyond which the first cell of a row may be broken into lines."""

FEW = 3
"""Columns that fit a narrow screen where their cells may be broken into lines."""

TALL = 20
"""Rows beyond which a table scrolls inside the page."""


def number(value: float) -> str:
    """1,235 or 12.3 or 0.00123."""
    if not math.isfinite(value):
        return "–" if math.isnan(value) else "∞" if value > 0.0 else "−∞"
    if 0.0 < abs(value) < 1e-5:
        return "under 0.00001"
    if abs(value) >= 999.5 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.3g}"


def measured(values: Sequence[float]) -> str:
    """The median and, on a second line, its interval; '–' where nothing is known."""
    if not len(values):
        return "–"
    found = median(values)
    if not math.isfinite(found.low) or found.low == found.high:
        return number(found.mid)
    return f"{number(found.mid)}\n[{number(found.low)}, {number(found.high)}]"


def document(title: str, parts: Sequence[str]) -> str:
    """A whole page."""
    style = files("fedlsvi.report").joinpath("style.css").read_text(encoding="utf-8")
    body = "\n".join(part for part in parts if part)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style></head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n{body}\n</body></html>\n"
    )


def heading(text: str, level: int = 2) -> str:
    """The title of a section."""
    return f"<h{level}>{escape(text)}</h{level}>"


def paragraph(text: str, kind: str = "") -> str:
    """Escaped text; nothing where there is none."""
    attribute = f' class="{kind}"' if kind else ""
    return f"<p{attribute}>{escape(text)}</p>" if text else ""


def boxes(cells: Sequence[tuple[str, str]]) -> str:
    """Numbers that people look for, each with what it is."""
    inside = (f"<div><b>{_lines(b)}</b><span>{escape(span)}</span></div>" for b, span in cells)
    return f'<div class="numbers">{"".join(inside)}</div>'


def images(svgs: Mapping[str, bytes], captions: Mapping[str, str], aside: str = "") -> str:
    """Figures two by two, each as an image, so that names inside them cannot clash.

    Args:
        svgs: SVG files by name.
        captions: Texts by the same names.
        aside: HTML that belongs to them. It stands beside the last figure where there is room.
    """
    made = []
    for what, svg in svgs.items():
        caption = escape(captions[what])
        data = base64.b64encode(svg).decode()
        made.append(
            f'<figure><img alt="{caption}" src="data:image/svg+xml;base64,{data}">'
            f'<figcaption class="note">{caption}</figcaption></figure>'
        )
    beside = bool(aside) and len(made) % 2 == 1
    if beside:
        made.append(f'<div class="aside">{aside}</div>')
    figures = f'<div class="figures">{"".join(made)}</div>' if made else ""
    return figures + ("" if beside else aside)


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    words: Sequence[int] = (0,),
    stack: bool = False,
) -> str:
    """A table. Cells are escaped; what follows a line break in one is small.

    Args:
        head: Names of the columns.
        rows: Cells.
        words: Columns that stand to the left; the others are numbers.
        stack: A narrow screen shows a row's cells below each other, each with its head.
    """

    def line(cells: Sequence[str], tag: str) -> str:
        inside = ""
        for i, cell in enumerate(cells):
            kind = "" if i in words else ' class="n"'
            if i == 0 and len(cell) > LONG:
                kind = ' class="w"'
            text = _lines(cell)
            if stack and tag == "td" and (i > 0 or cell[:1].isdigit()):
                kind += f' data-head="{escape(head[i])}"'
                text = f"<span>{text}</span>"
            inside += f"<{tag}{kind}>{text}</{tag}>"
        return f"<tr>{inside}</tr>"

    body = "".join(line(row, "td") for row in rows)
    kind = "scroll" + " tall" * (len(rows) > TALL)
    kind += " stack" * stack + " few" * (len(head) <= FEW)
    return f'<div class="{kind}"><table>{line(head, "th")}{body}</table></div>'


def _lines(cell: str) -> str:
    first, _, rest = cell.partition("\n")
    return escape(first) + (f"<small>{escape(rest)}</small>" if rest else "")


def code(text: str) -> str:
    """Lines to copy."""
    return f"<pre>{escape(text)}</pre>"


def folded(title: str, parts: Sequence[str]) -> str:
    """Details that open on a click."""
    inside = "\n".join(part for part in parts if part)
    return f"<details><summary>{escape(title)}</summary>\n{inside}\n</details>"
