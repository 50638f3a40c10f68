"""Control signals of each type with the fewest fields, and how they are read from the wire."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.control.signals import read_signal
from heliograph.errors import InvalidInput

MINIMAL: dict[str, dict[str, Any]] = {
    "tool_call": {"tool_name": "lint", "parameters": {}},
    "delegation": {"target_agent": "clerk", "task": {}},
    "halt": {"reason": "user_interrupt"},
    "error": {"error_code": "UNKNOWN", "message": "it failed", "recoverable": False},
    "ready": {"capabilities": [], "version": "1"},
    "heartbeat": {"timestamp": "2026-01-31T09:30:00Z", "phase": "idle"},
    "tool_call_response": {"tool_name": "lint", "success": True, "result": None},
    "delegation_response": {"target_agent": "clerk", "status": "accepted"},
}


def by_wire(kind: str, payload: Any = None, **header: Any) -> Any:
    return read_signal({"type": kind, **header, "payload": MINIMAL[kind] if payload is None else payload})


def rejected(kind: str, **fields: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        by_wire(kind, {**MINIMAL[kind], **fields})
    return caught.value
