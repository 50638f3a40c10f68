"""Values that are nested 100,000 deep, from callers and from agents: an error of the input, never of the interpreter (S22)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from heliograph import Client, Context, Heliograph, tool
from heliograph.errors import HeliographError, InvalidInput
from tests.runtime.kit import START, Rig, one


def nested() -> Any:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    return value


DEEP = nested()
CALLS: dict[str, Callable[[Client, str], Any]] = {
    "payload": lambda client, turn: client.enqueue("run_1", "asker", DEEP),
    "payload in an object": lambda client, turn: client.enqueue("run_1", "asker", {"a": DEEP}),
    "result_fields": lambda client, turn: client.enqueue("run_1", "asker", result_fields=[{"name": DEEP}]),
    "budget": lambda client, turn: client.enqueue("run_1", "asker", budget={"tokens": DEEP}),
    "name": lambda client, turn: client.enqueue("run_1", "asker", name=DEEP),
    "result": lambda client, turn: client.report(turn, "c1", result=DEEP),
    "error": lambda client, turn: client.report(turn, "c1", error={"code": "X", "message": "x", "more": DEEP}),
    "cards": lambda client, turn: client.boxes.put([{"kind": "note", "content": DEEP}]),
    "answer": lambda client, turn: client.answer(turn, "c1", DEEP),
    "arguments": lambda client, turn: client.grant(turn, "c1", arguments={"a": DEEP}),
    "reason": lambda client, turn: client.stop_turn(turn, reason=DEEP),
}


@pytest.mark.proves("S22")
@pytest.mark.parametrize("name", CALLS)
async def test_client_rejects_a_value_that_is_nested_too_deep(rig: Rig, name: str) -> None:
    app = Heliograph("people")

    @app.agent(activate_on=START, updates="seen")
    async def asker(ctx: Context) -> None:
        if name == "answer":
            await ctx.ask("how?", call_id="c1")
        else:
            await ctx.approve("go on?", arguments={"a": 1}, may_edit=True, call_id="c1")

    rig.ends_with_open_work = True
    with pytest.raises(InvalidInput):
        await rig.start(app, {"a": DEEP})
    await rig.start(app)
    async with rig.serving(app):
        turn = await rig.turn_of("asker", "suspended")
    with pytest.raises(InvalidInput):
        await CALLS[name](rig.client, turn.turn_id)


def raised(ctx: Context) -> Any:
    raise ValueError(DEEP)


def grouped(ctx: Context) -> Any:
    raise ExceptionGroup("several", [ValueError(DEEP)])


def returned(ctx: Context) -> Any:
    return DEEP


@pytest.mark.proves("S22")
@pytest.mark.parametrize("ends", [raised, grouped, returned])
async def test_agent_that_ends_with_a_value_that_is_nested_too_deep_fails_at_its_first_attempt(
    rig: Rig, ends: Callable[[Context], Any]
) -> None:
    app = Heliograph("deep")

    @app.agent(activate_on=START, updates="seen")
    async def asker(ctx: Context) -> Any:
        return ends(ctx)

    result = await rig.run(app)
    failed = one(result.signals, "agent:failed")
    assert result.outcome == "failed"
    assert failed["error"]["code"] == "ACTION_FAILED"
    assert (await rig.turn_of("asker")).attempts == 0


DEFINITIONS: dict[str, Callable[[Any], Any]] = {
    "application": lambda rig: Heliograph(DEEP),
    "agent": lambda rig: Heliograph("x").agent(name=DEEP, activate_on=START)(returned),
    "no function": lambda rig: Heliograph("x").agent(activate_on=START)(DEEP),
    "activate_on": lambda rig: Heliograph("x").agent(activate_on=DEEP)(returned),
    "emits": lambda rig: Heliograph("x").agent(activate_on=START, emits=[DEEP, DEEP])(returned),
    "budget": lambda rig: Heliograph("x").agent(activate_on=START, budget={"tokens": DEEP})(returned),
    "retries": lambda rig: Heliograph("x").agent(activate_on=START, retries=DEEP)(returned),
    "timeout": lambda rig: Heliograph("x").agent(activate_on=START, timeout_seconds=DEEP)(returned),
    "add": lambda rig: Heliograph("x").add(DEEP),
    "max_activations": lambda rig: Heliograph("x", max_activations=DEEP).workflow,
    "concurrency": lambda rig: rig.runtime.worker(Heliograph("x").workflow, concurrency=DEEP),
    "lease_seconds": lambda rig: rig.runtime.worker(Heliograph("x").workflow, lease_seconds=DEEP),
    "tool": lambda rig: tool(name=DEEP)(returned),
    "secrets": lambda rig: tool(secrets=[DEEP])(returned),
}


@pytest.mark.proves("S22")
@pytest.mark.parametrize("name", DEFINITIONS)
async def test_definition_rejects_a_value_that_is_nested_too_deep(rig: Rig, name: str) -> None:
    with pytest.raises(HeliographError) as raised:
        DEFINITIONS[name](rig)
    assert len(str(raised.value)) < 2000


USES: dict[str, Callable[[Context], Any]] = {
    "call": lambda ctx: ctx.call("oracle", {"a": DEEP}),
    "call id": lambda ctx: ctx.call("oracle", {}, call_id=DEEP),
    "tool": lambda ctx: ctx.call(DEEP),
    "delegate": lambda ctx: ctx.delegate("child", DEEP),
    "delegate an object": lambda ctx: ctx.delegate("child", {"a": DEEP}),
    "delegate to": lambda ctx: ctx.delegate(DEEP, 1),
    "delegation's budget": lambda ctx: ctx.delegate("child", 1, budget={"tokens": DEEP}),
    "step": lambda ctx: ctx.step(DEEP, lambda: 1),
    "step's result": lambda ctx: ctx.step("deep", lambda: DEEP),
    "sleep": lambda ctx: ctx.sleep(DEEP),
    "approve": lambda ctx: ctx.approve("go on?", arguments={"a": DEEP}),
    "ask": lambda ctx: ctx.ask(DEEP),
    "remember": lambda ctx: ctx.remember("x", of=DEEP),
    "recall": lambda ctx: ctx.recall(DEEP),
    "progress": lambda ctx: ctx.progress(DEEP),
    "emit": lambda ctx: ctx.emit("it:happened", DEEP),
    "emit's name": lambda ctx: ctx.emit(DEEP, {}),
}


@pytest.mark.proves("S22")
@pytest.mark.parametrize("name", USES)
async def test_agent_that_uses_a_value_that_is_nested_too_deep_fails_at_its_first_attempt(rig: Rig, name: str) -> None:
    app = Heliograph("deep")

    @app.agent(activate_on=START, updates="seen", emits=["it:happened"])
    async def asker(ctx: Context) -> Any:
        answer = USES[name](ctx)
        return await answer if inspect.isawaitable(answer) else answer

    @app.agent(on_request=True)
    def child(ctx: Context) -> Any:
        return ctx.task

    result = await rig.run(app)
    failed = one(result.signals, "agent:failed")
    assert (result.outcome, failed["agent"]) == ("failed", "asker")
    assert (await rig.turn_of("asker")).attempts == 0
