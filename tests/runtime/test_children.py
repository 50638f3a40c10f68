"""Delegated turns: forked, joined, failed, stopped, and limited in depth."""

import asyncio
from typing import Any

import pytest

from heliograph import Context, Delegation, Heliograph
from heliograph.errors import DelegationFailed
from heliograph.turn.described_calls import Call
from tests.runtime.kit import START, Rig, kill, names, one, until


def family(**options: Any) -> Heliograph:
    """A parent that delegates the run's `task` to a child, which returns its task and its own identity."""
    app = Heliograph("family")

    @app.agent(activate_on=START, updates="seen")
    async def parent(ctx: Context) -> Any:
        try:
            return await ctx.delegate("child", ctx.document["task"], **options)
        except DelegationFailed as error:
            return [error.code, error.outcome, error.agent, error.call_id, error.error.get("code")]

    @app.agent(on_request=True)
    async def child(ctx: Context) -> Any:
        if ctx.task == "fail":
            raise ValueError("no")
        if ctx.task == "hang":
            await asyncio.Event().wait()
        return {"asked": ctx.task, "by": ctx.signal.name, "agent": ctx.agent}

    return app


@pytest.mark.proves("L0-38", "CTL-21", "SIG-01", "SIG-60")
async def test_delegated_turn_returns_its_output_and_has_its_parent_in_its_lineage(rig: Rig) -> None:
    result = await rig.run(family(), {"task": {"n": 1}})
    assert result.state["seen"] == {"asked": {"n": 1}, "by": "delegation", "agent": "child"}
    parent, child = await rig.turn_of("parent"), await rig.turn_of("child")
    assert (child.parent_turn_id, child.parent_call_id, child.depth) == (parent.turn_id, "c1", 1)
    assert one(result.signals, "delegation") == {
        "id": "c1", "target_agent": "child", "task": {"n": 1}, "task_id": child.turn_id, "status": "accepted",
        "priority": "normal",
    }  # fmt: skip
    (delegation,) = [s for s in result.signals if s.name == "delegation"]
    (woken,) = [s for s in result.signals if s.name == "agent:activated" and s.agent == "child"]
    assert woken.parent == delegation.id
    edges = await rig.fetch(
        "select turn_id, primitive, edge_phase, other_turn_id from heliograph.edge_overview where primitive = 'join'"
        " and run_id = $1 order by edge_id", result.run_id,
    )  # fmt: skip
    assert [tuple(edge) for edge in edges] == [
        (parent.turn_id, "join", "request", child.turn_id), (parent.turn_id, "join", "response", child.turn_id),
    ]  # fmt: skip


@pytest.mark.proves("CTL-28", "ERR-06")
async def test_failed_child_raises_an_error_that_its_parent_may_handle(rig: Rig) -> None:
    result = await rig.run(family(), {"task": "fail"})
    assert result.state["seen"] == ["DELEGATION_ERROR", "failed", "child", "c1", "ACTION_FAILED"]


@pytest.mark.proves("CTL-29", "ERR-07")
async def test_child_past_its_timeout_is_abandoned_and_stopped(rig: Rig) -> None:
    app = family(timeout=0.1)
    run_id = await rig.start(app, {"task": "hang"})
    async with rig.serving(app):
        state = one(await rig.ended(run_id), "workflow:end")["state"]
    assert state["seen"] == ["DELEGATION_TIMEOUT", "timeout", "child", "c1", "DELEGATION_TIMEOUT"]
    assert (await rig.turn_of("child")).outcome == "canceled"


async def test_end_of_a_child_reaches_its_parent_by_a_bell_and_not_by_a_sweep(rig: Rig) -> None:
    app = family()
    run_id = await rig.start(app, {"task": 1})
    async with rig.serving(app, sweep_seconds=3600), asyncio.timeout(60):
        await rig.ended(run_id)


@pytest.mark.proves("G-74", "S12")
async def test_self_delegation_ends_at_the_depth_limit(rig: Rig) -> None:
    app = Heliograph("deep")

    @app.agent(activate_on=START)
    async def digger(ctx: Context) -> Any:
        return await ctx.delegate("digger")

    result = await rig.run(app)
    turns = await rig.runtime.reader.turns()
    assert max(turn.depth for turn in turns) == 20
    (deepest,) = [turn for turn in turns if turn.depth == 20]
    (card,) = await rig.runtime.reader.cards(deepest.turn_id)
    assert "the turn would be 21 delegations deep; at most 20 are allowed" in card.content["text"]
    assert card.content["error"]["code"] == "RESOURCE_EXHAUSTED"
    assert result.outcome == "failed"


