"""Malformed control signals are rejected with a code, the pointer of the field and the nearest name."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from heliograph.control.signals import read_signal
from heliograph.errors import InvalidInput
from tests.rules.control_kit import MINIMAL, by_wire, rejected


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.proves("CTL-06")
@pytest.mark.parametrize(
    ("name", "meant"),
    [("tool_cal", "; did you mean tool_call?"), ("heart_beat", "; did you mean heartbeat?"), ("Halt", "; did you mean halt?"),
     ("xyzzy", ""), (7, ""), (None, ""), ([], ""), ({}, ""), (nested(5000), "")],
)  # fmt: skip
def test_unknown_type_is_rejected_with_the_nearest_name(name: Any, meant: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_signal({"type": name, "payload": {}}, "/signals/3")
    assert (caught.value.code, caught.value.path) == ("unknown_signal_type", "/signals/3/type")
    assert caught.value.message.endswith(f"tool_call_response, delegation_response{meant}")


@pytest.mark.proves("CTL-06")
@pytest.mark.parametrize("wire", [{"payload": {}}, None, [], "tool_call"])
def test_signal_without_a_type_is_rejected(wire: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_signal(wire)
    assert (caught.value.code, caught.value.path) in (("required_field", "/type"), ("wrong_type", None))


@pytest.mark.proves("CTL-05")
@pytest.mark.parametrize(
    ("kind", "key", "value", "code", "path"),
    [
        ("tool_call", "tool_name", 7, "wrong_type", ""),
        ("tool_call", "tool_name", "", "out_of_range", ""),
        ("tool_call", "tool_name", "a\0b", "nul_character", ""),
        ("tool_call", "parameters", [], "wrong_type", ""),
        ("tool_call", "parameters", {"a": [1, float("nan")]}, "json_non_finite", "/a/1"),
        ("tool_call", "correlation_id", 7, "wrong_type", ""),
        ("tool_call", "parametres", {}, "unknown_field", ""),
        ("delegation", "target_agent", None, "wrong_type", ""),
        ("delegation", "task", "review", "wrong_type", ""),
        ("delegation", "context", [], "wrong_type", ""),
        ("delegation", "priority", "urgent", "invalid_enum", ""),
        ("halt", "reason", "user_interupt", "invalid_enum", ""),
        ("halt", "graceful", "yes", "wrong_type", ""),
        ("halt", "graceful", 1, "wrong_type", ""),
        ("error", "recoverable", "no", "wrong_type", ""),
        ("error", "code", "UNKNOWN", "unknown_field", ""),
        ("error", "details", "text", "wrong_type", ""),
        ("ready", "capabilities", "search", "wrong_type", ""),
        ("ready", "capabilities", [1], "wrong_type", ""),
        ("ready", "version", 1, "wrong_type", ""),
        ("heartbeat", "timestamp", "yesterday", "invalid_timestamp", ""),
        ("heartbeat", "timestamp", "2026-01-31T09:30:00", "invalid_timestamp", ""),
        ("heartbeat", "timestamp", 1769851800, "invalid_timestamp", ""),
        ("heartbeat", "timestamp", datetime.max.replace(tzinfo=timezone(-timedelta(hours=1))), "invalid_timestamp", ""),
        ("heartbeat", "phase", "asleep", "invalid_enum", ""),
        ("heartbeat", "status", "fine", "invalid_enum", ""),
        ("heartbeat", "warnings", "hot", "wrong_type", ""),
        ("tool_call_response", "duration_ms", -1, "out_of_range", ""),
        ("tool_call_response", "duration_ms", 10**400, "out_of_range", ""),
        ("tool_call_response", "error", {"code": "A", "message": "m", "recoverable": True}, "unknown_field", ""),
        ("delegation_response", "status", "done", "invalid_enum", ""),
    ],
)
def test_malformed_field_is_rejected_with_its_pointer(kind: str, key: str, value: Any, code: str, path: str) -> None:
    error = rejected(kind, **{key: value})
    assert (error.code, error.path) == (code, f"/payload/{key}{path}")
    assert (
        f"the payload of {'an' if kind == 'error' else 'a'} {kind}" in error.message or "'payload' of" in error.message
    )


@pytest.mark.proves("CTL-05", "CTL-95")
@pytest.mark.parametrize(
    ("header", "code", "path"),
    [
        ({"async": 1}, "wrong_type", "/async"),
        ({"async_": True}, "unknown_field", "/async_"),
        ({"timeout_seconds": 0}, "out_of_range", "/timeout_seconds"),
        ({"timeout_seconds": float("inf")}, "out_of_range", "/timeout_seconds"),
        ({"timeout_seconds": 10**400}, "out_of_range", "/timeout_seconds"),
        ({"timeout_seconds": True}, "wrong_type", "/timeout_seconds"),
        ({"timeout_seconds": "60"}, "wrong_type", "/timeout_seconds"),
        ({"interval_seconds": 30}, "unknown_field", "/interval_seconds"),
        ({"payload": []}, "wrong_type", "/payload"),
        ({True: "YAML reads the key `on` so"}, "wrong_type", None),
    ],
)
def test_malformed_header_is_rejected_with_its_pointer(header: dict[Any, Any], code: str, path: str | None) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_signal({"type": "tool_call", "payload": MINIMAL["tool_call"], **header})
    assert (caught.value.code, caught.value.path) == (code, path)


def test_misspelled_required_field_is_named() -> None:
    with pytest.raises(InvalidInput, match="has no 'tool_name'; rename 'tool_nam'"):
        by_wire("tool_call", {"tool_nam": "lint", "parameters": {}})
