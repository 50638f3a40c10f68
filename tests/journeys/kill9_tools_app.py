"""`python -m tests.journeys.kill9_tools_app RUN_ID`: one process, and a model that calls three tools one after another.

`mark` may happen once, `book` writes to our own database, `pid` is a tool of an MCP server. The first two append a
line to the file in KILL9_EFFECTS and wait until the file in KILL9_GATE exists. Prints the results that the model received.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from heliograph import Heliograph, ToolContext, tool
from heliograph.models import AssistantMessage, ModelRequest, ScriptedModel, ToolCall, ToolMessage
from heliograph.tools import MCPServer

SERVER = str(Path(__file__).parent.parent / "reach" / "mcp_server.py")
STEPS = ("pid", "mark", "book")


def note(name: str) -> None:
    with Path(os.environ["KILL9_EFFECTS"]).open("a") as file:
        file.write(f"{name}\n")


async def middle(name: str) -> None:
    note(name)
    while not os.access(os.environ["KILL9_GATE"] + name, os.F_OK):  # noqa: ASYNC110  no event announces it
        await asyncio.sleep(0.01)


@tool
async def mark() -> str:
    """Mark."""
    await middle("mark")
    return "marked"


@tool(effect="transactional")
async def book(ctx: ToolContext) -> str:
    """Book."""
    await ctx.connection.execute("insert into bookings values ($1)", ctx.idempotency_key)
    await middle("book")
    return "booked"


def script(request: ModelRequest) -> Any:
    step = sum(isinstance(message, AssistantMessage) for message in request.messages)
    if step < len(STEPS):
        return ToolCall(STEPS[step], STEPS[step], {})
    return json.dumps([m.content for m in request.messages if isinstance(m, ToolMessage)])


async def main() -> None:
    app = Heliograph("kill9-tools")
    app.prompt_agent("worker", "Go.", model=ScriptedModel(script), activate_on=["workflow:start"], updates="told",
                     tools=[mark, book, MCPServer([sys.executable, SERVER], name="own", tools=["pid"], effect="pure", trusted=True)])  # fmt: skip
    result = await app.run({}, run_id=sys.argv[1], lease_seconds=2.0)
    print(result.state["told"])


if __name__ == "__main__":
    asyncio.run(main())
