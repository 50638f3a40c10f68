"""Read rows within PostgreSQL's size limit of one result, a JSON value of at most 256 MB."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from heliograph.errors import KernelRejected
from heliograph.ledger.sqlstates import TOO_LONG

CARDS_PER_PAGE = 100


async def fitting(read: Callable[[int], Awaitable[Any]], limit: int) -> Any:
    """Return the result of `read(limit)`, or of `read(1)` if `limit` rows are too large for one result.

    Raises the errors of `read`; KernelRejected (`too_long`) only for a single row that is too large.
    """
    try:
        return await read(limit)
    except KernelRejected as error:
        if limit == 1 or error.code != TOO_LONG:
            raise
        return await read(1)
