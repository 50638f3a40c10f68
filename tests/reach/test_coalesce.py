"""Waiting calls are sent together and do not affect each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, cast

import pytest

from heliograph import Context, Heliograph
from heliograph.config import Settings
from heliograph.errors import KernelRejected, StoreUnavailable
from heliograph.ledger.coalescer import BATCH_MAX, LANES, Coalescer
from heliograph.runtime import open_runtime
from heliograph.world.seam import World

SIBLINGS = 30


class Sender:
    """A kernel function whose calls the test lets through one by one; it answers each item with its tenfold.

    It rejects an item below zero, with the whole call that contains it.
    """

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.outage: StoreUnavailable | None = None
        self._gates: list[asyncio.Event] = []
        self._is_open = False
        self._tasks: list[asyncio.Task[None]] = []
        self.coalescer = Coalescer[int, int](cast(World, self), "test", self.send)

    async def send(self, items: list[int]) -> list[int]:
        self.calls.append(list(items))
        gate = asyncio.Event()
        self._gates.append(gate)
        if not self._is_open:
            await gate.wait()
        if self.outage is not None:
            raise self.outage
        if min(items) < 0:
            raise KernelRejected(f"{min(items)} is refused")
        return [10 * item for item in items]

    def spawn(self, _name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self._tasks.append(asyncio.create_task(work))
        return self._tasks[-1]

    async def callers_of(self, *items: int) -> list[asyncio.Task[int]]:
        """One caller for each item, all at once, in this order; returns when all of them are under way or wait."""
        tasks = [asyncio.create_task(self.coalescer.call(item)) for item in items]
        await settled()
        return tasks

    async def busy(self) -> list[asyncio.Task[int]]:
        """One caller on each lane: 1, 2 .."""
        return [task for item in range(1, LANES + 1) for task in await self.callers_of(item)]

    def let(self, call: int) -> None:
        """The reply to this call comes."""
        self._gates[call].set()

    def let_all(self) -> None:
        self._is_open = True
        for gate in self._gates:
            gate.set()


async def settled() -> None:
    """Wait until every task that needs no reply has advanced."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_lone_call_is_sent_at_once() -> None:
    sender = Sender()
    [task] = await sender.callers_of(1)
    assert sender.calls == [[1]]
    sender.let(0)
    assert await task == 10


async def test_simultaneous_calls_are_sent_together_on_one_lane() -> None:
    sender = Sender()
    tasks = await sender.callers_of(1, 2, 3)
    assert sender.calls == [[1, 2, 3]]
    sender.let_all()
    assert await asyncio.gather(*tasks) == [10, 20, 30]


async def test_waiting_calls_are_sent_together_in_order_and_each_gets_its_own_answer() -> None:
    sender = Sender()
    tasks = await sender.busy()
    for item in range(LANES + 1, LANES + 6):
        tasks += await sender.callers_of(item)
    assert sender.calls == [[n] for n in range(1, LANES + 1)]
    sender.let(0)
    await settled()
    assert sender.calls[LANES:] == [list(range(LANES + 1, LANES + 6))]
    sender.let_all()
    assert await asyncio.gather(*tasks) == [10 * n for n in range(1, LANES + 6)]


async def test_new_call_does_not_overtake_waiting_calls() -> None:
    sender = Sender()
    tasks = [*await sender.busy(), *await sender.callers_of(7, 8)]
    sender.let(0)
    await tasks[0]
    tasks += await sender.callers_of(99)
    sender.let_all()
    await asyncio.gather(*tasks)
    assert [item for call in sender.calls for item in call] == [*range(1, LANES + 1), 7, 8, 99]


async def test_call_has_a_bounded_number_of_items() -> None:
    sender = Sender()
    tasks = [*await sender.busy(), *await sender.callers_of(*range(2 * BATCH_MAX + 1))]
    sender.let_all()
    await asyncio.gather(*tasks)
    assert [len(call) for call in sender.calls[LANES:]] == [BATCH_MAX, BATCH_MAX, 1]


async def test_poisoned_item_of_a_call_fails_alone() -> None:
    sender = Sender()
    tasks = await sender.callers_of(7, -8, 9)
    sender.let_all()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert (answers[0], answers[2]) == (70, 90)
    assert isinstance(answers[1], KernelRejected)
    assert sender.calls == [[7, -8, 9], [7], [-8], [9]]
    assert await sender.coalescer.call(5) == 50


