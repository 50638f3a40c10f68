"""The script of a replay: tasks receive their answers in the order of the recording."""

from __future__ import annotations

import asyncio
from typing import Any

from heliograph.recording.script import Script

ENTRIES: list[list[Any]] = [
    ["sleep", 1, 0.04],
    ["model", 2, "scripted", "hash", {}],
    ["text", 2, "a"],
    ["now", "2026-01-01T00:00:00Z"],
    ["answer", 1, None],
    ["text", 2, "b"],
]


async def order_of(script: Script, *, is_cancelled: bool = False) -> list[str]:
    """Run one task that sleeps and one that reads a reply; return the order in which they continue."""
    order: list[str] = []

    async def sleeper() -> None:
        await script.answer(script.sleep(0.04)[1])
        order.append("slept")

    async def reader() -> None:
        number = script.call(("model",))[1]
        await script.answer(number)
        script.value(
            "now"
        )  # the answer to the sleep and the second text are due now; this task does not wait for the text
        await script.answer(number)
        order.append("read")

    asleep, reading = asyncio.create_task(sleeper()), asyncio.create_task(reader())
    await asyncio.sleep(0)
    if is_cancelled:
        asleep.cancel()
    script.advance()
    await asyncio.wait_for(reading, 5)
    await asyncio.wait([asleep])
    return order


async def test_answer_that_nobody_awaits_yet_lets_those_before_it_arrive_first() -> None:
    assert await order_of(Script(ENTRIES)) == ["slept", "read"]


async def test_answer_to_a_cancelled_task_delays_no_other() -> None:
    assert await order_of(Script(ENTRIES), is_cancelled=True) == ["read"]


def test_pauses_of_parallel_tasks_are_found_by_their_lengths() -> None:
    script = Script([["sleep", 1, 1], ["sleep", 2, 0.04], ["sleep", 3, 1], ["answer", 2, None]])
    assert [script.sleep(seconds)[1] for seconds in (0.04, 1, 2)] == [2, 1, 3]  # new code pauses for 2 s: the next one
