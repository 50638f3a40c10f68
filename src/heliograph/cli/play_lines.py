"""A widget that shows lines of text, and redraws only those that have changed."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget


class Lines(Widget):
    """Lines of text, cut at the width of the widget."""

    def __init__(self, *, id: str):  # noqa: A002  the name that textual gives it
        super().__init__(id=id)
        self._lines: list[Text] = []

    @property
    def rows(self) -> int:
        """How many lines fit."""
        return self.size.height

    def show(self, lines: Sequence[Text]) -> None:
        """Replace the lines."""
        before, self._lines = self._lines, list(lines)
        changed = [
            Region(0, row, self.size.width, 1)
            for row in range(max(len(before), len(self._lines)))
            if row >= len(before)
            or row >= len(self._lines)
            or before[row] != self._lines[row]
            or before[row].style != self._lines[row].style
        ]
        if changed:
            self.refresh(*changed)

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if y >= len(self._lines):
            return Strip.blank(width)
        text = self._lines[y]
        return Strip(text.render(self.app.console)).adjust_cell_length(width)
