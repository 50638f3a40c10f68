"""Functions that provoke failures of calls: of tools, delegations, models, memories and connections. One for each code."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import mcp  # noqa: F401  slow to import: before the first test that needs it
import pydantic_ai.models.openai  # noqa: F401  the same

from heliograph import Call, Context, Heliograph, RunResult, Step
from heliograph.models import FunctionHarness, ScriptedModel, ToolCall
from heliograph.tools import MCPServer
from tests.reach.model_server import Answer, Provider
from tests.runtime.human_task_kit import open_tasks
from tests.runtime.kit import START, Rig, one

Provoke = Callable[[Rig, Provider], Awaitable[Any]]

PROVOCATIONS: dict[str, Provoke] = {}


def provokes(code: str) -> Callable[[Provoke], Provoke]:
    """Register a function that provokes a failure and returns the error of the turn."""

    def register(function: Provoke) -> Provoke:
        assert code not in PROVOCATIONS
        PROVOCATIONS[code] = function
        return function

    return register


def failing(function: Any, **options: Any) -> Heliograph:
    app = Heliograph("failing")
    app.agent(name="worker", activate_on=START, **options)(function)
    return app


def error_of(result: RunResult) -> Any:
    """Return the error of the only failed turn, which the signal `error` also has."""
    error, failed = one(result.signals, "error"), one(result.signals, "agent:failed")["error"]
    assert (error["error_code"], error["message"]) == (failed["code"], failed["message"])
    return failed


async def error_of_function(rig: Rig, function: Any, **options: Any) -> Any:
    return error_of(await rig.run(failing(function, **options)))


async def error_of_model(rig: Rig, model: Any, **options: Any) -> Any:
    app = Heliograph("failing")
    app.prompt_agent("worker", "Work.", model=model, activate_on=START, retries=0, **options)
    return error_of(await rig.run(app))


async def done(_ctx: Context) -> str:
    return "done"


async def raises(_ctx: Context) -> None:
    raise ValueError("no ink")


async def forever(_ctx: Any = None) -> None:
    await asyncio.Event().wait()


@provokes("TOOL_ERROR")
async def provoke_tool_error(rig: Rig, _provider: Provider) -> Any:
    async def worker(ctx: Context) -> None:
        await ctx.step("post", lambda: 1 / 0)

    return await error_of_function(rig, worker)


@provokes("TOOL_TIMEOUT")
async def provoke_tool_timeout(rig: Rig, _provider: Provider) -> Any:
    async def worker(ctx: Context) -> None:
        await ctx.step(Step("post", effect="pure", timeout=0.05), forever)

    result = await rig.run(failing(worker))
    assert one(result.signals, "error")["details"]["scope"] == "call"
    return error_of(result)


@provokes("DELEGATION_ERROR")
async def provoke_delegation_error(rig: Rig, _provider: Provider) -> Any:
    error = await _delegated(rig, raises)
    assert error["details"] == {"reason": "ACTION_FAILED"}
    return error


@provokes("DELEGATION_TIMEOUT")
async def provoke_delegation_timeout(rig: Rig, _provider: Provider) -> Any:
    return await _delegated(rig, forever, timeout=0.05)


async def _delegated(rig: Rig, child: Any, **options: Any) -> Any:
    async def worker(ctx: Context) -> None:
        await ctx.delegate("child", **options)

    app = failing(worker)
    app.agent(name="child", on_request=True)(child)
    run_id = await rig.start(app)
    async with rig.serving(app):
        signals = await rig.ended(run_id)
    failed: list[Any] = [s.payload for s in signals if s.name == "agent:failed"]
    return next(each["error"] for each in failed if each["agent"] == "worker")


class BrokenMemory:
    async def store(self, *_given: Any) -> None:
        raise OSError("the disk of the memory is full")

    async def search(self, *_given: Any) -> list[Any]:
        return [{"no": "hit"}]


@provokes("MEMORY_ERROR")
async def provoke_memory_error(rig: Rig, _provider: Provider) -> Any:
    async def remember(ctx: Context) -> None:
        await ctx.remember("the sun is far")

    async def recall(ctx: Context) -> None:
        await ctx.recall("sun")

    async def remember_too_much(ctx: Context) -> None:
        await ctx.remember("x" * 17_000)

    async def error_with(worker: Any, memory: Any) -> Any:
        app = Heliograph("failing", memory=memory)
        app.agent(name="worker", activate_on=START)(worker)
        return error_of(await rig.run(app))

    searched = await error_with(recall, BrokenMemory())
    ours = await error_with(remember_too_much, None)
    assert (searched["code"], ours["code"]) == ("MEMORY_ERROR", "MEMORY_ERROR")
    assert ours["details"] == {"reason": "memory_too_large"}
    stored = await error_with(remember, BrokenMemory())
    assert "OSError: the disk of the memory is full" in stored["message"]
    return stored


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@provokes("NETWORK_ERROR")
async def provoke_network_error(rig: Rig, provider: Provider) -> Any:
    async def connect() -> None:
        await asyncio.open_connection("127.0.0.1", closed_port())

    async def step(ctx: Context) -> None:
        await ctx.step("connect", connect)

    async def wrapped(_ctx: Context) -> None:
        try:
            await connect()
        except OSError as error:
            raise LookupError("no index") from error

    provider.answers = [Answer(("half ", "a reply"), cut_after=1)]
    model = await error_of_model(rig, "openai-chat:test")
    errors = [await error_of_function(rig, worker) for worker in (step, wrapped)]
    assert {(each["code"], each["recoverable"]) for each in (*errors, model)} == {("NETWORK_ERROR", True)}
    return model


@provokes("AUTH_ERROR")
async def provoke_auth_error(rig: Rig, provider: Provider) -> Any:
    errors: list[Any] = []
    key = "sk-live-abcdefghijklmnopqrstuvwxyz"
    for status in (401, 403):
        provider.answers = [Answer((f"Incorrect API key provided: {key}. See your account.",), status=status)]
        app = Heliograph("failing")
        app.prompt_agent("worker", "Work.", model="openai-chat:test", activate_on=START)
        result = await rig.run(app)  # not deferred: the same key is rejected again
        assert len(provider.requests) == 1
        provider.requests.clear()
        assert "abcdefgh" not in str(result.signals)
        assert "Incorrect API key provided: sk-…" in one(result.signals, "harness:error")["message"]
        assert one(result.signals, "harness:error")["details"] == {"model": "test", "status": status}
        error = error_of(result)
        assert error["details"] == {"model": "test", "status": status}
        errors.append(error)
    return errors[0]


@provokes("RATE_LIMITED")
async def provoke_rate_limited(rig: Rig, provider: Provider) -> Any:
    provider.answers = [Answer(("slow down",), status=429, retry_after="7")]
    error = await error_of_model(rig, "openai-chat:test")
    assert error["details"] == {"model": "test", "status": 429, "retry_after_ms": 7000}
    return error


@provokes("IN_DOUBT")
async def provoke_in_doubt(rig: Rig, _provider: Provider) -> Any:
    async def worker(ctx: Context) -> None:
        await ctx.step(Step("pay", effect="once", timeout=0.05), forever)

    return await error_of_function(rig, worker)


@provokes("result_schema")
async def provoke_result_schema(rig: Rig, _provider: Provider) -> Any:
    errors: list[Any] = []

    async def worker(ctx: Context) -> None:
        [result] = await ctx.calls([Call("ask", result_schema={"type": "integer"})])
        errors.append(result.error)

    app = failing(worker)
    run_id = await rig.start(app)
    async with rig.serving(app):
        [command] = await rig.taken("ask")
        await command.report(result="no number")
        await rig.ended(run_id)
    return errors[0]


@provokes("RESULT_TOO_LARGE")
async def provoke_result_too_large(rig: Rig, _provider: Provider) -> Any:
    def dump() -> str:
        """Dump."""
        return "x" * 2_000_000

    app = Heliograph("failing")
    app.prompt_agent("worker", "Work.", model=ScriptedModel([ToolCall("1", "dump", {}), "it was too large"]), tools=[dump],
                     activate_on=START)  # fmt: skip
    return one((await rig.run(app)).signals, "tool:result")["error"]


@provokes("RESULT_MISSING")
async def provoke_result_missing(rig: Rig, _provider: Provider) -> Any:
    return await error_of_function(rig, done, result_fields=[{"name": "verdict"}])


@provokes("DENIED")
async def provoke_denied(rig: Rig, _provider: Provider) -> Any:
    async def worker(ctx: Context) -> None:
        await ctx.approve("Book it?")

    app = failing(worker)
    run_id = await rig.start(app)
    async with rig.serving(app):
        [task] = await open_tasks(rig)
        await rig.client.deny(task.turn_id, task.call_id, reason="no money")
        signals = await rig.ended(run_id)
    return one(signals, "agent:failed")["error"]


@provokes("MODEL_TIMEOUT")
async def provoke_model_timeout(rig: Rig, _provider: Provider) -> Any:
    async def slow(_request: Any) -> str:
        await forever()
        return ""

    return await error_of_model(rig, FunctionHarness(slow), model_timeout_seconds=0.05)


@provokes("MCP_UNAVAILABLE")
async def provoke_mcp_unavailable(rig: Rig, _provider: Provider) -> Any:
    ends = MCPServer([sys.executable, "-c", "import sys; sys.exit(1)"])
    return await error_of_model(rig, ScriptedModel(["never called"]), tools=[ends])
