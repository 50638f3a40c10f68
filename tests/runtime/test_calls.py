"""Turns that call tools: suspended without a process, resumed by any worker, in any order of results."""

import asyncio
from typing import Any

import pytest

from heliograph import Call, Context, Heliograph
from heliograph.errors import ToolFailed, ToolTimedOut
from tests.runtime.kit import START, Rig, calling_app, is_resolved, names, one, seen, until

# ── One call ──


@pytest.mark.proves(
    "L0-13", "L0-20", "L0-52", "L0-53", "L0-55", "L0-60", "L0-61", "L0-63", "SIG-32", "SIG-33", "K3", "K15"
)
async def test_call_suspends_its_turn_and_returns_the_reported_result(rig: Rig) -> None:
    runs: list[int] = []
    app = Heliograph("weather")

    @app.agent(activate_on=START, updates="answer")
    async def forecast(ctx: Context) -> Any:
        runs.append(ctx.attempt)
        reply: Any = await ctx.call("weather", {"city": "Oslo"}, timeout=30)
        return {"celsius": reply["celsius"]}

    run_id = await rig.start(app)
    async with rig.serving(app) as worker:
        (command,) = await rig.taken("weather")
        turn = await rig.turn_of("forecast", "suspended")
        await until(lambda: not worker._running)  # no task, no connection: nothing is held
        assert (turn.phase, turn.owner, turn.waiting_tool_count, turn.activity) == (
            "act",
            None,
            1,
            "awaiting_tool_result",
        )
        assert (command.tool, command.arguments, command.turn_id) == ("weather", {"city": "Oslo"}, turn.turn_id)
        assert await command.report(result={"celsius": -3}) == "applied"
        signals = await rig.ended(run_id)
    assert one(signals, "workflow:end")["state"] == {"answer": {"celsius": -3}}
    assert runs == [1, 1]  # run again from its start: no attempt is counted, for nothing was lost
    assert names(signals).count("ready") == names(signals).count("plan_ready") == 1
    assert one(signals, "tool:call") == {
        "id": "c1",
        "name": "weather",
        "input": {"city": "Oslo"},
        "timeout_seconds": 30.0,
    }
    payload = one(signals, "tool:result")
    assert (payload["id"], payload["name"], payload["status"], payload["output"]) == (
        "c1",
        "weather",
        "success",
        {"celsius": -3},
    )


@pytest.mark.proves("L0-37", "L0-39", "L0-50", "L0-106")
async def test_call_and_its_result_are_recorded_as_cards_edges_and_an_inbox_row(rig: Rig) -> None:
    app = calling_app(Call("search", {"q": "x"}))
    run_id = await rig.start(app)
    async with rig.serving(app):
        (command,) = await rig.taken("search")
        (card,) = await rig.runtime.reader.cards(command.turn_id)  # before there is an answer
        await command.report(result="found")
        await rig.ended(run_id)
    turn = await rig.turn_of("asker")
    call, result, end = await rig.runtime.reader.cards(turn.turn_id)
    assert (call.kind, result.kind, end.kind) == ("tool.call", "tool.result", "task.deliverable")
    assert card == call  # written once, with the suspension, and not again after the resumption
    assert (call.content["tool_call_id"], call.content["tool_name"], call.content["arguments"]) == (
        "c1",
        "search",
        {"q": "x"},
    )
    assert (result.content["call_id"], result.content["output"]) == ("c1", "found")
    edges = await rig.fetch(
        "select primitive, edge_phase, call_id from heliograph.edge_overview where turn_id = $1 order by edge_id",
        turn.turn_id,
    )
    assert [tuple(edge) for edge in edges] == [
        ("enqueue", "request", None), ("tool_call", "request", "c1"), ("report", "response", "c1"),
    ]  # fmt: skip
    _, row = await rig.fetch(
        "select * from heliograph.inbox_overview where turn_id = $1 order by inbox_id", turn.turn_id
    )
    assert {key: row[key] for key in ("message_type", "status", "correlation_id", "payload_card_id")} == {
        "message_type": "tool_result", "status": "consumed", "correlation_id": "c1", "payload_card_id": result.card_id,
    }  # fmt: skip
    # by the names of the specification; the epoch is the one under which the owner took the row
    assert {key: row[key] for key in ("turn_id", "agent_id", "turn_epoch", "tool_call_id", "report_status",
                                      "after_execution", "tool_result_card_id")} == {
        "turn_id": turn.turn_id, "agent_id": f"{run_id}/asker", "turn_epoch": turn.turn_epoch, "tool_call_id": "c1",
        "report_status": "success", "after_execution": "suspend", "tool_result_card_id": result.card_id,
    }  # fmt: skip


