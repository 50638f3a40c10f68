"""The stream of one model reply, which is closed as soon as its reader ends."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from heliograph.ports import Chunk, Harness, ModelRequest


@asynccontextmanager
async def reply_stream(harness: Harness, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Chunk], None]:
    """Yield the chunks of a harness. An unfinished stream closes its connection at the end of the block."""
    chunks = harness.stream(request)
    try:
        yield chunks
    finally:
        if hasattr(chunks, "aclose"):
            await chunks.aclose()
