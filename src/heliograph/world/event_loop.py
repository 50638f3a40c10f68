"""The event loop of the processes that Heliograph starts itself: uvloop where it exists, which takes less CPU time per turn."""

from __future__ import annotations

import asyncio
import sys

if sys.platform == "win32" or sys.implementation.name != "cpython":
    new_event_loop = asyncio.new_event_loop
else:
    from uvloop import new_event_loop

__all__ = ["new_event_loop"]
