"""Write and read the outbox in memory, like 79_wires and 80_outbox.sql, with the writes of other functions to it."""

from __future__ import annotations

from typing import Any

from heliograph.control.pool_names import DEFAULT_POOL
from heliograph.policy.retry import RetryPolicy
from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.commands import body_of
from heliograph.testing.kernel.jsonb import SqlError
from heliograph.testing.kernel.tables import Row, end_of, interval
from heliograph.testing.kernel.transaction import Transaction

_REDELIVERY = RetryPolicy(max_delay_seconds=60.0, jitter=False)  # as the formula of the same name in SQL


def outbox_row(
    tx: Transaction, key: str, kind: str, turn_id: str, *, call_id: str | None = None, tool: str | None = None,
    subject: str | None = None, body: Any = None, pool: str | None = None, priority: int | None = None,
    starts_at: int | None = None,
) -> bool:  # fmt: skip
    """Insert a row unless its key exists; return whether it is new. The caller draws its number even for an existing key,
    as PostgreSQL does."""
    return tx.offer(tx.tables.outbox, key, {
        "outbox_id": tx.last("outbox_id"), "kind": kind, "key": key, "subject": subject, "agent_turn_id": turn_id,
        "call_id": call_id, "tool": tool, "pool": pool or DEFAULT_POOL, "priority": 1 if priority is None else priority,
        "body": body, "created_at": tx.now, "due_at": tx.now if starts_at is None else starts_at, "hidden_until": starts_at, "deliveries": 0,
        "published_at": None,
    })  # fmt: skip


def order_stop(tx: Transaction, turn_id: str, body: Row) -> None:
    """Put a stop into the outbox. A stop that is there remains, also if it has been delivered, unless this one is stronger.

    Bug: force_softened.
    """
    key = f"stop:{turn_id}"
    tx.next("outbox_id")
    if outbox_row(tx, key, "stop", turn_id, body=body):
        return
    row = tx.tables.outbox[key]
    is_stronger = body["mode"] == "force" and j.get_text(row["body"], "mode") not in ("force", None)
    if is_stronger or ("force_softened" in tx.bugs and body["mode"] != "force"):
        tx.set(row, body=body, due_at=tx.now, deliveries=0, published_at=None)


def order_halts(tx: Transaction, commands: list[Row | None]) -> None:
    """Insert the halts of commands that nobody waits for any more: `_halt_of`, of 62_commands.sql."""
    halted = [
        row for row in commands
        if row is not None and row["deliveries"] > 0 and isinstance(row["body"], dict) and isinstance(row["body"].get("halt"), dict)
    ]  # fmt: skip
    for row in sorted(halted, key=lambda o: str(o["key"])):
        tx.next("outbox_id")
        turn_id, call_id = row["agent_turn_id"], row["call_id"]
        outbox_row(tx, f"halt:{turn_id}:{call_id}", "halt", turn_id, call_id=call_id, body=row["body"]["halt"])


def order_stops(tx: Transaction, run_id: str, body: Row, *, only_human: bool = False) -> None:
    """`_order_stops`, of 30_runs.sql."""
    turns = [t for t in tx.tables.turns.values() if t["run_id"] == run_id and t["state"] != "done"]
    for turn in sorted(turns, key=lambda t: str(t["agent_turn_id"])):
        waits = tx.tables.waits.of(turn["agent_turn_id"])
        is_joining = any(wait["state"] == "open" and wait["kind"] == "child" for wait in waits)
        if only_human and (turn["human_wait_since"] is None or is_joining):
            continue
        key = f"stop:{turn['agent_turn_id']}"
        tx.next("outbox_id")
        if outbox_row(tx, key, "stop", turn["agent_turn_id"], body=body):
            continue
        row = tx.tables.outbox[key]
        if j.get_text(row["body"], "mode") not in ("force", None) or body["mode"] == "force":
            tx.set(row, body=body, due_at=tx.now, deliveries=0, published_at=None)


