"""A full-screen application that draws no faster than its terminal reads, so that it can be used over a slow line.

After each picture it asks the terminal for the position of the cursor. The answer arrives once the terminal has read the picture, however
large the buffers between them are. Until then the application draws nothing, and keys only change the next picture.
"""

from __future__ import annotations

import asyncio
from time import monotonic

from textual.app import App
from textual.events import CursorPosition

ANSWER_SECONDS_MAX = (
    10.0  # a terminal that answers later has lost the question, for example when tmux was attached again
)
_WHERE_IS_THE_CURSOR = "\x1b[6n"


class PacedApp(App[None]):
    """Ask `may_draw` before drawing. A terminal that never answers is drawn on at once."""

    def __init__(self, *, ansi_color: bool):
        super().__init__(ansi_color=ansi_color)
        self._answers = False  # whether the terminal answers at all
        self._unanswered = 0
        self._asked_at = 0.0
        self._answered = asyncio.Event()

    def may_draw(self) -> bool:
        """Whether the terminal has read all that was drawn."""
        if self._answers and self._unanswered and monotonic() - self._asked_at > ANSWER_SECONDS_MAX:
            self._answers, self._unanswered = False, 0
        return not (self._answers and self._unanswered)

    def post_display_hook(self) -> None:
        """Ask, after each picture."""
        if self.is_running and self._driver is not None:
            self._driver.write(_WHERE_IS_THE_CURSOR)
            self._driver.flush()
            self._unanswered += 1
            self._asked_at = monotonic()
            self._answered.clear()

    def on_cursor_position(self, event: CursorPosition) -> None:
        self._answers, self._unanswered = True, max(0, self._unanswered - 1)
        if not self._unanswered:
            self._answered.set()

    async def action_quit(self) -> None:
        """End. A terminal that still reads answers first: the shell would receive the answer as if it were typed."""
        if not self.may_draw():
            try:
                async with asyncio.timeout(ANSWER_SECONDS_MAX):
                    await self._answered.wait()
            except TimeoutError:
                pass
        self.exit()
