"""The event loop of the processes that Heliograph starts itself: uvloop if it is installed, which takes less CPU time per turn."""

from __future__ import annotations

import asyncio

try:
    from uvloop import new_event_loop
except ImportError:  # the extra `fast` is not installed, or does not exist for this system
    new_event_loop = asyncio.new_event_loop

__all__ = ["new_event_loop"]
