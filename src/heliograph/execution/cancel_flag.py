"""That a turn is to end: known to whoever might begin something for it."""

from __future__ import annotations

import asyncio


class CancelFlag:
    """Whether somebody wants a turn to end, and why."""

    def __init__(self) -> None:
        self.reason: str | None = None

    def check(self) -> None:
        """Raises CancelledError once the turn is to end: work that let its own cancellation pass begins nothing more."""
        if self.reason is not None:
            raise asyncio.CancelledError(f"the turn is to end: {self.reason}")
