"""Handlers of control signals: the specification's samples line by line, and the handlers that Heliograph has."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from typing import Any

import pytest

from heliograph import tool
from heliograph.control.payloads import (
    DelegationPayload,
    HaltPayload,
    ToolCallPayload,
    ToolCallResponsePayload,
)
from heliograph.control.signals import (
    ControlSignal,
    DelegationResponse,
    DelegationSignal,
    HaltSignal,
    ToolCallResponse,
    ToolCallSignal,
    WireSignal,
)
from heliograph.errors import HeliographError, InvalidInput, NotFound, RecoverableError, UnrecoverableError
from heliograph.signal_handlers import (
    DelegationHandler,
    FallbackHandler,
    SignalHandler,
    SignalHandlers,
    ToolCallHandler,
    error_response,
)


def tool_call(name: str = "search", parameters: Any = None, timeout: float | None = 5.0) -> ToolCallSignal:
    payload = ToolCallPayload(tool_name=name, parameters=parameters or {}, correlation_id="req-1")
    return ToolCallSignal(payload=payload, timeout_seconds=timeout)


def delegation(target: str = "clerk", **more: Any) -> DelegationSignal:
    return DelegationSignal(payload=DelegationPayload(target_agent=target, task={"n": 1}, **more), timeout_seconds=5)


def halt() -> HaltSignal:
    return HaltSignal(payload=HaltPayload(reason="user_interrupt"))


class ExpiredKey(Exception):
    recoverable = False


class Raises(SignalHandler):
    """Fails, and counts its calls."""

    def __init__(self, error: Exception):
        self.error = error
        self.calls = 0

    async def handle(self, _signal: ControlSignal) -> WireSignal:
        self.calls += 1
        raise self.error


# ── The samples of the specification ──


class Tool:
    """What the samples call: a tool with an async `execute`."""

    def __init__(self, result: Any):
        self.result = result

    async def execute(self, given: Any) -> Any:
        if isinstance(self.result, Exception):
            raise self.result
        return {"given": given, "result": self.result}


class SampleToolCallHandler(SignalHandler):
    """The TypeScript sample, line by line. It subtracts a timestamp that its signal does not have: time is passed in instead (G-18)."""

    def __init__(self, registry: Mapping[str, Tool]):
        self.registry = registry

    async def handle(self, signal: ToolCallSignal) -> dict[str, Any]:
        tool_name, parameters = signal.payload["tool_name"], signal.payload["parameters"]
        correlation_id = signal.payload["correlation_id"]
        started = time.monotonic()
        try:
            tool = self.registry[tool_name]
            result = await tool.execute(parameters)
            return {
                "type": "tool_call_response",
                "payload": {
                    "tool_name": tool_name, "correlation_id": correlation_id, "success": True, "result": result,
                    "duration_ms": (time.monotonic() - started) * 1000,
                },
            }  # fmt: skip
        except Exception as error:
            return {
                "type": "tool_call_response",
                "payload": {
                    "tool_name": tool_name, "correlation_id": correlation_id, "success": False,
                    "error": {
                        "code": "TOOL_ERROR", "message": str(error), "recoverable": getattr(error, "recoverable", True),
                    },
                },
            }  # fmt: skip


class SampleDelegationHandler(SignalHandler):
    """The Python sample, line by line."""

    def __init__(self, agent_registry: Any):
        self.registry = agent_registry

    async def handle(self, signal: DelegationSignal) -> dict[str, Any]:
        target = signal.payload["target_agent"]
        task = signal.payload["task"]
        agent = await self.registry.get(target)
        result = await agent.execute(task)
        return {
            "type": "delegation_response",
            "payload": {"target_agent": target, "status": "completed", "result": result},
        }


class Agents:
    """An agent registry whose `get` is async."""

    def __init__(self, **agents: Any):
        self.agents = agents

    async def get(self, name: str) -> Any:
        return self.agents.get(name)


def without_duration(response: WireSignal) -> dict[str, Any]:
    wire: Any = response.to_wire()
    assert wire["payload"].pop("duration_ms", 0) >= 0
    return dict(wire)


@pytest.mark.proves("CTL-80", "CTL-82", "CTL-13", "CTL-14", "CTL-15", "CTL-17")
@pytest.mark.parametrize("made", [SampleToolCallHandler, ToolCallHandler])
@pytest.mark.parametrize(
    ("tool", "end"),
    [
        (Tool(3), {"success": True, "result": {"given": {"q": "x"}, "result": 3}}),
        (Tool(ValueError("no luck")), {"success": False, "error": {"code": "TOOL_ERROR", "message": "no luck", "recoverable": True}}),
        (Tool(ExpiredKey("the key expired")),
         {"success": False, "error": {"code": "TOOL_ERROR", "message": "the key expired", "recoverable": False}}),
    ],
)  # fmt: skip
async def test_sample_of_a_tool_call_handler_and_our_own_give_the_same_responses(
    made: Any, tool: Tool, end: Any
) -> None:
    handlers = SignalHandlers({"tool_call": made({"search": tool})})
    response = await handlers.handle(tool_call("search", {"q": "x"}))
    assert isinstance(response, ToolCallResponse)
    assert without_duration(response) == {
        "type": "tool_call_response", "payload": {"tool_name": "search", "correlation_id": "req-1", **end},
    }  # fmt: skip


@pytest.mark.proves("CTL-80", "CTL-82")
@pytest.mark.parametrize("made", [SampleDelegationHandler, DelegationHandler])
async def test_sample_of_a_delegation_handler_and_our_own_give_the_same_responses(made: Any) -> None:
    handlers = SignalHandlers({"delegation": made(Agents(clerk=Tool("done")))})
    response = await handlers.handle(delegation())
    assert isinstance(response, DelegationResponse)
    assert without_duration(response) == {
        "type": "delegation_response",
        "payload": {"target_agent": "clerk", "status": "completed", "result": {"given": {"n": 1}, "result": "done"}},
    }


@pytest.mark.proves("CTL-92")
@pytest.mark.parametrize(
    ("error", "end"),
    [
        (RecoverableError("busy"), {"success": True, "result": "fallback"}),
        (
            UnrecoverableError("expired"),
            {"success": False, "error": {"code": "TOOL_ERROR", "message": "expired", "recoverable": False}},
        ),
    ],
)
async def test_sample_of_a_fallback_and_our_own_give_the_same_responses(error: HeliographError, end: Any) -> None:
    primary_handler = Raises(error)
    fallback_handler = Answers({"success": True, "result": "fallback"})

    async def execute_with_fallback(signal: ToolCallSignal) -> Any:
        try:
            return await primary_handler.handle(signal)
        except RecoverableError:
            return await fallback_handler.handle(signal)
        except UnrecoverableError as e:
            return error_response(signal, e)

    sample = await execute_with_fallback(tool_call())
    assert await FallbackHandler(primary_handler, fallback_handler).handle(tool_call()) == sample
    assert sample.to_wire()["payload"] == {"tool_name": "search", "correlation_id": "req-1", **end}


class Answers(SignalHandler):
    """Answers tool calls with the given end."""

    def __init__(self, end: Mapping[str, Any]):
        self.end = end

    async def handle(self, signal: ToolCallSignal) -> ToolCallResponse:
        return ToolCallResponse(payload=ToolCallResponsePayload(
            tool_name=signal.payload.tool_name, correlation_id=signal.payload.correlation_id, **self.end))  # fmt: skip


# ── Our own handlers ──


@tool
async def double(n: int) -> int:
    """Double a number."""
    return 2 * n


def plain(n: int) -> int:
    return n + 1


@pytest.mark.proves("CTL-82", "CTL-14")
@pytest.mark.parametrize(("name", "result"), [("double", 42), ("plain", 22)])
async def test_tool_registry_may_hold_tools_and_functions(name: str, result: int) -> None:
    response = await ToolCallHandler({"double": double, "plain": plain}).handle(tool_call(name, {"n": 21}))
    assert (response.payload.success, response.payload.result) == (True, result)


@pytest.mark.proves("CTL-18")
async def test_missing_tool_gives_a_response() -> None:
    response = await ToolCallHandler({}).handle(tool_call("serch"))
    assert response.payload.error is not None
    error = response.payload.error.to_wire()
    assert error.pop("message") == "there is no tool serch; correct the name, or add it to the registry of the handler"
    assert error == {"code": "TOOL_ERROR", "recoverable": False, "details": {"reason": "unknown_tool"}}


@pytest.mark.proves("CTL-18", "CTL-17")
@pytest.mark.parametrize("broken", [7, Tool(object()), object])
async def test_broken_tool_gives_a_response(broken: Any) -> None:
    response = await ToolCallHandler({"search": broken}).handle(tool_call())
    assert response.payload.error is not None
    assert response.payload.error.code == "TOOL_ERROR"


@pytest.mark.proves("CTL-18", "CTL-17")
async def test_tool_that_exits_or_raises_stop_iteration_gives_a_response() -> None:
    def exhausted() -> Any:
        return next(iter([]))

    async def leaving() -> None:
        sys.exit(3)

    handler = ToolCallHandler({"exhausted": exhausted, "leaving": leaving, "leaving_thread": lambda: sys.exit(3)})
    errors = [
        (await handler.handle(tool_call(name, timeout=None))).payload.error
        for name in ("exhausted", "leaving", "leaving_thread")
    ]
    exit_message = "it tried to end the program with the exit code 3"
    assert [error.message for error in errors if error] == ["the function raised StopIteration", *[exit_message] * 2]


@pytest.mark.proves("CTL-16", "CTL-29")
async def test_handler_ends_at_the_timeout_of_its_signal() -> None:
    class Endless:
        async def execute(self, _given: Any) -> None:
            await asyncio.Event().wait()

    called = await ToolCallHandler({"search": Endless()}).handle(tool_call(timeout=0.01))
    assert called.payload.error is not None
    assert called.payload.error.to_wire() == {
        "code": "TOOL_TIMEOUT",
        "message": "no result within 0.01 s",
        "recoverable": True,
    }
    signal = DelegationSignal(payload=DelegationPayload(target_agent="clerk", task={}), timeout_seconds=0.01)
    delegated = await DelegationHandler(Agents(clerk=Endless())).handle(signal)
    assert delegated.payload.error is not None
    assert (delegated.payload.status, delegated.payload.error.code) == ("failed", "DELEGATION_TIMEOUT")


@pytest.mark.proves("CTL-16", "CTL-17")
async def test_timeout_error_of_a_tool_is_its_own() -> None:
    response = await ToolCallHandler({"search": Tool(TimeoutError("the server is slow"))}).handle(tool_call())
    assert response.payload.error is not None
    assert (response.payload.error.code, response.payload.error.message) == ("TOOL_ERROR", "the server is slow")


@pytest.mark.proves("CTL-19", "G-18")
@pytest.mark.parametrize("result", [3, ValueError("no")])
async def test_duration_is_measured_with_a_monotonic_clock(result: Any) -> None:
    clock = iter([100.0, 102.5] * 2)
    called = await ToolCallHandler({"search": Tool(result)}, clock.__next__).handle(tool_call(timeout=None))
    delegated = await DelegationHandler({"clerk": Tool(result)}, clock.__next__).handle(delegation())
    assert called.payload.duration_ms == delegated.payload.duration_ms == 2500


@pytest.mark.proves("CTL-82", "CTL-28")
@pytest.mark.parametrize(
    ("agents", "message", "details"),
    [
        (
            Agents(),
            "there is no agent clerk; correct the name, or add it to the registry of the handler",
            {"reason": "unknown_agent"},
        ),
        (Agents(clerk=Tool(ValueError("no ink"))), "no ink", None),
    ],
)
async def test_delegation_that_fails_gives_a_response(agents: Any, message: str, details: Any) -> None:
    payload = (await DelegationHandler(agents).handle(delegation(correlation_id="req-2"))).payload
    assert payload.error is not None
    assert (payload.status, payload.error.code, payload.error.message) == ("failed", "DELEGATION_ERROR", message)
    assert (payload.correlation_id, payload.error.details) == ("req-2", details)


@pytest.mark.proves("CTL-82")
async def test_context_of_a_delegation_reaches_the_agent() -> None:
    class Clerk:
        async def execute(self, task: Any, context: Any) -> Any:
            return [task, context]

    response = await DelegationHandler({"clerk": Clerk()}).handle(delegation(context={"pr": 1}))
    assert response.payload.result == [{"n": 1}, {"pr": 1}]


@pytest.mark.proves("CTL-92")
@pytest.mark.parametrize("recoverable", [True, False])
async def test_fallback_handles_failures_that_a_response_reports(recoverable: bool) -> None:
    failed = Answers({"success": False, "error": {"code": "TOOL_ERROR", "message": "m", "recoverable": recoverable}})
    response: Any = await FallbackHandler(failed, Answers({"success": True, "result": "fallback"})).handle(tool_call())
    assert response.payload.success is recoverable


@pytest.mark.proves("CTL-92")
async def test_fallback_is_not_called_without_need_and_its_own_failure_becomes_a_response() -> None:
    fallback = Raises(ValueError("also busy"))
    response: Any = await FallbackHandler(Answers({"success": True, "result": 1}), fallback).handle(tool_call())
    assert (response.payload.result, fallback.calls) == (1, 0)
    response = await FallbackHandler(Raises(RecoverableError("busy")), fallback).handle(tool_call())
    assert (response.payload.error.message, fallback.calls) == ("also busy", 1)


@pytest.mark.proves("CTL-92")
@pytest.mark.parametrize(
    ("made", "kind"),
    [(tool_call, "tool_call_response"), (delegation, "delegation_response"), (halt, "error")],
)  # fmt: skip
async def test_error_response_has_the_type_of_its_request(made: Any, kind: str) -> None:
    signal = made()
    response = await FallbackHandler(Raises(UnrecoverableError("no")), Raises(ValueError())).handle(signal)
    assert response.type == kind
    assert "no" in str(response.to_wire())


@pytest.mark.proves("CTL-80", "CTL-82")
async def test_handlers_are_chosen_by_type_and_their_responses_are_validated() -> None:
    class Odd(SignalHandler):
        async def handle(self, _signal: Any) -> dict[str, Any]:
            return {"type": "tool_call_response", "payload": {"tool_name": "search"}}

    with pytest.raises(InvalidInput, match="has no 'success'"):
        await SignalHandlers({"tool_call": Odd()}).handle(tool_call())
    with pytest.raises(NotFound, match="no handler for delegation; there are handlers for tool_call") as caught:
        await SignalHandlers({"tool_call": Odd()}).handle(delegation())
    assert caught.value.code == "no_handler"
    with pytest.raises(InvalidInput, match="did you mean tool_call") as wrong:
        SignalHandlers({"tool_cal": Odd()})
    assert wrong.value.code == "unknown_signal_type"
