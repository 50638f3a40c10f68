"""Check the calls of a request in memory, like 46_check_calls.sql, under the same names."""

from __future__ import annotations

from typing import Any

from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.children import wrong_child
from heliograph.testing.kernel.circuit_breakers import wrong_circuit
from heliograph.testing.kernel.ids import check, check_phase, wrong_card, wrong_id
from heliograph.testing.kernel.jsonb import ABSENT, SqlError, get, get_raw, get_text
from heliograph.testing.kernel.limits import over_limit, reject_waits
from heliograph.testing.kernel.rate_limits import wrong_rates
from heliograph.testing.kernel.tables import Row

YEAR_SECONDS = 31_622_400
_EFFECTS = ("pure", "idempotent", "transactional", "once")


def wrong_call(call: Any) -> str | None:
    if wrong := wrong_id("a call id", get_text(call, "call_id")):
        return wrong
    if not 1 <= _bytes(call, "tool") <= 200:
        return "the tool of a call must have 1 to 200 bytes"
    if _bytes(call, "step_id") > 200:
        return "a step id must have at most 200 bytes"
    if get_text(call, "effect") not in (None, *_EFFECTS):
        return "an effect must be pure, idempotent, transactional or once"
    seconds = j.parse_float(get_text(call, "timeout_seconds"))
    if seconds is not None and not 0 <= seconds <= YEAR_SECONDS:
        return "timeout_seconds must be between 0 and 366 days, or null"
    return _wrong_command(get(call, "command"))


def _wrong_command(command: Any) -> str | None:
    pool = get_text(command, "pool")
    if pool is not None and (wrong := wrong_id("the pool of a command", pool)):
        return wrong
    priority = j.parse_integer(get_text(command, "priority"))
    if priority is not None and not 0 <= priority <= 3:
        return "the priority of a command must be between 0 (low) and 3 (critical)"
    return None


def wrong_open_as(item: Any) -> str | None:
    if (open_as := get_raw(item, "open_as")) is None:
        return None
    if not isinstance(open_as, dict):
        return "open_as must be an object with the step_id and the tool of the call"
    return wrong_call(
        {
            "call_id": get_raw(item, "call_id"),
            "tool": get_raw(open_as, "tool"),
            "step_id": get_raw(open_as, "step_id"),
        }
    )


def check_suspend(items: list[Any]) -> None:
    """Check the items of suspend. Raises 22023."""
    for item in items:
        calls = j.elements(get(item, "calls"))
        j.length(get(item, "signals"))  # raises also for an item of a caller without a turn
        if get_text(item, "join") not in (None, "all", "each"):
            raise SqlError("22023", "join must be all or each")
        if len(calls) > 1 and len({get_text(c, "call_id") for c in calls} - {None}) < len(calls):
            raise SqlError("22023", "two calls of the item have the same id: give each its own")
        check_phase(item)
        for card in j.elements(get(item, "cards")):
            check(wrong_card(card))
        for call in calls:
            if (wrong := wrong_call(call) or _wrong_wait(call, item)) is not None:
                raise SqlError("22023", wrong)


def _wrong_wait(call: Any, item: Any) -> str | None:
    kind, command, token = get_text(call, "kind"), get(call, "command"), get_text(call, "token")
    if kind not in ("tool", "child", "timer", "human"):
        return "the kind of a call must be tool, child, timer or human"
    if (kind == "child") != isinstance(get(call, "child"), dict):
        return "a call of kind child must have a child, and no other call may have one"
    if (wrong := wrong_circuit("p_items[].calls[].circuit_breaker", get(call, "circuit_breaker"))) is not None:
        return wrong
    if (wrong := wrong_rates("p_items[].calls[].rates", get(call, "rates"))) is not None:
        return wrong
    if kind == "timer" and get_text(call, "timeout_seconds") is None:
        return "a timer must have a timeout"
    if get_text(call, "after_execution") not in (None, "suspend", "terminate"):
        return "after_execution must be suspend or terminate"
    if token is not None and not 1 <= len(token.encode()) <= 1000:
        return "a token must have 1 to 1000 bytes"
    objects = (command, get(command, "body"))
    if (
        not all(value is None or value is ABSENT or isinstance(value, dict) for value in objects)
        or len((get_text(command, "subject") or "").encode()) > 200
    ):
        return "a command must be an object: subject has at most 200 bytes, or is missing, and body is an object"
    return wrong_child(get(call, "child"), j.length(get(item, "signals"))) if kind == "child" else None


def reject_calls(item: Any, known: list[Row], limited: Row) -> Row | None:
    calls = j.elements(get(item, "calls"))
    ids = {get_text(call, "call_id") for call in calls} | {w["tool_call_id"] for w in known}
    if len(ids) > limited["waits_max"]:
        return reject_waits(len(ids), limited)
    most = limited["result_bytes_max"]
    for call in calls:
        command = get(call, "command")
        if command is not ABSENT and j.octets(command) > most:
            return over_limit("payload_too_large", f"the command of call {get_text(call, 'call_id')} has {j.octets(command)} bytes",
                              most, "store large arguments elsewhere and pass their locations", "result_bytes_max")  # fmt: skip
    return None


def _bytes(value: Any, key: str) -> int:
    return len((get_text(value, key) or "").encode())
