"""A cancel flag per turn, checked before any work starts."""

from __future__ import annotations

import asyncio

from msgspec import Struct


class CancelFlag(Struct, eq=False):
    """Whether the turn has to end. reason: why; None while it may continue."""

    reason: str | None = None

    def check(self) -> None:
        """Raise CancelledError once the turn has to end, also in work that swallowed its own cancellation."""
        if self.reason is not None:
            raise asyncio.CancelledError(f"the turn was stopped: {self.reason}")
