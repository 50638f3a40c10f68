"""The application whose workers are killed at every await: ten steps of a model, with tools of every kind.

The length of a conversation alone decides the model's reply, so every worker receives the same reply each time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from heliograph import Heliograph, Tool, ToolContext, external_tool, tool

MODELS = {"openai": "openai-chat:test", "anthropic": "anthropic:claude-test"}
HELPER = "Help with"

Calls = list[tuple[str, dict[str, Any]]]

# The calls of each step, in parallel; a step without calls replies with a text, and receives a reminder to continue.
STEPS: tuple[Calls, ...] = (
    [("look", {"what": "1a"}), ("look", {"what": "1b"}), ("put", {"what": "1c"})],
    [("mark", {"what": "2a"}), ("book", {"what": "2b"})],
    [("pay", {"what": "3a"}), ("look", {"what": "3b"})],
    [("weather", {"what": "4a"}), ("put", {"what": "4b"}), ("sign", {"what": "4c"})],
    [("delegate_to_helper", {"task": "5a"}), ("book", {"what": "5b"})],
    [],
    [("mark", {"what": "7a"}), ("mark", {"what": "7b"}), ("put", {"what": "7c"})],
    [("pay", {"what": "8a"}), ("pay", {"what": "8b"}), ("weather", {"what": "8c"})],
    [("book", {"what": "9a"}), ("book", {"what": "9b"}), ("look", {"what": "9c"})],
    [("submit_result", {"total": 10})],
)
HELPER_STEPS: tuple[Calls, ...] = ([("put", {"what": "5a"})], [])
EXACTLY_ONCE = ("put", "book", "pay", "weather")  # their effects are there once, however often they are begun
AT_MOST_ONCE = ("mark", "sign")

Point = Callable[[str], Awaitable[None]]


async def happen(connection: Any, run_id: str, tool_name: str, what: str, key: str, *, known: bool = False) -> None:
    """Record an external effect. known: the external system recognises a repeated key (L0-115)."""
    once = " where not exists (select from effects where key = $4)" if known else ""
    await connection.execute(
        f"insert into effects (run, tool, what, key) select $1::text, $2::text, $3::text, $4::text{once}", run_id,
        tool_name, what, key,
    )  # fmt: skip


def make_app(protocol: str, url: str, point: Point) -> Heliograph:
    """Build the application. url: the database that counts effects, on connections outside the runtime."""
    app = Heliograph("awaits")

    async def outside(name: str, ctx: ToolContext, what: str, *, known: bool = False) -> str:
        await point("tool:begun")
        connection = await asyncpg.connect(url)
        try:
            await happen(connection, ctx.run_id, name, what, ctx.idempotency_key, known=known)
        finally:
            await connection.close()
        await point("tool:happened")
        return f"{name} {what}"

    @tool(effect="pure")
    def look(what: str) -> str:
        """Look."""
        return f"look {what}"

    @tool(effect="transactional")
    async def book(what: str, ctx: ToolContext) -> str:
        """Book."""
        await point("tool:begun")
        await happen(ctx.connection, ctx.run_id, "book", what, ctx.idempotency_key)
        await point("tool:happened")
        return f"book {what}"

    def outer(name: str, *, known: bool, **options: Any) -> Tool:
        async def function(what: str, ctx: ToolContext) -> str:
            return await outside(name, ctx, what, known=known)

        return tool(name=name, description=name, **options)(function)

    put = outer("put", known=True, effect="idempotent")
    app.prompt_agent(
        "worker", "Do all of {state.what}.", model=MODELS[protocol], activate_on=["workflow:start"], updates="out",
        result_fields=[{"name": "total"}], agents=["helper"],
        tools=[
            look, book, put, outer("mark", known=False, effect="once"), outer("pay", known=True, effect="idempotent", approval=True),
            outer("sign", known=False, effect="once", approval=True),
            external_tool("weather", "The weather.", {"type": "object", "properties": {"what": {"type": "string"}}}),
        ],
    )  # fmt: skip
    app.prompt_agent(
        "helper",
        lambda ctx: f"{HELPER} {ctx.document['what']}: {ctx.task}.",
        model=MODELS[protocol],
        on_request=True,
        tools=[put],
    )
    return app