@pytest.mark.proves("L0-106")
async def test_turn_ending_result_is_marked_in_its_inbox_row(rig: Rig) -> None:
    app = calling_app(Call("search", {"q": "x"}, after="terminate"))
    run_id = await rig.start(app)
    async with rig.serving(app):
        (command,) = await rig.taken("search")
        await command.report(result="found")
        await rig.ended(run_id)
    rows = await rig.fetch(
        "select after_execution from heliograph.inbox_overview where turn_id = $1 and tool_call_id = 'c1'",
        command.turn_id,
    )
    assert [tuple(row) for row in rows] == [("terminate",)]


@pytest.mark.proves("L0-30")
async def test_every_turn_of_a_run_has_an_inbox_row_with_its_payload_by_pointer_its_trace_and_its_lineage(
    rig: Rig,
) -> None:
    app = Heliograph("lineage")

    @app.agent(activate_on=START, emits=["asked"])
    async def parent(ctx: Context) -> Any:
        return await ctx.delegate("child", {"n": 1})

    @app.agent(on_request=True)
    def child(_: Context) -> int:
        return 1

    @app.agent(activate_on=["asked"])
    def listener(_: Context) -> None:
        return None

    result = await rig.run(app)
    assert result.outcome == "success"
    signals = {signal.id: signal for signal in result.signals}
    rows = await rig.fetch(
        "select i.*, t.agent from heliograph.inbox_overview i join heliograph.turn_overview t using (project_id, turn_id)"
        " where i.message_type = 'turn' and t.run_id = $1", result.run_id,
    )  # fmt: skip
    by_agent = {row["agent"]: row for row in rows}
    assert set(by_agent) == {"parent", "child", "listener"}
    # the payload is the signal that caused the turn, by its id; nothing is copied into the row
    assert {agent: signals[row["correlation_id"]].name for agent, row in by_agent.items()} == {
        "parent": "workflow:start", "child": "delegation", "listener": "asked",
    }  # fmt: skip
    for agent, row in by_agent.items():
        assert row["trace_id"] == result.run_id
        activation = signals[row["parent_step_id"]]
        assert (activation.name, activation.agent) == ("agent:activated", agent)
    assert by_agent["child"]["parent_turn_id"] == by_agent["parent"]["turn_id"]
    assert (by_agent["parent"]["parent_turn_id"], by_agent["listener"]["parent_turn_id"]) == (None, None)


@pytest.mark.proves("L0-60")
async def test_tool_error_is_raised_in_the_agent_which_may_handle_it(rig: Rig) -> None:
    app = Heliograph("handles")

    @app.agent(activate_on=START, updates="seen")
    async def asker(ctx: Context) -> Any:
        try:
            await ctx.call("search")
        except ToolFailed as error:
            return [error.code, error.tool, error.call_id, error.recoverable, error.message]

    run_id = await rig.start(app)
    async with rig.serving(app):
        (command,) = await rig.taken("search")
        await command.report(error={"code": "NO_INDEX", "message": "no index", "recoverable": True})
        assert await seen(rig, run_id) == ["NO_INDEX", "search", "c1", True, "search (call c1): no index"]


@pytest.mark.proves("ERR-04")
async def test_unhandled_tool_error_fails_the_turn_with_its_code(rig: Rig) -> None:
    app = Heliograph("fails")

    @app.agent(activate_on=START)
    async def asker(ctx: Context) -> Any:
        return await ctx.call("search")

    run_id = await rig.start(app)
    async with rig.serving(app):
        (command,) = await rig.taken("search")
        await command.report(error="no index")
        failed = one(await rig.ended(run_id), "agent:failed")
    assert failed["error"] == {"code": "TOOL_ERROR", "message": "search (call c1): no index", "recoverable": False}


