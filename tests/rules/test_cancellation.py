"""Tasks end although a library loses cancellations, and those that never do are named in the log."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

import pytest

from heliograph.world import cancellation
from heliograph.world.cancellation import cancel


async def loses(count: int, ended: BaseException | None = None) -> None:
    """Wait, and lose this many cancellations."""
    for _ in range(count + 1):
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
    raise ended or asyncio.CancelledError


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancellation, "_CANCEL_SECONDS", 0.001)


async def begun(*works: asyncio.Task[None]) -> None:
    """Return when the tasks wait."""
    await asyncio.sleep(0)
    assert not any(work.done() for work in works)


async def test_tasks_that_lose_cancellations_end(caplog: pytest.LogCaptureFixture) -> None:
    tasks = [asyncio.create_task(loses(count)) for count in (0, 1, 3)]
    await begun(*tasks)
    await cancel(tasks)
    assert all(task.cancelled() for task in tasks)
    assert not caplog.records


async def test_task_that_loses_every_cancellation_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    stubborn = asyncio.create_task(loses(1000), name="stubborn")
    await begun(stubborn)
    with caplog.at_level(logging.WARNING, "heliograph"):
        await cancel((stubborn,))
    assert "these tasks ignored their cancellation, and are abandoned: stubborn" in caplog.text
    while not stubborn.done():
        await cancel((stubborn,))


async def test_error_that_ends_a_cancelled_task_is_discarded() -> None:
    problems: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: problems.append(context))
    try:
        failing = asyncio.create_task(loses(1, ValueError("x")))
        await begun(failing)
        await cancel((failing,))
        del failing
        assert problems == []
    finally:
        loop.set_exception_handler(None)


async def test_task_that_cleans_up_is_not_cancelled_again_meanwhile() -> None:
    """`again_seconds` is the time of its cleanup."""
    cleaned = asyncio.Event()

    async def cleans_up() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(100):
                await asyncio.sleep(0)
            cleaned.set()

    task = asyncio.create_task(cleans_up())
    await begun(task)
    await cancel((task,), 60)
    assert cleaned.is_set()
