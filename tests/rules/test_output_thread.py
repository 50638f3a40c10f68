"""The output of `helio run` in a thread: in order, bounded, and without a wait of the event loop for a stuck reader."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from heliograph.cli.output import OutputClosed
from heliograph.cli.output_thread import CALLS_MAX, OutputThread


class StuckView:
    """Prints into a list once it may. error: raised by the second text."""

    def __init__(self, error: Exception | None = None):
        self.may_print = threading.Event()
        self.printed: list[Any] = []
        self._error = error

    def note(self, text: Any) -> None:
        self.may_print.wait(60)
        if self.printed and self._error is not None:
            raise self._error
        self.printed.append(text)

    show = see_turns = warn = prompt = note

    def resume(self) -> None:
        """Nothing was held."""

    def close(self) -> None:
        self.printed.append("closed")


async def test_stuck_output_delays_its_reader_alone_and_loses_nothing() -> None:
    view = StuckView()
    output = OutputThread(view)
    for number in range(CALLS_MAX + 1):
        output.show(number)  # type: ignore[arg-type]
    waiting = asyncio.create_task(output.ready())
    await asyncio.sleep(0.01)
    assert not waiting.done()
    output.see_turns([])  # the next ones replace them
    view.may_print.set()
    async with asyncio.timeout(20):
        await waiting
        await output.drained()
    assert view.printed == [*range(CALLS_MAX + 1), "closed"]


async def test_closed_output_ends_the_command_at_its_next_text() -> None:
    view = StuckView(OutputClosed())
    view.may_print.set()
    output = OutputThread(view)
    output.note("first")
    output.note("second")
    async with asyncio.timeout(20):
        with pytest.raises(OutputClosed):
            await output.drained()
    with pytest.raises(OutputClosed):
        output.note("third")
    await output.close()
    assert view.printed == ["first"]