@pytest.mark.proves("L0-21", "L0-75", "L0-76", "CTL-16", "K11", "G-63")
async def test_unanswered_call_times_out_at_its_own_deadline(rig: Rig) -> None:
    app = Heliograph("late")

    @app.agent(activate_on=START, updates="seen")
    async def asker(ctx: Context) -> Any:
        fast, slow = await ctx.calls([Call("silent", timeout=0.05), Call("slow", timeout=3600)])
        try:
            await ctx.call("silent", timeout=0.05)
        except ToolTimedOut as error:
            return [fast.status, slow.output, error.code]

    run_id = await rig.start(app)
    async with rig.serving(app):
        (command,) = await rig.taken("slow")
        turn = await rig.turn_of("asker")
        await until(lambda: is_resolved(rig, turn.turn_id, "c1"))
        assert (await rig.turn_of("asker")).status == "suspended"  # slow is still to come (L0-62)
        await command.report(result="there")
        assert await seen(rig, run_id) == ["timeout", "there", "TOOL_TIMEOUT"]


# ── Several ──


@pytest.mark.proves("L0-47", "L0-62", "K5", "K15")
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
async def test_results_in_any_order_come_back_in_the_order_of_the_calls(rig: Rig, order: tuple[int, ...]) -> None:
    app = calling_app(Call("a"), Call("b"), Call("c", call_id="mine"))
    run_id = await rig.start(app)
    async with rig.serving(app):
        commands = {command.tool: command for command in await rig.taken("a", "b", "c", count=3)}
        for place in order:
            tool = "abc"[place]
            assert await commands[tool].report(result=tool.upper()) == "applied"
        assert await seen(rig, run_id) == [["c1", "success", "A"], ["c2", "success", "B"], ["mine", "success", "C"]]


async def test_gathered_calls_are_made_together(rig: Rig) -> None:
    app = Heliograph("gathers")

    @app.agent(activate_on=START, updates="seen")
    async def asker(ctx: Context) -> Any:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(ctx.call("a"))
            second = group.create_task(ctx.call("b"))
        return [first.result(), second.result(), *await asyncio.gather(ctx.call("a"), ctx.call("b"))]

    run_id = await rig.start(app)
    async with rig.serving(app):
        for turn in (1, 2):
            for command in await rig.taken("a", "b", count=2):
                await command.report(result=f"{command.tool}{turn}")
        assert await seen(rig, run_id) == ["a1", "b1", "a2", "b2"]
        turn_id = (await rig.turn_of("asker")).turn_id
    assert len(await rig.runtime.reader.leases(turn_id)) == 3  # claimed once, and once for each round


async def test_each_task_of_a_function_gets_the_results_of_its_own_calls(rig: Rig) -> None:
    app = Heliograph("chains")

    @app.agent(activate_on=START, updates="seen")
    async def asker(ctx: Context) -> Any:
        async def chain(name: str) -> list[Any]:
            first: Any = await ctx.call("a", {"said": name})
            inner = await asyncio.gather(shout(first), shout(f"{first}?"))
            return [first, *inner, await ctx.delegate("child", first)]

        async def shout(text: str) -> Any:
            return await ctx.call("a", {"said": f"{text}!"})

        return list(await asyncio.gather(chain("x"), chain("y"), chain("z")))

    @app.agent(on_request=True)
    async def child(ctx: Context) -> str:
        return f"child of {ctx.task}"

    run_id = await rig.start(app)
    async with rig.serving(app):
        for count in (3, 6):
            for command in reversed(await rig.taken("a", count=count)):
                await command.report(result=command.arguments["said"])
        expected = [[name, f"{name}!", f"{name}?!", f"child of {name}"] for name in "xyz"]
        assert await seen(rig, run_id) == expected


@pytest.mark.proves("K15")
async def test_streaming_join_yields_each_result_on_arrival_in_a_stable_order(rig: Rig) -> None:
    app = Heliograph("streams")
    orders: list[list[str]] = []

    @app.agent(activate_on=START, updates="seen")
    async def asker(ctx: Context) -> Any:
        orders.append([])
        async for result in ctx.as_completed([Call(tool) for tool in "abcd"]):
            orders[-1].append(result.call_id)
            await ctx.step(f"use-{result.call_id}", lambda: None)
        return orders[-1]

    run_id = await rig.start(app)
    async with rig.serving(app):
        commands = {command.tool: command for command in await rig.taken(*"abcd", count=4)}
        for n, tool in enumerate("cadb", 1):
            await commands[tool].report(result=tool)
            await until(lambda n=n: bool(orders) and len(orders[-1]) == n)  # one at a time
        assert await seen(rig, run_id) == ["c3", "c1", "c4", "c2"]
    assert all(order == ["c3", "c1", "c4", "c2"][: len(order)] for order in orders)


