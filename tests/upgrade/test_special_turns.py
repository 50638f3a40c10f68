"""Turns in flight of agents with hooks, with tools of servers, and with arguments of chance; and turns that cannot be read."""

from __future__ import annotations

import asyncio
import sys
import time
import uuid
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from heliograph import Call, Context, Heliograph
from heliograph.ledger.open_turns import UnreadableTurn
from heliograph.models import ScriptedModel, ToolCall
from heliograph.phases import PhaseContext
from heliograph.tools import MCPServer
from heliograph.tools.mcp_decoding import OfferedTool
from heliograph.tools.restricted_server import restricted
from heliograph.upgrade.checkers import check_turns
from heliograph.upgrade.divergence import TurnDivergence
from heliograph.upgrade.turn_process import CheckRequest
from tests.runtime.hooks_kit import ORDER, Hooked
from tests.upgrade.flights import checked, in_flight

START = ["workflow:start"]


async def ask(ctx: PhaseContext) -> None:
    await ctx.call("ask", timeout=None)


@pytest.mark.parametrize("phases", [[*ORDER[:3], "terminate"], ORDER[:3]])
def test_other_hooks_are_named_before_any_call(phases: list[str]) -> None:
    turns = in_flight(Hooked(terminate=ask).app(), 1, 0.2)
    assert checked(Hooked(terminate=ask).app(), turns) == []
    [found] = checked(Hooked(phases).app(), turns)
    assert (found.agent, found.kind) == ("worker", "phases")
    assert "give the agent with other hooks another name" in found.next_step


async def test_turn_that_cannot_be_read_is_named_and_starts_no_process() -> None:
    async def turns() -> AsyncIterator[CheckRequest | UnreadableTurn]:
        yield UnreadableTurn("run_a", "turn_a", "clerk", "it has over 256 MB")

    found: list[TurnDivergence | None] = []
    await check_turns(turns(), ("/nowhere",), b"", found.append, count=2, timeout_seconds=1)
    [divergence] = found
    assert divergence is not None
    assert (divergence.kind, divergence.run_id, divergence.turn_id) == ("unreadable", "run_a", "turn_a")
    assert divergence.next_step == "helio db doctor shows which records are damaged"


@pytest.mark.parametrize(("change", "found"), [
    ({}, []), ({"task": 2}, [("arguments", "its arguments differ at /task/n")]),
    ({"target": "near"}, [("call", "it was for far when it was recorded, and is for near now")]),
    ({"delegates": False}, [("missing", "the new code ends with success and does not make this recorded call, tool runtime:gateway")]),
])  # fmt: skip
@pytest.mark.proves("P-25")
def test_turn_that_waits_for_a_gateway_has_to_delegate_the_same_task_to_the_same_agent(
    change: dict[str, Any], found: list[tuple[str, str]]
) -> None:
    def till(*, target: str = "far", task: int = 1, delegates: bool = True) -> Heliograph:
        route = {"match": {"target_agent": target}, "destination": {"gateway": "http://127.0.0.1:9/"}}
        app = Heliograph("till", routes={"kind": "MessageRouting", "routes": [route]})

        @app.agent(activate_on=START)
        async def clerk(ctx: Context) -> Any:
            return await ctx.delegate(target, {"n": task}) if delegates else None

        return app

    turns = in_flight(till(), 1, 1.0)
    assert [(wait.kind, wait.tool) for turn in turns for wait in turn.claimed.waits] == [("tool", "runtime:gateway")]
    assert [(each.kind, each.message) for each in checked(till(**change), turns)] == found


# ── Tools of servers ──


class Connected:
    async def call(self, name: str, arguments: Any, *, may_repeat: bool) -> str:
        return f"{name} of the bank"


class Offers(MCPServer):
    """A server without a process."""

    @asynccontextmanager
    async def open_tools(self, egress: Any = None) -> AsyncIterator[Any]:
        names = ("find", "pay")
        yield self.allowed([OfferedTool(name, "", {"type": "object"}) for name in names], Connected())  # type: ignore[arg-type]


