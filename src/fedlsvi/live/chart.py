"""A chart of several curves as SVG, made for being drawn again every second."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from fedlsvi.report.colours import COLOURS, GRID, INK, MUTED
from fedlsvi.report.html import number

WIDTH, HEIGHT = 400, 250
LEFT, RIGHT, TOP, BOTTOM = 50, 12, 10, 40
DASHES = ("", "7 4", "2 3", "7 3 2 3")


@dataclass(frozen=True)
class Line:
    """One curve.

    Attributes:
        run: Its run, by which the page can hide it.
        look: Number in the palette.
        x, y: Its points.
    """

    run: str
    look: int
    x: Sequence[float]
    y: Sequence[float]


def chart(title: str, lines: Sequence[Line], x_name: str, y_name: str) -> str:
    """The chart; its title tells readers who do not see it where each curve is now."""
    lines = [line for line in lines if line.x]
    if not lines:
        return ""
    right = max(max(line.x) for line in lines) or 1.0
    low, high = min(min(line.y) for line in lines), max(max(line.y) for line in lines)
    low = min(0.0, low) if low < 0.0 or low < 0.5 * high else low
    if high - low <= max(1e-9 * max(abs(low), abs(high)), 1e-100):  # no ticks lie between
        high = low + max(1.0, 1e-6 * abs(low))
    xs, ys = _ticks(0.0, right, 5), _ticks(low, high, 5)
    low, high = min(low, ys[0]), max(high, ys[-1])

    def at(x: float, y: float) -> str:
        across = LEFT + (WIDTH - LEFT - RIGHT) * x / right
        down = TOP + (HEIGHT - TOP - BOTTOM) * (high - y) / (high - low)
        return f"{across:.1f} {down:.1f}"

    parts = []
    for y in ys:
        down = at(0.0, y).split()[1]
        parts.append(
            f'<path d="M{LEFT} {down}H{WIDTH - RIGHT}" stroke="{GRID}"/>'
            f'<text x="{LEFT - 6}" y="{down}" dy=".35em" text-anchor="end">{short(y)}</text>'
        )
    for x in xs:
        across = at(x, low).split()[0]
        parts.append(
            f'<text x="{across}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{short(x)}</text>'
        )
    for line in lines:
        points = "L".join(at(x, y) for x, y in zip(line.x, line.y, strict=True))
        dash = DASHES[line.look // len(COLOURS) % len(DASHES)]
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        colour = COLOURS[line.look % len(COLOURS)]
        parts.append(
            f'<path class="line" data-run="{escape(line.run)}" d="M{points}" fill="none" '
            f'stroke="{colour}" stroke-width="1.8" stroke-linejoin="round"{dashed}/>'
        )
    said = f"{title}. " + "; ".join(
        f"{line.run}: {number(line.y[-1])} after {number(line.x[-1])}" for line in lines[:12]
    )
    return (
        f'<figure><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(said)}" '
        f'font-size="13" fill="{MUTED}">{"".join(parts)}'
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 4}" text-anchor="end" fill="{INK}">'
        f"{escape(x_name)}</text></svg>"
        f'<figcaption class="note">{escape(y_name)}</figcaption></figure>'
    )


def short(value: float) -> str:
    """12k, 3.5M: the number at a tick."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def _ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers between two, about so many."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1.0, 2.0, 5.0, 10.0) if power * m >= rough)
    first = math.floor(low / step)
    found = [step * (first + i) for i in range(2 * most) if step * (first + i) <= high * (1 + 1e-9)]
    return [y for y in found if y >= low - 1e-9 * abs(low)] or [low]
