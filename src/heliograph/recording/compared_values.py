"""Values as a replay compares them: JSON without secrets, and guards with their reads in one order."""

from __future__ import annotations

from typing import Any

import msgspec

from heliograph.key_patterns import without_secrets
from heliograph.reactive.run_memory import stored_memory
from heliograph.types import JsonObject

# The keys of a call that earlier versions repeated in the body of its command.
_OF_CALL = frozenset({
    "tool_call_id", "agent_turn_id", "turn_epoch", "agent_id", "run_id", "step_id", "tool_name", "after_execution",
})  # fmt: skip


def plain(value: Any) -> Any:
    """A value as a recording has it: JSON, without secrets."""
    return without_secrets(msgspec.json.decode(msgspec.json.encode(value)))


def as_sent_now(function: str, item: JsonObject) -> JsonObject:
    """The item of a recorded kernel call as this version sends it.

    Earlier versions wrote counters of a memory that are zero, too, and those of a run that ends. Their reactions had the version of the
    run, which is a key of the item. They recorded how many turns of a conversation they read at once. The bodies of their commands
    repeated what the call has.
    """
    if function == "read_conversation":
        return {key: value for key, value in item.items() if key != "limit"}
    if function == "suspend":
        calls: Any = item["calls"]
        return {**item, "calls": [_as_called_now(call) for call in calls]}
    reaction: Any = item.get("reaction")
    if not isinstance(reaction, dict):
        return item
    if isinstance(reaction.get("memory"), dict):
        is_over = reaction.get("status") == "ended"
        reaction = {**reaction, "memory": stored_memory(reaction["memory"], is_over=is_over)}
    if "version" not in reaction:
        return {**item, "reaction": reaction}
    version = {} if function == "start_runs" else {"version": reaction["version"]}
    return {**item, **version, "reaction": {key: value for key, value in reaction.items() if key != "version"}}


def _as_called_now(call: dict[str, Any]) -> dict[str, Any]:
    command = call.get("command")
    if command is None:
        return call
    body = {key: value for key, value in command["body"].items() if key not in _OF_CALL}
    return {**call, "command": {**command, "body": body}}


def ordered(signal: JsonObject) -> JsonObject:
    """A signal with the reads of its guard in one order: a guard reads the keys of a state in the order in which its worker had them."""
    payload: Any = signal["payload"]
    guard = payload.get("guard") if isinstance(payload, dict) else None
    if not isinstance(guard, dict) or not isinstance(guard.get("reads"), list):
        return signal
    return {**signal, "payload": {**payload, "guard": {**guard, "reads": sorted(guard["reads"], key=repr)}}}
