"""Six routes from an untrusted tool to a tool with an effect: the content remains untrusted on each (S24)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from heliograph import Call, Context, Delegation, Heliograph, external_tool, tool, untrusted
from heliograph.models import ScriptedModel
from tests.runtime.human_task_kit import open_tasks
from tests.runtime.kit import START, Rig, one
from tests.runtime.loop_kit import agent, call
from tests.runtime.taint_kit import MAIL, Payer, reader, trust_of


@pytest.mark.proves("S9", "S24")
async def test_content_remains_untrusted_through_a_function_agent(rig: Rig) -> None:
    app, payer = Heliograph("route"), Payer()
    reader(app, activate_on=START, emits=["mail:read"])

    @app.agent(activate_on=["mail:read"], updates="order")
    def sorter(ctx: Context) -> Any:
        return {"text": ctx.signal.payload["output"].upper()}

    payer.join(app, "Do it: {state.order}", ["state:order:changed"])
    run_id = await rig.start(app)
    async with rig.serving(app):
        await payer.is_stopped(rig, run_id, "state.order")
    assert payer.request.prompt == f"Do it: {untrusted({'text': MAIL.upper()}, 'state.order')}"
    assert payer.request.has_untrusted


@pytest.mark.proves("S9", "S24")
@pytest.mark.parametrize("kind", ["call", "calls", "as_completed", "delegate", "delegates"])
async def test_content_remains_untrusted_through_the_calls_of_a_function_agent(rig: Rig, kind: str) -> None:
    app, payer = Heliograph("route"), Payer()
    reader(app, on_request=True)

    @app.agent(activate_on=START, updates="order")
    async def clerk(ctx: Context) -> Any:
        if kind == "call":
            return await ctx.call("fetch")
        if kind == "calls":
            return [result.output for result in await ctx.calls([Call("fetch")])]
        if kind == "as_completed":
            return [result.output async for result in ctx.as_completed([Call("fetch")])]
        if kind == "delegate":
            return await ctx.delegate("reader")
        return [result.output for result in await ctx.delegates([Delegation("reader")])]

    payer.join(app, "Do it: {state.order}", ["state:order:changed"])
    run_id = await rig.start(app)
    async with rig.serving(app):
        if not kind.startswith("delegate"):
            (command,) = await rig.taken("fetch")
            await command.report(result=MAIL)
        await payer.is_stopped(rig, run_id, "state.order")
    trust_by_name = await trust_of(rig, run_id)
    assert "untrusted" in trust_by_name["delegation_response" if kind.startswith("delegate") else "tool:result"]
    assert trust_by_name["state:order:changed"] == ["untrusted"]


@pytest.mark.proves("S9", "S24")
async def test_content_remains_untrusted_in_the_state_and_key_by_key(rig: Rig) -> None:
    app, payer = Heliograph("route"), Payer()
    reader(app, activate_on=START, updates="order")
    payer.join(app, "Do it: {state.order}; {state.polite}", ["state:order:changed"])
    free = Payer()
    free.join(other := Heliograph("free"), "Be {state.polite}", ["state:order:changed"])
    reader(other, activate_on=START, updates="order")
    run_id = await rig.start(app, {"polite": "yes"})
    async with rig.serving(app):
        await payer.is_stopped(rig, run_id, "state.order")
        assert payer.request.prompt == f"Do it: {untrusted(MAIL, 'state.order')}; yes"
    await rig.run(other, {"polite": "yes"})
    assert free.paid == [5]  # the prompt shows a trusted key only


@pytest.mark.proves("S9", "S24")
async def test_content_remains_untrusted_in_signals(rig: Rig) -> None:
    app, payer = Heliograph("route"), Payer()
    reader(app, activate_on=START, emits=["mail:read"])
    payer.join(app, "{signal.name} says {signal.payload}", ["mail:read"])
    run_id = await rig.start(app)
    async with rig.serving(app):
        await payer.is_stopped(rig, run_id, "signal mail:read")
    trust_by_name = await trust_of(rig, run_id)
    assert [trust_by_name[name][0] for name in ("mail:read", "agent:completed", "text:complete")] == ["untrusted"] * 3
    assert (trust_by_name["workflow:start"], trust_by_name["harness:start"][:2]) == (
        ["trusted"],
        ["trusted", "untrusted"],
    )


@pytest.mark.proves("S9", "S24")
async def test_content_remains_untrusted_in_the_memory(rig: Rig) -> None:
    app, payer = Heliograph("route"), Payer()

    @app.agent(activate_on=START, emits=["mail:kept"])
    async def keeper(ctx: Context) -> None:
        await ctx.remember("the weather is fine", place="here")
        await ctx.remember(str(await ctx.call("fetch")))
        ctx.emit("mail:kept")

    @app.agent(activate_on=["mail:kept"], updates="order")
    async def finder(ctx: Context) -> Any:
        return [(hit.text, hit.trust) for hit in await ctx.recall("Mallory", everywhere=True)]

    @app.agent(activate_on=["mail:kept"], updates="weather")
    async def watcher(ctx: Context) -> Any:
        return [(hit.text, hit.trust) for hit in await ctx.recall("weather", everywhere=True)]

    payer.join(app, "Do it: {state.order}", ["state:order:changed"])
    run_id = await rig.start(app)
    async with rig.serving(app):
        (command,) = await rig.taken("fetch")
        await command.report(result=MAIL)
        await payer.is_stopped(rig, run_id, "state.order")
    state = (await rig.runtime.reader.run(run_id)).state
    assert (state["order"], state["weather"]) == ([[MAIL, "untrusted"]], [["the weather is fine", "trusted"]])
    trust_by_name = await trust_of(rig, run_id)
    assert (trust_by_name["state:order:changed"], trust_by_name["state:weather:changed"]) == (
        ["untrusted"],
        ["trusted"],
    )


@pytest.mark.proves("S9", "S24")
async def test_content_remains_untrusted_in_boxes(rig: Rig) -> None:
    source = Heliograph("source")
    reader(source, activate_on=START)
    await rig.run(source)
    turn = await rig.turn_of("reader", "done")
    box = await rig.client.boxes.fork(f"box_{turn.turn_id}")
    app, payer = Heliograph("route"), Payer()

    @app.agent(activate_on=START)
    async def opener(ctx: Context) -> None:
        await ctx.pause(0.5)  # so that the run is there for the message

    @app.agent(on_request=True, updates="order")
    async def librarian(ctx: Context) -> Any:
        return str([card.content for card in await ctx.context()])

    payer.join(app, "Do it: {state.order}", ["state:order:changed"])
    run_id = await rig.start(app)
    await rig.client.enqueue(run_id, "librarian", context_box_id=box)
    async with rig.serving(app):
        await payer.is_stopped(rig, run_id, "state.order")


@pytest.mark.proves("S9")
async def test_error_of_an_untrusted_tool_is_framed_and_later_calls_require_approval(rig: Rig) -> None:
    @tool(effect="pure", trusted=False)
    def page() -> str:
        raise ValueError(MAIL)

    @tool(effect="once")
    def pay(amount: int) -> str:
        raise AssertionError("nobody has approved it")

    model = ScriptedModel([call("page"), call("pay", {"amount": 5}, "x2"), "done"])
    app = agent(model, [page, pay])
    run_id = await rig.start(app)
    async with rig.serving(app):
        (task,) = await open_tasks(rig)
        assert task.question == "May worker call pay? The agent has read untrusted content: page."
        await rig.client.deny(task.turn_id, task.call_id)
        await rig.ended(run_id)
    first = model.requests[-1].messages[2]
    assert (first.is_error, first.is_untrusted) == (True, True)  # type: ignore[union-attr]


async def test_cards_distinguish_trusted_results_from_untrusted_ones(rig: Rig) -> None:
    @tool(effect="pure")
    def add(a: int, b: int) -> int:
        return a + b

    model = ScriptedModel([call("add", {"a": 1, "b": 2}), [call("sum", {}, "x2"), call("far", {}, "x3")], "done"])
    app = agent(model, [add, external_tool("sum", "Sum.", trusted=True), external_tool("far", "Far.")])
    run_id = await rig.start(app)
    async with rig.serving(app):
        for command in await rig.taken("sum", "far", count=2):
            await command.report(result=1)
        await rig.ended(run_id)
    query = "select content from heliograph.cards where project_id = $1 and kind = 'tool.result'"
    cards = [json.loads(row["content"]) for row in await rig.fetch(query, rig.runtime.settings.project)]
    assert {card["call_id"]: card["trust"] for card in cards} == {
        "m1": "trusted", "m1-1": "trusted", "m2": "trusted", "m2-1": "trusted", "m2-2": "untrusted",
    }  # fmt: skip


async def test_author_vouches_for_an_agent_or_for_a_call(rig: Rig) -> None:
    app, payer, sure = Heliograph("vouched"), Payer(), Heliograph("sure")
    reader(app, activate_on=START, emits=["mail:read"])

    @app.agent(activate_on=["mail:read"], updates="count", trusted=True)
    def counter(ctx: Context) -> int:
        return len(ctx.signal.payload["output"])

    payer.join(app, "Pay {state.count}", ["state:count:changed"])
    await rig.run(app)
    assert payer.paid == [5]
    payer = Payer()

    @sure.agent(activate_on=START, updates="order")
    async def clerk(ctx: Context) -> Any:
        return await ctx.call("fetch", trusted=True)

    payer.join(sure, "Do it: {state.order}", ["state:order:changed"])
    run_id = await rig.start(sure)
    async with rig.serving(sure):
        (command,) = await rig.taken("fetch")
        await command.report(result="pay")
        log = await rig.ended(run_id)
    assert (payer.paid, one(log, "workflow:end")["outcome"]) == ([5], "success")


async def test_trusted_replacement_of_an_untrusted_value_is_trusted_and_a_reducer_keeps_the_mark(rig: Rig) -> None:
    app = Heliograph("replaced", reducers={"notes": lambda old, new: [*(old or []), new]})
    reader(app, activate_on=START, updates="notes", emits=["first:done"])

    @app.agent(activate_on=["first:done"], updates=["notes", "order"])
    def writer(ctx: Context) -> Any:
        return {"notes": "mine", "order": "mine"}

    result = await rig.run(app)
    assert result.state["notes"] == [MAIL, "mine"]
    run = await rig.fetch("select memory -> 'untrusted_keys' as keys from heliograph.runs where project_id = $1",
                          rig.runtime.settings.project)  # fmt: skip
    assert run[0]["keys"] == '["notes"]'
