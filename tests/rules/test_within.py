"""User code within a time limit finds the same exceptions as code that is awaited directly."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

import pytest

from heliograph.errors import TurnTimedOut
from heliograph.world.user_code import within


async def failing(times: int) -> BaseException | None:
    """Handle connections that fail, and return the exception in progress after that."""
    for _ in range(times):
        gone = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(gone.set_exception, ConnectionError("gone"))
        with suppress(ConnectionError):
            await gone
    return sys.exc_info()[1]


@pytest.mark.parametrize("times", [1, 2])
async def test_no_exception_is_in_progress_after_the_code_has_handled_what_it_waited_for(times: int) -> None:
    assert await within(5.0, failing(times)) is None

    async def raising() -> None:
        await failing(times)
        raise ValueError("another one")

    with pytest.raises(ValueError, match="another one") as raised:
        await within(5.0, raising())
    assert raised.value.__context__ is None


@pytest.mark.parametrize("times", [0, 1, 2])
async def test_limit_ends_code_that_has_handled_failures_before(times: int) -> None:
    async def work() -> None:
        await failing(times)
        await asyncio.Event().wait()

    with pytest.raises(TurnTimedOut):
        await within(0.01, work())
