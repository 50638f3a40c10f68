"""Describe signals: the time of day and the short payload of a line, and the meaning of a signal."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from heliograph.error_text import safe_repr
from heliograph.key_patterns import json_without_secrets
from heliograph.signals.catalog import CATALOG
from heliograph.signals.form_fields import fields_text
from heliograph.signals.guard_record import place_of_guard, recorded_guard, recorded_reads
from heliograph.signals.model import Signal
from heliograph.signals.pattern_table import PatternTable

_MEANINGS: PatternTable[str] = PatternTable((entry.name, entry.meaning) for entry in CATALOG)

# The part of a payload that a line shows; payloads of other signals are shown whole.
_ONE_PART = {"agent:failed": "error", "agent:completed": "output", "agent:skipped": "reason", "workflow:start": "state"}
_ONE_PART |= {
    "harness:start": "model",
    "harness:end": "usage",
    "text:complete": "content",
    "thinking:complete": "content",
}
_ONE_PART |= {"workflow:end": "outcome"}

# Signals with the reason of a failure or an omission.
_FAILURES = frozenset({"agent:failed", "agent:skipped", "error", "harness:error", "halt", "workflow:terminating"})
_OF_QUESTIONS = frozenset({"question", "arguments", "may_edit", "may_answer", "options", "form"})
WIDTH, WHOLE = 100, 1_000_000_000


def clock(at: datetime) -> str:
    """The time of day in UTC, to the millisecond."""
    return at.astimezone(UTC).strftime("%H:%M:%S.%f")[:-3]


def line_payload(signal: Signal, width: int) -> str:
    """`short_payload` in at most `width` characters; reasons of failures are always complete."""
    return short_payload(signal, WHOLE if signal.name in _FAILURES else width)


def short_payload(signal: Signal, width: int = 100) -> str:
    """The payload in at most `width` characters of one line; without repeating other parts of the line."""
    payload = signal.payload
    if not isinstance(payload, dict):
        return json_text(payload, width)
    if signal.name == "agent:progress" and (fraction := fraction_of(payload)) is not None:
        return safe_repr(f"{fraction:.0%} {payload.get('message', '')}".strip(), width)
    if signal.name == "agent:failed" and isinstance(error := payload.get("error"), dict):
        return safe_repr(f"{error.get('code')}: {error.get('message')}", width)
    if signal.name == "harness:error" and "code" in payload:
        suffix = " (recoverable)" if payload.get("recoverable") is True else ""
        return safe_repr(f"{payload['code']}: {payload.get('message')}{suffix}", width)
    if signal.name == "tool:call" and "input" in payload:
        return safe_repr(f"{payload.get('name')} {_input(payload['input'])}", width)
    if signal.name == "tool:result" and "output" in payload:
        failed = f" {payload['status']}" if payload.get("status", "success") != "success" else ""
        return safe_repr(f"{payload.get('name')}{failed} -> {json_text(payload['output'], WHOLE)}", width)
    if signal.name in ("delegation", "delegation_response") and isinstance(target := payload.get("target_agent"), str):
        turn = f" ({payload['task_id']})" if "task_id" in payload else ""
        return safe_repr(f"{target}{turn} {_delegation(signal.name, payload)}", width)
    if signal.name == "agent:skipped" and (place := place_of_guard(recorded_guard(payload))):
        return safe_repr(f"{json_text(payload.get('reason', ''), width)}{place}", width)
    if payload.keys() == {"output", "deliverable_card_id"}:  # an agent emitted it at the end of its turn
        return json_text(payload["output"], width)
    if signal.name == "agent:activated" and (guard := recorded_guard(payload)) is not None and "joined" not in payload:
        reads = ", ".join(f"{each['key']} = {json_text(each.get('value'), WHOLE)}" for each in recorded_reads(guard))
        return safe_repr(f"its guard read {reads}", width) if reads else ""
    if signal.name in _ONE_PART:
        part = json_text(payload.get(_ONE_PART[signal.name], payload), width)
        return (
            f"{part}: {json_text(payload['reason'], WHOLE)}"
            if signal.name == "workflow:end" and "reason" in payload
            else part
        )
    rest: dict[str, Any] = {key: value for key, value in payload.items() if (key, value) != ("agent", signal.agent)}
    return json_text(rest, width) if rest else ""


def _input(given: Any) -> str:
    """The input of a call. For a question to a person: its text with the arguments to approve, the options, or the fields of the answer."""
    if (
        not isinstance(given, dict)
        or not isinstance(question := given.get("question"), str)
        or given.keys() - _OF_QUESTIONS
    ):
        return json_text(given, WHOLE)
    if "may_edit" in given:
        return f"{question} {json_text(given['arguments'], WHOLE)}" if given.get("arguments") else question
    if isinstance(form := given.get("form"), dict):
        return f"{question} Fields: {fields_text(form, WHOLE)}"
    options = given.get("options")
    if not isinstance(options, list) or not all(isinstance(option, str) for option in options):
        return json_text(given, WHOLE)
    return f"{question} One of: {', '.join(options)}" if options else question


def _delegation(name: str, payload: dict[str, Any]) -> str:
    """The task of a delegation; the status of a response, with the result or the error."""
    if name == "delegation":
        return json_text(payload.get("task"), WHOLE)
    status = str(payload.get("status"))
    if isinstance(error := payload.get("error"), dict):
        return f"{status}: {error.get('code')}: {error.get('message')}"
    if "result" not in payload:
        return status
    result: Any = payload["result"]
    is_text = isinstance(result, dict) and result.keys() == {"text"}  # the deliverable of an agent that returned a text
    return f"{status} -> {json_text(result['text'] if is_text else result, WHOLE)}"


def fraction_of(payload: dict[str, Any]) -> float | None:
    """The fraction of an `agent:progress`, 0 if it has none; None for a value that is none, as in an edited recording."""
    found = payload.get("fraction", 0)
    return found if isinstance(found, int | float) and 0 <= found <= 1 else None


def text_of(payload: object) -> str:
    """The text that a delta adds, or an empty string."""
    content = payload.get("content") if isinstance(payload, dict) else None
    return content if isinstance(content, str) else ""


def meaning(signal: Signal) -> str:
    """One sentence: the catalog's meaning, or the agent that emitted the signal."""
    entries = _MEANINGS.match(signal.name)
    who = f" Agent: {signal.agent}." if signal.agent else ""
    if entries:
        return f"{entries[0]}{who}"
    return f"Agent {signal.agent} emitted it." if signal.agent else "It came from outside."


def json_text(value: Any, width: int) -> str:
    """A value in at most `width` characters of one line; texts without quotes."""
    return safe_repr(value if isinstance(value, str) else json_without_secrets(value).decode(), width)
