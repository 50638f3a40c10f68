"""The event loop of the processes that Heliograph starts itself: uvloop if it is installed, which takes less CPU time per turn."""

from __future__ import annotations

import asyncio


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a loop of uvloop, or asyncio's own without the extra `fast`, which does not exist for every system."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