async def test_children_of_one_named_instance_run_one_after_another(rig: Rig) -> None:
    inside: list[int] = []
    app = Heliograph("queue")

    @app.agent(activate_on=START, updates="seen")
    async def parent(ctx: Context) -> Any:
        results = await ctx.delegates([Delegation("child", n, instance="desk") for n in range(4)])
        return [result.output for result in results]

    @app.agent(on_request=True)
    async def child(ctx: Context) -> Any:
        inside.append(1)
        assert len(inside) == 1
        await ctx.sleep(0.01)
        inside.pop()
        return ctx.task

    assert (await rig.run(app)).state["seen"] == [0, 1, 2, 3]


async def test_children_and_tools_are_joined_together_and_streamed(rig: Rig) -> None:
    app = Heliograph("mixed")

    @app.agent(activate_on=START, updates="seen")
    async def parent(ctx: Context) -> Any:
        return [[r.call_id, r.output] async for r in ctx.as_completed([Call("slow"), Delegation("child", 1)])]

    app.agent(name="child", on_request=True)(lambda ctx: ctx.task + 1)
    run_id = await rig.start(app)
    async with rig.serving(app):
        (command,) = await rig.taken("slow")
        await until(lambda: _resolved(rig, command.turn_id, 1))
        await command.report(result="late")
        assert one(await rig.ended(run_id), "workflow:end")["state"] == {"seen": [["c2", 2], ["c1", "late"]]}


async def _resolved(rig: Rig, turn_id: str, count: int) -> bool:
    return sum(wait.state == "resolved" for wait in await rig.runtime.reader.waits(turn_id)) == count


@pytest.mark.proves("L0-38", "L0-111", "K4", "S12")
async def test_twenty_children_are_joined_despite_killed_workers(rig: Rig) -> None:
    app = Heliograph("forks", reducers={"ran": lambda old, new: (old or 0) + new})

    @app.agent(activate_on=START, updates="seen")
    async def parent(ctx: Context) -> Any:
        results = await ctx.delegates([Delegation("child", n) for n in range(20)])
        return [result.output for result in results]

    @app.agent(on_request=True, max_attempts=20)
    async def child(ctx: Context) -> Any:
        await ctx.sleep(0.02)
        if ctx.task % 5 == 0:
            await ctx.pause(0.05)
        return ctx.task * ctx.task

    run_id = await rig.start(app)
    for _ in range(3):
        worker = rig.runtime.worker(app.workflow, lease_seconds=0.2, concurrency=6)
        worker.watchdog.interval_seconds = 0.05
        working = asyncio.create_task(worker.run())
        await until(lambda worker=worker: len(worker._running) >= 3)
        await kill(worker, working)
    async with rig.serving(app, lease_seconds=1):
        signals = await rig.ended(run_id)
    assert one(signals, "workflow:end")["state"]["seen"] == [n * n for n in range(20)]
    assert names(signals).count("delegation") == 20
    children = [turn for turn in await rig.runtime.reader.turns() if turn.agent == "child"]
    assert len(children) == 20
    assert {turn.outcome for turn in children} == {"success"}
    assert sum(turn.attempts for turn in children) > 0  # some of them were lost in the middle


@pytest.mark.proves("K26")
async def test_child_emits_signals_and_updates_the_state_like_any_turn_of_its_agent(rig: Rig) -> None:
    app = Heliograph("speaks")

    @app.agent(activate_on=START)
    async def parent(ctx: Context) -> Any:
        return await ctx.delegate("child", "x")

    @app.agent(on_request=True, emits=["child:done"], updates="told")
    async def child(ctx: Context) -> Any:
        return ctx.task

    app.agent(name="hears", activate_on=["child:done"], updates="heard")(lambda ctx: ctx.signal.payload["output"])
    result = await rig.run(app)
    assert result.state == {"told": "x", "heard": "x"}
    assert names(result.signals).count("workflow:end") == 1
