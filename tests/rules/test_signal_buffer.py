"""The signals of a turn that ends while a step of it is still recording its result."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

from heliograph.execution.signal_buffer import SignalBuffer
from heliograph.records import WriteResult
from heliograph.signals.model import Draft
from heliograph.signals.pattern_table import PatternTable


def new_buffer() -> SignalBuffer:
    claimed = SimpleNamespace(turn_id="turn_a", run_id="run_a", target="app", activation_id="sig_run_a_2")
    world = SimpleNamespace(ring=lambda _: None)
    return SignalBuffer(
        cast("Any", claimed), cast("Any", None), cast("Any", world), "project", PatternTable(), cast("Any", SimpleNamespace(is_tainted=False))
    )  # fmt: skip


def logging_into(logged: list[object]) -> Callable[[int, list[dict[str, object]], int], Awaitable[WriteResult]]:
    async def send(_emitted: int, drafts: list[dict[str, object]], _first: int) -> WriteResult:
        await asyncio.sleep(0)
        logged.extend(draft["name"] for draft in drafts)
        return WriteResult("turn_a", "ok", first_seq=3)

    return send


async def test_signals_of_a_turn_that_ends_are_logged_once_although_a_step_waits_to_record_its_result() -> None:
    buffer, logged = new_buffer(), list[object]()
    first = asyncio.ensure_future(buffer.commit(logging_into(logged), [Draft("step:first")]))
    waiting = list[asyncio.Future[WriteResult]]()

    async def turn() -> tuple[Draft, ...]:
        await asyncio.sleep(0)
        waiting.append(asyncio.ensure_future(buffer.commit(logging_into(logged), [Draft("step:other")])))
        await buffer.commit(logging_into(logged), [Draft("step:last")])
        buffer.add(Draft("terminated"))
        return await buffer.take()

    taken = await turn()
    await asyncio.gather(first, *waiting)
    logged.extend(draft.name for draft in taken)
    assert sorted(map(str, logged)) == ["step:first", "step:last", "step:other", "terminated"]