def clerk(*calls: str, prefix: str = "bank_", **options: Any) -> Heliograph:
    app = Heliograph("bank")
    model = ScriptedModel([*(ToolCall(str(n), call, {"n": n}) for n, call in enumerate(calls)), "done"])
    bank = Offers(["bank"], name="bank", prefix=prefix, **{"approval": ["pay"], **options})
    press = Offers(["press"], name="press", prefix="press_")
    app.prompt_agent("clerk", "Pay.", model=model, tools=[press, bank], activate_on=START)
    return app


@pytest.mark.parametrize("calls", [("bank_pay",), ("bank_find", "bank_pay"), ("press_find", "bank_find", "bank_pay")])
@pytest.mark.parametrize("options", [{}, {"trusted": True}, {"tools": ["pay", "find"]}, {"approval": True}])
def test_open_approval_of_a_server_tool_continues(calls: tuple[str, ...], options: dict[str, Any]) -> None:
    turns = in_flight(clerk(*calls, **options), 1, 0.2)
    [turn] = turns
    assert [wait.kind for wait in turn.claimed.waits if wait.state == "open"] == ["human"]
    assert checked(clerk(*calls, **options), turns) == []


def test_approval_by_the_rule_of_a_manifest_continues_until_the_tool_is_blocked() -> None:
    def app(server: MCPServer) -> Heliograph:
        found = Heliograph("bank")
        model = ScriptedModel([ToolCall("1", "pay", {}), "done"])
        found.prompt_agent("clerk", "Pay.", model=model, tools=[server], activate_on=START)
        return found

    turns = in_flight(app(Offers(["bank"], name="bank", approval=["pay"])), 1, 0.2)
    server = MCPServer(["bank"], name="bank")
    assert checked(app(restricted(server, approves=lambda *names: "pay" in names)), turns) == []
    [found] = checked(app(restricted(server, permits=lambda *names: "pay" not in names)), turns)
    assert found.kind == "missing"


def test_server_that_does_not_have_the_tool_any_more_is_a_divergence() -> None:
    turns = in_flight(clerk("bank_pay"), 1, 0.2)
    [found] = checked(clerk("bank_pay", prefix="savings_"), turns)
    assert found.kind == "missing"
    assert found.call is not None
    assert found.call.name == "bank_pay"


# ── Arguments of chance ──


def test_many_arguments_of_chance_cost_few_runs_of_the_code() -> None:
    app, runs = Heliograph("chance"), list[int]()

    @app.agent(activate_on=START)
    async def guesser(ctx: Context) -> None:
        runs.append(1)
        await ctx.calls([Call("guess", {"seed": str(uuid.uuid4()), "n": n}) for n in range(30)])

    turns = in_flight(app, 1, 0.2)
    runs.clear()
    assert checked(app, turns) == []
    assert len(runs) == 4


# ── Threads ──


def test_call_after_the_result_of_a_thread_is_reached() -> None:
    app = Heliograph("threads")

    @app.agent(activate_on=START)
    async def thinker(ctx: Context) -> None:
        if waits_for_thread:
            await asyncio.wrap_future(pool.submit(time.sleep, 0.05))
        await ctx.call("guess", timeout=None)

    waits_for_thread = False
    turns = in_flight(app, 1, 0.2)
    waits_for_thread = True
    with ThreadPoolExecutor(1) as pool:
        assert checked(app, turns) == []


async def test_turn_whose_process_was_ended_by_an_earlier_turn_is_checked_again() -> None:
    async def requests() -> AsyncIterator[CheckRequest | UnreadableTurn]:
        for turn in in_flight_turns:
            yield CheckRequest(turn, {}, datetime(2030, 1, 1, tzinfo=UTC))

    found: list[TurnDivergence | None] = []
    program = (
        "import os, sys\n"
        "print('{}', flush=True)\n"
        "for n, line in enumerate(sys.stdin):\n"
        "    if n == 1: print('{}', flush=True)\n"
        "    if n == 2: os._exit(7)\n"
    )
    in_flight_turns = await asyncio.to_thread(in_flight, clerk("bank_pay"), 1, 0.2)
    in_flight_turns *= 2
    await check_turns(requests(), (sys.executable, "-c", program), b"{}", found.append, count=1, timeout_seconds=20)
    assert found == [None, None]
