"""Fit lines and tables into the width of a terminal. Pure: the width is an argument, and None is a file or a pipe, where nothing is broken.

A command that a person copies, an id and a path stay in one line, however long: the terminal itself breaks them, and copies them whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

GAP = "  "
_INDENT = "    "  # of the further lines of a row
_CELL_MIN = 24  # a narrower column of text would be a ladder of single words
_TREE = re.compile(r"[\s│├└─]*")
_BRANCHES = str.maketrans("├└─", "│  ")
# A word, or a command up to the end of its clause. A quoted argument belongs to its command.
_PIECE = re.compile(r"helio (?:'[^']*'|[^;,'])*[;,]?|\S+")


def wrapped(text: str, width: int | None, indent: str | None = None) -> list[str]:
    """Break a line at its spaces. indent: of the further lines; without it, they are indented a little more than the first."""
    if width is None or len(text) <= width:
        return [text]
    first = _TREE.match(text)
    head = first[0] if first else ""
    indent = head.translate(_BRANCHES) + GAP if indent is None else indent
    lines, line = list[str](), head
    for space, piece in _pieces(text[len(head) :]):
        if line.strip() and len(line) + len(space) + len(piece) > width:
            lines.append(line)
            line = indent + piece
        else:
            line += space + piece
    return [*lines, line]


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """Yield each piece with the space before it."""
    end = 0
    for found in _PIECE.finditer(text):
        yield text[end : found.start()], found[0].rstrip()
        end = found.start() + len(found[0].rstrip())


def table_lines(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None) -> list[str]:
    """Columns, each as wide as its widest cell. If a row is wider than the terminal, it continues on indented lines."""
    widths = [max(len(cell) for cell in column) for column in zip(headers, *rows, strict=True)]
    groups = [list(enumerate(widths))] if width is None else _groups(widths, width, [row[-1] for row in rows])
    return [
        text
        for row in (headers, *rows)
        for at, group in enumerate(groups)
        for text in _row(row, group, "" if at == 0 else _INDENT)
    ]


def _groups(widths: Sequence[int], width: int, last: Sequence[str]) -> list[list[tuple[int, int]]]:
    """Divide columns into lines: each column by its place and width. The last one may be narrower than its text, if it has spaces."""
    groups: list[list[tuple[int, int]]] = [[]]
    left = width
    for place, wide in enumerate(widths):
        needed = wide + (len(GAP) if groups[-1] else 0)
        is_text = place == len(widths) - 1 and any(" " in cell for cell in last)
        if needed > left and is_text and left - len(GAP) >= _CELL_MIN:
            needed = left
        elif needed > left and groups[-1]:
            groups.append([])
            left = width - len(_INDENT)
            needed = wide
        groups[-1].append((place, min(wide, needed if len(groups[-1]) == 0 else needed - len(GAP), max(left, 1))))
        left -= needed
    return groups


def _row(row: Sequence[str], group: Sequence[tuple[int, int]], indent: str) -> Iterator[str]:
    """Yield the lines of a row's part: more than one if a cell is wrapped."""
    cells = [wrapped(row[place], wide, "") for place, wide in group]
    for number in range(max(map(len, cells))):
        parts = (
            (lines[number] if number < len(lines) else "").ljust(wide)
            for lines, (_, wide) in zip(cells, group, strict=True)
        )
        yield (indent + GAP.join(parts)).rstrip()


def field_lines(values: Mapping[str, str | None], width: int | None = None) -> list[str]:
    """One `name  value` per line, without None."""
    wide = max(map(len, values))
    indent = " " * (wide + len(GAP))
    return [
        text
        for name, value in values.items()
        if value is not None
        for text in wrapped(f"{name.ljust(wide)}{GAP}{value}", width, indent)
    ]
