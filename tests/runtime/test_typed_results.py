"""The types of an application reach its code: its deps, and results as the type that the caller declares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pydantic

from heliograph import Context, Heliograph, ToolContext, tool
from heliograph.errors import HeliographError
from heliograph.models import ScriptedModel
from tests.runtime.kit import START, Rig, seen
from tests.runtime.loop_kit import agent, call, results


@dataclass(frozen=True)
class Prices:
    lamp: int


class Price(pydantic.BaseModel):
    price: int

    @pydantic.field_validator("price")
    @classmethod
    def is_even(cls, price: int) -> int:
        if price % 2:
            raise ValueError("a price is even")
        return price


async def test_context_and_typed_tool_context_have_the_deps_of_the_application(rig: Rig) -> None:
    @tool(effect="pure")
    def lamp(context: ToolContext[Prices]) -> int:
        return context.deps.lamp

    model = ScriptedModel([call("lamp", {}), "done"])
    app = agent(model, [lamp], deps=Prices(7))

    @app.agent(activate_on=START, updates="seen")
    def reader(ctx: Context[dict[str, Any], Prices]) -> int:
        return ctx.deps.lamp

    assert (await rig.run(app)).state["seen"] == 7
    assert results(model) == [7]


async def test_result_of_a_call_is_returned_as_its_declared_type(rig: Rig) -> None:
    app = Heliograph("typed")

    @app.agent(activate_on=START, updates="seen")
    async def asker(ctx: Context) -> list[Any]:
        first = await ctx.call("quote", result_schema=Price)
        try:
            await ctx.call("quote", result_schema=Price)
        except HeliographError as error:
            return [type(first).__name__, first.price, error.code, error.message]
        return []

    run_id = await rig.start(app)
    async with rig.serving(app):
        for price in (4, 5):  # both match the JSON Schema
            (command,) = await rig.taken("quote")
            assert await command.report(result={"price": price}) == "applied"
        name, price, code, message = await seen(rig, run_id)
    assert (name, price, code) == ("Price", 4, "result_schema")
    assert "the result of quote does not match its type" in message
    assert "a price is even" in message
