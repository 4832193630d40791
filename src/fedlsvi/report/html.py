"""Parts of a self-contained HTML page: no address outside, no script, nothing to load."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from fedlsvi.storage import files

LONG = 20
"""Letters beyond which the first cell of a row may be broken into lines."""

FEW = 3
"""Columns that fit a narrow screen where their cells may be broken into lines."""

TALL = 20
"""Rows beyond which a table scrolls inside the page."""

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem 1.25rem 4rem; color: #222;
  background: #fff; font: 16px/1.5 system-ui, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .25rem; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .75rem; padding-top: .9rem; border-top: 1px solid #ddd; }
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem; }
p { margin: .4rem 0 .8rem; max-width: 46rem; overflow-wrap: break-word; }
.sub, caption, .note { color: #555; }
.sub { max-width: 60rem; }
.outcome { font-size: 1.15rem; line-height: 1.45; margin: 1rem 0; max-width: 52rem; }
.numbers { display: grid; grid-template-columns: repeat(auto-fit, minmax(13rem, 1fr));
  gap: .75rem; margin: 1.25rem 0; }
.numbers div { border: 1px solid #ddd; border-radius: .5rem; padding: .7rem .9rem; }
.numbers b { display: block; font-size: 1.35rem; line-height: 1.3;
  font-variant-numeric: tabular-nums; }
.numbers span { color: #555; font-size: .9rem; }
.figures { display: grid; gap: 1.5rem 2rem; margin: 1rem 0;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); }
figure { margin: 0; max-width: 40rem; }
figure img { width: 100%; height: auto; display: block; }
.scroll { overflow: auto; margin: .5rem 0 1rem; } .tall { max-height: 26rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .35rem .9rem .35rem 0; border-bottom: 1px solid #e3e3e3;
  vertical-align: top; white-space: nowrap; }
td.w, th.w { white-space: normal; min-width: 9rem; }
th { position: sticky; top: 0; background: #fff; }
td.n, th.n { text-align: right; }
pre { background: #f6f6f6; border-radius: .5rem; padding: .9rem 1rem; overflow-x: auto;
  font-size: .85rem; line-height: 1.45; }
details { border: 1px solid #ddd; border-radius: .5rem; padding: .6rem .9rem; margin: .75rem 0; }
summary { cursor: pointer; font-weight: 600; }
@media (max-width: 30rem) { body { padding: 1rem .9rem 3rem; } h1 { font-size: 1.35rem; }
  .outcome { font-size: 1.05rem; }
  .numbers { grid-template-columns: 1fr 1fr; gap: .5rem; } .numbers b { font-size: 1.1rem; }
  .few th, .few td { white-space: normal; }
  .stack table, .stack tbody, .stack tr { display: block; } .stack tr:first-child { display: none; }
  .stack tr { padding: .4rem 0; border-bottom: 1px solid #e3e3e3; }
  .stack td { display: flex; justify-content: space-between; gap: 1rem; padding: .1rem 0;
    border: 0; white-space: normal; text-align: right; }
  .stack td:first-child { display: block; font-weight: 600; text-align: left; }
  .stack td::before { content: attr(data-head); color: #555; text-align: left; } }
"""


def document(title: str, parts: Sequence[str]) -> str:
    """A whole page."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style></head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n" + "\n".join(part for part in parts if part)
        + "\n</body></html>\n"
    )  # fmt: skip


def paragraph(text: str, kind: str = "") -> str:
    """Escaped text."""
    attribute = f' class="{kind}"' if kind else ""
    return f"<p{attribute}>{escape(text)}</p>"


def boxes(cells: Sequence[tuple[str, str]]) -> str:
    """Numbers that people look for, each with what it is."""
    inside = (f"<div><b>{escape(b)}</b><span>{escape(span)}</span></div>" for b, span in cells)
    return f'<div class="numbers">{"".join(inside)}</div>'


def images(svgs: Mapping[str, bytes], captions: Mapping[str, str]) -> str:
    """Figures side by side, each as an image, so that the names inside one cannot meet those of
    another."""
    made = []
    for what, svg in svgs.items():
        caption = escape(captions[what])
        data = base64.b64encode(svg).decode()
        made.append(
            f'<figure><img alt="{caption}" src="data:image/svg+xml;base64,{data}">'
            f'<figcaption class="note">{caption}</figcaption></figure>'
        )
    return f'<div class="figures">{"".join(made)}</div>' if made else ""


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    words: Sequence[int] = (0,),
    stack: bool = False,
) -> str:
    """Cells are escaped; the columns in `words` stand to the left, the others are numbers. Where
    `stack` is set, a narrow screen shows a row's cells below each other, each with its head."""

    def line(cells: Sequence[str], tag: str) -> str:
        inside = ""
        for i, cell in enumerate(cells):
            kind = "" if i in words else ' class="n"'
            if i == 0 and len(cell) > LONG:
                kind = ' class="w"'
            if stack and i > 0 and tag == "td":
                kind += f' data-head="{escape(head[i])}"'
            inside += f"<{tag}{kind}>{escape(cell)}</{tag}>"
        return f"<tr>{inside}</tr>"

    body = "".join(line(row, "td") for row in rows)
    kind = "scroll" + " tall" * (len(rows) > TALL)
    kind += " stack" * stack + " few" * (len(head) <= FEW)
    return f'<div class="{kind}"><table>{line(head, "th")}{body}</table></div>'


def code(text: str) -> str:
    """Lines to copy."""
    return f"<pre>{escape(text)}</pre>"


def folded(title: str, parts: Sequence[str]) -> str:
    """What is read when it is asked for."""
    inside = "\n".join(part for part in parts if part)
    return f"<details><summary>{escape(title)}</summary>\n{inside}\n</details>"


def write_page(path: Path, text: str) -> None:
    """Replace the page in one step."""
    files.write(path, text.encode())
