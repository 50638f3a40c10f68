"""Agents at work, measured beside works A and B: a prompt agent with a tool, an agent with a hundred children, a run of a thousand agents,
and answers that stream. Each is an application of its own, so a worker serves only the measured one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from bench.load import AGENTS, CHILDREN, CHILDREN_OF_AN_AGENT, RUN_OF_AGENTS, STEPS, STREAM, TOKENS, TOKENS_PER_SECOND
from heliograph import Context, Delegation, Heliograph, tool
from heliograph.models import ModelReply, ModelRequest, TextDelta

PROMPT, MODEL = "Add one and two.", "openai-chat:bench"


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Clock:
    """A model whose tokens are the times at which it emitted them: `TOKENS`, at `TOKENS_PER_SECOND`."""

    model = "clock"

    async def stream(self, _request: ModelRequest) -> AsyncIterator[Any]:
        text, begun = "", time.monotonic()
        for n in range(TOKENS):
            await asyncio.sleep(max(0.0, begun + n / TOKENS_PER_SECOND - time.monotonic()))
            token = f"{time.monotonic():.6f} "
            text += token
            yield TextDelta(token)
        yield ModelReply(text)


def application(work: str) -> Heliograph:
    return {STEPS: _steps, CHILDREN: _children, RUN_OF_AGENTS: _agents, STREAM: _streams}[work]()


def _steps() -> Heliograph:
    app = Heliograph("bench-steps")
    app.prompt_agent(
        "adder", PROMPT, model=MODEL, tools=[tool(effect="idempotent")(add)], activate_on=["workflow:start"]
    )
    return app


def _children() -> Heliograph:
    app = Heliograph("bench-children")

    @app.agent(activate_on=["workflow:start"])
    async def parent(ctx: Context) -> int:
        return len(await ctx.delegates([Delegation("child", {}) for _ in range(CHILDREN_OF_AN_AGENT)]))

    @app.agent(on_request=True)
    async def child(_: Context) -> dict[str, bool]:
        return {"ok": True}

    return app


def _agents() -> Heliograph:
    app = Heliograph("bench-agents")
    for number in range(AGENTS):

        @app.agent(name=f"agent-{number}", activate_on=["workflow:start"])
        async def noop(_: Context) -> dict[str, bool]:
            return {"ok": True}

    return app


def _streams() -> Heliograph:
    app = Heliograph("bench-streams")
    app.prompt_agent("speaker", "Speak.", model=Clock(), activate_on=["workflow:start"])
    return app
