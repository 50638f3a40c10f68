"""Helpers of the tests of waits: calls as `suspend` takes them, and reads of their state."""

from __future__ import annotations

from typing import Any

import asyncpg

from tests.kernel.kit import Item, Kernel, activation, draft, turn_item

TOKEN = "the capability of this call"


# ── Items ─────────────────────────────────────────────────────────────────────────────────────


def tool(call_id: str, timeout: float | None = 60.0, **fields: Any) -> Item:
    return {"call_id": call_id, "tool": "search", "kind": "tool", "timeout_seconds": timeout, **fields}


def timer(call_id: str, seconds: float) -> Item:
    return {"call_id": call_id, "tool": "timer", "kind": "timer", "timeout_seconds": seconds}


def command(call_id: str, timeout: float | None = 60.0, subject: str | None = "cmd.tool.search", **fields: Any) -> Item:
    """Build a call with a command for its tool, and the token for the report."""
    body = {"subject": subject, "body": {"query": call_id}}
    return tool(call_id, timeout, token=TOKEN, command=body, **fields)


def halting(call_id: str, timeout: float | None = 60.0, *, gateway: str | None = None, **fields: Any) -> Item:
    """Build a call whose command has a halt, which is sent to `gateway`."""
    halt = {"stop": call_id} if gateway is None else {"stop": call_id, "gateway": gateway}
    body = {"subject": None, "body": {"query": call_id, "halt": halt}}
    return tool(call_id, timeout, token=TOKEN, command=body, **fields)


def child(call_id: str, agent: str, turn_id: str, place: int = 0, timeout: float | None = None, **fields: Any) -> Item:
    """Build a delegation. place: the index of its agent:activated among the item's signals, and of its cause."""
    turn = {**activation(agent, turn_id, place, place), **fields}
    return {"call_id": call_id, "tool": agent, "kind": "child", "timeout_seconds": timeout, "child": turn}


def activated(*agents: str, parent: str = "sig_run_a_1") -> list[Item]:
    """Build the signals of children: one agent:activated each."""
    return [draft("agent:activated", parent, agent=agent, payload={"agent": agent}) for agent in agents]


def result(turn_id: str, call_id: str, value: Any = "found", **fields: Any) -> Item:
    return {"turn_id": turn_id, "call_id": call_id, "status": "success", "result": value, **fields}


def failure(turn_id: str, call_id: str, **fields: Any) -> Item:
    return {"turn_id": turn_id, "call_id": call_id, "status": "failed", "error": {"code": "TOOL_ERROR"}, **fields}


# ── Calls ─────────────────────────────────────────────────────────────────────────────────────


async def suspend(kernel: Kernel, claimed: Item, *calls: Item, **fields: Any) -> Item:
    signals = fields.pop("signals", [])
    (answer,) = await kernel.call("suspend", [turn_item(claimed, *signals, calls=list(calls), **fields)])
    return dict(answer)


async def suspended(
    kernel: Kernel, *calls: Item, run_id: str = "run_a", turn_id: str = "turn_a", limits: Item | None = None, **fields: Any
) -> Item:  # fmt: skip
    """Suspend a turn of the writer on these calls, and return the claimed turn."""
    claimed = await kernel.running(run_id, turn_id, **(limits or {}))
    answer = await suspend(kernel, claimed, *calls, **fields)
    assert answer["outcome"] == "suspended", answer
    return claimed


async def report(kernel: Kernel, turn_id: str, call_id: str, value: Any = "found", **fields: Any) -> Item:
    (answer,) = await kernel.call("report", [result(turn_id, call_id, value, **fields)])
    return dict(answer)


async def reported(kernel: Kernel, turn_id: str, call_id: str, value: Any = "found", **fields: Any) -> str:
    """Report a result and return the outcome."""
    return str((await report(kernel, turn_id, call_id, value, **fields))["outcome"])


async def begin(kernel: Kernel, claimed: Item, call_id: str, effect: str = "once", **fields: Any) -> Item:
    item = turn_item(claimed, call_id=call_id, tool="charge", effect=effect, timeout_seconds=None) | fields
    (answer,) = await kernel.call("begin_call", [item])
    return dict(answer)


async def record(
    kernel: Kernel, claimed: Item, call_id: str, value: Any = "done", *signals: Item, **fields: Any
) -> Item:
    item = turn_item(claimed, *signals, call_id=call_id, status="success", result=value) | fields
    (answer,) = await kernel.call("record_call", [item])
    return dict(answer)


async def defer(kernel: Kernel, claimed: Item, seconds: float = 10.0, **fields: Any) -> Item:
    item = turn_item(claimed, reason="the model is busy", delay_seconds=seconds, deferrals_max=None) | fields
    (answer,) = await kernel.call("defer", [item])
    return dict(answer)


# ── Looking ──


async def wait(kernel: Kernel, turn_id: str, call_id: str) -> asyncpg.Record:
    (row,) = await kernel.rows("turn_waiting_tools", "*", "agent_turn_id = $2 and tool_call_id = $3", turn_id, call_id)
    return row


async def status(kernel: Kernel, agent_id: str = "run_a/writer") -> str:
    return str((await kernel.head(agent_id))["status"])


async def inbox(kernel: Kernel, turn_id: str) -> list[tuple[str, str]]:
    """Return the type and status of each message of a turn, in order of arrival."""
    rows = await kernel.rows("agent_inbox", "inbox_id, message_type, status", "agent_turn_id = $2", turn_id)
    return [(row["message_type"], row["status"]) for row in rows]


async def edges(kernel: Kernel, turn_id: str) -> list[tuple[str, str, str | None]]:
    rows = await kernel.rows("edge_overview", "edge_id, primitive, edge_phase, call_id", "turn_id = $2", turn_id)
    return [(row["primitive"], row["edge_phase"], row["call_id"]) for row in rows]


def answers(claimed: Item) -> dict[str, Any]:
    """Return {call id: status} of a claim or of 'resolved'; the status is None while the call is open."""
    return {each["call_id"]: each["status"] for each in claimed["waits"]}
