"""Checks of control signals, their envelopes and the codes of errors."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from heliograph.testing.blackbox.check import Check
from heliograph.testing.blackbox.evidence import Evidence, as_object, payload_of

TYPES = {"tool_call", "delegation", "halt", "error", "ready", "heartbeat"}
RESPONSES = {"tool_call_response", "delegation_response"}
STATUSES = ("accepted", "in_progress", "completed", "failed")
CODES = {"INIT_FAILED", "PLAN_FAILED", "ACTION_FAILED", "TOOL_ERROR", "TOOL_TIMEOUT", "DELEGATION_ERROR", "DELEGATION_TIMEOUT",
         "REFLECTION_ERROR", "MEMORY_ERROR", "NETWORK_ERROR", "AUTH_ERROR", "RESOURCE_EXHAUSTED", "TIMEOUT", "UNKNOWN"}  # fmt: skip


def _is(value: Any, kind: type | tuple[type, ...]) -> bool:
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _all_have(run: Evidence, signal: str, **fields: type | tuple[type, ...]) -> bool:
    found = run.controls(signal)
    return bool(found) and all(_is(each[key], kind) for each in found for key, kind in fields.items())


def _signals(run: Evidence) -> list[dict[str, Any]]:
    return [each["signal"] for each in run.envelopes]


def _async_of(run: Evidence, kind: str, expected: bool) -> bool:
    return all(each.get("async", expected) is expected for each in _signals(run) if each["type"] == kind)


def _envelopes_have(run: Evidence, key: str) -> bool:
    return bool(run.envelopes) and all(isinstance(each[key], str) and each[key] for each in run.envelopes)


def _is_stamped(run: Evidence) -> bool:
    return _envelopes_have(run, "timestamp") and all(
        datetime.fromisoformat(each["timestamp"].replace("Z", "+00:00")) for each in run.envelopes
    )


def _updates(run: Evidence, target: str) -> list[str]:
    return [each["status"] for each in run.controls("delegation_response", target_agent=target)]


def _error_of(run: Evidence, tool: str) -> dict[str, Any]:
    [response] = run.controls("tool_call_response", tool_name=tool)
    return as_object(response["error"])


def _codes(run: Evidence, agent: str) -> list[str]:
    """The codes of an agent's errors in the log."""
    return [payload_of(each)["error_code"] for each in run.named("error", agent)]


def _correlates(run: Evidence) -> bool:
    asked = [each["correlation_id"] for kind in ("tool_call", "delegation") for each in run.controls(kind)]
    answered = [each["correlation_id"] for kind in RESPONSES for each in run.controls(kind)]
    return len(asked) == 4 == len(set(asked)) and set(answered) == set(asked)


def _starts_nothing_after_halt(run: Evidence) -> bool:
    halt = run.place("halt")
    return halt >= 0 and all(each["name"] != "tool:call" for each in run.log[halt:]) and run.effects == ["first"]


def _wire_keys(run: Evidence) -> bool:
    allowed = {"type", "payload", "async", "timeout_seconds", "interval_seconds"}
    return bool(_signals(run)) and all({"type", "payload"} <= set(each) <= allowed for each in _signals(run))


def _control(identifier: str, scenario: str, text: str, holds: Any) -> Check:
    return Check(identifier, scenario, text, holds, "envelopes")


