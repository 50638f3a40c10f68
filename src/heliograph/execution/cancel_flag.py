"""A cancel flag per turn, checked before any work starts."""

from __future__ import annotations

import asyncio


class CancelFlag:
    """Whether the turn has to end. reason: why; None while it may continue."""

    def __init__(self) -> None:
        self.reason: str | None = None

    def check(self) -> None:
        """Raise CancelledError once the turn has to end, also in work that swallowed its own cancellation."""
        if self.reason is not None:
            raise asyncio.CancelledError(f"the turn was stopped: {self.reason}")
