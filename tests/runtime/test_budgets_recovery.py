"""Budgets and dying workers: rejected calls remain rejected, and a retried call is the same call."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from typing import Any

import pytest

from heliograph import Call, Context, Heliograph, ToolContext, tool
from heliograph.config import Settings
from heliograph.errors import StoreUnavailable
from heliograph.models import ScriptedModel
from heliograph.runtime import open_runtime
from tests.runtime.kit import START, Rig, kill, one, until
from tests.runtime.loop_kit import agent, call, payloads, results
from tests.runtime.test_budgets import budgets
from tests.runtime.test_lost_replies import lose_first_reply


@pytest.mark.more
@pytest.mark.proves("S12", "K7", "L0-111")
@pytest.mark.parametrize("fail_fast", [False, True])
async def test_rejected_calls_are_the_same_for_the_next_worker_wherever_the_first_dies(
    rig: Rig, fail_fast: bool
) -> None:
    """At each named place of the runtime, and at each reply of the kernel, of a turn with two rejected calls."""
    canceled, refused = ["canceled", "CANCELED"], ["failed", "BUDGET_EXCEEDED"]
    expected = (
        [canceled, canceled, refused, canceled] if fail_fast else [["success", "a"], ["success", "b"], refused, refused]
    )
    places = 0
    for kill_at in itertools.count(1):
        app, seen = Heliograph("steps"), list[Any]()

        @app.agent(activate_on=START, updates="out", budget={"tool_calls": 2})
        async def worker(ctx: Context, seen: list[Any] = seen) -> list[Any]:
            results = await ctx.calls([Call("a"), Call("b"), Call("c"), Call("d")], fail_fast=fail_fast)
            seen.append(["budget" in (r.error or {}) for r in results])
            return [[r.status, (r.error or {}).get("code", r.output)] for r in results]

        run_id = await rig.start(app)
        came_to = await die_at(rig, app, kill_at, run_id)
        async with rig.serving(app, lease_seconds=60):
            ended = asyncio.create_task(rig.ended(run_id))
            while not ended.done():
                for command in await rig.client.take_commands(["a", "b"]):
                    await command.report(result=command.tool)
                await asyncio.wait([ended], timeout=0.02)
        out = one(ended.result(), "workflow:end")["state"]["out"]
        assert out == expected, came_to
        assert all(each == [result is refused for result in expected] for each in seen)
        places = kill_at
        if came_to is None:
            break
    assert places > 8


@pytest.mark.proves("K2")
async def test_two_rejected_steps_are_recorded_once_and_a_lost_reply_repeats_no_signal(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded: list[str] = []
    call_kernel = rig.runtime.world.call

    async def listens(name: str, *args: object) -> Any:
        answer = await call_kernel(name, *args)
        recorded.extend(row["outcome"] for row in (answer if name == "record_call" else ()))
        return answer

    monkeypatch.setattr(rig.runtime.world, "call", listens)
    appended = lose_first_reply(rig, monkeypatch, "append")
    app = Heliograph("steps")

    async def has_appended() -> None:
        await until(lambda: len(appended) > 0)

    @app.agent(activate_on=START, updates="out", budget={"tool_calls": 3})
    async def worker(ctx: Context) -> list[Any]:
        statuses = [
            result.status
            for names in ("abcd", "efgh")
            for result in await ctx.calls([Call(name) for name in names], fail_fast=True)
        ]
        await ctx.step("look", has_appended)
        return statuses

    result = await rig.run(app)
    assert result.state["out"] == ["canceled", "canceled", "canceled", "failed"] * 2
    assert recorded == ["ok"] * 9
    assert appended == [["ok"], ["ok"]]
    assert Counter(p["id"] for p in payloads(result.signals, "tool:call")) == Counter(f"c{n}" for n in range(1, 10))
    assert await budgets(rig) == {("worker", "tool_calls"): (1, 0, 0)}


async def die_at(rig: Rig, app: Heliograph, kill_at: int, run_id: str) -> str | None:
    """The place, counted from 1, at which a worker died as kill -9 does; None where the turn waits or ends before that."""
    place, remaining, died, buried = "", kill_at, asyncio.Event(), asyncio.Event()

    async def come_to(name: str) -> None:
        nonlocal remaining, place
        remaining -= 1
        if remaining == 0:
            place = name
            died.set()
        if remaining <= 0:
            await buried.wait()
            raise StoreUnavailable("the process is dead")

    async def counted(name: str, *args: object) -> Any:
        if died.is_set():
            raise StoreUnavailable("the process is dead")
        answer = await call_kernel(name, *args)
        if name in ("begin_call", "record_call", "suspend"):
            await come_to(f"{name}:done")
        return answer

    async def is_over() -> bool:
        [turn] = await rig.runtime.reader.turns(run_id=run_id)
        return died.is_set() or turn.status in ("suspended", "done")

    settings = Settings(database_url=rig.url, project=rig.runtime.settings.project)
    with pytest.MonkeyPatch.context() as patch:
        async with open_runtime(settings) as runtime:
            call_kernel = runtime.world.call
            patch.setattr(runtime.world, "call", counted)
            patch.setattr(runtime.world, "failpoint", come_to)
            worker = runtime.worker(app.workflow, lease_seconds=0.1)
            working = asyncio.create_task(worker.run())
            await until(is_over)
            await kill(worker, working)
            died.set()
            buried.set()
    return place or None


@pytest.mark.proves("S12")
async def test_tool_retried_after_the_death_of_its_worker_counts_as_one_call_of_the_budget(rig: Rig) -> None:
    begun, tries = asyncio.Event(), list[str]()

    @tool(effect="idempotent")
    async def pay(ctx: ToolContext) -> str:
        """Pay."""
        tries.append(ctx.idempotency_key)
        begun.set()
        if len(tries) == 1:
            await asyncio.Event().wait()
        return "paid"

    model = ScriptedModel([call("pay", {}), "done"])
    app = agent(model, [pay], budget={"tool_calls": 1})
    run_id = await rig.start(app)
    first = rig.runtime.worker(app.workflow, lease_seconds=0.1)
    working = asyncio.create_task(first.run())
    await asyncio.wait_for(begun.wait(), 20)
    await kill(first, working)
    async with rig.serving(app):
        assert one(await rig.ended(run_id), "workflow:end")["state"]["out"] == "done"
    assert results(model) == ["paid"]
    assert (len(tries), len(set(tries))) == (2, 1)
    assert await budgets(rig) == {("worker", "tool_calls"): (1, 0, 0)}
