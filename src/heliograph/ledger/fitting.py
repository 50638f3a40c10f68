"""Read rows within the size limit of one answer, which is one JSON value of at most 256 MB."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from heliograph.errors import KernelRejected
from heliograph.ledger.sqlstates import TOO_LONG

CARDS_PER_PAGE = 100  # each may be as large as a blob


async def fitting(read: Callable[[int], Awaitable[Any]], limit: int) -> Any:
    """Return the answer to `read(limit)`, or to `read(1)` if so many rows exceed the size of one answer.

    Raises KernelRejected for a single row that is too large, and whenever `read` does.
    """
    try:
        return await read(limit)
    except KernelRejected as error:
        if limit == 1 or error.code != TOO_LONG:
            raise
        return await read(1)
