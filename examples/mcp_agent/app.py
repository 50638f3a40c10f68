"""An agent that uses the tools of an MCP server: the time anywhere, by the public server mcp-server-time.

    pip install 'heliograph[mcp]' mcp-server-time
    python -m examples.mcp_agent.app "What time is it in Tokyo?"

Each worker starts the server program once, for all turns. The tools only read and are declared as such, so the next worker
repeats a call that a lost worker had started. HELIOGRAPH_MODEL names the model; without it a script replaces it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from heliograph import Heliograph
from heliograph.models import AssistantMessage, ModelRequest, ScriptedModel, ToolCall, ToolMessage
from heliograph.tools import MCPServer

CITIES = {"tokyo": "Asia/Tokyo", "oslo": "Europe/Oslo", "lima": "America/Lima"}

clock = MCPServer(
    [sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC"],
    name="time",
    tools=["get_current_time", "convert_time"],  # the agent gets no other tools of the server
    effect="pure",
    timeout_seconds=20,
)


def script(request: ModelRequest) -> list[ToolCall] | str:
    """A scripted model: request the time of each named city, then report it."""
    wanted = [zone for city, zone in CITIES.items() if city in request.prompt.lower()] or ["UTC"]
    if not any(isinstance(message, AssistantMessage) for message in request.messages):
        return [ToolCall(zone, "get_current_time", {"timezone": zone}) for zone in wanted]
    results = [message for message in request.messages if isinstance(message, ToolMessage)]
    return "; ".join(
        f"{m.content['timezone']}: {m.content['datetime']}" if isinstance(m.content, dict) else json.dumps(m.content)
        for m in results
    )


app = Heliograph("clock")
app.prompt_agent(
    "timekeeper", "{state.question}", model=None if os.environ.get("HELIOGRAPH_MODEL") else ScriptedModel(script),
    activate_on=["workflow:start"], updates="answer", tools=[clock],
)  # fmt: skip


async def main(question: str) -> None:
    print((await app.run({"question": question})).state["answer"])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