def stop_open_turns(tx: Transaction, run_id: str, stops: Any) -> None:
    """`_stop_open_turns`, of 30_runs.sql. Bug: limit_leaves_turns."""
    if stops in (j.ABSENT, None) or "limit_leaves_turns" in tx.bugs:
        return
    reason = j.get_text(stops, "reason")
    body = {
        "mode": "graceful",
        "grace_seconds": None,
        "reason": None if reason is None else reason[:200],
        "actor": None,
    }
    order_stops(tx, run_id, body, only_human=j.get_text(stops, "turns") == "human_waits")


def acknowledge(tx: Transaction, key: str) -> Row | None:
    """Delete a command, or keep it as published without its token, like `_acknowledge` (62_commands.sql). Returns the deleted row."""
    row = tx.tables.outbox.get(key)
    if row is None or row["published_at"] is not None:
        return None
    if row["deliveries"] == 0 and row["hidden_until"] is not None:
        body = {k: v for k, v in row["body"].items() if k != "token"} if isinstance(row["body"], dict) else row["body"]
        tx.set(row, published_at=tx.now, body=body)
        return None
    tx.delete(tx.tables.outbox, key)
    return row


def read_outbox(tx: Transaction, limit: int) -> list[Row]:
    """Return the oldest due task events and commands for a wire. Bug: commands_die (a delivered command counts as done)."""
    if limit < 0:
        raise SqlError("2201W", "LIMIT must not be negative")
    known = sorted(str(row["wire"]) for row in tx.tables.wires.values())
    waiting = sorted((o for o in tx.tables.outbox.values() if o["published_at"] is None),
                     key=lambda o: (o["due_at"], o["outbox_id"]))  # fmt: skip
    events = [o for o in waiting if o["kind"] == "task_event"][:limit]
    commands = [
        o for o in waiting
        if o["kind"] == "cmd" and o["due_at"] <= tx.now and o["subject"] is not None and set(known) - {"postgres"}
    ][:limit]  # fmt: skip
    return [
        {**_event_row(tx, row), "wires": known} for row in sorted(events + commands, key=lambda o: int(o["outbox_id"]))
    ]


def _event_row(tx: Transaction, row: Row) -> Row:
    turn = tx.tables.turns.get(row["agent_turn_id"])
    subject, body = row["subject"], row["body"]
    if subject is None and turn is not None:
        subject = f"evt.agent.{turn['agent_id']}.task"
    wait = tx.tables.waits.get((row["agent_turn_id"], row["call_id"]))
    if wait is not None:
        body = body_of(tx, row, wait)
    elif body is None:
        keys = ("agent_turn_id", "outcome", "output_box_id")
        values = dict.fromkeys(keys) if turn is None else {key: turn[key] for key in keys}
        body = {"status" if key == "outcome" else key: value for key, value in values.items()}
        body["deliverable_card_id"] = None if turn is None else end_of(turn["agent_turn_id"])
    head = None if turn is None else tx.tables.heads.get(turn["agent_id"])
    return {"outbox_id": row["outbox_id"], "kind": row["kind"], "key": row["key"], "subject": subject, "body": body,
            "target": None if head is None else head["target"]}  # fmt: skip


def mark_published(tx: Transaction, keys: Any) -> int:
    marked = 0
    for key in set(j.texts(keys)):
        row = tx.tables.outbox.get(key)
        if row is None or row["published_at"] is not None:
            continue
        marked += 1
        if row["kind"] == "cmd" and "commands_die" not in tx.bugs:
            tx.set(row, due_at=redelivery_at(tx, row["deliveries"]), deliveries=row["deliveries"] + 1)
        else:
            tx.set(row, published_at=tx.now, deliveries=row["deliveries"] + 1)
    return marked


def redelivery_at(tx: Transaction, deliveries: int) -> int:
    return tx.now + interval(_REDELIVERY.delay_seconds(deliveries + 1, ""))


def declare_wire(tx: Transaction, wire: str | None) -> str:
    if wire is None or not 1 <= len(wire.encode()) <= 200:
        raise SqlError("22023", "the name of a wire must have 1 to 200 bytes")
    row = {"wire": wire, "declared_at": tx.now}
    return "declared" if tx.offer(tx.tables.wires, wire, row) else "duplicate"
