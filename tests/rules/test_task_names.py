"""The tasks of a function have the same names in every run and for any timing (execution/task_names.py)."""

from __future__ import annotations

import asyncio
import contextvars
import random
from typing import Any

import pytest

from heliograph.execution import step_outcome
from heliograph.execution.task_names import TaskNames
from heliograph.testing.simulator.event_loop import SimLoop


def names_of(tree: dict[str, Any], seed: int) -> dict[str, str]:
    """The name of each task by its place, in a run that continues ready tasks in random order."""
    luck, found = random.Random(seed), dict[str, str]()

    async def child(place: str, below: dict[str, Any], names: TaskNames) -> None:
        for label, deeper in below.items():
            for _ in range(luck.randrange(3)):
                await asyncio.sleep(0)
            await asyncio.gather(*(child(f"{place}/{label}{n}", deeper, names) for n in range(2)))
        found[place] = names.current()

    async def function() -> None:
        await child("", tree, TaskNames())

    loop = SimLoop(luck.randrange)
    try:
        loop.run_until_complete(function())
    finally:
        loop.close()
    return found


TREE = {"a": {"x": {}, "y": {"z": {}}}, "b": {"x": {}}}


def test_task_names_depend_on_the_parent_task_and_not_on_timing() -> None:
    first = names_of(TREE, 0)
    assert first[""] == ""
    assert first["/a1/y0"] == "child_2-child_3-"
    assert len(set(first.values())) == len(first)
    assert all(names_of(TREE, seed) == first for seed in range(50))


def test_deep_task_name_is_shortened_and_remains_unique() -> None:
    deep: dict[str, Any] = {}
    for _ in range(7):
        deep = {"x": deep}
    found = names_of(deep, 1)
    assert len(set(found.values())) == len(found)
    assert max(map(len, found.values())) <= 40


async def test_tasks_started_by_a_step_are_not_counted_and_use_the_task_factory_of_the_loop() -> None:
    made: list[str] = []

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
        made.append(coro.__name__)
        return asyncio.Task(coro, loop=loop, **options)

    async def part() -> str:
        return names.current()

    loop = asyncio.get_running_loop()
    loop.set_task_factory(factory)
    names = TaskNames()
    TaskNames()  # the factory is put around once
    token = step_outcome._inside.set(True)
    try:
        assert [*await asyncio.gather(part(), part())] == ["", ""]
    finally:
        step_outcome._inside.reset(token)
    names = TaskNames()
    assert [*await asyncio.gather(part(), part())] == ["part_1-", "part_2-"]
    assert await asyncio.to_thread(names.current) == ""
    assert made == ["part"] * 4


@pytest.mark.parametrize("name", ["with.dots", "größe"])
async def test_task_name_has_only_characters_of_an_id(name: str) -> None:
    async def part() -> str:
        return names.current()

    names = TaskNames()
    coroutine: Any = part()
    coroutine.__name__ = name
    assert (await asyncio.gather(coroutine))[0].isascii()


async def test_task_factory_wrapped_around_ours_changes_no_name() -> None:
    async def part() -> str:
        return names.current()

    names = TaskNames()
    assert [*await asyncio.gather(part())] == ["part_1-"]
    loop = asyncio.get_running_loop()
    ours = loop.get_task_factory()
    assert ours is not None

    def around(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
        async def wrapped() -> Any:
            return await coro

        return ours(loop, wrapped(), **options)

    loop.set_task_factory(around)
    names = TaskNames()
    assert [*await asyncio.gather(part(), part())] == ["part_1-", "part_2-"]


async def test_task_with_its_own_context_names_its_children() -> None:
    async def part() -> str:
        return names.current()

    async def top() -> list[str]:
        return [names.current(), *await asyncio.gather(part(), part())]

    names = TaskNames()
    task = asyncio.create_task(top(), context=contextvars.Context())
    assert await task == ["top_1-", "top_1-part_1-", "top_1-part_2-"]


async def test_task_that_runs_before_its_factory_returns_has_its_name_already() -> None:
    """As eager tasks do, from Python 3.12 on."""

    def eager(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
        task = asyncio.Task(coro, loop=loop, **options)
        asyncio.tasks._leave_task(loop, current)
        asyncio.tasks._enter_task(loop, task)
        seen.append(names.current())
        asyncio.tasks._leave_task(loop, task)
        asyncio.tasks._enter_task(loop, current)
        return task

    async def part() -> str:
        return names.current()

    seen: list[str] = []
    current: Any = asyncio.current_task()
    loop = asyncio.get_running_loop()
    loop.set_task_factory(eager)
    names = TaskNames()
    assert [*await asyncio.gather(part(), part())] == seen == ["part_1-", "part_2-"]
    loop.set_task_factory(None)
