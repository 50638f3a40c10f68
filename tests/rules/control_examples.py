"""Every example of the two specifications that is YAML or JSON: as parsed text, and as a value built in Python.

Those of `observability` belong to the telemetry, which does not exist yet. The copies of the specifications have lost their line breaks, and the tests have no YAML parser: these are the mappings that the
YAML texts denote. The Python examples are in tests/reach/test_signal_handlers.py.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from heliograph.control.lifecycle_settings import (
    ActPhase,
    ErrorHandling,
    InitPhase,
    LifecycleSettings,
    Phases,
    PlanPhase,
    ReflectPhase,
    TerminatePhase,
)
from heliograph.control.payloads import (
    DelegationPayload,
    DelegationResponsePayload,
    ErrorPayload,
    Failure,
    HaltPayload,
    HeartbeatPayload,
    ReadyPayload,
    ToolCallPayload,
    ToolCallResponsePayload,
)
from heliograph.control.settings import (
    CircuitBreakerSettings,
    ControlSettings,
    ErrorSettings,
    HaltSettings,
    HeartbeatSettings,
    RetrySettings,
    SignalSettings,
)
from heliograph.control.signals import (
    DelegationResponse,
    DelegationSignal,
    ErrorSignal,
    HaltSignal,
    HeartbeatSignal,
    ReadySignal,
    ToolCallResponse,
    ToolCallSignal,
    WireSignal,
)

BEAT = datetime(2024, 1, 15, 10, 30, tzinfo=UTC)


class Example(NamedTuple):
    """wire: the parsed text. built: builds the same value in Python. required: the keys of the payload that are required."""

    name: str
    wire: dict[str, Any]
    built: Callable[[], WireSignal]
    required: tuple[str, ...]


TOOL_CALL = ("tool_name", "parameters")
DELEGATION = ("target_agent", "task")
ERROR = ("error_code", "message", "recoverable")
RESPONSE = ("tool_name", "success")
BEATS = ("timestamp", "phase")

_SCAN = {"path": "/src", "severity": "high", "exclude_patterns": ["node_modules", "*.test.js"]}
_FOUND = {"vulnerabilities_found": 3, "critical": 1, "high": 2}
_REVIEW = {
    "action": "review", "files": ["src/main.py", "src/utils.py"], "criteria": ["security", "performance", "maintainability"],
}  # fmt: skip
_CONTEXT = {"pr_number": 123, "repository": "acme/backend", "author": "developer@example.com"}
_FINDINGS = {
    "overall_score": 8.5,
    "findings": [
        {"severity": "warning", "file": "src/main.py", "line": 42, "message": "Consider using parameterized queries"},
        {"severity": "info", "file": "src/utils.py", "line": 15, "message": "Function could be simplified"},
    ],
}
_TOOL_FAILED = {
    "tool": "security_scan", "exit_code": 1, "stderr": "Connection refused to vulnerability database", "retry_count": 2,
    "max_retries": 3,
}  # fmt: skip
_KEY_EXPIRED = {"provider": "openai", "key_prefix": "sk-...abc", "expiry": "2024-01-01T00:00:00Z"}
_CAPABILITIES = ["security_scan", "code_review", "dependency_audit"]
_METADATA = {
    "runtime": "docker", "memory_mb": 512, "tools_loaded": 5,
    "models": [{"provider": "anthropic", "model": "claude-3-sonnet"}],
}  # fmt: skip
_HEALTHY = {
    "memory_mb": 256, "memory_percent": 50, "cpu_percent": 15, "open_connections": 3, "pending_tasks": 2, "uptime_seconds": 3600,
}  # fmt: skip
_DEGRADED = {"memory_mb": 480, "memory_percent": 94, "cpu_percent": 85}
_WARNINGS = ["High memory usage", "Approaching resource limits"]


def _wire(kind: str, payload: dict[str, Any], **header: Any) -> dict[str, Any]:
    return {"type": kind, **{key.rstrip("_"): value for key, value in header.items()}, "payload": payload}


def _beat(**more: Any) -> dict[str, Any]:
    return _wire("heartbeat", {"timestamp": "2024-01-15T10:30:00Z", "phase": "act", **more}, interval_seconds=30)


def _halt(reason: str, *, graceful: bool, message: str) -> dict[str, Any]:
    return _wire("halt", {"reason": reason, "graceful": graceful, "message": message}, async_=False, timeout_seconds=5)


EXAMPLES = (
    Example(
        "tool_call",
        _wire("tool_call", {"tool_name": "security_scan", "parameters": _SCAN, "correlation_id": "req-abc123"},
              async_=True, timeout_seconds=60),
        lambda: ToolCallSignal(async_=True, timeout_seconds=60, payload=ToolCallPayload(
            tool_name="security_scan", parameters=_SCAN, correlation_id="req-abc123")),
        TOOL_CALL,
    ),
    Example(
        "tool_call_response",
        _wire("tool_call_response", {"tool_name": "security_scan", "correlation_id": "req-abc123", "success": True,
                                     "result": _FOUND, "duration_ms": 4520}),
        lambda: ToolCallResponse(payload=ToolCallResponsePayload(
            tool_name="security_scan", correlation_id="req-abc123", success=True, result=_FOUND, duration_ms=4520)),
        (*RESPONSE, "result"),
    ),
    Example(
        "tool_call_response, error",
        _wire("tool_call_response", {
            "tool_name": "security_scan", "correlation_id": "req-abc123", "success": False,
            "error": {"code": "TOOL_TIMEOUT", "message": "Tool execution exceeded timeout", "recoverable": True}}),
        lambda: ToolCallResponse(payload=ToolCallResponsePayload(
            tool_name="security_scan", correlation_id="req-abc123", success=False,
            error=Failure(code="TOOL_TIMEOUT", message="Tool execution exceeded timeout", recoverable=True))),
        (*RESPONSE, "error", "error/code", "error/message", "error/recoverable"),
    ),
    Example(
        "delegation",
        _wire("delegation", {"target_agent": "code-review-agent", "task": _REVIEW, "context": _CONTEXT,
                             "callback": "https://callback.example.com/results", "priority": "high"},
              async_=True, timeout_seconds=300),
        lambda: DelegationSignal(async_=True, timeout_seconds=300, payload=DelegationPayload(
            target_agent="code-review-agent", task=_REVIEW, context=_CONTEXT,
            callback="https://callback.example.com/results", priority="high")),
        DELEGATION,
    ),
    Example(
        "delegation_response",
        _wire("delegation_response", {"target_agent": "code-review-agent", "task_id": "task-xyz789", "status": "completed",
                                      "result": _FINDINGS, "duration_ms": 45000}),
        lambda: DelegationResponse(payload=DelegationResponsePayload(
            target_agent="code-review-agent", task_id="task-xyz789", status="completed", result=_FINDINGS, duration_ms=45000)),
        ("target_agent", "status"),
    ),
    Example(
        "halt",
        _halt("user_interrupt", graceful=True, message="User requested cancellation via UI"),
        lambda: HaltSignal(async_=False, timeout_seconds=5, payload=HaltPayload(
            reason="user_interrupt", graceful=True, message="User requested cancellation via UI")),
        ("reason",),
    ),
    Example(
        "halt, forceful",
        _halt("policy_violation", graceful=False, message="Agent attempted to access restricted resource"),
        lambda: HaltSignal(payload=HaltPayload(
            reason="policy_violation", graceful=False, message="Agent attempted to access restricted resource")),
        ("reason",),
    ),
    Example(
        "error, recoverable",
        _wire("error", {"error_code": "TOOL_ERROR", "message": "Tool execution failed", "recoverable": True,
                        "details": _TOOL_FAILED}, async_=False),
        lambda: ErrorSignal(async_=False, payload=ErrorPayload(
            code="TOOL_ERROR", message="Tool execution failed", recoverable=True, details=_TOOL_FAILED)),
        ERROR,
    ),
    Example(
        "error, unrecoverable",
        _wire("error", {"error_code": "AUTH_ERROR", "message": "API key expired", "recoverable": False,
                        "details": _KEY_EXPIRED}, async_=False),
        lambda: ErrorSignal(payload=ErrorPayload(
            code="AUTH_ERROR", message="API key expired", recoverable=False, details=_KEY_EXPIRED)),
        ERROR,
    ),
    Example(
        "ready",
        _wire("ready", {"capabilities": _CAPABILITIES, "version": "1.2.0", "metadata": _METADATA}),
        lambda: ReadySignal(payload=ReadyPayload(capabilities=tuple(_CAPABILITIES), version="1.2.0", metadata=_METADATA)),
        ("capabilities", "version"),
    ),
    Example(
        "heartbeat",
        _beat(status="healthy", metrics=_HEALTHY),
        lambda: HeartbeatSignal(interval_seconds=30, payload=HeartbeatPayload(
            timestamp=BEAT, phase="act", status="healthy", metrics=_HEALTHY)),
        BEATS,
    ),
    Example(
        "heartbeat, degraded",
        _beat(status="degraded", metrics=_DEGRADED, warnings=_WARNINGS),
        lambda: HeartbeatSignal(payload=HeartbeatPayload(
            timestamp=BEAT, phase="act", status="degraded", metrics=_DEGRADED, warnings=tuple(_WARNINGS))),
        BEATS,
    ),
)  # fmt: skip

ENVELOPE: dict[str, Any] = {
    "envelope": {
        "id": "msg-uuid-123",
        "timestamp": "2024-01-15T10:30:00Z",
        "source": "orchestrator-agent",
        "destination": "code-review-agent",
        "trace_id": "trace-abc123",
        "span_id": "span-def456",
        "signal": {"type": "tool_call", "payload": {"tool_name": "lint", "parameters": {"file": "main.py"}}},
    }
}

ROUTES: dict[str, Any] = {
    "apiVersion": "ossa/v0.4.9",
    "kind": "MessageRouting",
    "routes": [
        {
            "match": {"signal_type": "delegation", "target_agent": "security-*"},
            "destination": {"queue": "security-agents", "priority": "high"},
        },
        {
            "match": {"signal_type": "tool_call", "tool_name": "external_*"},
            "destination": {"gateway": "external-gateway", "rate_limit": "10/s"},
        },
    ],
}

# The values of `control_signals` in both specifications.
SETTINGS: dict[str, dict[str, Any]] = {
    "configuration": {
        "tool_call": {
            "async": True, "timeout_seconds": 60,
            "retry": {"enabled": True, "max_attempts": 3, "backoff_ms": 1000, "backoff_multiplier": 2},
        },
        "delegation": {
            "async": True, "timeout_seconds": 300, "retry": {"enabled": True, "max_attempts": 2, "backoff_ms": 5000},
        },
        "halt": {"async": False, "timeout_seconds": 5, "force_after_seconds": 10},
        "heartbeat": {"enabled": True, "interval_seconds": 30, "timeout_seconds": 5, "missed_threshold": 3},
    },
    "retry": {
        "tool_call": {
            "retry": {
                "enabled": True, "strategy": "exponential", "max_attempts": 3, "initial_delay_ms": 1000,
                "max_delay_ms": 30000, "jitter": True,
                "retryable_errors": ["TOOL_TIMEOUT", "NETWORK_ERROR", "RATE_LIMITED"],
            }
        }
    },
    "circuit breaker": {
        "delegation": {
            "circuit_breaker": {
                "enabled": True, "failure_threshold": 5, "success_threshold": 2, "timeout_seconds": 60,
                "half_open_max_calls": 3,
            }
        }
    },
    "fast": {"tool_call": {"timeout_seconds": 10}},
    "slow": {"tool_call": {"timeout_seconds": 120}},
    "agents": {"delegation": {"timeout_seconds": 600}},
    "recoverable error": {"error": {"payload": {"error_code": "TOOL_ERROR", "recoverable": True, "retry_count": 3}}},
    "unrecoverable error": {
        "error": {"payload": {"error_code": "INIT_FAILED", "recoverable": False, "message": "Failed to load credentials"}}
    },
    "correlation": {
        "tool_call": {
            "payload": {"correlation_id": "${uuid()}", "parent_correlation_id": "${parent.correlation_id}"},
        }
    },
}  # fmt: skip

# The values of `lifecycle` in the lifecycle specification. The last two are the map `phases` alone.
LIFECYCLES: dict[str, dict[str, Any]] = {
    "init": {"phases": {"init": {"timeout_seconds": 30}}},
    "plan": {"phases": {"plan": {"timeout_seconds": 60}}},
    "act": {"phases": {"act": {"timeout_seconds": 300}}},
    "reflect": {"phases": {"reflect": {"timeout_seconds": 30}}},
    "terminate": {"phases": {"terminate": {"timeout_seconds": 15}}},
    "iterations": {"max_iterations": 10, "total_timeout_seconds": 3600},
    "complete": {
        "phases": {
            "init": {"timeout_seconds": 30, "retry_on_failure": True, "max_retries": 3},
            "plan": {"timeout_seconds": 60},
            "act": {"timeout_seconds": 300},
            "reflect": {"timeout_seconds": 30},
            "terminate": {"timeout_seconds": 15, "force_after_seconds": 30},
        },
        "max_iterations": 10,
        "total_timeout_seconds": 3600,
        "error_handling": {
            "on_timeout": "terminate", "on_resource_exhausted": "terminate", "on_tool_error": "retry", "max_tool_retries": 3,
        },
    },
    "fast": {"phases": {"act": {"timeout_seconds": 30}}},
    "complex": {"phases": {"act": {"timeout_seconds": 600}}},
}  # fmt: skip

# The same values, built in Python.
LIFECYCLES_BUILT: dict[str, Callable[[], LifecycleSettings]] = {
    "init": lambda: LifecycleSettings(phases=Phases(init=InitPhase(timeout_seconds=30))),
    "plan": lambda: LifecycleSettings(phases=Phases(plan=PlanPhase(timeout_seconds=60))),
    "act": lambda: LifecycleSettings(phases=Phases(act=ActPhase(timeout_seconds=300))),
    "reflect": lambda: LifecycleSettings(phases=Phases(reflect=ReflectPhase(timeout_seconds=30))),
    "terminate": lambda: LifecycleSettings(phases=Phases(terminate=TerminatePhase(timeout_seconds=15))),
    "iterations": lambda: LifecycleSettings(max_iterations=10, total_timeout_seconds=3600),
    "complete": lambda: LifecycleSettings(
        phases=Phases(
            init=InitPhase(timeout_seconds=30, retry_on_failure=True, max_retries=3),
            plan=PlanPhase(timeout_seconds=60),
            act=ActPhase(timeout_seconds=300),
            reflect=ReflectPhase(timeout_seconds=30),
            terminate=TerminatePhase(timeout_seconds=15, force_after_seconds=30),
        ),
        max_iterations=10,
        total_timeout_seconds=3600,
        error_handling=ErrorHandling(
            on_timeout="terminate", on_resource_exhausted="terminate", on_tool_error="retry", max_tool_retries=3,
        ),
    ),
    "fast": lambda: LifecycleSettings(phases=Phases(act=ActPhase(timeout_seconds=30))),
    "complex": lambda: LifecycleSettings(phases=Phases(act=ActPhase(timeout_seconds=600))),
}  # fmt: skip

# The values of SETTINGS, built in Python.
SETTINGS_BUILT: dict[str, Callable[[], ControlSettings]] = {
    "configuration": lambda: ControlSettings(
        tool_call=SignalSettings(
            async_=True, timeout_seconds=60,
            retry=RetrySettings(enabled=True, max_attempts=3, backoff_ms=1000, backoff_multiplier=2),
        ),
        delegation=SignalSettings(
            async_=True, timeout_seconds=300, retry=RetrySettings(enabled=True, max_attempts=2, backoff_ms=5000)
        ),
        halt=HaltSettings(async_=False, timeout_seconds=5, force_after_seconds=10),
        heartbeat=HeartbeatSettings(enabled=True, interval_seconds=30, timeout_seconds=5, missed_threshold=3),
    ),
    "retry": lambda: ControlSettings(tool_call=SignalSettings(retry=RetrySettings(
        enabled=True, strategy="exponential", max_attempts=3, initial_delay_ms=1000, max_delay_ms=30000, jitter=True,
        retryable_errors=("TOOL_TIMEOUT", "NETWORK_ERROR", "RATE_LIMITED"),
    ))),
    "circuit breaker": lambda: ControlSettings(delegation=SignalSettings(circuit_breaker=CircuitBreakerSettings(
        enabled=True, failure_threshold=5, success_threshold=2, timeout_seconds=60, half_open_max_calls=3
    ))),
    "fast": lambda: ControlSettings(tool_call=SignalSettings(timeout_seconds=10)),
    "slow": lambda: ControlSettings(tool_call=SignalSettings(timeout_seconds=120)),
    "agents": lambda: ControlSettings(delegation=SignalSettings(timeout_seconds=600)),
    "recoverable error": lambda: ControlSettings(error=ErrorSettings(
        payload={"error_code": "TOOL_ERROR", "recoverable": True, "retry_count": 3}
    )),
    "unrecoverable error": lambda: ControlSettings(error=ErrorSettings(
        payload={"error_code": "INIT_FAILED", "recoverable": False, "message": "Failed to load credentials"}
    )),
    "correlation": lambda: ControlSettings(tool_call=SignalSettings(payload=CORRELATION)),
}  # fmt: skip

CORRELATION: dict[str, Any] = {"correlation_id": "${uuid()}", "parent_correlation_id": "${parent.correlation_id}"}