async def test_stream_closed_early_does_not_wait_for_the_rest(rig: Rig) -> None:
    app = Heliograph("first")

    @app.agent(activate_on=START, updates="seen")
    async def asker(ctx: Context) -> Any:
        first = ""
        async for result in ctx.as_completed([Call("a", timeout=3600), Call("b", timeout=3600)]):
            first = result.call_id
            break
        return [first, await ctx.call("c")]

    run_id = await rig.start(app)
    async with rig.serving(app):
        commands = {command.tool: command for command in await rig.taken("a", "b", count=2)}
        await commands["b"].report(result=1)
        (last,) = await rig.taken("c")
        await last.report(result=2)
        assert await seen(rig, run_id) == ["c2", 2]
        assert await commands["a"].report(result=3) == "turn_done"


# ── A result that ends the turn ──


@pytest.mark.proves("L0-56", "L0-57", "S9")
async def test_turn_ending_call_delivers_its_result_without_running_the_agent_again(rig: Rig) -> None:
    runs: list[int] = []
    app = Heliograph("terminates")

    @app.agent(activate_on=START, updates="seen")
    async def asker(ctx: Context) -> Any:
        runs.append(1)
        await ctx.call("submit", after="terminate")

    run_id = await rig.start(app)
    async with rig.serving(app):
        (command,) = await rig.taken("submit")
        await command.report(result={"final": True})
        assert await seen(rig, run_id) == {"final": True}
    assert runs == [1]


@pytest.mark.proves("L0-56")
@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("first", ["a", "b"])
async def test_two_turn_ending_calls_of_one_step_end_the_turn_with_the_worse_outcome(
    rig: Rig, streams: bool, first: str
) -> None:
    app = Heliograph("terminates")
    runs: list[int] = []

    @app.agent(activate_on=START, updates="seen")
    async def asker(ctx: Context) -> None:
        runs.append(1)
        calls = [Call("a", after="terminate"), Call("b", after="terminate")]
        if not streams:
            await ctx.calls(calls)
        async for _ in ctx.as_completed(calls):
            pass

    run_id = await rig.start(app)
    async with rig.serving(app):
        commands = {command.tool: command for command in await rig.taken("a", "b", count=2)}
        reports: Any = {"a": {"result": "fine"}, "b": {"error": {"code": "NO_INK", "message": "no ink"}}}
        await commands[first].report(**reports.pop(first))
        turn = await rig.turn_of("asker", "suspended")
        [(other, report)] = reports.items()
        await commands[other].report(**report)
        signals = await rig.ended(run_id)
    assert one(signals, "agent:failed")["error"]["code"] == "NO_INK"
    assert one(signals, "workflow:end")["state"] == {}
    assert runs == [1]
    turn = await rig.runtime.reader.turn(turn.turn_id)
    assert (turn.outcome, turn.status) == ("failed", "done")
    results = {w.tool: (w.state, w.status) for w in await rig.runtime.reader.waits(turn.turn_id)}
    assert results == {"a": ("resolved", "success"), "b": ("resolved", "failed")}
    head = await rig.fetch(
        "select status, active_agent_turn_id from heliograph.agent_state_head where agent_id = $1", turn.agent_id
    )
    assert [tuple(row) for row in head] == [("idle", None)]


@pytest.mark.proves("L0-57", "S9")
@pytest.mark.parametrize("may_override", [True, False])
async def test_result_may_end_the_turn_only_where_its_tool_is_allowed_to(rig: Rig, may_override: bool) -> None:
    app = Heliograph("overrides")

    @app.agent(activate_on=START, updates="seen")
    async def asker(ctx: Context) -> Any:
        await ctx.call("submit", may_override=may_override)
        return "went on"

    run_id = await rig.start(app)
    reply: Any = {"__cg_control": {"after_execution": "terminate"}}
    async with rig.serving(app):
        (command,) = await rig.taken("submit")
        await command.report(result=reply)
        assert await seen(rig, run_id) == (reply if may_override else "went on")
