"""`python -m tests.journeys.kill9_traced_app RUN_ID`: one process with telemetry, and a model that calls two tools one after another.

`wait` writes the file in KILL9_BEGAN and waits until the file in KILL9_GATE exists.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from heliograph import Heliograph, tool
from heliograph.models import AssistantMessage, ModelRequest, ScriptedModel, ToolCall

STEPS = ("quick", "wait")


@tool
async def quick() -> str:
    """Return at once."""
    return "done"


def note() -> None:
    Path(os.environ["KILL9_BEGAN"]).touch()


@tool(effect="idempotent")
async def wait() -> str:
    """Wait for the gate."""
    note()
    while not os.access(os.environ["KILL9_GATE"], os.F_OK):  # noqa: ASYNC110  no event announces it
        await asyncio.sleep(0.01)
    return "done"


def script(request: ModelRequest) -> Any:
    step = sum(isinstance(message, AssistantMessage) for message in request.messages)
    return ToolCall(STEPS[step], STEPS[step], {}) if step < len(STEPS) else "All done."


async def main() -> None:
    app = Heliograph("kill9-traced")
    app.prompt_agent("worker", "Go.", model=ScriptedModel(script), activate_on=["workflow:start"], tools=[quick, wait])
    await app.run({}, run_id=sys.argv[1], lease_seconds=2.0)


if __name__ == "__main__":
    asyncio.run(main())