async def test_outage_fails_all_callers_of_a_call_without_a_retry_for_each() -> None:
    sender = Sender()
    tasks = await sender.callers_of(1, 2, 3)
    sender.outage = StoreUnavailable("away")
    sender.let_all()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(answer) for answer in answers} == {StoreUnavailable}
    assert len(sender.calls) == 1
    sender.outage = None
    assert await sender.coalescer.call(5) == 50


async def test_caller_cancelled_while_it_waits_takes_its_item_back() -> None:
    sender = Sender()
    tasks = [*await sender.busy(), *await sender.callers_of(7, 8, 9)]
    await cancelled(tasks[LANES + 1])
    sender.let_all()
    assert [await task for task in tasks if not task.cancelled()] == [10 * n for n in (*range(1, LANES + 1), 7, 9)]
    assert sender.calls[LANES:] == [[7, 9]]


async def test_caller_cancelled_during_its_call_does_not_affect_the_others() -> None:
    sender = Sender()
    tasks = await sender.callers_of(7, 8, 9)
    await cancelled(tasks[1])
    sender.let_all()
    assert [await tasks[0], await tasks[2]] == [70, 90]
    assert sender.calls == [[7, 8, 9]]


async def test_lane_is_free_after_all_callers_of_an_unsent_call_are_cancelled() -> None:
    sender = Sender()
    tasks = [*await sender.busy(), *await sender.callers_of(7)]
    sender.let(0)
    await cancelled(tasks[LANES])
    await settled()
    assert sender.calls == [[n] for n in range(1, LANES + 1)]
    tasks += await sender.callers_of(8)
    sender.let_all()
    assert await tasks[-1] == 80


async def test_close_of_the_runtime_ends_all_waiting_callers() -> None:
    sender = Sender()
    tasks = [*await sender.busy(), *await sender.callers_of(7, 8)]
    sender.let(0)
    await settled()
    tasks += await sender.callers_of(9)
    await cancelled(sender._tasks[-1])
    for unanswered in tasks[LANES:]:  # 7 and 8 were under way, and 9 had no lane yet
        with pytest.raises(StoreUnavailable, match="closed"):
            await unanswered
    sender.let_all()
    assert await tasks[1] == 20


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("order", [sorted, lambda names: sorted(names, reverse=True)])
async def test_runs_started_together_are_answered_in_request_order(
    database_url: str, order: Callable[[list[str]], list[str]]
) -> None:
    app = crowd(1)
    async with open_runtime(Settings(database_url)) as runtime:
        await runtime.start(app.workflow, {}, "run_known")
        names = [*order([f"run_{n}" for n in range(40)]), "run_known", "run_twice", "run_twice"]
        answers = await asyncio.gather(*(runtime.start(app.workflow, {}, name) for name in names))
    assert answers == [(name, True) for name in names[:40]] + [
        ("run_known", False),
        ("run_twice", True),
        ("run_twice", False),
    ]


async def test_turns_of_one_run_that_end_together_conflict_and_all_count(database_url: str) -> None:
    async with open_runtime(Settings(database_url)) as runtime:
        async with asyncio.timeout(60):
            result = await runtime.run(crowd(SIBLINGS).workflow, {}, concurrency=SIBLINGS)
        assert result.outcome == "success"
        assert result.state == {f"key_{n}": n for n in range(SIBLINGS)}
        assert await runtime.world.call("doctor", "default", True) == []


def crowd(size: int) -> Heliograph:
    """Agents that all wake at the start and end at the same moment."""
    app = Heliograph("crowd")
    gate = asyncio.Barrier(size)

    def add(number: int) -> None:
        async def member(_: Context) -> int:
            await gate.wait()
            return number

        app.agent(name=f"agent_{number}", activate_on=["workflow:start"], updates=f"key_{number}")(member)

    for number in range(size):
        add(number)
    return app


async def test_item_is_joined_by_the_next_one_while_it_waits_for_the_same_call() -> None:
    sender = Sender()
    joined = sender.coalescer.is_joined_by_next
    await sender.busy()
    waiting = await sender.callers_of(*range(10, 10 + BATCH_MAX))
    assert not joined(lambda item: item == 1)  # it is being sent
    assert not joined(lambda item: item == 10)  # the call is full
    waiting.pop().cancel()
    await settled()
    assert joined(lambda item: item == 10)