CONTROL = (
    _control("CTL-01", "calls", "only the standard types and their responses occur", lambda run: {each["type"] for each in _signals(run)} <= TYPES | RESPONSES and bool(_signals(run))),
    _control("CTL-02", "calls", "async is true for calls and delegations, and false for errors and ready",
             lambda run: bool(_signals(run)) and all(_async_of(run, kind, expected) for kind, expected in
                                                     {"tool_call": True, "delegation": True, "error": False, "ready": False, "halt": False}.items())),
    _control("CTL-10", "calls", "tool_call has a tool_name", lambda run: _all_have(run, "tool_call", tool_name=str)),
    _control("CTL-11", "calls", "tool_call has an object of parameters", lambda run: _all_have(run, "tool_call", parameters=dict)),
    _control("CTL-13", "calls", "each tool_call has a tool_call_response", lambda run: len(run.controls("tool_call")) == len(run.controls("tool_call_response")) == 2),
    _control("CTL-14", "calls", "a response of success has the result", lambda run: [
        (each["success"], each["result"]) for each in run.controls("tool_call_response", tool_name="weather")] == [(True, {"celsius": 3})]),
    _control("CTL-15", "calls", "a response of failure has code, message and recoverable",
             lambda run: {"code", "message", "recoverable"} <= set(_error_of(run, "printer"))),
    _control("CTL-17", "calls", "the exception of a tool is TOOL_ERROR with its message",
             lambda run: _error_of(run, "printer")["code"] == "TOOL_ERROR" and "no ink" in _error_of(run, "printer")["message"]),
    _control("CTL-19", "calls", "responses have duration_ms", lambda run: _all_have(run, "tool_call_response", duration_ms=(int, float))),
    _control("CTL-20", "calls", "delegation has a target_agent", lambda run: _all_have(run, "delegation", target_agent=str)),
    _control("CTL-21", "calls", "delegation has the task", lambda run: [each["task"] for each in run.controls("delegation")] == [{"topic": "ink"}] * 2),
    _control("CTL-25", "calls", "delegation_response has target_agent, task_id and status",
             lambda run: _all_have(run, "delegation_response", target_agent=str, task_id=str, status=str)),
    _control("CTL-26", "calls", "the status of a delegation is one of four", lambda run: set(_updates(run, "author")) <= set(STATUSES) and bool(_updates(run, "author"))),
    _control("CTL-27", "calls", "updates of a delegation are in order",
             lambda run: _updates(run, "author")[-1] == "completed" and [STATUSES.index(each) for each in _updates(run, "author")]
             == sorted(STATUSES.index(each) for each in _updates(run, "author"))),
    _control("CTL-28", "failure", "the failure of a delegate is DELEGATION_ERROR for its caller",
             lambda run: _updates(run, "author")[-1] == "failed" and _codes(run, "editor") == ["DELEGATION_ERROR"]),
    _control("CTL-30", "stop", "halt has a reason", lambda run: _all_have(run, "halt", reason=str)),
    _control("CTL-31", "stop", "the reason of a user is user_interrupt", lambda run: bool(run.controls("halt", reason="user_interrupt"))),
    _control("CTL-36", "stop", "graceful is a boolean, true by default", lambda run: bool(run.controls("halt")) and
             all(each.get("graceful", True) is True for each in run.controls("halt"))),
    Check("CTL-40", "stop", "no call starts after a halt", _starts_nothing_after_halt),
    _control("CTL-45", "calls", "error has an error_code", lambda run: _all_have(run, "error", error_code=str)),
    _control("CTL-46", "calls", "error has a message", lambda run: _all_have(run, "error", message=str)),
    _control("CTL-47", "calls", "error has recoverable", lambda run: _all_have(run, "error", recoverable=bool)),
    _control("CTL-55", "calls", "ready has an array of capabilities", lambda run: _all_have(run, "ready", capabilities=list)),
    _control("CTL-56", "calls", "ready has a version", lambda run: _all_have(run, "ready", version=str)),
    Check("CTL-58", "calls", "an agent calls no tool before it is ready", lambda run: 0 <= run.place("ready", "editor") < run.place("tool:call", "editor")),
    _control("CTL-90", "calls", "requests have correlation ids, and responses repeat them", _correlates),
    _control("CTL-95", "calls", "a signal has type, payload, async and timeout_seconds", _wire_keys),
    _control("ENV-01", "calls", "every control signal of the log has its envelope",
             lambda run: len(run.envelopes) >= len([each for each in run.log if each["name"] in ("tool:call", "tool:result", "delegation", "ready", "error")]) > 0),
    _control("ENV-02", "calls", "envelopes have unique ids", lambda run: _envelopes_have(run, "id") and len({each["id"] for each in run.envelopes}) == len(run.envelopes)),
    _control("ENV-03", "calls", "envelopes have a timestamp", _is_stamped),
    _control("ENV-04", "calls", "envelopes have a source", lambda run: _envelopes_have(run, "source")),
    _control("ENV-05", "calls", "envelopes have a destination", lambda run: _envelopes_have(run, "destination")),
    _control("ENV-06", "calls", "all envelopes of a run have one trace_id", lambda run: _envelopes_have(run, "trace_id") and len({each["trace_id"] for each in run.envelopes}) == 1),
    _control("ENV-07", "calls", "envelopes have a span_id", lambda run: _envelopes_have(run, "span_id")),
    _control("ENV-08", "calls", "the signal in the envelope has type and payload", lambda run: bool(_signals(run)) and all({"type", "payload"} <= set(each) for each in _signals(run))),
    _control("ERR-04", "calls", "a failed tool is TOOL_ERROR", lambda run: _error_of(run, "printer")["code"] == "TOOL_ERROR"),
    Check("ERR-06", "failure", "an agent that a failed delegation ends has the code DELEGATION_ERROR", lambda run: _codes(run, "editor") == ["DELEGATION_ERROR"]),
    _control("ERR-10", "calls", "a reported NETWORK_ERROR keeps its code", lambda run: bool(run.controls("error", error_code="NETWORK_ERROR"))),
    Check("ERR-03", "failure", "a failed agent has the code ACTION_FAILED", lambda run: _codes(run, "writer") == ["ACTION_FAILED"]),
    _control("ERR-15", "failure", "all codes are codes of the table", lambda run: bool(run.controls("error")) and {each["error_code"] for each in run.controls("error")} <= CODES),
)  # fmt: skip
