"""The control signals in the specification's wire form: examples, defaults, overrides and fields."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, get_args

import pytest

from heliograph.codes import HaltReason
from heliograph.control.payloads import (
    DelegationPayload,
    ErrorPayload,
    Failure,
    HaltPayload,
    HeartbeatPayload,
    Priority,
    ReadyPayload,
    ToolCallPayload,
    ToolCallResponsePayload,
)
from heliograph.control.signals import (
    CONTROL_SIGNALS,
    LIFECYCLE_TYPES,
    TYPES,
    ControlSignal,
    DelegationSignal,
    HeartbeatSignal,
    ToolCallSignal,
    read_signal,
)
from heliograph.definitions.agent import PRIORITIES
from heliograph.errors import InvalidInput
from heliograph.redaction import keep_out
from heliograph.signals.json_parser import parse_json
from heliograph.signals.names import CONTROL_NAMES, RESERVED_NAMES
from tests.rules.control_examples import EXAMPLES, Example
from tests.rules.control_kit import MINIMAL, by_wire, rejected

NOW = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
each_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)


@pytest.mark.proves(
    "CTL-01", "CTL-95", "CTL-10", "CTL-11", "CTL-12", "CTL-13", "CTL-14", "CTL-15", "CTL-30", "CTL-36", "CTL-37",
    "CTL-48", "CTL-55", "CTL-56", "CTL-57", "CTL-60", "CTL-61", "CTL-62", "CTL-63", "CTL-65", "G-15", "G-21",
)  # fmt: skip
@each_example
def test_example_is_the_same_value_over_the_wire_and_in_python(example: Example) -> None:
    received, built = read_signal(parse_json(json.dumps(example.wire))), example.built()
    assert received == built
    assert type(received) is type(built)
    sent = built.to_wire()
    assert sent == {**sent, **example.wire}, "every key of the specification keeps its place and its value"
    assert read_signal(parse_json(json.dumps(sent))) == built


@pytest.mark.proves(
    "CTL-05",
    "CTL-10",
    "CTL-11",
    "CTL-14",
    "CTL-15",
    "CTL-30",
    "CTL-45",
    "CTL-46",
    "CTL-47",
    "CTL-55",
    "CTL-56",
    "CTL-60",
    "CTL-61",
)
@each_example
def test_example_without_a_required_key_is_rejected_with_its_pointer(example: Example) -> None:
    for key in example.required:
        wire = copy.deepcopy(example.wire)
        *above, last = key.split("/")
        owner = wire["payload"] if not above else wire["payload"][above[0]]
        del owner[last]
        with pytest.raises(InvalidInput) as caught:
            read_signal(wire)
        assert (caught.value.code, caught.value.path) == ("required_field", f"/payload/{key}")
        assert f"has no '{last}'; add it" in caught.value.message


@pytest.mark.proves("CTL-05", "CTL-10", "CTL-30", "CTL-55", "CTL-60")
@pytest.mark.parametrize(
    ("model", "given", "path"),
    [
        (ToolCallPayload, {"parameters": {}}, "/tool_name"),
        (DelegationPayload, {"target_agent": "clerk"}, "/task"),
        (HaltPayload, {}, "/reason"),
        (ErrorPayload, {"message": "m", "recoverable": True}, "/error_code"),
        (ReadyPayload, {"capabilities": ()}, "/version"),
        (HeartbeatPayload, {"phase": "act"}, "/timestamp"),
        (ToolCallResponsePayload, {"tool_name": "lint", "success": True}, "/result"),
        (ToolCallResponsePayload, {"tool_name": "lint", "success": False}, "/error"),
        (ToolCallSignal, {}, "/payload"),
    ],
)
def test_value_built_in_python_without_a_required_field_is_rejected(model: Any, given: Any, path: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        model(**given)
    assert (caught.value.code, caught.value.path) == ("required_field", path)


@pytest.mark.proves("CTL-01")
def test_six_standard_types_exist() -> None:
    assert list(CONTROL_SIGNALS) == ["tool_call", "delegation", "halt", "error", "ready", "heartbeat"]
    assert {kind: type(by_wire(kind)) for kind in CONTROL_SIGNALS} == CONTROL_SIGNALS


@pytest.mark.proves("G-14")
def test_control_signals_and_lifecycle_signals_are_two_families() -> None:
    assert set(TYPES) - set(CONTROL_SIGNALS) == {"tool_call_response", "delegation_response"}
    assert set(TYPES) == CONTROL_NAMES
    assert set(LIFECYCLE_TYPES) == RESERVED_NAMES - CONTROL_NAMES
    for kind in LIFECYCLE_TYPES:
        with pytest.raises(InvalidInput, match=f"{kind} is a signal of the lifecycle") as caught:
            read_signal({"type": kind, "payload": {}})
        assert caught.value.code == "unknown_signal_type"


@pytest.mark.proves("CTL-02", "CTL-03", "CTL-64", "CTL-73")
@pytest.mark.parametrize(
    ("kind", "is_async", "timeout"),
    [("tool_call", True, 60), ("delegation", True, 300), ("halt", False, 5), ("error", False, None), ("ready", False, None),
     ("heartbeat", False, None)],
)  # fmt: skip
def test_signal_has_the_defaults_of_its_type(kind: str, is_async: bool, timeout: int | None) -> None:
    signal = by_wire(kind)
    assert (signal.async_, signal.timeout_seconds) == (is_async, timeout)
    assert getattr(signal, "interval_seconds", None) == (30 if kind == "heartbeat" else None)
    wire = signal.to_wire()
    assert (wire["async"], wire.get("timeout_seconds")) == (is_async, timeout)


@pytest.mark.proves("CTL-04", "CTL-64", "CTL-76")
@pytest.mark.parametrize("kind", list(CONTROL_SIGNALS))
def test_header_of_one_signal_overrides_the_defaults_of_its_type(kind: str) -> None:
    for is_async in (True, False):
        signal = by_wire(kind, **{"async": is_async, "timeout_seconds": 0.5})
        assert (signal.async_, signal.timeout_seconds) == (is_async, 0.5)
        assert read_signal(signal.to_wire()) == signal
    without = by_wire(kind, timeout_seconds=None)
    assert without.timeout_seconds is None
    assert read_signal(without.to_wire()) == without
    assert by_wire("heartbeat", interval_seconds=5).to_wire()["interval_seconds"] == 5


@pytest.mark.proves("CTL-11")
def test_parameters_pass_through_unchanged() -> None:
    nested: dict[str, Any] = {
        "list": [1, 2.5, None, {"deep": [True, "text", []]}],
        "empty": {},
        "null": None,
        "big": 2**60,
    }
    signal = by_wire("tool_call", {"tool_name": "lint", "parameters": nested})
    assert signal.payload.parameters == nested
    assert json.dumps(signal.to_wire()["payload"]["parameters"]) == json.dumps(nested)


@pytest.mark.proves("CTL-31", "CTL-32", "CTL-33", "CTL-34", "CTL-35")
@pytest.mark.parametrize(
    "reason", ["user_interrupt", "resource_limit", "policy_violation", "external_signal", "parent_termination"]
)
def test_halt_has_one_of_five_reasons(reason: Any) -> None:
    assert by_wire("halt", {"reason": reason}).payload == HaltPayload(reason=reason)
    assert len(get_args(HaltReason)) == 5


@pytest.mark.proves("CTL-36", "CTL-37")
def test_halt_is_graceful_by_default_and_has_free_text_in_its_message() -> None:
    assert by_wire("halt").payload.graceful is True
    assert by_wire("halt").to_wire()["payload"] == {"reason": "user_interrupt", "graceful": True}
    payload = by_wire("halt", {"reason": "resource_limit", "graceful": False, "message": "4 GB used"}).payload
    assert (payload.graceful, payload.message) == (False, "4 GB used")
    assert "did you mean resource_limit?" in rejected("halt", reason="resource limit").message


@pytest.mark.proves("CTL-45", "CTL-46", "CTL-47", "CTL-49", "G-15")
def test_error_has_one_model_and_each_wire_form_keeps_its_spelling() -> None:
    failure = Failure(code="TOOL_ERROR", message="no", recoverable=True)
    error = ErrorPayload(code="TOOL_ERROR", message="no", recoverable=True, stack_trace="line 1")
    assert isinstance(error, Failure)
    assert failure.to_wire() == {"code": "TOOL_ERROR", "message": "no", "recoverable": True}
    assert error.to_wire() == {
        "error_code": "TOOL_ERROR",
        "message": "no",
        "recoverable": True,
        "stack_trace": "line 1",
    }
    with pytest.raises(InvalidInput) as caught:
        by_wire("tool_call_response", {"tool_name": "lint", "success": False, "error": error.to_wire()})
    assert caught.value.path == "/payload/error/code"


@pytest.mark.proves("CTL-50", "CTL-48", "CTL-49")
def test_error_contains_no_known_secret() -> None:
    keep_out("sk-live-0123456789abcdef")
    error = ErrorPayload(
        code="AUTH_ERROR", message="key sk-live-0123456789abcdef expired", recoverable=False,
        details={"header": ["Bearer sk-live-0123456789abcdef"], "key_prefix": "sk-...def"},
        stack_trace="call('sk-live-0123456789abcdef')",
    )  # fmt: skip
    assert error.to_wire() == {
        "error_code": "AUTH_ERROR", "message": "key *** expired", "recoverable": False,
        "details": {"header": ["Bearer ***"], "key_prefix": "sk-...def"}, "stack_trace": "call('***')",
    }  # fmt: skip
    received = by_wire("error", {**MINIMAL["error"], "details": {"key": "sk-live-0123456789abcdef"}})
    assert received.payload.details == {"key": "***"}


@pytest.mark.proves("CTL-57", "CTL-62")
def test_metadata_and_metrics_may_have_any_keys() -> None:
    own = {"gpu": {"model": "a100", "count": 2}, "zone": None}
    assert by_wire("ready", {**MINIMAL["ready"], "metadata": own}).payload.metadata == own
    assert by_wire("heartbeat", {**MINIMAL["heartbeat"], "metrics": own}).payload.metrics == own


@pytest.mark.proves("CTL-61", "CTL-63", "G-20")
@pytest.mark.parametrize("phase", ["init", "plan", "act", "reflect", "terminate", "idle"])
@pytest.mark.parametrize("status", ["healthy", "degraded", "unhealthy"])
def test_heartbeat_has_a_phase_also_without_a_turn_and_a_status(phase: Any, status: Any) -> None:
    payload = by_wire("heartbeat", {**MINIMAL["heartbeat"], "phase": phase, "status": status}).payload
    assert (payload.phase, payload.status) == (phase, status)


@pytest.mark.proves("CTL-65", "G-21")
@pytest.mark.parametrize(
    ("fields", "metrics", "warnings"),
    [
        ({"warnings": ["hot"]}, None, ["hot"]),
        ({"metrics": {"cpu_percent": 85, "warnings": ["hot"]}}, {"cpu_percent": 85}, ["hot"]),
        ({"metrics": {"warnings": ["hot", "full"]}, "warnings": ["full", "old"]}, {}, ["full", "old", "hot"]),
    ],
)
def test_warnings_are_accepted_in_both_places_and_emitted_beside_the_metrics(
    fields: Any, metrics: Any, warnings: Any
) -> None:
    payload = by_wire("heartbeat", {**MINIMAL["heartbeat"], **fields}).payload
    wire = payload.to_wire()
    assert (wire.get("metrics"), wire["warnings"]) == (metrics, warnings)
    assert rejected("heartbeat", metrics={"warnings": [1]}).path == "/payload/metrics/warnings"


@pytest.mark.proves("CTL-60", "G-18")
def test_times_are_utc_and_iso_8601_on_the_wire() -> None:
    beat = HeartbeatSignal(
        payload=HeartbeatPayload(timestamp=NOW.astimezone(timezone(timedelta(hours=2))), phase="act")
    )
    assert beat.to_wire()["payload"] == {"timestamp": "2026-01-31T09:30:00Z", "phase": "act"}
    assert by_wire("heartbeat", {"timestamp": "2026-01-31T11:30:00+02:00", "phase": "act"}).payload == beat.payload


@pytest.mark.proves("CTL-81")
def test_signal_in_python_has_the_fields_of_the_specification() -> None:
    signal: ControlSignal = DelegationSignal(
        payload=DelegationPayload(target_agent="clerk", task={"n": 1}), timestamp=NOW, async_=False, timeout_seconds=9
    )
    assert (signal.type, signal.timestamp, signal.async_, signal.timeout_seconds) == ("delegation", NOW, False, 9)
    assert (signal.payload["target_agent"], signal.payload["task"]) == ("clerk", {"n": 1})
    assert DelegationSignal(payload=DelegationPayload(target_agent="clerk", task={})).timestamp is None
    assert by_wire("delegation", timestamp="2026-01-31T09:30:00Z").timestamp == NOW


@pytest.mark.proves("G-16", "CTL-12")
@pytest.mark.parametrize("kind", ["tool_call", "delegation"])
def test_request_of_either_kind_accepts_a_correlation_id_and_that_of_its_parent(kind: str) -> None:
    signal = by_wire(kind, {**MINIMAL[kind], "correlation_id": "req-2", "parent_correlation_id": "req-1"})
    assert (signal.payload.correlation_id, signal.payload.parent_correlation_id) == ("req-2", "req-1")
    assert by_wire(kind).payload.correlation_id is None


def test_priorities_are_those_of_agents() -> None:
    assert get_args(Priority) == PRIORITIES


def test_signals_are_frozen() -> None:
    with pytest.raises(Exception, match="frozen"):
        by_wire("halt").payload.reason = "resource_limit"
