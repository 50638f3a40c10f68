"""The public names, listed a second time on purpose, so that every change is deliberate."""

from __future__ import annotations

import subprocess
import sys

import heliograph

PUBLIC = [
    "AgentFailed",
    "AgentHarness",
    "AgentSpec",
    "AssistantMessage",
    "Budget",
    "BudgetExceeded",
    "Call",
    "CallResult",
    "Card",
    "CircuitBreaker",
    "CircuitOpen",
    "Client",
    "Command",
    "Conflict",
    "Context",
    "Defer",
    "Delegation",
    "DelegationFailed",
    "Denied",
    "FunctionHarness",
    "Gateway",
    "Grant",
    "Harness",
    "HarnessError",
    "Heliograph",
    "HeliographError",
    "HumanTask",
    "InvalidInput",
    "KernelRejected",
    "SandboxLimits",
    "MCPServer",
    "Memory",
    "ModelReply",
    "ModelRequest",
    "NotFound",
    "Player",
    "Snapshot",
    "Rejected",
    "MemoryHit",
    "Metrics",
    "ReplayDiverged",
    "ReplayResult",
    "RetryPolicy",
    "RunResult",
    "Runtime",
    "ScriptedModel",
    "Secret",
    "SetupError",
    "Signal",
    "SignalDefinition",
    "Source",
    "Step",
    "StepInDoubt",
    "StopResult",
    "StoreUnavailable",
    "Terminal",
    "TextDelta",
    "ThinkingDelta",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolFailed",
    "ToolMessage",
    "ToolSpec",
    "ToolTimedOut",
    "TurnTimedOut",
    "UserMessage",
    "Webhook",
    "code_tool",
    "compile_pattern",
    "define_agent",
    "define_signal",
    "external_tool",
    "lifecycle_options",
    "open_runtime",
    "read_recording",
    "replay",
    "secret",
    "tool",
    "tool_agent",
    "untrusted",
    "verify_webhook",
    "write_recording",
    "DelegationHandler",
    "FallbackHandler",
    "SignalHandler",
    "SignalHandlers",
    "ToolCallHandler",
    "NOT_GIVEN",
    "RateLimited",
    "RecordingOptions",
    "Recording",
    "RecoverableError",
    "UnrecoverableError",
    "Agent",
    "DelegationStep",
    "GoalAchieved",
    "IterationNeeded",
    "JsonLines",
    "Lifecycle",
    "Logs",
    "ModelStep",
    "PhaseContext",
    "Plan",
    "ToolStep",
]

HEAVY = ("asyncpg", "pydantic", "pydantic_ai", "rich", "nats", "asyncio")


def test_package_exports_exactly_the_listed_names() -> None:
    assert sorted(heliograph.__all__) == sorted(PUBLIC)


def test_every_public_name_exists_with_a_docstring() -> None:
    for name in PUBLIC:
        thing = getattr(heliograph, name)
        assert thing.__doc__, f"{name} has no docstring"


def test_unknown_name_raises_attribute_error() -> None:
    assert not hasattr(heliograph, "no_such_name")


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = f"import sys, heliograph; print([m for m in {HEAVY!r} if m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"
