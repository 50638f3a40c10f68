"""Processes end cleanly although an agent swallows its cancellation."""

from __future__ import annotations

import asyncio
import gc
import io
import logging
import os
import sys
from contextlib import suppress

import pytest

from heliograph.cli import interrupts


@pytest.mark.more
def test_work_that_swallows_its_cancellation_is_abandoned_without_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(interrupts, "SETTLE_SECONDS", 0.05)
    unfinished: list[tuple[asyncio.Runner, set[asyncio.Task[int]]]] = []
    monkeypatch.setattr(interrupts, "_loops_at_work", unfinished)

    async def deaf() -> None:
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.get_running_loop().create_future()  # only the task itself refers to it

    async def serve() -> int:
        tasks = [asyncio.create_task(deaf())]
        await asyncio.sleep(0)
        return len(tasks)

    with caplog.at_level(logging.ERROR, "asyncio"):
        assert interrupts.run_agents(serve()) == 1
        gc.collect()
    assert caplog.messages == []
    [(runner, tasks)] = unfinished
    assert [task.done() for task in tasks] == [False]
    runner.get_loop().close()
    with caplog.at_level(logging.CRITICAL, "asyncio"):  # the end of the test is no end of the process
        unfinished.clear()
        del tasks
        gc.collect()


def test_second_signal_ends_the_process_also_in_the_middle_of_a_write(monkeypatch: pytest.MonkeyPatch) -> None:
    class Busy(io.StringIO):
        def flush(self) -> None:
            raise RuntimeError("reentrant call inside <_io.BufferedWriter name='<stdout>'>")

    unfinished: list[int] = []
    monkeypatch.setattr(sys, "stdout", Busy())
    monkeypatch.setattr(os, "_exit", unfinished.append)
    with suppress(RuntimeError):  # the real os._exit does not return
        interrupts.exit_process(130)
    assert unfinished == [130]
