"""Draw the rates as SVG: one panel per work, grouped bars on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any
from xml.sax.saxutils import escape

from bench.meter.sample import RATE
from bench.report import Row
from bench.works import FLOOR, HELIOGRAPH, MANY, PEER, PROTOTYPE, SIXTEEN, TITLES

WIDTH, LEFT, RIGHT, TOP = 960, 236, 84, 116
BAR, GAP, ROW_GAP, PANEL_GAP = 12, 2, 12, 46
INK, MUTED, GRID = "#1f2430", "#667085", "#e4e7ec"
# by kind: the colour under 16 callers, and under 128
COLOURS = {
    HELIOGRAPH: ("#f2a33c", "#c9720a"), FLOOR: ("#98a2b3", "#667085"), PROTOTYPE: ("#b9a6d6", "#7a5fa8"), PEER: ("#8fb3d9", "#3f74ad"),
}  # fmt: skip
LOADS = (SIXTEEN, MANY)
STYLE = "font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif"


def draw(header: dict[str, Any], rows: Sequence[Row]) -> str:
    """Draw the whole picture as SVG. Rows without a rate under 16 or 128 callers have no bar."""
    shown = [row for row in rows if row.load in LOADS and row.figures]
    panels = [(work, [row for row in shown if row.work == work]) for work in TITLES]
    scale = _decades([row.median(RATE) or 1.0 for row in shown] or [1.0])
    body: list[str] = []
    y = TOP
    for work, of_work in panels:
        if of_work:
            lines, y = _panel(f"Work {work}: {TITLES[work]}", of_work, scale, y)
            body += [*lines]
            y += PANEL_GAP
    height = y - PANEL_GAP + 44 if shown else TOP
    server = header["postgresql"]
    caption = (
        f"commit {header['commit']}, {header['at']}, {header['machine']}; PostgreSQL {server['server_version']}, "
        f"fsync {server['fsync']}, synchronous_commit {server['synchronous_commit']}"
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
            f' style="{STYLE}" role="img" aria-label="Items per second by system and number of callers">',
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            _text(24, 34, "Durable work per second, in one run on one server", size=18, weight=600),
            _text(24, 54, "items/s on a logarithmic scale, longer is better; client, worker and database share the machine",
                  size=12, fill=MUTED),
            *_legend(shown),
            *body,
            _text(24, height - 14, caption, size=10, fill=MUTED),
            "</svg>\n",
        ]
    )  # fmt: skip


def _decades(rates: Sequence[float]) -> tuple[int, int]:
    """Return the powers of ten at which both axes begin and end, so that bars of different panels are comparable."""
    low = math.floor(math.log10(min(rates) * 0.8))
    return low, max(low + 1, math.ceil(math.log10(max(rates))))


def _panel(title: str, rows: Sequence[Row], scale: tuple[int, int], top: int) -> tuple[list[str], int]:
    """Draw one work's bars below `top`, in the order of the rows; return them and their lower end."""
    names = list(dict.fromkeys(row.name for row in rows))
    low, high = scale
    inner = WIDTH - LEFT - RIGHT

    def x_of(rate: float) -> float:
        return LEFT + inner * (math.log10(rate) - low) / (high - low)

    bars: list[str] = []
    y = top + 34
    for name in names:
        of_name = [row for row in rows if row.name == name]
        middle = y + (len(of_name) * (BAR + GAP) - GAP) / 2 + 4
        weight = 600 if of_name[0].kind == HELIOGRAPH else 400
        bars.append(_text(LEFT - 10, middle, name, size=12, anchor="end", weight=weight))
        for row in of_name:
            rate = row.median(RATE) or 1.0
            colour = COLOURS[row.kind][LOADS.index(row.load)]
            bars.append(
                f'<rect x="{LEFT}" y="{y}" width="{max(1.0, x_of(rate) - LEFT):.1f}" height="{BAR}" rx="2" fill="{colour}"/>'
            )
            bars.append(_text(x_of(rate) + 6, y + BAR - 2, f"{rate:,.0f}", size=11))
            y += BAR + GAP
        y += ROW_GAP - GAP
    axis = [_text(24, top + 8, title, size=14, weight=600)]
    for power in range(low, high + 1):
        x = x_of(10**power)
        axis.append(f'<line x1="{x:.1f}" y1="{top + 26}" x2="{x:.1f}" y2="{y}" stroke="{GRID}"/>')
        axis.append(_text(x, y + 16, f"{10**power:,}", size=11, anchor="middle", fill=MUTED))
    return [*axis, *bars], y + 16


def _legend(rows: Sequence[Row]) -> Iterator[str]:
    """Draw the legend: a square for each colour in use."""
    x = 24
    for label, kind in (("Heliograph", HELIOGRAPH), ("floor", FLOOR), ("prototype", PROTOTYPE), ("others", PEER)):
        for colour, load in zip(COLOURS[kind], LOADS, strict=True):
            if any((row.kind, row.load) == (kind, load) for row in rows):
                words = f"{label}, {load}"
                yield f'<rect x="{x}" y="70" width="12" height="12" rx="2" fill="{colour}"/>'
                yield _text(x + 17, 80, words, size=11)
                x += 34 + 6 * len(words)


def _text(
    x: float, y: float, words: str, *, size: int, anchor: str = "start", weight: int = 400, fill: str = INK
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" '
        f'fill="{fill}">{escape(words)}</text>'
    )
