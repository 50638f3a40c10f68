"""Results that are none (bad-input rows 78 to 87): each has one answer, stores nothing it should not, and hangs no turn."""

from __future__ import annotations

from typing import Any

import pydantic
import pytest

from heliograph import Call, Client, Context, Heliograph, external_tool, tool
from heliograph.definitions.tool import Tool
from heliograph.errors import HeliographError, InvalidInput
from heliograph.models import ScriptedModel
from tests.runtime.kit import START, Rig, calling_app, is_resolved, seen, until
from tests.runtime.loop_kit import agent, call, results

SCHEMA = {"type": "object", "required": ["price"], "properties": {"price": {"type": "integer"}}}


class Price(pydantic.BaseModel):
    price: int


@pytest.mark.parametrize("row", [78, 79, 83, 84, 87])
async def test_invalid_report_is_rejected_with_its_code_and_the_call_remains_open(rig: Rig, row: int) -> None:
    app = calling_app(Call("a"))
    run_id = await rig.start(app)
    async with rig.serving(app):
        (command,) = await rig.taken("a")
        turn, mine = command.turn_id, {"token": command.token}
        foreign_client = Client.on(rig.runtime) if row != 79 else await _of_another_project(rig)
        refused: dict[int, list[tuple[dict[str, Any], str]]] = {
            78: [({**mine, "call_id": "c9", "result": 1}, "unknown_call")],
            79: [({**mine, "call_id": "c1", "result": 1}, "unknown_turn"), ({"call_id": "c1", "result": 1}, "unknown_turn")],
            83: [({"call_id": "c1", "result": 1, "token": token}, "bad_signature") for token in (None, "guess", "")],
            84: [({**mine, "call_id": "c1", "error": {}}, "invalid_result"),
                 ({**mine, "call_id": "c1", "error": "x", "result": 1}, "invalid_result")],
            87: [({**mine, "call_id": "c1", "result": "x" * 2_000_000}, "payload_too_large"),
                 ({**mine, "call_id": "c1", "result": b"\xff\xd8"}, "not_json"),
                 ({**mine, "call_id": "c1", "result": "\ud800"}, "invalid_unicode")],
        }  # fmt: skip
        for report, code in refused[row]:
            with pytest.raises(HeliographError) as error:
                await foreign_client.report(turn, **report)
            assert error.value.code == code, report
        assert (await rig.turn_of("asker")).status == "suspended"
        assert await command.report(result="right") == "applied"
        assert await seen(rig, run_id) == [["c1", "success", "right"]]


async def _of_another_project(rig: Rig) -> Client:
    from heliograph.ledger.client import Ledger

    other = Client.on(rig.runtime)

    class Elsewhere:
        ledger = Ledger(rig.runtime.world, "elsewhere")
        settings = rig.runtime.settings

    other._runtime = Elsewhere()  # type: ignore[assignment]
    return other


async def test_repeated_or_late_report_is_acknowledged_without_effect(rig: Rig) -> None:
    """Rows 80, 81, 82."""
    app = calling_app(Call("a"), Call("b", timeout=600))
    run_id = await rig.start(app)
    async with rig.serving(app):
        a, b = sorted(await rig.taken("a", "b", count=2), key=lambda command: command.tool)
        overdue = (
            "update heliograph.turn_waiting_tools set deadline = now() where agent_turn_id = $1 and tool_call_id = $2"
        )
        await rig.fetch(overdue, b.turn_id, b.call_id)  # after its command was taken: a resolved call has none
        await until(lambda: is_resolved(rig, b.turn_id, b.call_id))
        assert await b.report(result="late") == "late"
        assert await a.report(result=1) == "applied"
        await rig.ended(run_id)
        assert await a.report(result=2) == "turn_done"
        assert [row[:2] for row in await seen(rig, run_id)] == [["c1", "success"], ["c2", "timeout"]]


@pytest.mark.parametrize("schema", [SCHEMA, Price], ids=["schema", "type"])
async def test_report_that_breaks_the_declared_schema_is_a_failure_for_the_agent(rig: Rig, schema: Any) -> None:
    """Row 85: the report is accepted, and the turn continues at once."""
    app = Heliograph("asking")

    @app.agent(activate_on=START, updates="seen")
    async def asker(ctx: Context) -> list[Any]:
        calls = [Call("a", result_schema=schema), Call("a", result_schema=schema)]
        found = [(r.status, r.error and r.error["code"]) async for r in ctx.as_completed(calls)]
        try:
            await ctx.call("a", result_schema=schema)
        except HeliographError as error:
            return [*found, error.code, error.message]
        return found

    run_id = await rig.start(app)
    async with rig.serving(app):
        for _ in range(3):
            (command,) = await rig.taken("a")
            is_second = command.call_id == "c2"
            assert await command.report(result={"price": 5 if is_second else "five"}) == "applied"
        *both, code, message = await seen(rig, run_id)
    assert sorted(map(tuple, both)) == [("failed", "result_schema"), ("success", None)]
    assert code == "result_schema"
    assert "price: " in message
    assert "does not match its schema" in message


@pytest.mark.proves("S9")
async def test_tool_result_that_breaks_its_schema_returns_an_error_to_the_model(rig: Rig) -> None:
    """Row 85, for functions and for tools that work elsewhere."""

    @tool(result_schema=Price, effect="pure")
    def near(text: str) -> Any:
        return {"price": text}

    far: Tool = external_tool("far", "Far away.", result_schema=SCHEMA)
    model = ScriptedModel([[call("near", {"text": "nine"}), call("far", {}, "x2")], "done"])
    app = agent(model, [near, far])
    run_id = await rig.start(app)
    async with rig.serving(app):
        (command,) = await rig.taken("far")
        assert await command.report(result=["no object"]) == "applied"
        await rig.ended(run_id)
    near_result, far_result = results(model)
    assert near_result[0] == "error"
    assert near_result[1].startswith("result_schema: the result of near does not match its schema: price: ")
    assert far_result[0] == "error"
    assert far_result[1].startswith("result_schema: the result of far does not match its schema: ")


def test_invalid_schema_is_rejected_at_the_first_use_of_its_tool() -> None:
    from heliograph.tools.bound_tool import BoundTool

    with pytest.raises(InvalidInput) as refused:
        BoundTool(external_tool("far", "Far away.", result_schema={"type": 7}))
    assert (refused.value.code, refused.value.path) == ("invalid_schema", "/tools/far/result_schema")
