"""`python -m tests.journeys.traced_app RUN_ID`: one process with telemetry, which is killed while it waits for a gate.

The turn weighs a parcel in another system over HTTP, waits for the file in TRACED_GATE, requests an approval, and delegates to an agent of
another pool, whose model calls a tool of an MCP server. The other system also receives the callback of the run.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from heliograph import Context, Heliograph, Step, tool
from heliograph.models import ModelRequest, ScriptedModel, ToolCall, ToolMessage
from heliograph.tools import MCPServer
from heliograph.trace_context import trace_headers

CUSTOMS = Path(__file__).parent.parent / "reach" / "mcp_trace_server.py"

app = Heliograph("traced-parcels")


@tool(effect="idempotent")
def weigh(kg: int) -> Any:
    """Weigh a parcel in another system."""
    request = Request(f"{os.environ['TRACED_SYSTEM']}/scale", b"%d" % kg, trace_headers())  # noqa: S310  of this test
    with urlopen(request, timeout=30) as answer:  # noqa: S310
        return answer.status


def note() -> None:
    Path(os.environ["TRACED_BEGAN"]).touch()


async def wait() -> str:
    note()
    while not os.access(os.environ["TRACED_GATE"], os.F_OK):  # noqa: ASYNC110  no event announces it
        await asyncio.sleep(0.01)
    return "done"


@app.agent(activate_on=["workflow:start"], updates="out", ttl_seconds=7 * 86_400, max_attempts=50)
async def lead(ctx: Context) -> Any:
    weighed = await ctx.step("weigh", weigh, 2)
    await ctx.step(Step("wait", effect="idempotent"), wait)
    await ctx.approve("Send it?")
    return [weighed, await ctx.delegate("carrier", {"kg": 2})]


def carries(request: ModelRequest) -> Any:
    has_result = any(isinstance(message, ToolMessage) for message in request.messages)
    return "carried" if has_result else ToolCall("c1", "trace", {})


app.prompt_agent("carrier", "Carry it.", model=ScriptedModel(carries), on_request=True, pool="carriers",
                 tools=[MCPServer([sys.executable, str(CUSTOMS)], name="customs", trusted=True)])  # fmt: skip

if __name__ == "__main__":
    asyncio.run(app.run({}, run_id=sys.argv[1], lease_seconds=1.0, callback_url=f"{os.environ['TRACED_SYSTEM']}/hook"))
