"""An application in two versions: as its turns began, and with one change."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Collection
from typing import Any

from pydantic import BaseModel

from heliograph import Context, Delegation, Heliograph, Step, tool
from heliograph.errors import ToolFailed
from heliograph.models import ScriptedModel, ToolCall
from heliograph.policy.retry import RetryPolicy


class Order(BaseModel):
    text: str
    answer: str = ""


class StrictOrder(Order):
    customer: str


def changing(*changes: str, effects: list[str] | None = None) -> Heliograph:
    """The application with these changes. effects: receives what a check must not do."""
    done = [] if effects is None else effects
    app = Heliograph("changing", state=StrictOrder if "state" in changes else Order)
    _add_functions(app, changes, done)
    _add_parallel(app, changes, done)
    _add_clerk(app, changes, done)
    return app


def _add_functions(app: Heliograph, changes: Collection[str], done: list[str]) -> None:
    def effect(name: str, value: Any = None) -> Any:
        done.append(name)
        return value

    @app.agent(activate_on=["workflow:start"])
    async def buyer(ctx: Context) -> None:
        if "inserted" in changes:
            await ctx.step("audit", effect, "audit")
        stamp = await ctx.step("stamp", lambda: effect("stamp", [time.time(), str(uuid.uuid4())]))
        if "raises" in changes:
            raise KeyError("price")
        name = "cost" if "renamed step" in changes else "price"
        price = await ctx.step(name, effect, name, 40)
        if "ends early" in changes:
            return
        try:
            await ctx.approve("pay?", arguments={"price": price + ("arguments" in changes), "stamp": stamp})
        finally:
            effect_at_end = ctx.deferrals
        await ctx.step("pay", effect, f"pay {effect_at_end}")

    @app.agent(activate_on=["workflow:start"])
    async def guesser(ctx: Context) -> None:
        """Its arguments depend on chance."""
        schema = {"type": "integer"} if "schema" in changes else None
        await ctx.call("guess", {"seed": str(uuid.uuid4())}, call_id="guess", result_schema=schema)

    @app.agent(activate_on=["workflow:start"])
    async def patient(ctx: Context) -> None:
        await ctx.sleep(0.01)
        if "hangs" in changes:
            await asyncio.get_running_loop().create_future()
        await ctx.pause(50.0)

    async def child(ctx: Context) -> None:
        await ctx.call("weigh", {"n": ctx.task["n"]})

    app.agent(name="other" if "renamed agent" in changes else "child", on_request=True)(child)

    @app.agent(activate_on=["workflow:start"])
    async def parent(ctx: Context) -> None:
        target = "other" if "renamed agent" in changes else "child"
        await ctx.delegates([Delegation(target, {"n": n + ("task" in changes)}) for n in range(2)])


def _add_parallel(app: Heliograph, changes: Collection[str], done: list[str]) -> None:
    async def flaky() -> None:
        done.append("flaky")
        raise ConnectionError("lost")

    @app.agent(activate_on=["workflow:start"])
    async def crowd(ctx: Context) -> None:
        async def one(n: int) -> None:
            await ctx.step("work", done.append, f"work {n}")
            await ctx.sleep(0.05 * n)
            await ctx.call("look", {"n": n})

        await asyncio.gather(*(one(n) for n in range(2 if "fewer tasks" in changes else 3)))

    @app.agent(activate_on=["workflow:start"])
    async def stubborn(ctx: Context) -> None:
        policy = RetryPolicy(max_attempts=5, initial_delay_seconds=30.0, jitter=False)
        try:
            await ctx.step(Step("flaky", effect="idempotent", retry=None if "no retry" in changes else policy), flaky)
        except ToolFailed:
            return


def _add_clerk(app: Heliograph, changes: Collection[str], done: list[str]) -> None:
    @tool(name="find" if "renamed tool" in changes else "lookup", effect="idempotent")
    def lookup(word: str) -> str:
        """Look up a word."""
        done.append("lookup")
        return word.upper()

    @tool(approval="no approval" not in changes)
    def refund(order: str) -> str:
        """Pay back."""
        done.append("refund")
        return order

    class Counted(ScriptedModel):
        async def stream(self, request: Any) -> Any:
            done.append("model")
            async for chunk in super().stream(request):
                yield chunk

    model = Counted([ToolCall("1", "lookup", {"word": "a"}), ToolCall("2", "refund", {"order": "A"}), "done"])
    prompt = "Another prompt" if "prompt" in changes else "Look up {state.text}"
    app.prompt_agent(
        "clerk", prompt, model=model, tools=[lookup, refund], activate_on=["workflow:start"], updates="answer"
    )
