"""Read the open turns of the in-memory kernel, like 89_open_turns.sql."""

from __future__ import annotations

from typing import Any

from heliograph.testing.kernel.claim import claim_of
from heliograph.testing.kernel.head import signal_at
from heliograph.testing.kernel.in_memory import InMemoryKernel
from heliograph.testing.kernel.jsonb import ABSENT
from heliograph.testing.kernel.limits import content_of
from heliograph.testing.kernel.tables import EPOCH, Row, microseconds
from heliograph.testing.kernel.transaction import Transaction
from heliograph.turn.calls import GATEWAY


def read_open_turns(backend: InMemoryKernel, project: str) -> list[Row]:
    """Return the open turns of a project, in the order of their agents."""
    tx = Transaction(backend._tables(project), microseconds(EPOCH), frozenset(), {}, project)
    found = [turn for turn in tx.tables.turns.values() if turn["state"] != "done"]
    found.sort(key=lambda turn: (turn["agent_id"], turn["queue_seq"]))
    return [_open_turn(tx, turn) for turn in found]


def _open_turn(tx: Transaction, turn: Row) -> Row:
    head = tx.tables.heads[turn["agent_id"]]
    is_queued = turn["state"] == "queued"
    claimed = claim_of(tx, head, turn, [{"message_type": turn["message_type"], "correlation_id": ""}])
    stop = None if is_queued or head["stop_requested_at"] is None else {"reason": head["stop_reason"]}
    found = ((wait["tool_call_id"], _arguments(tx, turn, wait)) for wait in tx.tables.waits.of(turn["agent_turn_id"]))
    return {"status": "queued" if is_queued else head["status"], "claimed": {**claimed, "stop": stop},
            "requests": {call_id: arguments for call_id, arguments in found if arguments is not ABSENT}}  # fmt: skip


def _arguments(tx: Transaction, turn: Row, wait: Row) -> Any:
    """The arguments of a call; ABSENT where the ledger does not have them."""
    if wait["kind"] == "child":
        child = tx.tables.turns.get(wait["child_turn_id"])
        sent = None if child is None else signal_at(tx, child["run_id"], child["cause_seq"])
        return ABSENT if sent is None else {key: sent["payload"].get(key) for key in ("task", "context")}
    card = tx.tables.cards.get(f"card_{turn['agent_turn_id']}_{wait['epoch']}_{wait['tool_call_id']}")
    content = None if card is None else content_of(tx, card["content"])
    logged = _request_signal(tx, turn, wait["tool_call_id"])
    if wait["kind"] == "inline":
        return (
            {"input_hash": logged["input_hash"]} if "input_hash" in logged and wait["state"] == "resolved" else ABSENT
        )
    if wait["tool"] != GATEWAY:
        return ABSENT if content is None or wait["kind"] not in ("tool", "human") else content["arguments"]
    if content is not None:
        return {"tool": content["tool_name"], "arguments": content["arguments"]}
    return {"agent": logged["target_agent"], "task": logged.get("task"), "context": logged.get("context")}


def _request_signal(tx: Transaction, turn: Row, call_id: str) -> Any:
    """The payload of the signal with which a turn made a call."""
    for seq in range(1, tx.tables.runs[turn["run_id"]]["signal_seq"] + 1):
        signal: Any = signal_at(tx, turn["run_id"], seq)
        if signal["name"] in ("tool:call", "delegation") and (signal["turn_id"], signal["payload"].get("id")) == (
            turn["agent_turn_id"],
            call_id,
        ):
            return signal["payload"]
    return {}
