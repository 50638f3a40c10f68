"""Enforce the limits of a project in memory, like 12_limits.sql, under the same names."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.ids import is_reserved
from heliograph.testing.kernel.jsonb import ABSENT, SqlError, get, get_text
from heliograph.testing.kernel.tables import Row
from heliograph.testing.kernel.transaction import Transaction

_DEFAULTS: Row = {
    "queue_max": 1000, "depth_max": 20, "fan_out_max": 1000, "cards_max": 1000, "waits_max": 1000,
    "payload_bytes_max": 65_536, "card_bytes_max": 262_144, "result_bytes_max": 1_048_576,
    "blob_bytes_max": 16_777_216, "running_max": None, "deferrals_max": 3,
    "memories_max": 10_000, "memory_bytes_max": 16_384, "dispatch_seconds_max": None,
}  # fmt: skip


def limits(tx: Transaction) -> Row:
    own = tx.tables.limits.get("limits", {})
    return {name: default if own.get(name) is None else own[name] for name, default in _DEFAULTS.items()}


def rejection(code: str, message: str) -> Row:
    return {"outcome": "rejected", "code": code, "message": message}


def over_limit(code: str, problem: str, most: int, remedy: str, limit: str) -> Row:
    return rejection(
        code, f"{problem}; at most {most} are allowed: {remedy}, or raise the limit with helio db limits {limit}=NUMBER"
    )


def reject_signals(signals: Any, limits: Row) -> Row | None:
    for signal in signals if isinstance(signals, list) else ():
        payload, name = get(signal, "payload"), get_text(signal, "name") or ""
        most = _payload_max(name, limits)
        if payload not in (ABSENT, None) and j.octets(payload) > most:
            limit = "blob_bytes_max" if most > limits["payload_bytes_max"] else "payload_bytes_max"
            return over_limit("payload_too_large", f"the payload of {name} has {j.octets(payload)} bytes", most,
                              "store the content elsewhere, for example in a box, and send its id", limit)  # fmt: skip
    return None


def _payload_max(name: str, limits: Row) -> int:
    most: int = limits["payload_bytes_max"]
    if is_reserved(name):
        return max(most, int(limits["blob_bytes_max"]))
    return most


def reject_content(content: Any, limits: Row) -> Row | None:
    if content is ABSENT or j.octets(content) <= limits["blob_bytes_max"]:
        return None
    return over_limit("payload_too_large", f"a card has {j.octets(content)} bytes", limits["blob_bytes_max"],
                      "store the content elsewhere and put its location in the card", "blob_bytes_max")  # fmt: skip


def reject_fan_out(count: int, limits: Row) -> Row | None:
    most = limits["fan_out_max"]
    if count <= most:
        return None
    return over_limit(
        "fan_out", f"the request wakes {count} turns at once", most, "emit fewer signals at once", "fan_out_max"
    )


def reject_depth(activations: Any, limits: Row) -> Row | None:
    deepest = max((j.parse_integer(get_text(item, "depth")) or 0 for item in j.elements(activations)), default=0)
    if deepest <= limits["depth_max"]:
        return None
    return over_limit("recursion_depth_exceeded", f"the turn would be {deepest} delegations deep", limits["depth_max"],
                      "do the work without a further delegation", "depth_max")  # fmt: skip


def reject_waits(calls: int, limits: Row) -> Row:
    return over_limit("too_many_waits", f"the turn would have {calls} calls", limits["waits_max"],
                      "make fewer calls in one turn", "waits_max")  # fmt: skip


def reject_activations(tx: Transaction, run_id: str | None, activations: Any, limits: Row) -> Row | None:
    """Reject activations that are too many at once, or too many in the queue of one agent. Bug: queue_unbounded."""
    if (rejected := reject_fan_out(j.length(activations), limits)) is not None:
        return rejected
    more: dict[str | None, int] = {}
    for item in j.elements(activations):
        agent = get_text(item, "agent")
        more[agent] = more.get(agent, 0) + 1
    for agent, count in sorted(more.items(), key=lambda pair: (pair[0] is None, pair[0])):
        queued = 0 if run_id is None or agent is None else len(tx.tables.queued(f"{run_id}/{agent}"))
        if queued + count > limits["queue_max"] and "queue_unbounded" not in tx.bugs:
            return over_limit("queue_full", f"agent {agent or ''} has {queued} turns waiting", limits["queue_max"],
                              "try again when some have ended", "queue_max")  # fmt: skip
    return None


def store_content(tx: Transaction, content: Any, limit: int) -> Any:
    """Return content as a card keeps it: itself, or a pointer to its blob.

    Raises 23502 if there is no content, because every caller stores it in a column that requires content.
    """
    if content is ABSENT:
        raise SqlError("23502", "null value in column content")
    if j.octets(content) <= limit and not j.has(content, "$blob"):
        return content
    blob_id = "sha256:" + sha256(j.written(content).encode()).hexdigest()
    tx.offer(tx.tables.blobs, blob_id, {
        "blob_id": blob_id, "bytes": j.octets(content), "content": content, "created_at": tx.now,
    })  # fmt: skip
    return {"$blob": blob_id, "bytes": j.octets(content)}


def content_of(tx: Transaction, content: Any) -> Any:
    """Return the content of a card, from the card or its blob."""
    blob = tx.tables.blobs.get(get_text(content, "$blob"))
    return content if blob is None else blob["content"]


def set_limits(tx: Transaction, values: Any) -> Row:
    if not isinstance(values, dict):
        raise SqlError("22023", "p_limits must be an object {name: number}")
    if unknown := sorted(set(values) - set(_DEFAULTS)):
        raise SqlError("22023", f"there is no limit {json.dumps(unknown[0][:60])}: helio db limits lists all")
    tx.offer(tx.tables.limits, "limits", dict.fromkeys(_DEFAULTS))
    row = tx.tables.limits["limits"]
    for name, number in {name: j.parse_integer(get_text(values, name)) for name in values}.items():
        if number is not None and number < (0 if name in ("depth_max", "deferrals_max") else 1):
            raise SqlError("23514", f"{name} is out of range")
        if name == "memory_bytes_max" and number is not None and number > 262_144:
            raise SqlError("23514", f"{name} is out of range")
        if name == "dispatch_seconds_max" and number is not None and number > 31_622_400:
            raise SqlError("23514", f"{name} is out of range")
        tx.set(row, **{name: number})
    return limits(tx)


def put_card(
    tx: Transaction, card_id: str | None, box_id: str | None, turn_id: str | None, epoch: int | None, kind: str | None,
    content: Any,
) -> bool:  # fmt: skip
    """Insert a card unless its id is taken; return whether it was inserted. Raises 23502 and 23514."""
    return tx.offer(tx.tables.cards, card_id, {
        "content": content, "card_id": card_id, "box_id": box_id, "position": tx.next("position"),
        "agent_turn_id": turn_id, "turn_epoch": epoch, "kind": kind, "created_at": tx.now,
    })  # fmt: skip


def content_as_recorded(item: Any, key: str) -> Any:
    """A jsonb column of jsonb_to_recordset: a null in JSON is SQL NULL there."""
    value = get(item, key)
    return ABSENT if value is None else value
