"""Cancel calls that fail fast, in memory: that part of 64_resolve.sql, under the same names."""

from __future__ import annotations

from typing import Any

from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.jsonb import get, get_text
from heliograph.testing.kernel.tables import Row
from heliograph.testing.kernel.transaction import Transaction


def continues_without(result: Any) -> bool:
    """Whether to stop the child of this call, or halt the work of its command, because the caller continues without it."""
    marks = (get(result, "is_canceled_sibling"), get(result, "may_still_run"))
    return get_text(result, "message_type") == "timeout" or True in marks


def with_canceled_siblings(tx: Transaction, results: list[Any]) -> list[Any]:
    """Return the results, followed by the calls that they cancel because those fail fast. Bug: no_fail_fast."""
    reported = {(get_text(result, "turn_id"), get_text(result, "call_id")) for result in results}
    first: dict[tuple[str, str], Row] = {}
    for result in results:
        wait = tx.tables.waits.get((get_text(result, "turn_id"), get_text(result, "call_id")))
        if wait is not None and get_text(result, "status") != "success" and _is_cancelable(wait):
            first.setdefault((wait["agent_turn_id"], wait["step_id"]), wait)
    canceled = [
        (wait, failed)
        for (turn_id, step_id), failed in (first.items() if "no_fail_fast" not in tx.bugs else ())
        for wait in tx.tables.waits.of(turn_id)
        if _is_cancelable(wait) and wait["step_id"] == step_id and (turn_id, wait["tool_call_id"]) not in reported
    ]
    canceled.sort(key=lambda pair: (pair[0]["agent_turn_id"], pair[0]["position"]))
    return results + [_canceled(wait, failed) for wait, failed in canceled]


def _is_cancelable(wait: Row) -> bool:
    return bool(wait["state"] == "open" and wait["fails_fast"] and wait["step_id"] is not None)


def _canceled(wait: Row, failed: Row) -> Row:
    call_id = failed["tool_call_id"]
    error = {"code": "CANCELED", "recoverable": False, "first_failed_call": call_id,
             "message": f"call {call_id} ({failed['tool']}) failed first"}  # fmt: skip
    return {"turn_id": wait["agent_turn_id"], "call_id": wait["tool_call_id"], "status": "canceled",
            "message_type": "tool_result", "is_canceled_sibling": True, "error": error}  # fmt: skip


def response_of(tx: Transaction, item: Row, limited: Row) -> Row:
    """Return the payload of the log entry for a child that has ended or was abandoned."""
    wait, result = item["wait"], item["result"]
    outcome = get_text(get(result, "more"), "outcome") or item["status"]
    payload = {
        "id": wait["tool_call_id"], "target_agent": wait["tool"], "task_id": wait["child_turn_id"], "outcome": outcome,
        "status": "completed" if outcome in ("success", "partial") else "failed", "card_id": item["card_id"],
        "duration_ms": max(0, (tx.now - wait["opened_at"]) // 1000),
    }  # fmt: skip
    if not j.exceeds(item["value"], limited["payload_bytes_max"]):  # such an output is only in the card
        payload["result" if item["status"] == "success" else "error"] = item["value"]
    return payload
