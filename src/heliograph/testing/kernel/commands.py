"""Hand out commands of external tools, and the halts of commands, in memory, like 62_commands.sql."""

from __future__ import annotations

from typing import Any

from heliograph.control.pool_names import DEFAULT_POOL
from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.jsonb import SqlError, get_text
from heliograph.testing.kernel.tables import Row, interval, timestamp
from heliograph.testing.kernel.transaction import Transaction


def take_commands(tx: Transaction, tools: Any, limit: int, visible_seconds: float) -> list[Row]:
    if not 1 <= limit <= 1000:
        raise SqlError("22023", f"limit must be between 1 and 1000, not {limit}")
    if not 0 <= visible_seconds <= 86_400:
        raise SqlError("22023", f"visible_seconds must be between 0 and 86400, not {visible_seconds}")
    wanted = {_tool_of(item) for item in j.elements(tools)}
    due = [o for o in tx.tables.outbox.values() if o["kind"] == "cmd" and o["published_at"] is None
           and (o["hidden_until"] or tx.now) <= tx.now and (o["tool"], o["pool"]) in wanted and o["tool"] is not None]  # fmt: skip
    due.sort(key=lambda o: (-o["priority"], int(o["outbox_id"])))
    answer = []
    for row in due[:limit]:
        tx.set(row, hidden_until=tx.now + interval(visible_seconds), deliveries=row["deliveries"] + 1)
        wait = tx.tables.waits.get((row["agent_turn_id"], row["call_id"]))
        if wait is not None:
            answer.append({
                "turn_id": row["agent_turn_id"], "call_id": row["call_id"], "tool": row["tool"], "body": body_of(tx, row, wait),
                "deadline": None if wait["deadline"] is None else timestamp(wait["deadline"]), "delivery": row["deliveries"],
            })  # fmt: skip
    return answer


def body_of(tx: Transaction, command: Row, wait: Row) -> Row:
    """The body of a command as its tool receives it, like `_command`."""
    turn = tx.tables.turns[command["agent_turn_id"]]
    return {
        "tool_call_id": wait["tool_call_id"], "agent_turn_id": wait["agent_turn_id"], "turn_epoch": wait["epoch"],
        "agent_id": turn["agent_id"], "run_id": turn["run_id"], "step_id": wait["step_id"], "tool_name": wait["tool"],
        "after_execution": wait["after_execution"], **command["body"],
    }  # fmt: skip


def command_pools(tx: Transaction, tool: str) -> list[str]:
    return sorted({
        o["pool"] for o in tx.tables.outbox.values()
        if o["kind"] == "cmd" and o["published_at"] is None and o["tool"] == tool and (o["hidden_until"] or tx.now) <= tx.now
    })  # fmt: skip


def take_halts(tx: Transaction, busy: Any, limit: int, visible_seconds: float) -> list[Row]:
    gateways = set(j.texts(busy)) - {None}
    if not 1 <= limit <= 1000:
        raise SqlError("22023", f"limit must be between 1 and 1000, not {limit}")
    if not 0 <= visible_seconds <= 86_400:
        raise SqlError("22023", f"visible_seconds must be between 0 and 86400, not {visible_seconds}")
    due = [
        o
        for o in tx.tables.outbox.values()
        if o["kind"] == "halt"
        and o["published_at"] is None
        and o["due_at"] <= tx.now
        and get_text(o["body"], "gateway") not in gateways
    ]
    taken = sorted(due, key=lambda o: (o["due_at"], int(o["outbox_id"])))[:limit]
    for row in taken:
        tx.set(row, due_at=tx.now + interval(visible_seconds), deliveries=row["deliveries"] + 1)
    return [
        {"key": row["key"], "turn_id": row["agent_turn_id"], "call_id": row["call_id"], "body": row["body"],
         "created_at": timestamp(row["created_at"])}
        for row in sorted(taken, key=lambda o: int(o["outbox_id"]))
    ]  # fmt: skip


def _tool_of(item: Any) -> tuple[str | None, str]:
    """The name of a tool, and the pool whose commands are taken."""
    if isinstance(item, dict):
        pool = get_text(item, "pool")
        return get_text(item, "tool"), DEFAULT_POOL if pool is None else pool
    return j.text(item), DEFAULT_POOL
