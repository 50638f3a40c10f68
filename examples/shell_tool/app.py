"""An agent whose tool is a shell script in another process: tool.sh takes the calls and reports the results by SQL alone.

    HELIOGRAPH_DATABASE_URL=... python -m examples.shell_tool.app FILE
    HELIOGRAPH_DATABASE_URL=... sh examples/shell_tool/tool.sh

The turn waits in the database. The script may start before or after it, on any machine, in any number of processes.
"""

from __future__ import annotations

import asyncio
import os
import sys

from heliograph import Heliograph, external_tool
from heliograph.models import AssistantMessage, ModelRequest, ScriptedModel, ToolCall, ToolMessage

checksum = external_tool(
    "checksum",
    "The SHA-256 of a text.",
    {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    effect="pure",
    timeout_seconds=3600,
)


def script(request: ModelRequest) -> ToolCall | str:
    """A scripted model: request the checksum, then report it."""
    if not any(isinstance(message, AssistantMessage) for message in request.messages):
        return ToolCall("sum", "checksum", {"text": request.prompt})
    [result] = [message for message in request.messages if isinstance(message, ToolMessage)]
    return f"failed: {result.content}" if result.is_error else str(result.content)


app = Heliograph("checksums")
app.prompt_agent(
    "clerk", "{state.text}", model=None if os.environ.get("HELIOGRAPH_MODEL") else ScriptedModel(script),
    activate_on=["workflow:start"], updates="sum", tools=[checksum],
)  # fmt: skip


async def main(text: str) -> None:
    print((await app.run({"text": text})).state["sum"])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
